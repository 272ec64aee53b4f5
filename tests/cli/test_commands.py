"""Every command that asks the plane, as a process against a real API."""

import json
from pathlib import Path

import yaml
from sqlalchemy import text

from tests.api.bodies import IMAGE, QUEUES, job, workload
from tests.cli.running import Muster
from tests.services.planes import Plane
from tests.support.api import Api
from tests.support.databases import Database


def test_the_quota_tree_is_kept_from_files(muster: Muster, tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES, encoding="utf-8")
    assert "+ Queue research/nlp created" in muster.fine(f"queue apply -f {file}")
    assert muster.fine("apply -f -", stdin=QUEUES) == "= 3 unchanged\n"
    lines = muster.fine("queue list").splitlines()
    assert lines[0].split() == [
        "QUEUE", "FLAVOR", "IN", "USE", "USED", "NOMINAL", "ENTITLED", "BORROWED", "AVAILABLE", "WAITING", "WEIGHT",
    ]  # fmt: skip
    assert [line.split("nvidia")[0].rstrip() for line in lines[1:]] == ["research", "|- nlp", "`- vision"]
    assert lines[2].split()[2:7] == ["nvidia-h100-80gb", "." * 20, "0", "128", "0"]
    assert muster("queue show research/nlp -o json").json["namespace"] == "nlp"
    assert "research/vision is now vision" in muster.fine("queue move research/vision vision")
    assert "vision is gone" in muster.fine("queue delete vision")
    paths = [each["path"] for each in yaml.safe_load(muster.fine("queue list -o yaml"))]
    assert paths == ["research", "research/nlp"]


