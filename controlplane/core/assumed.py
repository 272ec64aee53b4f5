"""What a Plan makes of the world once it is committed: the planner knows its own rows without reading them back.

`assumed` is what replay works out again, so a stored cycle need not list it. `Assumption` is the same for a commit that
is still under way: readings meanwhile do not show it and are merged with it; if it is lost, everything is put back.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import add

from controlplane.core.capacity import Node
from controlplane.core.demand import NodeShare, PodNeeds, RunningAttempt
from controlplane.core.facts.planning import Change, Held, Key, Table, Value
from controlplane.core.ids import FlavorName, NodeId, WorkloadId
from controlplane.core.lifecycle import AttemptState
from controlplane.core.plan import Admit, Plan
from controlplane.core.records import holding
from controlplane.core.snapshot import Snapshot

_Amounts = dict[tuple[NodeId, FlavorName], list[int]]  # units, then as `NodeShare` has them


def can_assume(plan: Plan) -> bool:
    """Whether all that a Plan decides is admissions: what a stop leads to is for others to say."""
    return bool(plan.decisions) and all(isinstance(each, Admit) for each in plan.decisions)


def assumed(snapshot: Snapshot, plan: Plan, now: datetime) -> tuple[Change, ...]:
    """The rows as they are once every decision of the Plan is committed, where nobody else writes any."""
    return Assumption(snapshot, plan, now).changes


class Assumption:
    """A Plan that is being committed, as an overlay on what is read meanwhile."""

    def __init__(self, snapshot: Snapshot, plan: Plan, now: datetime) -> None:
        """The Plan was made on this Snapshot at `now`; `changes` bring a world from the one to the other."""
        changes: list[Change] = []
        amounts: _Amounts = {}
        # What these rows are without the Plan; readings meanwhile say so of some of them.
        self._without: dict[tuple[Table, Key], Value | None] = {}
        for admit in plan.decisions:
            assert isinstance(admit, Admit)
            takes = _takes(snapshot, admit)
            changes.append(Change(Table.WAITING, admit.workload, None))
            changes.append(Change(Table.RUNNING, admit.workload, _running(snapshot, admit, takes, now)))
            self._without[Table.WAITING, admit.workload] = snapshot.waiting[admit.workload]
            self._without[Table.RUNNING, admit.workload] = snapshot.running.get(admit.workload)
            _add(amounts, takes)
        self._takes = _by_node(amounts)
        changes += [
            Change(Table.HELD, node, _more(_held_of(snapshot.nodes[node]), takes, 1))
            for node, takes in self._takes.items()
        ]
        self.changes = tuple(changes)

    def merged(self, changes: Iterable[Change]) -> Iterable[Change]:
        """What was read without the Plan's rows, as it is with them."""
        for change in changes:
            if change.table in {Table.NODES, Table.HELD} and change.key in self._takes:
                yield self._with_takes(change, 1)
            elif (change.table, change.key) in self._without:
                self._without[change.table, change.key] = change.value
            else:
                yield change

    def undo(self, nodes: Mapping[NodeId, Node]) -> Iterable[Change]:
        """What gives back a world without the Plan; `nodes` are the present ones."""
        for (table, key), value in self._without.items():
            yield Change(table, key, value)
        for node in self._takes:
            if node in nodes:
                yield self._with_takes(Change(Table.HELD, node, _held_of(nodes[node])), -1)

    def _with_takes(self, change: Change, sign: int) -> Change:
        value, takes = change.value, self._takes[NodeId(int(str(change.key)))]
        if isinstance(value, Held):
            return Change(change.table, change.key, _more(value, takes, sign))
        if isinstance(value, Node):
            return Change(change.table, change.key, holding(value, _more(_held_of(value), takes, sign)))
        return change


def _held_of(node: Node) -> Held:
    return Held(
        tuple(node.held.items()),
        node.cpu_milli_held,
        node.memory_bytes_held,
        node.pods_held,
        node.rdma_held,
        node.hugepages_bytes_held,
        node.local_storage_bytes_held,
    )


def _more(held: Held, takes: Mapping[FlavorName, list[int]], sign: int) -> Held:
    """Units only of Flavors that the node has: a pod without devices holds none."""
    units = tuple((name, amount + sign * takes[name][0] if name in takes else amount) for name, amount in held.units)
    _, cpu, memory, pods, rdma, hugepages, storage = (sign * sum(each) for each in zip(*takes.values(), strict=True))
    return Held(
        units,
        held.cpu_milli + cpu,
        held.memory_bytes + memory,
        held.pods + pods,
        held.rdma + rdma,
        held.hugepages_bytes + hugepages,
        held.local_storage_bytes + storage,
    )


def _takes(snapshot: Snapshot, admit: Admit) -> _Amounts:
    needs = {pod_set.name: _needs(pod_set.needs) for pod_set in snapshot.waiting[admit.workload].pod_sets}
    takes: _Amounts = {}
    for placement in admit.placements:
        for pod in placement.pods:
            one = needs[pod.pod_set]
            at = pod.node, pod.flavor
            amounts = takes.get(at)
            takes[at] = [pod.amount, *one] if amounts is None else [*map(add, amounts, (pod.amount, *one))]
    return takes


def _needs(one: PodNeeds) -> tuple[int, ...]:
    return one.cpu_milli, one.memory_bytes, 1, one.rdma, one.hugepages_bytes, one.local_storage_bytes


def _add(to: _Amounts, more: _Amounts) -> None:
    for at, amounts in more.items():
        before = to.get(at)
        to[at] = amounts if before is None else [*map(add, before, amounts)]


def _by_node(amounts: _Amounts) -> dict[NodeId, dict[FlavorName, list[int]]]:
    nodes: dict[NodeId, dict[FlavorName, list[int]]] = {}
    for (node, flavor), each in amounts.items():
        nodes.setdefault(node, {})[flavor] = each
    return nodes


def _running(snapshot: Snapshot, admit: Admit, takes: _Amounts, now: datetime) -> RunningAttempt:
    waiting = snapshot.waiting[admit.workload]
    return RunningAttempt(
        workload=WorkloadId(admit.workload),
        name=waiting.name,
        attempt=admit.attempt,
        queue=admit.queue,
        priority=waiting.priority,
        state=AttemptState.PLACED,
        placed_at=now,
        clusters=tuple(sorted({placement.cluster for placement in admit.placements})),
        charges=tuple(sorted((flavor, amount) for flavor, amount in admit.charges if amount)),
        shares=tuple(NodeShare(node, flavor, *amounts) for (node, flavor), amounts in sorted(takes.items())),
        owner=waiting.owner,
    )
