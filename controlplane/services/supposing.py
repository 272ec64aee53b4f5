"""What if a waiting Workload asked otherwise: `priority=600`, `flavor=…`, `replicas=4` as people write it, answered.

On the live world, so that it is true now; nothing is written. It says no more of others' work than any Reason does.
"""

from collections.abc import Callable, Mapping, Sequence

from pydantic import TypeAdapter

from controlplane.contract.rest.common import FlavorText, Name, QueuePath
from controlplane.contract.rest.explanations import SupposedStart, WhatIf
from controlplane.contract.rest.workloads import (
    CLUSTERS_MAX,
    PRIORITY_CLASSES,
    PRIORITY_MAX,
    REPLICAS_MAX,
)
from controlplane.core.demand import TopologyMode, Workload
from controlplane.core.facts.queries import Scope
from controlplane.core.facts.tenancy import Principal
from controlplane.core.ids import FlavorName
from controlplane.core.plan import Admit
from controlplane.core.reasons import Reason, told_within
from controlplane.core.snapshot import Snapshot
from controlplane.core.supposing import (
    ImpossibleSupposition,
    OtherClustersMax,
    OtherFlavors,
    OtherPriority,
    OtherQueue,
    OtherReplicas,
    OtherTopology,
    Supposition,
    is_resubmitted,
    text_of,
    what_if,
)
from controlplane.services import authz
from controlplane.services.authz import Action
from controlplane.services.errors import Fault, Invalid, Malformed, NotFound
from controlplane.services.live_worlds import LiveWorld
from controlplane.services.plan_told import reason_view

FORMS: Mapping[str, str] = {
    "priority": f"priority=600 or priority=high, 0 to {PRIORITY_MAX}",
    "flavor": "flavor=nvidia-a100-80gb, several with commas",
    "replicas": "replicas=4",
    "topology": "topology=preferred:rack, required:rack or none",
    "queue": "queue=research/nlp",
    "clusters.max": "clusters.max=2",
}
"""What can be asked. `flavor`, `replicas` and `topology` may name a PodSet first: `replicas=trainer/4`."""

SLUG = "invalid-parameter"
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_FLAVOR: TypeAdapter[str] = TypeAdapter(FlavorText)
_PATH: TypeAdapter[str] = TypeAdapter(QueuePath)


def supposed_from(texts: Sequence[str], principal: Principal, snapshot: Snapshot) -> tuple[Supposition, ...]:
    """What was asked for. Raises Malformed with a fault for each one that is none, NotFound, Forbidden."""
    found: list[Supposition] = []
    faults: list[Fault] = []
    for index, text in enumerate(texts):
        key, _, value = text.partition("=")
        try:
            one = _queue(value, principal, snapshot) if key == "queue" else _READ[key](value)
        except (KeyError, ValueError):
            faults.append(Fault(f"/if/{index}", f"{text[:200]!r} supposes nothing", SLUG))
            continue
        if any(_is_of_the_same(one, other) for other in found):
            faults.append(Fault(f"/if/{index}", f"{text[:200]!r} supposes anew what was supposed before it", SLUG))
        found.append(one)
    if faults:
        words = f"{faults[0].detail}; what can be asked: {'; '.join(FORMS.values())}"
        raise Malformed(words, slug=SLUG, faults=tuple(faults))
    return tuple(found)


