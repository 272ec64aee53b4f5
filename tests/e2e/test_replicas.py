"""Two API replicas, two workers and two planners behind one address: any one of them may go, and nothing is noticed."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from agents.simulated.cluster import SimulatedCluster
from tests.agents.bench import a_world
from tests.agents.plane import PlaneForAgents, an_agent
from tests.kube.processes import Program
from tests.operations.fleet import Stream, fleet, nothing_lost_nothing_double
from tests.services.planes import Plane
from tests.support.api import serving, settings_for
from tests.support.databases import Database
from tests.support.waiting import eventually

KINDS = ("api", "worker", "planner")
MORE = 4
PAUSE_SECONDS = 1.0
POLL_SECONDS, WOKEN_SECONDS = 60, 45.0


@pytest.mark.timeout(300)
def test_while_one_of_each_kind_is_killed_and_comes_back_all_work_is_done_once(
    database: Database, valkey: str, tmp_path: Path
) -> None:
    with fleet(tmp_path, database, valkey) as whole:
        for kind in KINDS:
            for number in (1, 2):
                whole.start(f"{kind}-{number}")
        whole.serve_from("api-1", "api-2")
        whole.open_queue()
        for name in ("east", "west"):
            whole.add_cluster(name)
        for kind in ("worker", "planner"):
            eventually(lambda of=kind: len(whole.heartbeats(of)) == 2, 60, f"two of {kind}")  # type: ignore[misc]  # a default binds the loop's variable
        with Stream(whole, PAUSE_SECONDS) as stream:
            stream.until_accepted(3)
            for name in ("api-1", "worker-1", planner_at_work(whole.database, whole.programs)):
                whole.kill(name)
                stream.until_accepted(len(stream.accepted) + MORE)
                whole.start(name)
            whole.serve_from("api-1", "api-2")
            whole.kill("api-2")
            stream.until_accepted(len(stream.accepted) + MORE)
            whole.start("api-2")
            stream.stop()
            whole.until_done(len(stream.accepted))
        nothing_lost_nothing_double(whole, stream.accepted)
        assert all(whole.people.taken.get(whole.ports[name][0]) for name in ("api-1", "api-2")), "both took requests"
        assert all(whole.agents.taken.get(whole.ports[name][1]) for name in ("api-1", "api-2")), "of agents, too"


@pytest.mark.timeout(300)
async def test_an_agent_that_waits_at_one_replica_is_woken_by_what_the_other_commits(
    database: Database, valkey: str, tmp_path: Path
) -> None:
    """Its poll would last longer than the test waits for anything."""
    settings = settings_for(database, valkey, tmp_path / "secrets", poll_seconds=POLL_SECONDS)
    with serving(settings) as api, serving(settings) as other:
        plane = PlaneForAgents(api, tmp_path)
        token = await plane.make_cluster()
        patience = {"suspectSeconds": 2 * POLL_SECONDS, "unreachableSeconds": 4 * POLL_SECONDS}  # polls last half of it
        await plane.call(
            "POST",
            "/apply",
            {"apiVersion": "muster.dev/v1", "kind": "Cluster", "metadata": {"name": "east"}, "spec": patience},
        )
        cluster = SimulatedCluster(a_world(), speed=10)
        async with an_agent(plane, cluster, token, plane_url=other.agent_url):
            await plane.accept()
            await plane.until(lambda: _is_ready(plane), WOKEN_SECONDS)
            await plane.exchanged(1)
            await plane.submit("train", run_seconds=5)
            await plane.plan()
            await plane.until_state("train", "running", WOKEN_SECONDS)
            await plane.until_state("train", "succeeded", WOKEN_SECONDS)
            seen = await asyncio.to_thread(other.client().get, "/api/v1/workloads/train")
            assert seen.json()["state"] == "succeeded"


def planner_at_work(database: Database, programs: Mapping[str, Program]) -> str:
    """Which of the two owns the Pool: its lease names its process."""
    plane = Plane(database)
    try:
        owner = eventually(
            lambda: plane.rows("SELECT planner_owner FROM pool WHERE name = 'default'")[0].planner_owner,
            within=30,
            what="a planner that owns the Pool",
        )
    finally:
        plane.close()
    (name,) = (name for name, program in programs.items() if name.startswith("planner") and f"-{program.pid}-" in owner)
    return name


async def _is_ready(plane: PlaneForAgents) -> bool:
    return bool((await plane.call("GET", "/clusters/east"))["state"] == "ready")
