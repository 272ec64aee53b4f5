"""`muster plan` on files: what it prints, for people and for scripts, and how it ends; no plane is there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from controlplane.contract.rest.planning import WorldPlan
from tests.cli.running import Muster
from tests.cli.test_start import loaded
from tests.support.databases import ROOT

WORLD = ROOT / "tests" / "cli" / "data" / "world.yaml"
SHOWN = """\
Pool default at 2026-03-01 12:00:00 UTC: 2 start, 0 leave, 1 wait

Starts
  train of lab/vision: 2 pods, 16 nvidia-h100-80gb
    north: north-2 … north-3 (2 nodes): 1 pod of main, 8 nvidia-h100-80gb each, ranks 0-1
  evaluate of lab/speech: 1 pod, 4 nvidia-a100-80gb
    south: south-0: 1 pod of main, 4 nvidia-a100-80gb, rank 0

Waits
  sweep of lab/vision, priority 1000
    lab/vision may use 0 more nvidia-h100-80gb now, and 8 are asked for (32 of 32 in use at lab). [quota-exceeded]
    north has room for 0 of 1 pods of 8 nvidia-h100-80gb each (0 free). [not-enough-free]
    south has no nvidia-h100-80gb. [cluster-without-flavor]

Shares
"""


def test_people_see_who_starts_where_who_waits_and_why(lonely: Muster) -> None:
    said = lonely.fine(f"plan -f {WORLD}")
    assert said.startswith(SHOWN)
    rows = [line.split() for line in said.removeprefix(SHOWN).splitlines()]
    assert ["lab/vision", "nvidia-h100-80gb", "16", "16", "0", "16"] in [row[:6] for row in rows]
    assert rows[0][:6] == ["QUEUE", "FLAVOR", "NOMINAL", "OWNS", "USED", "AFTER"]


def test_scripts_get_all_of_it_in_a_form_that_is_told(lonely: Muster) -> None:
    found = lonely(f"plan -f {WORLD} -o json").json
    made = WorldPlan.model_validate(found)
    assert [each.workload for each in made.pools[0].starts] == ["train", "evaluate"]
    assert yaml.safe_load(lonely.fine(f"plan -f {WORLD} -o yaml")) == json.loads(json.dumps(found))
    assert lonely.fine(f"plan -f {WORLD} -o name").split() == ["lab/vision/train", "lab/speech/evaluate"]


def test_the_same_files_give_the_same_bytes_in_any_process(lonely: Muster) -> None:
    here, there = (lonely.process(f"plan -f {WORLD} -o json", PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert here.out == there.out
    assert here.out == lonely.fine(f"plan -f {WORLD} -o json")


def test_files_and_folders_are_one_world_and_time_can_be_given(lonely: Muster, tmp_path: Path) -> None:
    first, *others = WORLD.read_text(encoding="utf-8").split("---\n")
    assert "kind: World" in first
    (tmp_path / "fleet").mkdir()
    for number, text in enumerate(others):
        (tmp_path / ("fleet" if number < 2 else ".") / f"{number}.yaml").write_text(text, encoding="utf-8")
    line = f"plan -f {tmp_path} --now 2026-03-01T12:00:00Z -o json"
    assert lonely(line).json == lonely(f"plan -f {WORLD} -o json").json
    assert lonely("plan -f -", stdin=WORLD.read_text(encoding="utf-8")).out == lonely.fine(f"plan -f {WORLD}")


def test_wrong_files_are_told_with_their_places_and_end_with_2(lonely: Muster, tmp_path: Path) -> None:
    wrong = tmp_path / "world.yaml"
    wrong.write_text(
        WORLD.read_text(encoding="utf-8").replace("queue: lab/vision", "queue: lab/visoin"), encoding="utf-8"
    )
    ran = lonely(f"plan -f {wrong}")
    lines = ran.err.splitlines()
    assert (ran.code, ran.out, lines[0]) == (2, "", "muster: 2 mistakes")
    assert lines[1].startswith(f"  {wrong}:52:10: /spec/queue: there is no queue lab/visoin in these files; is it lab/")
    wrong.write_bytes(b"kind: \xff")
    assert lonely(f"plan -f {wrong}").err == f"muster: {wrong}: this is no UTF-8 text: byte 6 is 0xff\n"
    wrong.write_text("kind: [\n", encoding="utf-8")
    assert lonely(f"plan -f {wrong}").err.startswith(f"muster: {wrong}:2:1: this is no YAML")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("plan", "name files with -f, or ask a plane with --from-server"),
        (f"plan -f {WORLD} --from-server", "-f plans files and --from-server a plane's world: one of them, not both"),
        (f"plan -f {WORLD} --save x", "--save keeps what --from-server brings"),
        (f"plan -f {WORLD} --now yesterday", "--now yesterday: it is written like 2026-03-01T12:00:00Z"),
        ("plan -f nowhere.yaml", "cannot read nowhere.yaml"),
        ("replay one", "one is no number of a cycle"),
    ],
)
def test_what_nobody_can_mean_ends_with_2(lonely: Muster, line: str, words: str) -> None:
    ran = lonely(line)
    assert (ran.code, words in ran.err) == (2, True), ran.err


def test_neighbours_with_equal_parts_are_one_line_and_others_are_not(lonely: Muster) -> None:
    text = WORLD.read_text(encoding="utf-8")
    wide = text.replace(
        "replicas: 2, devices: 8, flavors: [{name: nvidia-h100-80gb}], topology: {required: rack}", "%s"
    )
    said = lonely.fine("plan -f -", stdin=wide % "replicas: 4, devices: 3, flavors: [{name: nvidia-h100-80gb}]")
    assert "north: north-2 … north-3 (2 nodes): 2 pods of main, 6 nvidia-h100-80gb each, ranks 0-3\n" in said
    assert "evaluate of lab/speech: 1 pod, 4 nvidia-a100-80gb" in said


def test_a_schema_says_what_each_field_means_and_asks_no_plane(lonely: Muster) -> None:
    running = json.loads(lonely.fine("schema running"))
    assert running["properties"]["kind"]["const"] == "Running"
    assert (
        running["$defs"]["RunningPlace"]["properties"]["nodes"]["description"]
        == "How many pods on each node, by its name."
    )
    assert "state" not in json.loads(lonely.fine("schema Cluster"))["$defs"]["ClusterSpec"]["properties"]
    assert "state" in json.loads(lonely.fine("schema Cluster --world"))["$defs"]["WorldClusterSpec"]["properties"]
    ran = lonely("schema Gadget")
    assert (ran.code, "there is no kind Gadget; there are Workload, Queue" in ran.err) == (3, True)


def test_planning_loads_no_http_client_no_server_and_no_database() -> None:
    heavy = {"httpx", "sqlalchemy", "psycopg", "fastapi", "celery", "redis", "structlog", "controlplane.db"}
    assert loaded(["plan", "-f", str(WORLD)]) & heavy == set()


def test_the_readme_shows_what_is_printed_when_its_example_is_typed(lonely: Muster, tmp_path: Path) -> None:
    _, heading, text = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Try the planner on a file\n")
    assert heading
    (script,) = re.findall(r"^```sh\n(.*?)^```", text.partition("\n## ")[0], re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^```\n(Pool .*?)^```", text.partition("\n## ")[0], re.MULTILINE | re.DOTALL)
    environment = {**lonely.environment({}), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.partition("\nShares\n")[0] == shown


def test_who_has_to_leave_for_whom_and_what_is_kept_is_said(lonely: Muster) -> None:
    text = WORLD.read_text(encoding="utf-8").replace(
        "replicas: 2, devices: 8, flavors", "replicas: 4, devices: 8, flavors", 1
    )
    text = text.replace("{north-0: 1, north-1: 1}", "{north-0: 1, north-1: 1, north-2: 1, north-3: 1}")
    lines = lonely.fine("plan -f -", stdin=text).splitlines()
    assert lines[0] == "Pool default at 2026-03-01 12:00:00 UTC: 1 start, 1 leave, 2 wait"
    leaves = lines[lines.index("Has to leave") + 1]
    assert leaves.startswith("  transcribe of lab/speech, attempt 1, for train of lab/vision: Its borrowed 32")
    kept = lines[lines.index("Is kept") + 1]
    assert kept == "  16 nvidia-h100-80gb in north for train of lab/vision until 2026-03-01 12:10:00"
    waits = lines[lines.index("Waits") + 1 :]
    assert waits[:2] == [
        "  train of lab/vision, priority 1000",
        "    16 nvidia-h100-80gb in north are being given back for this workload. [waits-for-reclaim]",
    ]
