"""Take back what is borrowed: a complete plan in one cluster for the one that asks, or nothing.

Newest borrower first, whole Workloads only, and then each victim that is not needed after all is given
back, the last one chosen first. Where that leads nowhere, all borrowers are tried together and given back
the same way. A Queue within its own share on the contested Flavors loses nothing, and
the asker's side must stay within its share. Lower priority is no ground here; that is preemption.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from controlplane.core.demand import Earmark, NodeShare, RunningAttempt, Workload
from controlplane.core.entitlement import exceeds_quota, first_choice, room_for
from controlplane.core.ids import ClusterId, FlavorName, QueueId, WorkloadId
from controlplane.core.lifecycle import AttemptState, ClusterState
from controlplane.core.placement.placed import Placed
from controlplane.core.placement.workload import fits_in_cluster, missing_units, place_in_cluster
from controlplane.core.plan import Reclaim, SetEarmark
from controlplane.core.policy import Policy
from controlplane.core.quota import QuotaTree
from controlplane.core.reasons import Reason, ReasonCode, reason
from controlplane.core.resources import UNLIMITED
from controlplane.core.scenario import Scenario

_MAY_GO = frozenset({AttemptState.PLACED, AttemptState.PREPARED, AttemptState.STARTING, AttemptState.RUNNING})


@dataclass(frozen=True, slots=True)
class _Way:
    """One cluster's complete plan."""

    victims: tuple[RunningAttempt, ...]
    placed: Placed

    def cost(self) -> tuple[int, int, ClusterId]:
        """Units that are stopped, then Workloads, then the cluster's id."""
        units = sum(amount for victim in self.victims for _, amount in victim.charges)
        return units, len(self.victims), self.placed.cluster


