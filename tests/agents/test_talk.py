"""Agent and plane over real HTTP: the way in, orders down, observations up, and what a lost link, a restart, a second
agent, an old key or a wrong clock change: nothing.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from joserfc import jws
from joserfc.jwk import ECKey
from structlog.testing import capture_logs
from structlog.typing import EventDict

from agents.enrolment import Enroller
from agents.identity import ROTATE_AFTER_SECONDS, FileStore, Keeper, new_key, public, thumbprint, trusted_keys
from agents.loop import Agent
from agents.policy import LocalPolicy
from agents.settings import AgentSettings
from agents.simulated.cluster import SimulatedCluster
from agents.transport import ForgedDirectives, Transport
from controlplane.contract.agent.sync import DirectiveBatch
from tests.agents.bench import a_world
from tests.agents.plane import PlaneForAgents, an_agent
from tests.support.api import serving, settings_for
from tests.support.databases import Database

SPEED = 10


@pytest.fixture
async def plane(database: Database, valkey: str, tmp_path: Path) -> AsyncIterator[PlaneForAgents]:
    with serving(settings_for(database, valkey, tmp_path / "secrets")) as api:
        yield PlaneForAgents(api, tmp_path)


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(a_world(), speed=SPEED)


async def test_an_agent_enrols_is_accepted_and_carries_a_gang_from_order_to_end(
    plane: PlaneForAgents, cluster: SimulatedCluster
) -> None:
    """The long poll takes 25 s; that the end is known at once shows that it delays nothing on the way up."""
    token = await plane.make_cluster()
    async with an_agent(plane, cluster, token):
        await plane.accept()
        await _until_ready(plane)
        seen = await plane.call("GET", "/clusters/east")
        assert seen["levels"] == ["rack", "host"]
        assert seen["flavors"][0] | {"owned": 32, "free": 32} == seen["flavors"][0]
        await plane.submit("train", run_seconds=5)
        await plane.plan()
        await plane.until_state("train", "running")
        await plane.until_state("train", "succeeded")
        await plane.until(lambda: _is_empty(cluster))
        assert (await plane.call("GET", "/clusters/east"))["flavors"][0]["free"] == 32


async def test_a_gang_that_ends_while_the_link_is_cut_is_told_when_it_heals(
    plane: PlaneForAgents, cluster: SimulatedCluster
) -> None:
    token = await plane.make_cluster()
    async with an_agent(plane, cluster, token):
        await plane.accept()
        await _until_ready(plane)
        await plane.submit("train", run_seconds=10)
        await plane.plan()
        await plane.until_state("train", "running")
        cluster.cut_link(None)
        await plane.until(lambda: _all_succeeded(cluster))
        assert (await plane.call("GET", "/workloads/train"))["state"] == "running"
        cluster.heal_link()
        await plane.until_state("train", "succeeded")


async def test_what_was_cancelled_while_nobody_could_hear_is_deleted_on_reconnect(plane: PlaneForAgents) -> None:
    token = await plane.make_cluster()
    cluster = _Linked(a_world(), speed=SPEED)
    async with an_agent(plane, cluster, token):
        await plane.accept()
        await _until_ready(plane)
        await plane.submit("train")
        await plane.plan()
        await plane.until_state("train", "running")
        cluster.cut_link(None)
        await plane.call("POST", "/workloads/train/cancel")
        await cluster.asked_again()
        assert len(cluster.view.pods) == 4
        cluster.heal_link()
        await plane.until_state("train", "cancelled")
        await plane.until(lambda: _is_empty(cluster))


async def test_an_agent_that_comes_back_deletes_nothing_and_doubles_nothing(
    plane: PlaneForAgents, cluster: SimulatedCluster
) -> None:
    """The process ends in the middle; the next one has the key, and the cluster's objects as its memory."""
    token = await plane.make_cluster()
    still = _Unclosing(cluster)
    async with an_agent(plane, still, token):
        await plane.accept()
        await _until_ready(plane)
        await plane.submit("train", run_seconds=100)  # it must outlast the agent's absence on a busy machine
        await plane.plan()
        await plane.until_state("train", "running")
        epoch = await plane.exchanged(0)
    before = set(cluster.view.pods)
    async with an_agent(plane, still, token):
        await plane.exchanged(since_epoch=epoch)
        assert set(cluster.view.pods) == before
        await plane.until_state("train", "succeeded")
        shown = await plane.call("GET", "/workloads/train")
        assert len(shown["attempts"]) == 1
    await cluster.close()


