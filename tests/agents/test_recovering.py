"""The agent's half of a restore: it tells a recovering plane all there is, and bears with one that knows less."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agents.cluster import Delete
from agents.inventory import foreign_pods
from agents.simulated.cluster import SimulatedCluster
from controlplane.services import recovery
from tests.agents.bench import Bench, a_start, a_world, an_apply
from tests.agents.plane import PlaneForAgents, an_agent
from tests.support.api import serving, settings_for
from tests.support.databases import Database

SPEED = 10
LONG = 60.0


@pytest.fixture
async def plane(database: Database, valkey: str, tmp_path: Path) -> AsyncIterator[PlaneForAgents]:
    with serving(settings_for(database, valkey, tmp_path / "secrets", poll_seconds=2)) as api:
        yield PlaneForAgents(api, tmp_path)


def begin(plane: PlaneForAgents) -> None:
    with plane.api.container.uow_factory() as uow:
        recovery.begin(uow, "operator")


async def is_over(plane: PlaneForAgents) -> bool:
    with plane.api.container.uow_factory() as uow:
        return recovery.status(uow).since is None


async def is_ready(plane: PlaneForAgents) -> bool:
    seen = await plane.call("GET", "/clusters/east")
    return seen["state"] == "ready" and any(flavor["free"] == 32 for flavor in seen["flavors"])


@pytest.mark.parametrize("has_work", [False, True])
async def test_a_recovery_ends_when_the_agent_has_told_what_is_there_though_that_be_nothing(
    plane: PlaneForAgents, has_work: bool
) -> None:
    cluster = SimulatedCluster(a_world(), speed=SPEED)
    token = await plane.make_cluster()
    async with an_agent(plane, cluster, token):
        await plane.accept()
        await plane.until(lambda: is_ready(plane), LONG)
        if has_work:
            await plane.submit("train", run_seconds=100_000)
            await plane.plan()
            await plane.until_state("train", "running", LONG)
        pods = set(cluster.view.pods)
        begin(plane)
        await plane.until(lambda: is_over(plane), within=LONG)
        assert set(cluster.view.pods) == pods, "the same pods run"
        await plane.submit("later", pods=1, run_seconds=2)
        if has_work:
            assert (await plane.call("GET", "/workloads/train"))["state"] == "running"
        else:
            await plane.plan()
            await plane.until_state("later", "succeeded", LONG)


async def test_what_the_plane_does_not_know_runs_on_as_somebody_elses_until_a_person_ends_it() -> None:
    cluster = SimulatedCluster(a_world(), speed=SPEED)
    await cluster.open()
    apply = an_apply()
    async with Bench(cluster) as bench:
        bench.work.take([apply, a_start(apply)])
        await bench.until_phases(apply.object_id, "running", 4)
        known = bench.work.digest()
        bench.work.disown(apply.object_id)
        assert bench.work.digest() != known, "the plane counts it no more"
        assert not bench.work.known()
        assert foreign_pods(cluster.view, "east-0", bench.work.known()), "its devices are not free"
        await bench.looked_again()
        assert len([pod for pod in cluster.view.pods.values() if pod.phase == "Running"]) == 4

        for each in list(cluster.view.objects.values()):
            await cluster.carry_out(Delete(each.kind, each.namespace, each.name, each.uid))
        for pod in list(cluster.view.pods.values()):
            await cluster.carry_out(Delete("Pod", pod.namespace, pod.name, pod.uid))
        await bench.until(lambda: not cluster.view.pods and not cluster.view.objects, within=10)
        await bench.looked_again()
        assert not cluster.view.objects, "nothing is made anew"
        assert bench.attempt(apply.object_id) is None, "and nothing more is said of it"


async def test_an_order_makes_an_attempt_known_again() -> None:
    cluster = SimulatedCluster(a_world(), speed=SPEED)
    await cluster.open()
    apply = an_apply()
    async with Bench(cluster) as bench:
        bench.work.take([apply])
        await bench.until_state(apply.object_id, "prepared")
        bench.work.disown(apply.object_id)
        bench.work.take([a_start(apply)])
        assert bench.work.known() == {apply.object_id}
        await bench.until_phases(apply.object_id, "running", 4)
