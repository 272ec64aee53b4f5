"""Files to documents: each a model with the place where it stands, or every mistake in all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from controlplane.contract.rest.common import API_VERSION
from controlplane.contract.rest.workloads import WorkloadDocument
from controlplane.contract.rest.worlds import WORLD_DOCUMENT, WORLD_KINDS, SnapshotDocument, WorldMember
from controlplane.services.errors import Invalid, Malformed
from controlplane.services.manifests import LABEL_QUEUE, document_of_job
from controlplane.services.reading import Value, read_json, read_yaml
from controlplane.services.validation import parsed
from controlplane.worlds.sources import Mistake, Source, WrongWorld, value_at

DOCUMENTS_MAX = 100_000
KINDS = (*WORLD_KINDS, "Job", "Snapshot")
FOR_AGENTS = "Faults"
"""What breaks in a simulated cluster, in a file that may describe its nodes too; no planner knows of it beforehand."""
_SNAPSHOT = TypeAdapter(SnapshotDocument)
Document = WorldMember | WorkloadDocument | SnapshotDocument


@dataclass(frozen=True, slots=True)
class Member:
    """One document of a world, and where it stands; `manifest` where it came as a Kubernetes object."""

    document: Document
    source: Source
    position: int
    value: Value
    manifest: Mapping[str, object] | None = None

    @property
    def queue_pointer(self) -> str:
        """Where it names its Queue."""
        return "/spec/queue" if self.manifest is None else f"/metadata/labels/{LABEL_QUEUE.replace('/', '~1')}"


@dataclass(slots=True)
class Mistakes:
    """What is wrong, gathered, so that it is told all at once."""

    found: list[Mistake] = field(default_factory=list)

    def add(self, member: Member, pointer: str, words: str) -> None:
        """One more, with the value that stands there."""
        self._add(member.source, member.position, member.value, pointer, words)

    def add_of(self, source: Source, position: int, value: Value, error: Invalid) -> None:
        """All that a reader of ours found in one document."""
        if not error.faults:
            self._add(source, position, value, "/kind" if error.slug == "kind-not-allowed" else "", error.detail)
        for fault in error.faults:
            self._add(source, position, value, fault.pointer, fault.detail)

    def refuse(self) -> None:
        """Raise WrongWorld if there is any."""
        if self.found:
            raise WrongWorld(self.found)

    def _add(self, source: Source, position: int, value: Value, pointer: str, words: str) -> None:
        stands = value_at(value, pointer)
        told = f"{words} (it is {stands})" if stands and stands not in words else words
        self.found.append(Mistake(source.place_of(position, pointer), pointer, told))


def read(sources: Sequence[Source]) -> list[Member]:
    """Every document of every file, in order; raises WrongWorld with all that is wrong in any of them."""
    mistakes, members = Mistakes(), []
    for source in sources:
        try:
            values = _values(source)
        except (Malformed, Invalid) as error:
            mistakes.found.append(Mistake(source.unreadable(error.detail), "", ""))
            continue
        for position, value in enumerate(values):
            if isinstance(value, dict) and value.get("kind") == FOR_AGENTS:
                continue
            try:
                members.append(_member(source, position, value))
            except Invalid as error:
                mistakes.add_of(source, position, value, error)
    mistakes.refuse()
    if not members:
        raise WrongWorld([Mistake(", ".join(each.path for each in sources), "", "there is no document in it")])
    return members


def _values(source: Source) -> list[Value]:
    if source.path.endswith(".json") or source.text.startswith('{"'):  # YAML reads JSON too, a hundred times slower
        found = read_json(source.text)
        return found if isinstance(found, list) else [found]
    values = read_yaml(source.text, DOCUMENTS_MAX)
    return values[0] if len(values) == 1 and isinstance(values[0], list) else values


def _member(source: Source, position: int, value: Value) -> Member:
    if not isinstance(value, dict):
        raise Invalid("a document is an object with apiVersion, kind, metadata and spec", slug="invalid-document")
    kind = value.get("kind")
    if kind not in KINDS:
        words = "kind is missing" if kind is None else f"{kind!r} is no kind of a world"
        raise Invalid(f"{words}; there are {', '.join(KINDS)}"[:400], slug="kind-not-allowed")
    if kind == "Job":
        return Member(document_of_job(value), source, position, value, value)
    if value.get("apiVersion") != API_VERSION:
        raise Invalid(f"a {kind} has apiVersion {API_VERSION}", slug="kind-not-allowed")
    if kind == "Snapshot":
        return Member(parsed(_SNAPSHOT, value), source, position, value)
    return Member(parsed(WORLD_DOCUMENT, value, tagged=True), source, position, value)
