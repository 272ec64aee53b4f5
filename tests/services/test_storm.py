"""Everything at once on one database: three agents that lose answers and nodes, a planner, sweeps and cancels.

The order is chance's (the seed is in the failure), the end is not: every gang is over, nothing is charged or held, and
the doctor finds nothing.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from controlplane.core.facts.collisions import Collision
from controlplane.core.facts.tenancy import Binding, Principal, Role
from controlplane.core.ids import WorkloadId
from controlplane.services import attempts, fleet, sync
from controlplane.services.authz import Caller
from controlplane.services.cancellation import cancel
from controlplane.services.errors import Conflict
from controlplane.services.overlap import Overlap
from controlplane.services.ports.unit_of_work import UnitOfWork, run
from controlplane.services.scheduling import Step
from tests.services.agents import Agent, node, ready, tools
from tests.services.planes import Plane
from tests.support.waiting import eventually

GANGS, CLUSTERS, NODES = 12, 3, 3
ROOT = Caller(Principal(1, "person", "root", (Binding(Role.PLATFORM_ADMIN, None),)))


class Storm:
    """One agent's life under faults, and what the plane does meanwhile."""

    def __init__(self, plane: Plane, seed: int) -> None:
        self.plane = plane
        self.seed = seed
        self.over = threading.Event()

    def until_over(self, work: Callable[[Random], None], name: str) -> None:
        """Again and again; a deadlock that Postgres resolved is met again, as sweeps and agents do."""
        chance = Random(f"{self.seed} {name}")
        while not self.over.is_set():
            try:
                work(chance)
            except Collision:
                continue

    def agent(self, agent: Agent) -> Callable[[Random], None]:
        """Prepare, run, end or break what it was told; sometimes send a request twice or fall over."""
        live: dict[str, str] = {}

        def live_on(chance: Random) -> None:
            if chance.random() < 0.05:
                agent.hello()
            self.sync(agent, chance)
            for name in list(agent.wanted):
                if agent.kinds[name][-1] == "tombstone":
                    agent.bury(name)
                    del agent.wanted[name]
                elif live.setdefault(name, "") == "":
                    agent.prepare(name)
                    live[name] = "prepared"
                elif "start" in agent.kinds[name] and live[name] == "prepared":
                    agent.start(name)
                    live[name] = "running"
                elif live[name] == "running":
                    self.end(agent, name, chance)
            if chance.random() < 0.2:
                number = chance.randrange(NODES)
                agent.report(
                    node(f"{agent.name}-n{number}", ill=chance.choice((0, 0, 1)), foreign=chance.choice((0, 0, 2)))
                )

        return live_on

    def end(self, agent: Agent, name: str, chance: Random) -> None:
        dice = chance.random()
        if dice < 0.4:
            agent.finish(name)
        elif dice < 0.5:
            agent.sync(pods=agent.pods(name, "failed", [0], exit_code=137, disrupted=True))
        elif dice < 0.55:
            agent.sync(whole=True)

    def sync(self, agent: Agent, chance: Random) -> None:
        """One exchange, whose answer may be lost, so that the same request is sent again."""
        request = agent.request()
        if chance.random() < 0.2:
            sync.exchange(tools(self.plane), agent.known(), request)
        agent.send(request)

    def sweeps(self, chance: Random) -> None:
        sweep: Callable[[UnitOfWork, int], int] = chance.choice(
            (attempts.check_attempts, fleet.check_clusters, fleet.check_nodes, sync.number_left_over)
        )
        run(self.plane.uow, lambda uow: sweep(uow, 100))
        self.plane.do("UPDATE attempt SET next_check_at = now() WHERE state <> 'ended'")

    def planner(self) -> Callable[[Random], None]:
        planner = self.plane.planner("storm")
        overlap = Overlap(planner)

        def plan(_: Random) -> None:
            planner.take()
            if overlap.run(3, lambda _: not self.over.is_set()) is not Step.AGAIN:
                self.over.wait(0.05)
                self.plane.wake()

        return plan

    def cancels(self, gangs: list[str]) -> Callable[[Random], None]:
        def give_up(chance: Random) -> None:
            self.over.wait(0.5)
            gang = WorkloadId(chance.choice(gangs))
            try:
                run(self.plane.uow, lambda uow: cancel(uow, ROOT, gang))
            except Conflict:
                return

        return give_up


def is_over(plane: Plane) -> bool:
    open_ = "SELECT FROM workload WHERE state NOT IN ('succeeded', 'failed', 'cancelled')"
    gone = "SELECT FROM placement WHERE state <> 'gone'"
    return not plane.rows(open_) and not plane.rows(gone)


@pytest.mark.parametrize("seed", [1])
def test_whatever_happens_at_once_every_gang_ends_and_nothing_stays_charged(plane: Plane, seed: int) -> None:
    agents = [ready(plane, f"c{c}", *[node(f"c{c}-n{number}") for number in range(NODES)]) for c in range(CLUSTERS)]
    team = plane.queue("team", nominal=48)
    gangs = [plane.workload(f"gang-{number}", team, pods=1 + number % 3) for number in range(GANGS)]
    storm = Storm(plane, seed)
    works = {agent.name: storm.agent(agent) for agent in agents}
    works |= {"planner": storm.planner(), "sweeps": storm.sweeps, "cancels": storm.cancels(gangs)}
    with ThreadPoolExecutor(len(works)) as many:
        futures = [many.submit(storm.until_over, work, name) for name, work in works.items()]
        try:
            eventually(lambda: is_over(plane) or any(future.done() for future in futures), within=80, what="the end")
        finally:
            storm.over.set()
        for future in futures:
            future.result()
    states = {row.state for row in plane.rows("SELECT state FROM workload")}
    assert states <= {"succeeded", "cancelled"}, "no program failed"
    assert plane.rows("SELECT sum(pending + posted) AS used FROM account")[0].used == 0
    assert plane.rows("SELECT sum(held) AS held, sum(overdraft) AS over FROM node_flavor")[0] == (0, 0)