async def test_a_wrong_token_is_no_end_and_the_right_one_in_the_same_file_is_taken_up(
    plane: PlaneForAgents, cluster: SimulatedCluster
) -> None:
    token = await plane.make_cluster()
    right = token.read_text()
    token.write_text("mst_1." + "x" * 43)
    async with an_agent(plane, cluster, token) as agent:
        with capture_logs() as lines:
            await plane.until(lambda: _was_refused(lines, times=2))
        assert not agent.done()
        token.write_text(right)
        await plane.accept()
        await _until_ready(plane)


async def test_a_revoked_agent_stays_up_and_enrols_anew_with_a_new_token(
    plane: PlaneForAgents, cluster: SimulatedCluster
) -> None:
    token = await plane.make_cluster()
    async with an_agent(plane, cluster, token) as agent:
        await plane.accept()
        await _until_ready(plane)
        before = json.loads((plane.folder / "state" / "identity.json").read_text())["key"]
        with capture_logs() as lines:
            await plane.call("POST", "/clusters/east/revoke")
            await plane.until(lambda: _was_refused(lines, times=2))
        assert not agent.done()
        made = await plane.call("POST", "/clusters/east/enrolment-tokens", {})
        token.write_text(made["token"])
        await plane.until(lambda: _key_changed(plane, before))
        await plane.submit("train", run_seconds=1)
        await plane.plan()
        await plane.until_state("train", "succeeded")


async def test_an_old_key_is_changed_for_a_new_one_without_a_break(
    plane: PlaneForAgents, cluster: SimulatedCluster
) -> None:
    token = await plane.make_cluster()
    path = plane.folder / "state" / "identity.json"
    still = _Unclosing(cluster)
    async with an_agent(plane, still, token):
        await plane.accept()
        await _until_ready(plane)
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "made_at": kept["made_at"] - 90 * 86_400}))
    async with an_agent(plane, still, token):
        await plane.until(lambda: _key_changed(plane, kept["key"]))
        await plane.submit("train", run_seconds=1)
        await plane.plan()
        await plane.until_state("train", "succeeded")
    assert json.loads(path.read_text())["next_key"] is None
    await cluster.close()


async def test_a_key_that_grows_old_within_a_session_is_changed_too(
    plane: PlaneForAgents, cluster: SimulatedCluster
) -> None:
    token = await plane.make_cluster()
    path = plane.folder / "state" / "identity.json"
    still = _Unclosing(cluster)
    async with an_agent(plane, still, token):
        await plane.accept()
        await _until_ready(plane)
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "made_at": int(time.time()) - ROTATE_AFTER_SECONDS + 2}))
    async with an_agent(plane, still, token):
        await plane.submit("train", run_seconds=25)  # its end is told
        await plane.plan()
        await plane.until_state("train", "running")
        await plane.until(lambda: _key_changed(plane, kept["key"]))
    await cluster.close()


async def test_a_replica_that_does_not_lead_does_not_end_the_session_of_the_one_that_does(
    plane: PlaneForAgents,
) -> None:
    token = await plane.make_cluster()
    first, second = (_Unled(a_world(), speed=SPEED) for _ in range(2))
    async with an_agent(plane, first, token):
        await plane.accept()
        await _until_ready(plane)
        first.leads = False
        async with an_agent(plane, second, token, instance="two"):
            await plane.submit("train", run_seconds=10)
            await plane.plan()
            await plane.until_state("train", "succeeded")
    lines = (await plane.call("GET", "/audit?kind=cluster"))["items"]
    said = [line["facts"]["instance"] for line in lines if line["action"] == "cluster.hello"]
    assert sorted(said) == ["one", "two"]


async def test_killed_between_the_planes_promotion_of_the_next_key_and_its_note_the_agent_finds_its_way(
    plane: PlaneForAgents, cluster: SimulatedCluster
) -> None:
    token = await plane.make_cluster()
    path = plane.folder / "state" / "identity.json"
    still = _Unclosing(cluster)
    async with an_agent(plane, still, token):
        await plane.accept()
        await _until_ready(plane)
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "made_at": 0}))
    async with an_agent(plane, still, token):
        await plane.until(lambda: _key_changed(plane, kept["key"]))
    rotated = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "made_at": 0, "next_key": rotated["key"]}))
    async with an_agent(plane, still, token):
        await plane.until(lambda: _key_changed(plane, kept["key"]))
    await cluster.close()


