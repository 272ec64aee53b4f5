"""Whose turn it is over days: gangs of an hour that each take all of a small cluster, hour after hour."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

from controlplane.core.cycle import plan_cycle
from controlplane.core.decay import microseconds
from controlplane.core.history import WHOLE, Account, Gathering, Past, carried, reckoned, use_after
from controlplane.core.plan import Admit
from controlplane.core.policy import Policy
from controlplane.core.scenario import tree_of
from controlplane.core.tenancy import Standing
from tests.builders.core import H100, NOW, a_workload, a_world

HOUR = timedelta(hours=1)
A_DAY = Policy(history_half_life_seconds=86_400)


class Hours:
    """Teams with endless work; what starts runs for an hour, and its history is reckoned at the end of it."""

    def __init__(self, policy: Policy = A_DAY) -> None:
        self.policy, self.now, self.number = policy, NOW, 0
        self.pasts: dict[Account, Past] = {}

    def run(self, hours: int, *teams: str) -> list[str]:
        """Which team had each hour; teams that are named earlier always asked earlier."""
        return [self._hour(teams) for _ in range(hours)]

    def _hour(self, teams: tuple[str, ...]) -> str:
        world = a_world().cluster("c", inventory_at=self.now).racks(1, 2).queue("org", 16)
        for team in ("a", "b", "c"):
            world.queue(f"org/{team}")
        world.waits(*[a_workload(team).in_queue(f"org/{team}").at(at).asking(2) for at, team in enumerate(teams)])
        standings = {
            queue: Standing(past.weight, past.contended // WHOLE, past.credit // WHOLE, self.now)
            for (queue, _), past in self.pasts.items()
        }
        snapshot = replace(world.build(), standings=standings)
        plan = plan_cycle(snapshot, self.policy, self.now)
        [admit] = [each for each in plan.decisions if isinstance(each, Admit)]
        tree = tree_of(snapshot)
        use = use_after(snapshot, plan, tree, self.now)
        gathering: Gathering[Account] = Gathering(self.policy.history_half_life_seconds)
        gathering.add(use.queues, self.now, self.now + HOUR)
        self.now += HOUR
        more = gathering.amounts(self.now)
        half_life = self.policy.history_half_life_seconds * WHOLE
        known = {
            account: carried(self.pasts.get(account, Past()), microseconds(HOUR), half_life, more.get(account, 0))
            for account in {*self.pasts, *more}
        }
        self.pasts = reckoned(tree, self.policy, {H100: 16}, known, use.wants)
        return str(admit.workload)


def test_two_teams_with_the_same_weight_have_the_same_time_whoever_asked_first() -> None:
    had = Counter(Hours().run(60, "a", "b"))
    assert 27 <= had["a"] <= 33


def test_without_history_whoever_asked_first_has_everything() -> None:
    assert Hours(replace(A_DAY, history_strength_permille=0)).run(20, "a", "b") == ["a"] * 20


def test_filling_idle_machines_costs_nothing() -> None:
    """Four days alone leave a no worse than if it had done nothing."""
    alone, fresh = Hours(), Hours()
    alone.run(96, "a")
    assert alone.run(12, "a", "b") == fresh.run(12, "a", "b")


def test_who_left_its_share_to_others_that_contended_goes_first_until_its_credit_is_spent() -> None:
    days = Hours()
    days.run(96, "a", "c")
    first = days.run(30, "a", "b", "c")
    assert first[:5] == ["b"] * 5, "it was away for four days, in which the others contended"
    later = Counter(days.run(60, "a", "b", "c"))
    assert all(16 <= later[team] <= 24 for team in ("a", "b", "c")), "then all three have their third"


def test_a_past_is_forgiven_after_a_few_half_lives() -> None:
    """Who had everything for two days is even again after five more half-lives in which nobody contended."""
    days = Hours(replace(A_DAY, history_margin_permille=0))
    days.run(2, "a", "b")
    assert days.pasts[next(iter(days.pasts))].contended > 0
    days.now += timedelta(days=60)
    days.pasts = {
        account: carried(past, microseconds(timedelta(days=60)), 86_400 * WHOLE) for account, past in days.pasts.items()
    }
    days.run(1, "a")
    assert {past.weight for past in days.pasts.values()} == {WHOLE}