def answer(world: LiveWorld, workload: Workload, suppositions: Sequence[Supposition], scope: Scope) -> WhatIf:
    """Whether it would start, and where, or what would still stand in its way; raises Invalid."""
    try:
        found = what_if(world.snapshot, world.policy, world.now, workload.id, suppositions, world.index, world.tree)
    except ImpossibleSupposition as error:
        raise Invalid(str(error), slug="invalid-value") from None
    asked = [text_of(each) for each in suppositions]
    is_new = is_resubmitted(suppositions)
    if isinstance(found, Admit):
        starts = [
            SupposedStart(cluster=world.snapshot.clusters[part.cluster].name, pods=len(part.pods))
            for part in found.placements
        ]
        charges = {str(flavor): units for flavor, units in found.charges}
        text = _text(workload, asked, f"would start in the next planning cycle, {_where(starts)}", is_new=is_new)
        return WhatIf(asked=asked, starts=True, resubmitted=is_new, text=text, placements=starts, charges=charges)
    reasons = [told_within(each, scope.paths) for each in found]
    text = _text(workload, asked, _still(reasons), is_new=is_new)
    return WhatIf(
        asked=asked, starts=False, resubmitted=is_new, text=text, reasons=[reason_view(each) for each in reasons]
    )


def _is_of_the_same(one: Supposition, other: Supposition) -> bool:
    """Two words for one thing: which of them was meant, nobody can tell."""
    return type(one) is type(other) and getattr(one, "pod_set", "") == getattr(other, "pod_set", "")


def _queue(path: str, principal: Principal, snapshot: Snapshot) -> OtherQueue:
    """One that the caller may submit to; what it may not see is not there."""
    _PATH.validate_python(path)
    authz.require(principal, Action.WORKLOAD_SUBMIT, path)
    queue = next((each for each in snapshot.queues.values() if each.path == path), None)
    if queue is None:
        raise NotFound(f"there is no queue {path}")
    if any(each.parent == queue.id for each in snapshot.queues.values()):
        raise Invalid(f"{path} has queues below it; only leaf queues take workloads", slug="queue-not-leaf")
    return OtherQueue(queue.id, path)


def _priority(text: str) -> Supposition:
    return OtherPriority(PRIORITY_CLASSES[text] if text in PRIORITY_CLASSES else _number(text, 0, PRIORITY_MAX))


def _flavors(text: str) -> Supposition:
    pod_set, names = _named(text)
    flavors = tuple(FlavorName(_FLAVOR.validate_python(each)) for each in names.split(","))
    if len(set(flavors)) < len(flavors):
        raise ValueError(text)
    return OtherFlavors(flavors, pod_set)


def _replicas(text: str) -> Supposition:
    pod_set, count = _named(text)
    return OtherReplicas(_number(count, 1, REPLICAS_MAX), pod_set)


def _topology(text: str) -> Supposition:
    pod_set, words = _named(text)
    mode, colon, level = words.partition(":")
    if TopologyMode(mode) is TopologyMode.NONE:
        if colon:
            raise ValueError(text)
        return OtherTopology(TopologyMode.NONE, "", pod_set)
    return OtherTopology(TopologyMode(mode), _NAME.validate_python(level), pod_set)


def _clusters_max(text: str) -> Supposition:
    return OtherClustersMax(_number(text, 1, CLUSTERS_MAX))


_READ: Mapping[str, Callable[[str], Supposition]] = {
    "priority": _priority,
    "flavor": _flavors,
    "replicas": _replicas,
    "topology": _topology,
    "clusters.max": _clusters_max,
}


def _named(text: str) -> tuple[str, str]:
    """The PodSet that is named first, if one is, and the rest."""
    pod_set, slash, rest = text.partition("/")
    return (_NAME.validate_python(pod_set), rest) if slash else ("", text)


def _number(text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
        raise ValueError(text)
    return int(text)


def _text(workload: Workload, asked: Sequence[str], fate: str, *, is_new: bool) -> str:
    how = "Submitted again with" if is_new else "With"
    return f"{how} {' and '.join(asked)}, {workload.name} {fate}"


def _where(starts: Sequence[SupposedStart]) -> str:
    told = [f"{each.pods} pod{'s' * (each.pods != 1)} in {each.cluster}" for each in starts]
    return f"{' and '.join(told)}."


def _still(reasons: Sequence[Reason]) -> str:
    said = " ".join(each.sentence() for each in reasons)
    return f"would not start in the next planning cycle: {said}"