async def test_a_clock_that_is_hours_wrong_is_learned_and_does_no_harm(
    plane: PlaneForAgents, cluster: SimulatedCluster
) -> None:
    token = await plane.make_cluster()
    settings = AgentSettings(plane_url=plane.api.agent_url, cluster="east", instance="one", backoff_seconds_max=1)
    keeper = Keeper(FileStore(plane.folder / "state"))
    await keeper.open()
    transport = Transport(settings, keeper)
    transport.offset_seconds = -2 * 3600
    agent = asyncio.create_task(Agent(settings, cluster, Enroller(transport, keeper, token), LocalPolicy()).run())
    try:
        await plane.accept()
        await _until_ready(plane)
        assert abs(transport.offset_seconds) < 60
    finally:
        agent.cancel()
        await asyncio.gather(agent, return_exceptions=True)


async def test_directives_count_only_from_a_trusted_key_for_this_cluster_and_this_or_a_newer_plane(
    tmp_path: Path,
) -> None:
    keeper = Keeper(FileStore(tmp_path))
    await keeper.open()
    ours, theirs = ECKey.import_key({**new_key()}), ECKey.import_key({**new_key()})
    await keeper.update(cluster="east", plane_keys=[public(ours)], plane_epoch=3)
    transport = Transport(AgentSettings(plane_url="https://plane.example", cluster="east"), keeper)

    def signed(key: ECKey, cluster: str = "east", epoch: int = 3, kind: str = "directives+jws") -> str:
        batch = DirectiveBatch(cluster=cluster, plane_epoch=epoch, after=0, upto=0, directives=[])
        header = {"alg": "ES256", "typ": kind}
        return jws.serialize_compact(header, batch.model_dump_json().encode(), key, algorithms=["ES256"])

    assert transport.directives(signed(ours)) == []
    assert transport.directives(signed(ours, epoch=4)) == []
    for forged in (
        signed(theirs),
        signed(ours, cluster="west"),
        signed(ours, epoch=2),
        signed(ours, kind="agent-pop+jwt"),
        signed(ours)[:-8] + "AAAAAAAA",
        "nonsense",
    ):
        with pytest.raises(ForgedDirectives):
            transport.directives(forged)


def test_a_new_key_of_the_plane_is_trusted_only_if_a_trusted_one_vouches_for_it() -> None:
    old, new = ECKey.import_key({**new_key()}), ECKey.import_key({**new_key()})
    pinned = [public(old)]
    assert trusted_keys([], pinned) == pinned
    assert trusted_keys(pinned, [public(new)]) == pinned
    print_of_new = thumbprint(public(new))
    vouched = jws.serialize_compact({"alg": "ES256"}, print_of_new, old, algorithms=["ES256"])
    self_made = jws.serialize_compact({"alg": "ES256"}, print_of_new, new, algorithms=["ES256"])
    assert trusted_keys(pinned, [{**public(new), "endorsement": vouched}]) == [public(new)]
    assert trusted_keys(pinned, [{**public(new), "endorsement": self_made}]) == pinned
    assert print_of_new == new.thumbprint()


class _Unclosing(SimulatedCluster):
    """The same cluster for one agent after the other: a cluster does not end with its agent."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.__dict__.update(cluster.__dict__)

    async def close(self) -> None:
        """Later, by the test."""


async def _until_ready(plane: PlaneForAgents) -> None:
    async def is_ready() -> bool:
        shown = await plane.call("GET", "/clusters/east")
        return bool(shown["state"] == "ready" and shown["nodes"] == 4)

    await plane.until(is_ready)


async def _was_refused(lines: Sequence[EventDict], times: int) -> bool:
    return [line["event"] for line in lines].count("plane refused") >= times


async def _is_empty(cluster: SimulatedCluster) -> bool:
    return not cluster.view.pods and not cluster.view.objects


async def _all_succeeded(cluster: SimulatedCluster) -> bool:
    return [pod.phase for pod in cluster.view.pods.values()] == ["Succeeded"] * 4


async def _key_changed(plane: PlaneForAgents, before: object) -> bool:
    return bool(json.loads((plane.folder / "state" / "identity.json").read_text())["key"] != before)


class _Unled(SimulatedCluster):
    """A replica's cluster; it leads as long as it is told so."""

    leads = True

    def is_leader(self) -> bool:
        return self.leads


class _Linked(SimulatedCluster):
    """Counts how often its agent turned to the plane."""

    asked = 0

    def link_is_up(self) -> bool:
        self.asked += 1
        return super().link_is_up()

    async def asked_again(self, times: int = 3, within: float = 15.0) -> None:
        wanted, deadline = self.asked + times, time.monotonic() + within
        while True:
            if self.asked >= wanted:
                return
            assert time.monotonic() < deadline, f"not asked {times} times within {within} s"
            await asyncio.sleep(0.01)