class Reclaimer:
    """The running Attempts of one cycle that may be taken back, newest first, each at most once."""

    def __init__(self, scenario: Scenario, policy: Policy, now: datetime) -> None:
        self._scenario = scenario
        self._until = now + timedelta(seconds=policy.earmark_seconds)
        self._leaving = [at for at in scenario.snapshot.running.values() if at.state is AttemptState.STOPPING]
        self._listed: list[RunningAttempt] | None = None

    def reclaim(
        self, asker: Workload, clusters: Sequence[ClusterId], excluded: Sequence[int] = ()
    ) -> tuple[Reclaim | SetEarmark, ...]:
        """Decisions that make room for `asker` in one of `clusters`; the Scenario then keeps that room for it.

        None if it could not be made, nor if it will be there anyway when what is stopping has stopped.
        """
        wishes = [wish for wish in _wishes(asker) if first_choice(wish) and self._may_ask(wish)]
        if not wishes or not self._candidates():
            return ()
        mark = self._scenario.checkpoint()
        self._scenario.close_nodes(excluded)
        for attempt in self._leaving:
            self._scenario.evict(attempt)
        is_coming = any(self._fits(asker, cluster) for cluster in clusters)
        ways = (self._cheapest(wish, frozenset(dict(first_choice(wish))), clusters) for wish in wishes)
        way = None if is_coming else next((way for way in ways if way is not None), None)
        self._scenario.rollback(mark)
        return () if way is None else self._decide(asker, way)

    def _candidates(self) -> list[RunningAttempt]:
        if self._listed is None:
            may_go = [at for at in self._scenario.snapshot.running.values() if _may_go(self._scenario, at)]
            self._listed = sorted(may_go, key=lambda at: (at.placed_at, at.workload), reverse=True)
        return self._listed

    def _may_ask(self, asker: Workload) -> bool:
        """Whether anybody borrows at the cost of the asker's side: it is within its share somewhere on its path."""
        charges = first_choice(asker)
        return any(
            all(_within_share(self._scenario.tree, asker.queue, at, flavor, amount) for flavor, amount in charges)
            for at in self._scenario.tree.path(asker.queue)[:-1]
        )

    def _cheapest(
        self, asker: Workload, contested: frozenset[FlavorName], clusters: Sequence[ClusterId]
    ) -> _Way | None:
        """The best way over all clusters; those that cannot be cheaper than the best so far are not tried."""
        best: _Way | None = None
        at_least = sorted((missing_units(self._scenario, asker, cluster), cluster) for cluster in clusters)
        for units, cluster in at_least:
            if best is not None and best.cost()[0] <= units:
                break
            way = self._way(asker, contested, cluster)
            if way is not None and (best is None or way.cost() < best.cost()):
                best = way
        return best

    def _way(self, asker: Workload, contested: frozenset[FlavorName], cluster: ClusterId) -> _Way | None:
        """Evict in this cluster until the asker fits, then elsewhere while only quota is missing; undo it all."""
        mark, victims = self._scenario.checkpoint(), list[RunningAttempt]()
        here = [at for at in self._candidates() if cluster in at.clusters and _holds(at, contested)]
        if not self._evict_until_fits(asker, contested, cluster, here, victims) and self._lacks_quota(asker, cluster):
            elsewhere = [at for at in self._candidates() if cluster not in at.clusters and _holds(at, contested)]
            self._evict_until_fits(asker, contested, cluster, elsewhere, victims)
        way = self._only_needed(asker, cluster, victims) if victims and self._fits(asker, cluster) else None
        self._scenario.rollback(mark)
        return way or self._way_back(asker, contested, here, cluster, len(victims))

    def _way_back(
        self,
        asker: Workload,
        contested: frozenset[FlavorName],
        here: Sequence[RunningAttempt],
        cluster: ClusterId,
        tried: int,
    ) -> _Way | None:
        """Evict all that may be taken, then give back: the newest may lie in the wrong place and hide an older one."""
        victims = [at for at in here if _may_be_taken(self._scenario.tree, asker, at, contested)]
        if len(victims) <= tried:
            return None  # all of them were tried together
        self._scenario.work += len(victims)
        mark = self._scenario.checkpoint()
        for victim in victims:
            self._scenario.evict(victim)
        way = self._only_needed(asker, cluster, victims) if self._fits(asker, cluster) else None
        self._scenario.rollback(mark)
        return way if way is not None and self._may_all_go(asker, contested, way.victims) else None

    def _may_all_go(self, asker: Workload, contested: frozenset[FlavorName], victims: Sequence[RunningAttempt]) -> bool:
        """Whether each borrows when its turn comes, the largest last."""
        mark, may_go = self._scenario.checkpoint(), True
        for victim in sorted(victims, key=lambda at: sum(amount for _, amount in at.charges)):
            may_go = may_go and _may_be_taken(self._scenario.tree, asker, victim, contested)
            self._scenario.evict(victim)
        self._scenario.rollback(mark)
        return may_go

    def _evict_until_fits(
        self,
        asker: Workload,
        contested: frozenset[FlavorName],
        cluster: ClusterId,
        candidates: Iterable[RunningAttempt],
        victims: list[RunningAttempt],
    ) -> bool:
        for attempt in candidates:
            self._scenario.work += 1
            if _may_be_taken(self._scenario.tree, asker, attempt, contested):
                self._scenario.evict(attempt)
                victims.append(attempt)
                if self._fits(asker, cluster):
                    return True
        return False

    def _only_needed(self, asker: Workload, cluster: ClusterId, victims: list[RunningAttempt]) -> _Way | None:
        """Walk the chosen backwards and give back each one without which the asker still fits."""
        needed = []
        for victim in reversed(victims):
            self._scenario.restore(victim)
            if not self._fits(asker, cluster):
                self._scenario.evict(victim)
                needed.append(victim)
        placed = place_in_cluster(self._scenario, asker, cluster, room_for(self._scenario.tree, asker))
        return None if placed is None else _Way(tuple(reversed(needed)), placed)

    def _fits(self, asker: Workload, cluster: ClusterId) -> bool:
        """Whether quota and room allow it now."""
        room = room_for(self._scenario.tree, asker)
        is_within_quota = exceeds_quota(self._scenario.tree, asker, room) is None
        return is_within_quota and fits_in_cluster(self._scenario, asker, cluster, room)

    def _lacks_quota(self, asker: Workload, cluster: ClusterId) -> bool:
        """Whether there is room in the cluster and only quota is missing."""
        room = room_for(self._scenario.tree, asker)
        unlimited = dict.fromkeys(room, UNLIMITED)
        is_over = exceeds_quota(self._scenario.tree, asker, room) is not None
        return is_over and fits_in_cluster(self._scenario, asker, cluster, unlimited)

    def _decide(self, asker: Workload, way: _Way) -> tuple[Reclaim | SetEarmark, ...]:
        gone = {victim.workload for victim in way.victims}
        self._listed = [at for at in self._candidates() if at.workload not in gone]
        self._leaving.extend(way.victims)
        earmark = Earmark(asker.id, way.placed.cluster, _shares(self._scenario, way.placed), self._until)
        self._scenario.keep(earmark)
        contested = frozenset(flavor for flavor, _ in way.placed.charges())
        queue = self._scenario.tree.queues[asker.queue].path
        stops = [_stop(victim, asker, queue, contested) for victim in way.victims]
        names = tuple(victim.workload for victim in way.victims)
        return (*stops, SetEarmark(asker.id, earmark.cluster, earmark.shares, earmark.until, names))


