"""Laws of the warm world: it plans as a world read anew does, and Snapshots given away stay as they were."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.capacity import Node, Taint
from controlplane.core.cycle import plan_cycle
from controlplane.core.facts.planning import Change, Table, Value
from controlplane.core.ids import PoolId
from controlplane.core.policy import Policy
from controlplane.core.records import World, canonical, plan_hash, to_record
from controlplane.core.snapshot import Snapshot
from tests.builders.core import NOW, AWorld
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
    }
    return {(table, key): Change(table, key, row) for table, rows in tables.items() for key, row in rows.items()}


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
            for node in data.draw(st.lists(st.sampled_from(nodes), max_size=3, unique_by=lambda each: each.id)):
                now = data.draw(another_state(node))
                wanted[Table.NODES, node.id] = Change(Table.NODES, node.id, now)
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
