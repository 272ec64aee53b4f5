"""Queue documents as the quota tree: parents first whatever the order of files, namespaces inherited down it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.contract.rest.worlds import WorldQueue
from controlplane.core.ids import QueueId
from controlplane.core.quota import DEPTH_MAX
from controlplane.core.tenancy import Queue
from controlplane.services.core_values import queue_of
from controlplane.worlds.reading import Member, Mistakes
from controlplane.worlds.sources import unknown


@dataclass(frozen=True, slots=True)
class Tree:
    """Every Queue by path; those with Queues below them take no work."""

    queues: Mapping[str, Queue]
    inner: frozenset[str]
    members: Mapping[str, Member]

    def leaf(self, member: Member, path: str, mistakes: Mistakes) -> Queue | None:
        """The Queue that a Workload names, or None with the mistake told."""
        if path not in self.queues:
            mistakes.add(member, member.queue_pointer, unknown("queue", path, self.queues))
            return None
        if path in self.inner:
            words = f"{path} has queues below it; only leaf queues take workloads"
            mistakes.add(member, member.queue_pointer, words)
            return None
        return self.queues[path]


def tree_from(members: Iterable[Member], mistakes: Mistakes) -> Tree:
    """The tree; what is wrong with it goes to `mistakes`."""
    found: dict[str, tuple[Member, WorldQueue]] = {}
    for member in members:
        if isinstance(member.document, WorldQueue):
            path = member.document.metadata.name
            if path in found:
                mistakes.add(member, "/metadata/name", f"Queue {path} stands there twice")
            found[path] = member, member.document
    queues: dict[str, Queue] = {}
    for number, (path, (member, document)) in enumerate(_parents_first(found), start=1):
        above = path.rpartition("/")[0]
        if path.count("/") + 1 > DEPTH_MAX:
            mistakes.add(member, "/metadata/name", f"{path} is deeper than {DEPTH_MAX} levels")
        elif above and above not in queues:
            mistakes.add(member, "/metadata/name", f"{path} needs its parent {above}, which is in none of these files")
        else:
            parent = queues.get(above)
            inherited = "" if parent is None else parent.namespace
            number_above = None if parent is None else parent.id
            queues[path] = queue_of(QueueId(number), number_above, path, document.spec, inherited)
            _refuse_spent_of_no_budget(member, document, mistakes)
    inner = frozenset(path.rpartition("/")[0] for path in queues if "/" in path)
    return Tree(queues, inner, {path: member for path, (member, _) in found.items()})


def _refuse_spent_of_no_budget(member: Member, document: WorldQueue, mistakes: Mistakes) -> None:
    budgets = {(each.flavor, each.per) for each in document.spec.budgets}
    for number, each in enumerate(document.spec.spent):
        if (each.flavor, each.per) not in budgets:
            words = f"the queue has no budget of {each.flavor} per {each.per} that this could be spent of"
            mistakes.add(member, f"/spec/spent/{number}", words)


def _parents_first(
    found: Mapping[str, tuple[Member, WorldQueue]],
) -> Sequence[tuple[str, tuple[Member, WorldQueue]]]:
    return sorted(found.items(), key=lambda each: (each[0].count("/"), each[0]))