def test_a_workload_is_submitted_listed_explained_and_cancelled(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=QUEUES)
    said = muster("submit -f -", stdin=json.dumps(workload()))
    assert said.out.startswith("llama waits in research/nlp (")
    options = f"--queue research/nlp --image {IMAGE} --replicas 2 --devices 8 --flavor nvidia-h100-80gb --topology rack"
    made = muster(f"submit --name adhoc {options} -o json -- python train.py").json
    assert made["podSets"][0]["topology"] == "required rack"
    assert made["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["command"] == ["python", "train.py"]
    warned = muster("submit -f -", stdin=yaml.safe_dump(job(ttlSecondsAfterFinished=60)))
    assert "ttlSecondsAfterFinished is left out" in warned.err

    lines = muster.fine("list").splitlines()
    assert lines[0].split() == ["NAME", "QUEUE", "STATE", "PRIORITY", "PODS", "DEVICES", "CLUSTER", "AGE", "REASON"]
    assert [line.split()[0] for line in lines[1:]] == ["resnet", "adhoc", "llama"]
    told = muster.fine("describe adhoc")
    assert "Asks for:  main: 2 pods of 8 nvidia-h100-80gb, required rack" in told
    assert "No cluster of pool default is there yet." in muster.fine("explain adhoc")
    assert "adhoc is cancelled" in muster.fine("cancel adhoc")
    assert muster("watch adhoc").code == 1, "it did not succeed, so watching it ends with 1"
    assert muster("list --state cancelled -o json").json[0]["name"] == "adhoc"
    assert len(muster("list --all -o json").json) == 3
    nothing = muster("list --queue research/vision")
    assert (nothing.code, nothing.out, "--all shows also what has ended" in nothing.err) == (0, "", True)


def test_what_runs_is_shown_with_its_place(api: Api, database: Database, muster: Muster) -> None:
    plane = Plane(database)
    plane.cluster("eu-west", nodes=8, namespaces=["nlp", "vision"])
    muster.fine("apply -f -", stdin=QUEUES)
    for name in ("one", "two"):
        muster.fine("submit -f -", stdin=json.dumps(workload(name, pod_set={"topology": {"required": "rack"}})))
    muster.fine("submit -f -", stdin=json.dumps(workload("three")))
    plane.planner().step()
    plane.close()
    described = muster.fine("describe one")
    assert "Attempt 1: placed" in described
    assert "eu-west ordered" in described
    assert "eu-west-0: 1 pod, 8 nvidia-h100-80gb (1 placed)" in described
    assert muster.fine("explain one").startswith("one is about to start in eu-west: its nodes are chosen and held")
    explained = muster.fine("explain three")
    assert "eu-west has room for 0 of 4 pods of 8 nvidia-h100-80gb each" in explained
    assert muster.fine("list --cluster eu-west").count("eu-west") == 2
    assert "one is cancelling" in muster.fine("cancel one")

    assert muster.fine("cluster list").splitlines()[1].split() == [
        "eu-west", "ready", "8/8", "nvidia-h100-80gb", "64", "64", "64", "0",
    ]  # fmt: skip
    assert "8 of 8 ready" in muster.fine("cluster show eu-west")
    nodes = muster("node list --cluster eu-west -o json").json
    assert len(nodes) == 8
    assert "takes no new work: fan is loud by" in muster.fine("node cordon eu-west/eu-west-3 --reason 'fan is loud'")
    assert [line.split()[1] for line in muster.fine("node list").splitlines()][4:6] == ["cordoned", "ready"]
    shown = muster.fine("node show eu-west/eu-west-3")
    assert "fan is loud" in shown
    assert ["Pods", "of", "ours", "1", "of", "110"] in [line.replace(":", "").split() for line in shown.splitlines()]
    assert "takes work again" in muster.fine("node uncordon eu-west/eu-west-3")
    assert muster.fine("device list --cluster eu-west") == ""
    cycles = muster("cycle list -o json").json
    assert cycles[0]["decisions"] == 2
    assert muster.fine("cycle list").splitlines()[0].split()[:2] == ["CYCLE", "POOL"]


def test_it_is_told_whether_a_workload_would_start_if_it_asked_otherwise(
    api: Api, database: Database, muster: Muster
) -> None:
    plane = Plane(database)
    plane.cluster("eu-west", nodes=6, namespaces=["nlp", "vision"])
    muster.fine("apply -f -", stdin=QUEUES)
    muster.fine("submit -f -", stdin=json.dumps(workload("one")))
    plane.planner().step()
    plane.close()
    muster.fine("submit -f -", stdin=json.dumps(workload("sweep")))
    told = muster.fine("explain sweep").splitlines()
    assert "  It would start if it were submitted again with 2 instead of 4 replicas of trainer." in told[1:]
    fewer = muster.fine("explain sweep --if replicas=2 --if priority=low")
    assert fewer == (
        "Submitted again with replicas=2 and priority=500, sweep would start in the next planning cycle,"
        " 2 pods in eu-west.\n"
    )
    still = muster.fine("explain sweep --if priority=600")
    assert still.startswith("With priority=600, sweep would not start in the next planning cycle: ")
    assert "room for 2 of 4 pods" in still
    other = muster("explain sweep --if flavor=nvidia-a100-80gb --if replicas=4 -o json").json["whatIf"]
    assert (other["starts"], other["resubmitted"]) == (False, True)
    wrong = muster("explain sweep --if speed=9")
    assert (wrong.code, "what can be asked: priority=600 or priority=high" in wrong.err) == (2, True)


def test_a_cluster_is_made_with_a_token_that_can_go_to_a_file(muster: Muster, tmp_path: Path) -> None:
    file = tmp_path / "token"
    told = muster.fine(f"cluster create eu-west --label region=eu --token-file {file}")
    assert "its token is in" in told
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text(encoding="utf-8").strip() not in told
    shown = muster("cluster token eu-west")
    assert (shown.out.startswith("mst_"), shown.out.count("\n")) == (True, 1), "it can be piped as it is"
    assert "shown this once" in shown.err
    refused = muster("cluster accept eu-west")
    assert (refused.code, "no agent has enrolled" in refused.err) == (4, True)
    assert "is banned" in muster.fine("cluster revoke eu-west")
    assert muster("cluster show nope").code == 3


def test_the_plane_tells_of_itself(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=QUEUES)
    assert "healthy" in muster.fine("doctor")
    assert muster.fine("whoami") == "admin: platform-admin\n"
    assert json.loads(muster.fine("schema Workload"))["properties"]["kind"]["const"] == "Workload"
    assert "queue.write" in muster.fine("audit list --kind queue")
    assert muster("rebalance").code == 3, "no report is there yet"


def test_a_rebalancing_report_is_shown_as_tables(api: Api, muster: Muster) -> None:
    flavor = {"flavor": "nvidia-h100-80gb"}
    report = {
        "largest": [{**flavor, "level": "rack", "cluster": "eu-west", "domain": "rack-7", "pods": 3, "devices": 24}],
        "stranded": [
            {**flavor, "size": 8, "free": 40, "usable": 40, "stranded": 0},
            {**flavor, "size": 64, "free": 40, "usable": 0, "stranded": 40},
        ],
        "utilisation": [{**flavor, "cluster": "eu-west", "usable": 64, "free": 40, "permille": 375}],
        "spread": {"nvidia-h100-80gb": 125},
    }
    with api.container.engine.begin() as connection:
        connection.execute(text("INSERT INTO pool (name) VALUES ('default')"))
        statement = (
            "INSERT INTO rebalance_report (pool_id, at, report) SELECT id, now(), CAST(:report AS jsonb) FROM pool"
        )
        connection.execute(text(statement), {"report": json.dumps(report)})
    lines = [line.split() for line in muster.fine("rebalance --pool default").splitlines()]
    assert lines[0][:2] == ["Pool", "default,"]
    for line in (
        ["eu-west", "nvidia-h100-80gb", "64", "40", "37.5", "%"],
        ["nvidia-h100-80gb", "12.5", "%"],
        ["nvidia-h100-80gb", "rack", "3", "24", "eu-west", "rack-7"],
        ["nvidia-h100-80gb", "64", "40", "0", "40"],
    ):
        assert line in lines
    assert ["nvidia-h100-80gb", "8", "40", "40", "0"] not in lines, "nothing is stranded for such gangs"


def test_a_token_for_somebody_else_works_until_it_is_revoked(muster: Muster, tmp_path: Path) -> None:
    muster.fine("apply -f -", stdin=QUEUES)
    file = tmp_path / "ada.token"
    made = muster(f"token create ada --queue research/nlp --valid 1h --token-file {file} -o json").json
    assert "token" not in made
    token = file.read_text(encoding="utf-8").strip()
    assert muster("whoami", MUSTER_TOKEN=token).out == "ada: member of research/nlp\n"
    assert "is revoked" in muster.fine(f"token revoke {made['id']}")
    assert muster("whoami", MUSTER_TOKEN=token).code == 4