def _wishes(asker: Workload) -> list[Workload]:
    """The asker with no choice of Flavor left: all first choices, then all second ones, and so on.

    Of an elastic PodSet the least: for more than that nobody is stopped, and nothing is kept.
    """
    if any(each.is_elastic for each in asker.pod_sets):
        sets = tuple(replace(each, replicas=each.least, min_replicas=None) for each in asker.pod_sets)
        asker = replace(asker, pod_sets=sets)
    choices = max((len(each.flavors) for each in asker.pod_sets), default=0)
    if choices < 2:
        return [asker]
    return [
        replace(asker, pod_sets=tuple(replace(each, flavors=each.flavors[:at][-1:]) for each in asker.pod_sets))
        for at in range(1, choices + 1)
    ]


def _may_go(scenario: Scenario, attempt: RunningAttempt) -> bool:
    """Whether it can be told to stop: it is not stopping yet, and its clusters listen."""
    clusters = [scenario.snapshot.clusters.get(cluster) for cluster in attempt.clusters]
    is_heard = all(each is not None and each.state is ClusterState.READY and not each.is_banned for each in clusters)
    return is_heard and attempt.state in _MAY_GO and attempt.queue in scenario.tree


def _within_share(tree: QuotaTree, leaf: QueueId, upto: QueueId, flavor: FlavorName, amount: int) -> bool:
    """Whether `upto`, on the path of `leaf`, would use no more than its own share after the request."""
    account = tree.account(leaf, flavor)
    while account.queue != upto:
        amount = account.passes_up(amount)
        assert account.parent is not None
        account = account.parent
    return account.u + amount <= account.s


def _may_be_taken(tree: QuotaTree, asker: Workload, victim: RunningAttempt, contested: frozenset[FlavorName]) -> bool:
    """Whether the victim's side borrows, up to where it meets the asker's, and the asker's side does not."""
    asking, losing = tree.path(asker.queue), tree.path(victim.queue)
    meeting = next((queue for queue in asking if queue in losing), None)
    if meeting is None or meeting in (asker.queue, victim.queue):
        return False
    side = asking[asking.index(meeting) - 1]
    lost_side = losing[: losing.index(meeting)]
    flavors = [flavor for flavor, _ in victim.charges if flavor in contested]
    wanted = dict(first_choice(asker))
    is_borrowed = any(all((at := tree.account(queue, flavor)).u > at.s for queue in lost_side) for flavor in flavors)
    return is_borrowed and all(
        _within_share(tree, asker.queue, side, flavor, amount) for flavor, amount in wanted.items()
    )


def _holds(attempt: RunningAttempt, contested: frozenset[FlavorName]) -> bool:
    return any(flavor in contested for flavor, _ in attempt.charges)


def _shares(scenario: Scenario, placed: Placed) -> tuple[NodeShare, ...]:
    """The whole place of the asker, also what is free already: else another would take a part of it."""
    nodes = scenario.index.tree.nodes
    amounts: dict[tuple[int, FlavorName], list[int]] = {}
    for node, flavor, *taken in placed.takes():
        before = amounts.get((node, flavor), [0] * len(taken))
        amounts[node, flavor] = [have + more for have, more in zip(before, taken, strict=True)]
    return tuple(NodeShare(nodes[node].id, flavor, *amounts[node, flavor]) for node, flavor in sorted(amounts))


def _stop(victim: RunningAttempt, asker: Workload, queue: str, contested: frozenset[FlavorName]) -> Reclaim:
    flavor, amount = next((each for each in victim.charges if each[0] in contested), victim.charges[0])
    why = reason(ReasonCode.RECLAIMED, amount=amount, flavor=flavor, queue=queue, workload=asker.name)
    return Reclaim(victim.workload, victim.attempt, asker.id, why)


def waits_for(scenario: Scenario, workload: WorkloadId) -> tuple[Reason, ...]:
    """What is being given back for a Workload; nothing if no Earmark is kept for it."""
    earmark = scenario.earmarks.get(workload)
    if earmark is None:
        return ()
    cluster = scenario.snapshot.clusters.get(earmark.cluster)
    name = str(earmark.cluster) if cluster is None else cluster.name
    amounts: dict[FlavorName, int] = {}
    for share in earmark.shares:
        amounts[share.flavor] = amounts.get(share.flavor, 0) + share.amount
    return tuple(
        reason(ReasonCode.WAITS_FOR_RECLAIM, amount=amount, flavor=flavor, cluster=name)
        for flavor, amount in sorted(amounts.items())
        if amount
    )
