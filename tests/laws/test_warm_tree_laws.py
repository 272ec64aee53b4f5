"""Laws of a quota tree that is kept between cycles: after every step it is what a new one would be."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.cycle import plan_cycle
from controlplane.core.facts.planning import Change, Key, Table, Value
from controlplane.core.ids import FlavorName, PoolId, QueueId
from controlplane.core.policy import Policy
from controlplane.core.quota import AccountRow, QuotaTree
from controlplane.core.records import World, plan_hash
from controlplane.core.scenario import tree_of
from controlplane.core.snapshot import Snapshot
from tests.builders.core import NOW
from tests.laws.worlds import LAW, worlds


def numbers(tree: QuotaTree) -> dict[tuple[QueueId, FlavorName], AccountRow]:
    """Accounts with anything in them: empty ones are made whenever somebody asks."""
    return {(row.queue, row.flavor): row for row in tree.account_rows() if row.s or row.k or row.b or row.u}


def turned_into(world: World, target: Snapshot) -> list[Change]:
    """What changes from one World to another, in an order that the target's does not decide."""
    rows = _rows(target)
    gone = [Change(at.table, at.key, None) for at in world.changes() if (at.table, at.key) not in rows]
    return [*gone, *(Change(table, key, value) for (table, key), value in rows.items())]


def _rows(snapshot: Snapshot) -> dict[tuple[Table, Key], Value]:
    rows: dict[tuple[Table, Key], Value] = {}
    rows |= {(Table.CLUSTERS, key): each for key, each in snapshot.clusters.items()}
    rows |= {(Table.NODES, key): each for key, each in snapshot.nodes.items()}
    rows |= {(Table.QUEUES, key): each for key, each in snapshot.queues.items()}
    rows |= {(Table.WAITING, key): each for key, each in snapshot.waiting.items()}
    rows |= {(Table.RUNNING, key): each for key, each in snapshot.running.items()}
    rows |= {(Table.EARMARKS, key): each for key, each in snapshot.earmarks.items()}
    rows |= {(Table.EXCLUSIONS, (each.shape, each.node)): each for each in snapshot.exclusions}
    return rows


@LAW
@given(st.data())
def test_a_warm_tree_equals_a_new_one_after_every_step(data: st.DataObject) -> None:
    """Whole worlds follow each other, or the same one with other attempts; elsewhere usage and devices move, too."""
    world = World(PoolId(1))
    base = data.draw(worlds())
    for step in range(4):
        if data.draw(st.booleans()):
            base = data.draw(worlds())
        elif base.running:
            base.ends(data.draw(st.sampled_from(sorted(base.running))))
        world.apply(turned_into(world, base.build()))
        for queue in data.draw(st.lists(st.sampled_from(list(base.queues.values())), max_size=2)):
            flavor = data.draw(st.sampled_from(("nvidia-h100-80gb", "nvidia-a100-80gb")))
            amount = data.draw(st.integers(0, 20)) or None
            world.apply([Change(Table.USAGE_ELSEWHERE, (queue.id, flavor), amount)])
            world.apply([Change(Table.OWNED_ELSEWHERE, flavor, data.draw(st.integers(0, 64)) or None)])
        snapshot = world.freeze()
        index = world.warm_index(snapshot)
        warm = world.warm_tree(snapshot, index)
        assert numbers(warm) == numbers(tree_of(snapshot)), f"step {step}"
        plan = plan_cycle(snapshot, Policy(), NOW, index, warm)
        assert numbers(warm) == numbers(tree_of(snapshot)), "the cycle hands it back as it came"
        assert plan_hash(plan) == plan_hash(plan_cycle(snapshot, Policy(), NOW))
        warm.charge(next(iter(snapshot.queues)), FlavorName("nvidia-h100-80gb"), 3)  # a cycle that crashed
