"""What one cycle refused, and why: room only shrinks within it, so what one was refused, an equal one is refused.

Only the end of an Earmark gives something back; then all of it is forgotten.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from controlplane.core.demand import Exclusion, Workload
from controlplane.core.entitlement import room_for
from controlplane.core.ids import QueueId, WorkloadId
from controlplane.core.placement.asking import Room, sizes
from controlplane.core.placement.clusters import ClusterRanking, namespace_of
from controlplane.core.placement.shortfall import why_nowhere
from controlplane.core.policy import Policy
from controlplane.core.reasons import Reason, ReasonCode, reason
from controlplane.core.resources import UNLIMITED
from controlplane.core.scenario import Mark, Scenario
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Queue

REASONS_MAX = 3  # per waiting Workload in a Plan; `explain` gives all

Reasons = tuple[Reason, ...]
Request = tuple[object, ...]


class Refusals:
    """Of one cycle. `asked` is told every Reason, `tells_all` tells every one to everybody."""

    def __init__(
        self,
        scenario: Scenario,
        ranking: ClusterRanking,
        policy: Policy,
        now: datetime,
        asked: WorkloadId | None,
        *,
        tells_all: bool,
    ) -> None:
        self._scenario, self._ranking, self._policy = scenario, ranking, policy
        self._asked, self._tells_all = asked, tells_all
        self._exclusions = _by_shape(scenario.snapshot, now)
        self._hopeless: dict[Request, Reasons] = {}  # by request: what had no place anywhere
        self._refused: dict[QueueId, dict[Request, Reasons]] = {}  # by Queue and likeness: whatever the Reason was
        self._looks: dict[object, Reasons] = {}

    def forget(self) -> None:
        """Something was given back."""
        self._hopeless.clear()
        self._refused.clear()

    def excluded(self, workload: Workload) -> list[int]:
        """Positions of the nodes that its shape of pod is kept from."""
        position = self._scenario.index.tree.position
        return [position[at.node] for at in self._exclusions.get(workload.shape, ()) if at.node in position]

    def request(self, workload: Workload, room: Room) -> Request:
        """All that decides where it could go."""
        queues = self._scenario.snapshot.queues
        has_choice = len(workload.pod_sets) > 1 and any(len(each.flavors) > 1 for each in workload.pod_sets)
        return (
            workload.pod_sets,
            workload.strategy,
            workload.cluster_selector,
            workload.clusters_avoided,
            workload.clusters_max,
            workload.requires,
            workload.namespace or namespace_of(queues, workload.queue),
            workload.shape if workload.shape in self._exclusions else "",
            workload.id if self._is_alone(workload) else "",
            # What one PodSet leaves of it decides for the next, and what that one lacks is told of its Queue.
            (workload.queue, *sorted(room.items())) if has_choice else (),
            tuple(size for pod_set in workload.pod_sets for size in sizes(pod_set, room)),
        )

    def is_hopeless(self, request: Request) -> bool:
        """Whether an equal one had no place already."""
        return request in self._hopeless

    def why_not(self, workload: Workload, over: Reason | None, request: Request, mark: Mark, decided: int) -> Reasons:
        """Why it has no place, or why its Queue may not use one (`over`).

        Called with its Earmark open and its excluded nodes closed; `mark` is from before. As long as no more than
        `decided` is, equal requests lack the same everywhere.
        """
        is_asked = self._tells_all or workload.id == self._asked
        if over is not None and not is_asked:
            return (over,)
        if request in self._hopeless and not is_asked:
            return self._hopeless[request]
        self._scenario.rollback(mark)
        self._scenario.open_earmark(workload.id)
        room = room_for(self._scenario.tree, workload)
        room = room if over is None else dict.fromkeys(room, UNLIMITED)
        look = decided, is_asked, self.request(workload, room)
        nowhere = self._looks.get(look)
        if nowhere is None:
            ranked, excluded = self._ranking.rank(workload), self._exclusions.get(workload.shape, ())
            most = None if is_asked else REASONS_MAX
            nowhere = why_nowhere(self._scenario, workload, ranked, room, excluded, self._policy, most=most)
            self._looks[look] = nowhere
        if over is None:
            self._hopeless[request] = nowhere
        return nowhere if over is None else (over, *nowhere)

    def remember(self, workload: Workload, reasons: Reasons) -> bool:
        """Note what it was refused for all that wait alike in its Queue; False if it was looked at for itself alone."""
        if self._tells_all or self._is_alone(workload):
            return False
        self._refused.setdefault(workload.queue, {})[_alike(workload)] = reasons
        return True

    def remembered(self, workload: Workload) -> Reasons | None:
        """What one that waits alike in its Queue was refused; None if it must be looked at."""
        if workload.id == self._asked or self._is_alone(workload):
            return None
        return self._refused.get(workload.queue, {}).get(_alike(workload))

    def _is_alone(self, workload: Workload) -> bool:
        """Whether something is looked at for it alone: its old place, or what is kept for it."""
        return bool(workload.preferred_nodes) or workload.id in self._scenario.earmarks


def unable(snapshot: Snapshot, workload: Workload, now: datetime) -> Reason | None:
    """Why it is not looked at in this cycle, whatever is free."""
    if workload.queue not in snapshot.queues:
        return reason(ReasonCode.QUEUE_UNKNOWN, queue=workload.queue)
    if workload.not_before is not None and workload.not_before > now:
        until = workload.not_before.isoformat(timespec="seconds")
        return reason(ReasonCode.BACKING_OFF, times=workload.disturbances, until=until)
    if not snapshot.clusters:
        return reason(ReasonCode.NO_CLUSTER, pool=snapshot.pool_name)
    return None


def behind_others(left: Iterable[Workload], queues: Mapping[QueueId, Queue]) -> dict[WorkloadId, Reasons]:
    """For those that a cycle's budget did not reach, leaf by leaf: how many of their own Queue come first."""
    ahead: dict[QueueId, int] = {}
    reasons: dict[WorkloadId, Reasons] = {}
    for workload in left:
        count = ahead.get(workload.queue, 0)
        reasons[workload.id] = (reason(ReasonCode.BEHIND_OTHERS, ahead=count, queue=queues[workload.queue].path),)
        ahead[workload.queue] = count + 1
    return reasons


def _alike(workload: Workload) -> Request:
    """All of a Workload that a refusal may rest on, within one Queue."""
    return (
        workload.pod_sets,
        workload.priority,
        workload.owner,
        workload.strategy,
        workload.cluster_selector,
        workload.clusters_avoided,
        workload.clusters_max,
        workload.requires,
        workload.namespace,
        workload.shape,
        workload.is_repair,
    )


def _by_shape(snapshot: Snapshot, now: datetime) -> dict[str, tuple[Exclusion, ...]]:
    """The live exclusions of each shape of pod."""
    shapes: dict[str, tuple[Exclusion, ...]] = {}
    for exclusion in sorted(snapshot.exclusions, key=lambda at: (at.shape, at.node)):
        if exclusion.until > now:
            shapes[exclusion.shape] = (*shapes.get(exclusion.shape, ()), exclusion)
    return shapes
