"""Laws of the warm world: it plans as a world read anew does, and Snapshots given away stay as they were."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.capacity import Node, Taint
from controlplane.core.cycle import plan_cycle
from controlplane.core.facts.planning import Change, Table, Value
from controlplane.core.history import WHOLE
from controlplane.core.ids import PoolId
from controlplane.core.policy import Policy
from controlplane.core.records import World, canonical, plan_hash, to_record
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Standing
from tests.builders.core import A100, H100, NOW, AWorld
from tests.laws.worlds import LAW, worlds


def changes_of(snapshot: Snapshot) -> dict[tuple[Table, object], Change]:
    """All rows of a Snapshot, by table and key."""
    tables: dict[Table, Mapping[Any, Value]] = {
        Table.CLUSTERS: snapshot.clusters,
        Table.NODES: snapshot.nodes,
        Table.QUEUES: snapshot.queues,
        Table.WAITING: snapshot.waiting,
        Table.RUNNING: snapshot.running,
        Table.EARMARKS: snapshot.earmarks,
        Table.EXCLUSIONS: {(each.shape, each.node): each for each in snapshot.exclusions},
        Table.SPENT: {(each.queue, f"{each.per} {each.flavor}"): each for each in snapshot.spent},
    }
    return {(table, key): Change(table, key, row) for table, rows in tables.items() for key, row in rows.items()}


ago = st.sampled_from((None, NOW, NOW - timedelta(minutes=50)))


@st.composite
def another_state(draw: st.DrawFn, node: Node) -> Node | None:
    """What may become of a node, its end included."""
    change = draw(st.sampled_from(("held", "needs", "labels", "taints", "closed", "usable", "moved", "gone")))
    flavor = next(iter(node.usable))
    match change:
        case "held":
            return replace(node, held={flavor: draw(st.integers(0, 9))})
        case "needs":
            return replace(node, cpu_milli_held=60_000, pods_held=draw(st.sampled_from((1, 109))), rdma_held=1)
        case "labels":
            return replace(node, labels={"zone": draw(st.sampled_from(("a", "b", "c")))})
        case "taints":
            return replace(node, taints=draw(st.sampled_from(((), (Taint("team"),), (Taint("x", "", "NoExecute"),)))))
        case "closed":
            return replace(node, is_schedulable=not node.is_schedulable)
        case "usable":
            return replace(node, usable={flavor: draw(st.integers(0, 8))})
        case "moved":
            return replace(node, domains=(*reversed(node.domains[:-1]), node.name))
    return None


@st.composite
def told_beside(draw: st.DrawFn, snapshot: Snapshot) -> list[Change]:
    """What is told of the past and of other Pools: any of it, or that there is none."""
    queues, jobs = st.sampled_from(sorted(snapshot.queues)), st.sampled_from(sorted(snapshot.waiting))
    some, flavors = st.one_of(st.none(), st.integers(0, 20)), st.sampled_from((H100, A100))
    standing = st.one_of(st.none(), st.builds(Standing, st.integers(1, WHOLE), st.integers(0, 10**6), reckoned_at=ago))
    rows = st.one_of(
        st.builds(Change, st.just(Table.STANDINGS), queues, standing),
        st.builds(Change, st.just(Table.OWNERS), st.tuples(queues, st.sampled_from(("someone", "ann"))), some),
        st.builds(Change, st.just(Table.RUNNING_ELSEWHERE), queues, some),
        st.builds(Change, st.just(Table.USAGE_ELSEWHERE), st.tuples(queues, flavors), some),
        st.builds(Change, st.just(Table.OWNED_ELSEWHERE), flavors, some),
        st.builds(Change, st.just(Table.LEFT_OVER), jobs, st.sampled_from((None, 1))),
    )
    return draw(st.lists(rows, max_size=4))


@LAW
@given(worlds(), worlds(), st.data())
def test_a_warm_world_plans_as_one_read_anew_whatever_changed(
    first: AWorld, second: AWorld, data: st.DataObject
) -> None:
    warm, rows = World(PoolId(1)), dict[tuple[Table, object], Change]()
    given_away: list[tuple[Snapshot, str]] = []
    for step in range(4):
        wanted = dict(rows)
        if step in {0, 3}:
            wanted = changes_of((first if step == 0 else second).build())
        else:
            nodes = [change.value for change in rows.values() if isinstance(change.value, Node)]
            some = st.lists(st.sampled_from(nodes), max_size=3, unique_by=lambda each: each.id)
            for node in data.draw(some) if nodes else ():  # all may have gone in the step before
                now = data.draw(another_state(node))
                wanted[Table.NODES, node.id] = Change(Table.NODES, node.id, now)
            beside = data.draw(told_beside(warm.freeze()))
            wanted.update({(change.table, change.key): change for change in beside})
        gone = [replace(change, value=None) for key, change in rows.items() if key not in wanted]
        warm.apply([*gone, *(change for key, change in wanted.items() if rows.get(key) != change)])
        rows = {key: change for key, change in wanted.items() if change.value is not None}
        anew = World(PoolId(1))
        anew.apply(rows.values())
        snapshot, whole = warm.freeze(), anew.freeze()
        index = warm.warm_index(snapshot)
        plan = plan_cycle(snapshot, Policy(), NOW, index, warm.warm_tree(snapshot, index))
        assert plan_hash(plan) == plan_hash(plan_cycle(whole, Policy(), NOW))
        given_away.append((snapshot, canonical(to_record(snapshot))))
    assert all(canonical(to_record(snapshot)) == said for snapshot, said in given_away)
