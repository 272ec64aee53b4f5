"""What each Queue has had lately of what its siblings waited for, and what that makes of its weight.

Usage is *contended* while somebody waits whom those very units would help: filling idle machines costs nothing, else
teams would learn to leave them idle. It is gathered between looks (the units of one look count until the next), decays
by a half-life, and is reckoned into weights from time to time; between two reckonings nothing moves by time alone.

The weight that counts is w = w' + k (w' - u'), and at least a small part of w': w' is the weight as a part of those
siblings that take part, u' the contended usage as a part of what the siblings could have used in the window, k Policy's
strength. As a factor on the plain weight, divided by 1 + k for all siblings alike, that is 1 - k / (1 + k) * u' / w':
who used nothing keeps its weight, who used its whole share has 1 / (1 + k) of it.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from controlplane.core.decay import ONE, decayed, left_after, microseconds, window
from controlplane.core.demand import Workload
from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.plan import Admit, Plan
from controlplane.core.policy import Policy
from controlplane.core.quota import QuotaTree
from controlplane.core.reasons import ReasonCode
from controlplane.core.resources import add, subtract, times
from controlplane.core.snapshot import Snapshot

_OF_ITS_OWN = frozenset({ReasonCode.BUDGET_SPENT, ReasonCode.MOST_RUNNING, ReasonCode.QUOTA_BEYOND_POTENTIAL})
WHOLE = 1_000_000  # a weight that counts in full, in millionths
Account = tuple[QueueId, FlavorName]
Owner = tuple[QueueId, str]
Units = Mapping[Account, int]
Held = tuple[QueueId, str, Iterable[tuple[FlavorName, int]]]  # a leaf, an owner, what an Attempt of theirs charges
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Past:
    """One Queue and Flavor as reckoned: amounts in device-microseconds, `weight` in millionths of the plain one.

    `credit` is its burst credit: its part of the window less what it used of it; below 0 it is spent in advance.
    """

    contended: int = 0
    weight: int = WHOLE
    credit: int = 0


@dataclass(frozen=True, slots=True)
class Use:
    """What is contended at one moment, in units, and who waits for it."""

    wants: Units = field(default_factory=dict)
    queues: Units = field(default_factory=dict)
    owners: Mapping[Owner, int] = field(default_factory=dict)


class Gathering(Generic[Key]):
    """Amounts that grow by units times time and decay meanwhile; exact for stretches of any length."""

    def __init__(self, half_life_seconds: int) -> None:
        """Nothing yet."""
        self._half_life = half_life_seconds * WHOLE
        self._since: datetime | None = None
        self._grown: dict[Key, int] = {}  # scaled by ONE twice, and up to what they would be at `_since`

    def add(self, units: Mapping[Key, int], start: datetime, end: datetime) -> None:
        """So many units from `start` to `end`. Stretches come in the order of time."""
        if end <= start:
            return
        since = self._since
        if since is None or microseconds(end - since) > self._half_life:
            before = self.amounts(start)
            since = self._since = start
            self._grown = {key: amount * ONE * ONE for key, amount in before.items()}
        growth = window(self._half_life) * ONE * (self._growth(since, end) - self._growth(since, start))
        for key, amount in units.items():
            self._grown[key] = self._grown.get(key, 0) + amount * growth

    def amounts(self, at: datetime) -> dict[Key, int]:
        """Everything gathered, as it is at `at`, rounded to the nearest."""
        if self._since is None:
            return {}
        left = left_after(max(0, microseconds(at - self._since)), self._half_life)
        whole = ONE * ONE * ONE
        return {key: (grown * left + whole // 2) // whole for key, grown in self._grown.items()}

    def _growth(self, since: datetime, at: datetime) -> int:
        return ONE * ONE // left_after(microseconds(at - since), self._half_life)


def use_after(snapshot: Snapshot, plan: Plan, tree: QuotaTree, now: datetime) -> Use:
    """What is contended once a Plan is carried out. `tree` is the Snapshot's, and is handed back as it came.

    Who backs off now, or is stopped by a limit of its own Queues, waits for nobody's units.
    """
    admits = [each for each in plan.decisions if isinstance(each, Admit)]
    started = {admit.workload for admit in admits}
    waiting = [
        workload
        for workload in snapshot.waiting.values()
        if workload.id not in started
        and (workload.not_before is None or workload.not_before <= now)
        and not any(why.code in _OF_ITS_OWN for why in plan.reasons.get(workload.id, ()))
    ]
    held: list[Held] = [(at.queue, at.owner, at.charges) for at in snapshot.running.values()]
    held += [(admit.queue, snapshot.waiting[admit.workload].owner, admit.charges) for admit in admits]
    elsewhere = {(queue, FlavorName(flavor)): units for (queue, flavor), units in snapshot.usage_elsewhere.items()}
    mark = tree.checkpoint()
    for admit in admits:
        for flavor, amount in admit.charges:
            tree.charge(admit.queue, flavor, amount)
    wants = wanted(tree, waiting)
    use = Use(wants, contended(tree, wants, elsewhere), contended_by_owner(held, waiting))
    tree.rollback(mark)
    return use


def wanted(tree: QuotaTree, waiting: Iterable[Workload]) -> dict[Account, int]:
    """Units that wait in or below each Queue and that units of its siblings could serve, by Flavor; roots left out.

    A Workload wants every Flavor that it names. What a borrowing limit on the way forbids is not wanted above it.
    """
    asked: dict[Account, int] = {}
    for workload in waiting:
        for pod_set in workload.pod_sets:
            for flavor in pod_set.flavors if pod_set.devices else ():
                account = workload.queue, flavor
                asked[account] = add(asked.get(account, 0), times(pod_set.devices, pod_set.replicas))
    wants: dict[Account, int] = {}
    for (queue, flavor), units in sorted(asked.items()):
        amount = units
        at = tree.account(queue, flavor) if queue in tree else None
        while at is not None and at.parent is not None:
            if at.b is not None:
                amount = min(amount, subtract(add(at.s, at.b), at.u))
            if amount <= 0:
                break
            wants[at.queue, flavor] = add(wants.get((at.queue, flavor), 0), amount)
            at = at.parent
    return wants


def contended(tree: QuotaTree, wants: Units, elsewhere: Units) -> dict[Account, int]:
    """Units that each Queue has in use and that a sibling waits for: at most as many as siblings want.

    What a Queue keeps from its siblings could not serve them. `elsewhere` is what other Pools charge, by leaf; they
    gather it themselves.
    """
    by_parent: dict[Account, int] = {}
    for (queue, flavor), amount in wants.items():
        parent = tree.parent(queue)
        assert parent is not None
        by_parent[parent, flavor] = add(by_parent.get((parent, flavor), 0), amount)
    above = _summed_up(tree, elsewhere)
    used: dict[Account, int] = {}
    for (parent, flavor), amount in by_parent.items():
        for child in tree.children(parent):
            account = tree.accounts_of(child).get(flavor)
            if account is not None and account.u > 0:
                here = account.u - max(account.k, above.get((child, flavor), 0))
                units = min(here, subtract(amount, wants.get((child, flavor), 0)))
                if units > 0:
                    used[child, flavor] = units
    return used


def contended_by_owner(held_by: Iterable[Held], waiting: Iterable[Workload]) -> dict[Owner, int]:
    """The same within a leaf: units of each owner that another owner of the same Queue waits for."""
    asked: dict[Account, dict[str, int]] = {}
    for workload in waiting:
        for pod_set in workload.pod_sets:
            for flavor in pod_set.flavors if pod_set.devices else ():
                owners = asked.setdefault((workload.queue, flavor), {})
                units = times(pod_set.devices, pod_set.replicas)
                owners[workload.owner] = add(owners.get(workload.owner, 0), units)
    leaves = {queue for queue, _ in asked}
    held: dict[tuple[Account, str], int] = {}
    for leaf, name, charges in held_by:
        for flavor, units in charges if leaf in leaves else ():
            key = (leaf, flavor), name
            held[key] = held.get(key, 0) + units
    used: dict[Owner, int] = {}
    for ((queue, flavor), owner), units in held.items():
        owners = asked.get((queue, flavor), {})
        others = sum(amount for each, amount in owners.items() if each != owner)
        if others:
            used[queue, owner] = used.get((queue, owner), 0) + min(units, others)
    return used


def capacity(tree: QuotaTree, account: Account, owned: Mapping[FlavorName, int]) -> int:
    """Units that a Queue and its siblings could use together; `owned` is what clusters of the Pool own."""
    parent = tree.parent(account[0])
    assert parent is not None
    return max(0, min(tree.potential(parent, account[1]), owned.get(account[1], 0)))


def reckoned(
    tree: QuotaTree,
    policy: Policy,
    owned: Mapping[FlavorName, int],
    past: Mapping[Account, Past],
    taking_part: Collection[Account],
) -> dict[Account, Past]:
    """Weights and credits of everybody in `past` and `taking_part`, from contended usage that is up to date.

    Besides those in `taking_part`, who had a thousandth of all that could be had takes part in sharing it. A weight
    moves only where it would by more than Policy's margin: what two gangs were ordered by stays their order.
    """
    accounts = sorted(each for each in {*past, *taking_part} if each[0] in tree and tree.parent(each[0]) is not None)
    parts = {each for each in taking_part if each[0] in tree}
    parts |= {each for each in accounts if each in past and _is_much(tree, policy, owned, each, past[each].contended)}
    weights: dict[tuple[QueueId | None, FlavorName], int] = {}
    for queue, flavor in parts:
        group = tree.parent(queue), flavor
        weights[group] = weights.get(group, 0) + tree.queues[queue].weight
    result: dict[Account, Past] = {}
    for account in accounts:
        before = past.get(account, Past())
        if account not in parts and before.contended < WHOLE:
            result[account] = Past()  # less than a device-second is left of it: as if it had never been
            continue
        among = weights.get((tree.parent(account[0]), account[1]), 0)
        among += 0 if account in parts else tree.queues[account[0]].weight
        share = share_of_window(tree, policy, owned, account, among)
        weight = WHOLE - lessened(policy, before.contended, share)
        is_near = abs(weight - before.weight) * 1_000 <= policy.history_margin_permille * WHOLE
        result[account] = Past(before.contended, before.weight if is_near else weight, share - before.contended)
    return result


def _is_much(
    tree: QuotaTree, policy: Policy, owned: Mapping[FlavorName, int], account: Account, contended_usage: int
) -> bool:
    whole = capacity(tree, account, owned) * window(policy.history_half_life_seconds * WHOLE)
    return 0 < whole <= contended_usage * 1_000


def share_of_window(
    tree: QuotaTree, policy: Policy, owned: Mapping[FlavorName, int], account: Account, among: int
) -> int:
    """Device-microseconds that a Queue's weight, `among` those of siblings that take part, gives it in the window."""
    if among <= 0:
        return 0
    whole = capacity(tree, account, owned) * window(policy.history_half_life_seconds * WHOLE)
    return whole * tree.queues[account[0]].weight // among


def lessened(policy: Policy, used: int, share: int) -> int:
    """Millionths that usage takes off a weight whose share of the window is `share`; never all of it."""
    strength = policy.history_strength_permille
    if used <= 0 or share <= 0:
        return 0
    floor = policy.history_floor_permille * (WHOLE // 1_000)
    return min(WHOLE - floor, WHOLE * strength * used // ((1_000 + strength) * share))


def carried(past: Past, elapsed: int, half_life: int, more: int = 0) -> Past:
    """The same after so many microseconds, with what was gathered meanwhile."""
    return Past(decayed(past.contended, elapsed, half_life) + more, past.weight, past.credit)


def _summed_up(tree: QuotaTree, leaves: Units) -> dict[Account, int]:
    """Amounts of leaves, and of each Queue above them all below it."""
    sums: dict[Account, int] = {}
    for (leaf, flavor), amount in leaves.items():
        for queue in tree.path(leaf) if leaf in tree else ():
            sums[queue, flavor] = sums.get((queue, flavor), 0) + amount
    return sums
