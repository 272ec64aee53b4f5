"""`muster replay` and `muster plan --from-server` against a plane's API: what a planner did, worked out again here."""

import json
from pathlib import Path

import psycopg
import pytest

from tests.api.bodies import QUEUES, workload
from tests.cli.running import Muster
from tests.services.planes import Plane
from tests.support.api import Api
from tests.support.databases import Database


@pytest.fixture
def cycle(database: Database, muster: Muster) -> str:
    """The number of a second cycle, in which one gang starts and one waits; the first began with a whole world."""
    plane = Plane(database)
    plane.cluster("eu-west", nodes=8, namespaces=["nlp", "vision"])
    muster.fine("apply -f -", stdin=QUEUES)
    planner = plane.planner()
    for names in (("one",), ("two", "three")):
        for name in names:
            muster.fine("submit -f -", stdin=json.dumps(workload(name)))
        planner.step()
    plane.close()
    youngest, _first = muster.fine("cycle list -o name").split()
    return youngest


def test_a_cycle_is_the_same_whoever_runs_it_again(muster: Muster, cycle: str) -> None:
    there, here = (muster(f"replay {cycle}{option} -o json").json for option in ("", " --local"))
    assert there == here
    assert there["identical"] is True
    assert there["storedSha256"] == muster(f"cycle show {cycle} -o json").json["planSha256"]
    told = muster.fine(f"replay {cycle} --local").splitlines()
    assert told[-1] == "identical: the same world gave the same plan"
    assert [line.split() for line in told if line.startswith(("Decisions", "Run by"))] == [
        ["Run", "by:", "this", "process"],
        ["Decisions:", "1"],
    ]
    assert muster.fine(f"replay {cycle} -o name") == "identical\n"


def test_a_cycle_that_differs_ends_with_1(muster: Muster, cycle: str, database: Database) -> None:
    with psycopg.connect(database.superuser_url.replace("+psycopg", "")) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("UPDATE cycle SET plan_sha256 = decode(repeat('00', 32), 'hex') WHERE id = %s", (cycle,))
    for option in ("", " --local"):
        ran = muster(f"replay {cycle}{option}")
        assert (ran.code, ran.out.splitlines()[-1]) == (1, "they differ")
    assert muster("replay 999999").code == 3


def test_a_plane_s_live_world_is_planned_here_kept_and_planned_again(
    muster: Muster, cycle: str, tmp_path: Path
) -> None:
    assert cycle
    file = tmp_path / "live.json"
    said = muster.fine(f"plan --from-server --save {file}")
    assert ": 0 start, 0 leave, 1 wait" in said.splitlines()[0]
    assert "three of research/nlp, priority 1000" in said
    assert "eu-west has room for 0 of 4 pods of 8 nvidia-h100-80gb each (0 free). [not-enough-free]" in said
    assert file.stat().st_mode & 0o777 == 0o600, "it names everybody's work"
    assert muster.fine(f"plan -f {file}") == said
    taken = muster(f"plan --from-server --save {file}")
    assert (taken.code, "is not overwritten" in taken.err) == (2, True)
    assert muster("plan --from-server --pool nowhere").code == 3


def test_who_does_not_watch_the_plane_is_refused(api: Api, muster: Muster, cycle: str) -> None:
    token = api.token("bob", "member", "research/nlp")
    for line in (f"replay {cycle}", f"replay {cycle} --local", "plan --from-server"):
        assert muster(line, MUSTER_TOKEN=token).code == 4, line
