"""Laws of turns that remember: time alone moves nobody, order of input says nothing, what is gathered adds up."""

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.cycle import plan_cycle
from controlplane.core.decay import decayed
from controlplane.core.history import WHOLE, Account, Gathering, Past, carried, reckoned, use_after
from controlplane.core.ids import QueueId
from controlplane.core.index import FleetIndex
from controlplane.core.plan import Admit, Plan, Reclaim
from controlplane.core.policy import Policy
from controlplane.core.records import plan_hash
from controlplane.core.scenario import owned_here, tree_of
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Standing
from tests.builders.core import NOW, AWorld
from tests.laws.worlds import LAW, crowded, worlds

POLICY = Policy()
HALF_LIFE = timedelta(seconds=POLICY.history_half_life_seconds)
MICROSECONDS = HALF_LIFE // timedelta(microseconds=1)
STEPS_PER_HALF_LIFE, HALF_LIVES = 6, 4


def standings(pasts: dict[Account, Past], at: datetime) -> dict[QueueId, Standing]:
    """As the reader makes them of rows."""
    result: dict[QueueId, Standing] = {}
    for (queue, _), past in pasts.items():
        weight = min(past.weight, result[queue].weight) if queue in result else past.weight
        result[queue] = Standing(weight, past.contended // WHOLE, past.credit // WHOLE, at)
    return result


class Days:
    """A world in which everything runs for ever and whoever waits goes on waiting, cycle after cycle."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, self.now = snapshot, NOW
        self.pasts: dict[Account, Past] = {}
        self.queues: Gathering[Account] = Gathering(POLICY.history_half_life_seconds)

    def cycle(self) -> Plan:
        return plan_cycle(self.snapshot, POLICY, self.now)

    def settle(self) -> None:
        """Carry plans out until nothing more happens; what is stopped has gone at once, and asks again."""
        for _ in range(60):
            plan = self.cycle()
            if not plan.decisions:
                return
            self._carry_out(plan)
        raise AssertionError("a world at rest does not come to rest")

    def pass_time(self, span: timedelta) -> None:
        """Gather what is contended meanwhile, and reckon it."""
        tree = tree_of(self.snapshot)
        use = use_after(self.snapshot, Plan(), tree, self.now)
        before, self.now = self.now, self.now + span
        gathering: Gathering[Account] = Gathering(POLICY.history_half_life_seconds)
        gathering.add(use.queues, before, self.now)
        more = gathering.amounts(self.now)
        elapsed = span // timedelta(microseconds=1)
        known = {
            account: carried(self.pasts.get(account, Past()), elapsed, MICROSECONDS, more.get(account, 0))
            for account in {*self.pasts, *more}
        }
        owned = owned_here(self.snapshot, FleetIndex(self.snapshot.clusters, self.snapshot.nodes))
        self.pasts = reckoned(tree, POLICY, owned, known, use.wants)
        clusters = {name: replace(each, inventory_at=self.now) for name, each in self.snapshot.clusters.items()}
        self.snapshot = replace(self.snapshot, clusters=clusters, standings=standings(self.pasts, self.now))

    def _carry_out(self, plan: Plan) -> None:
        world = AWorld()
        world.clusters, world.nodes = dict(self.snapshot.clusters), dict(self.snapshot.nodes)
        world.queues = {queue.path: queue for queue in self.snapshot.queues.values()}
        world.waiting, world.running = dict(self.snapshot.waiting), dict(self.snapshot.running)
        for decision in plan.decisions:
            if isinstance(decision, Reclaim):
                world.ends(decision.workload)
            elif isinstance(decision, Admit):
                world.admits(decision)
        self.snapshot = replace(world.build(), standings=self.snapshot.standings)


@LAW
@given(crowded())
def test_time_alone_makes_no_two_gangs_swap(world: AWorld) -> None:
    """Four half-lives of constant demand: weights move, and nobody who runs is stopped for one who waits."""
    days = Days(world.build())
    days.settle()
    for _ in range(HALF_LIVES * STEPS_PER_HALF_LIFE):
        days.pass_time(HALF_LIFE / STEPS_PER_HALF_LIFE)
        assert days.cycle().decisions == ()


@st.composite
def remembering(draw: st.DrawFn) -> Snapshot:
    """Any world, with any past."""
    snapshot = draw(worlds()).build()
    parts, amounts = st.integers(1, WHOLE), st.integers(-(10**9), 10**9)
    queues = draw(st.lists(st.sampled_from(sorted(snapshot.queues)), unique=True))
    owners = draw(st.lists(st.sampled_from(("ann", "bob", "cy")), unique=True))
    waiting = {
        name: replace(each, owner=draw(st.sampled_from(("ann", "bob")))) for name, each in snapshot.waiting.items()
    }
    return replace(
        snapshot,
        waiting=waiting,
        standings={queue: Standing(draw(parts), draw(parts), draw(amounts), NOW) for queue in queues},
        owners={(queue, owner): draw(parts) for queue in queues for owner in owners},
        left_over=tuple(sorted(draw(st.lists(st.sampled_from(sorted(waiting)), unique=True)))),
    )


@LAW
@given(remembering())
def test_a_past_in_any_order_gives_the_same_plan(snapshot: Snapshot) -> None:
    turned = replace(
        snapshot,
        waiting=dict(reversed(list(snapshot.waiting.items()))),
        standings=dict(reversed(list(snapshot.standings.items()))),
        owners=dict(reversed(list(snapshot.owners.items()))),
        left_over=snapshot.left_over[::-1],
    )
    plan = plan_cycle(snapshot, POLICY, NOW)
    assert plan_hash(plan_cycle(turned, POLICY, NOW)) == plan_hash(plan)


@LAW
@given(remembering())
def test_a_past_changes_who_goes_first_and_never_what_may_be_had(snapshot: Snapshot) -> None:
    """Whatever weights say: no account is charged beyond its limits, and nobody waits beside room for it."""
    plan = plan_cycle(snapshot, POLICY, NOW)
    tree = tree_of(snapshot)
    admits = [each for each in plan.decisions if isinstance(each, Admit)]
    for admit in admits:
        for flavor, amount in admit.charges:
            assert tree.available(admit.queue, flavor) >= amount
            tree.charge(admit.queue, flavor, amount)
    started = {admit.workload for admit in admits}
    assert started | plan.reasons.keys() == snapshot.waiting.keys()


stretches = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5_000_000)), min_size=1, max_size=12)


@LAW
@given(stretches)
def test_what_is_gathered_in_pieces_is_what_decays_and_adds_up(pieces: list[tuple[int, int]]) -> None:
    """Each stretch alone, decayed to the end, and all of them together."""
    together: Gathering[str] = Gathering(POLICY.history_half_life_seconds)
    at, alone = NOW, list[tuple[int, datetime]]()
    for units, seconds in pieces:
        end = at + timedelta(seconds=seconds)
        together.add({"it": units}, at, end)
        one: Gathering[str] = Gathering(POLICY.history_half_life_seconds)
        one.add({"it": units}, at, end)
        alone.append((one.amounts(end).get("it", 0), end))
        at = end
    expected = sum(decayed(amount, (at - end) // timedelta(microseconds=1), MICROSECONDS) for amount, end in alone)
    assert abs(together.amounts(at).get("it", 0) - expected) <= 2 * len(pieces)
