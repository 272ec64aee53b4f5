"""What is said of files that describe no world: file, line, column, field, value and limit, all at once."""

import json
from typing import Any

import pytest

from controlplane.worlds.reading import KINDS
from tests.worlds.described import LAB, cluster, document, mistakes, queue, running, workload

WRONG = """
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: lab}
spec:
  weight: 2000000
  quotas: [{flavor: nvidia-h100-80gb, lendd: 3}]
---
apiVersion: muster.dev/v1
kind: Workload
metadata: {name: train}
spec:
  queue: lab
  podSets:
    - name: main
      replicas: many
"""


def test_every_mistake_in_every_file_is_told_with_its_place_value_and_limit() -> None:
    assert mistakes(WRONG, "---\n---\nkind: Gadget\n", "a: [1\nb: 2\n") == [
        "a.yaml:6:11: /spec/weight: weight: Input should be less than or equal to 1000000 (it is 2000000)",
        "a.yaml:7:46: /spec/quotas/0/lendd: there is no field lendd here (it is 3)",
        "a.yaml:16:17: /spec/podSets/0/replicas: replicas: Input should be a valid integer (it is many)",
        f"b.yaml:3:7: /kind: 'Gadget' is no kind of a world; there are {', '.join(KINDS)}",
        "c.yaml:2:2: this is no YAML: did not find expected ',' or ']'",
    ]


def test_a_document_without_a_kind_is_told_which_there_are() -> None:
    (said,) = mistakes("metadata: {name: lab}\n")
    assert said.endswith(f"/kind: kind is missing; there are {', '.join(KINDS)}")


def test_a_field_that_is_missing_is_told_at_what_lacks_it() -> None:
    said = mistakes("apiVersion: muster.dev/v1\nkind: Workload\nmetadata: {name: a}\nspec:\n  podSets: [{name: m}]\n")
    assert said == ["a.yaml:5:3: /spec/queue: queue is missing"]


def test_what_is_one_object_is_told_so_where_a_list_or_a_text_stands() -> None:
    head = "apiVersion: muster.dev/v1\nkind: Workload\nmetadata: {name: a}\nspec:\n  queue: lab\n"
    said = mistakes(head + "  podSets: [{name: m, topology: {slices: [{size: 2, required: rack}]}}, one]\n")
    one = "is one object, as in {field: value}, and no list, text or number"
    assert [each.partition(": ")[2].partition(" (it is")[0] for each in said] == [
        f"/spec/podSets/0/topology/slices: slices {one}",
        f"/spec/podSets/1: each of podSets {one}",
    ]


def test_json_is_told_like_yaml_and_a_list_like_documents() -> None:
    assert mistakes('{"apiVersion": "muster.dev/v1",\n  "kind": }') == ["a.yaml:2:11: this is no JSON: Expecting value"]
    listed = "- " + json.dumps(queue("lab")) + "\n- {apiVersion: muster.dev/v1, kind: Queue}\n"
    assert mistakes(listed) == ["a.yaml:2:3: /metadata: metadata is missing"]


def test_files_without_a_document_are_a_mistake() -> None:
    assert mistakes("# nothing\n", "---\n") == ["a.yaml, b.yaml: there is no document in it"]


def _told(*documents: dict[str, Any]) -> list[str]:
    """Each mistake without its place; every document on a line of its own says which it was in."""
    lines = mistakes("".join(f"---\n{json.dumps(each)}\n" for each in documents))
    return [line.partition(": ")[2] for line in lines]


BROKEN = [
    ([queue("lab/vision")], "lab/vision needs its parent lab, which is in none of these files"),
    ([queue("lab", spent=[{"flavor": "*", "per": "day", "deviceHours": 1}])], "no budget of * per day that this could"),
    ([queue("lab"), queue("lab")], "Queue lab stands there twice"),
    ([cluster(), cluster()], "Cluster north stands there twice"),
    ([*LAB, workload("a", at="lab/visoin")], "there is no queue lab/visoin in these files; is it lab/vision?"),
    ([*LAB, workload("a", at="lab")], "lab has queues below it; only leaf queues take workloads"),
    ([*LAB, cluster(), workload("a"), workload("a")], "lab/vision has two workloads a here"),
    ([*LAB, cluster(), workload("a", pool="bach")], "there is no pool bach in these files"),
    ([*LAB, cluster(), workload("a", 5)], "it could never start. lab/vision can never use more than 32"),
    ([*LAB, cluster(count=2), cluster("south", 2), workload("a", 3)], "it could never start. No cluster could ever"),
    ([*LAB, cluster(), running("a", {"north-9": 1})], "cluster north has no node north-9"),
    ([*LAB, cluster("south"), running("a", {"north-0": 1})], "there is no cluster north in these files"),
    ([*LAB, cluster(), running("a", {"north-0": 2})], "node north-0 has 8 nvidia-h100-80gb, and 16 of them are held"),
    ([*LAB, cluster(group={"pods": 1}), running("a", {"north-0": 2}, podSets=[{"name": "m", "replicas": 2}])],
     "node north-0 takes 1 pods, and 2 are there"),
    ([*LAB, cluster(flavor="nvidia-a100-80gb"), running("a", {"north-0": 1})], "node north-0 has nvidia-a100-80gb"),
    ([*LAB, cluster(), document("Policy", "other", {})], "a Policy has its Pool's name, and there is no pool other"),
    ([document("World", "w", {"now": "2026-03-01T12:00:00Z"})] * 2, "there is one World document in all files"),
    ([document("Window", "w", {})], "kind Window is not obeyed yet"),
    ([cluster(group={"topology": [{"level": "host", "of": 1}]})], "host is always there, as the finest level"),
]  # fmt: skip


@pytest.mark.parametrize(("documents", "words"), BROKEN, ids=[words[:40] for _, words in BROKEN])
def test_what_no_world_can_be_is_told_in_words(documents: list[dict[str, Any]], words: str) -> None:
    said = _told(*documents)
    assert len(said) == 1, said
    assert words in said[0]


def test_levels_that_contradict_each_other_are_told() -> None:
    made = cluster(group={"topology": [{"level": "block", "of": 4}, {"level": "rack", "of": 2}]})
    other = {
        **made["spec"]["nodes"][0],
        "name": "other",
        "topology": [{"level": "rack", "of": 4}, {"level": "block", "of": 2}],
    }
    made["spec"]["nodes"].append(other)
    (said,) = _told(made)
    assert said.startswith("/spec/nodes/1/topology/1/level: block is coarser elsewhere in this Cluster")


def test_a_running_workload_that_is_not_all_there_is_told() -> None:
    half = running("a", {"north-0": 1}, podSets=[{"name": "m", "replicas": 2, "devices": 8}])
    assert "1 pods of m are placed, and it has 2" in _told(*LAB, cluster(), half)[0]


def test_a_job_without_its_queue_is_told_at_its_labels() -> None:
    job = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: j\n  labels: {muster.dev/queue: lab.nowhere}\nspec: {}\n"
    named, template = mistakes(job)
    assert named.startswith("a.yaml:5:30: /metadata/labels/muster.dev~1queue: there is no queue lab/nowhere in these")
    assert template == "a.yaml:6:7: /spec/template: PodSet main has no template"


def test_pods_are_refused_by_the_rule_of_a_submit() -> None:
    template = {"spec": {"hostNetwork": True, "containers": [{"name": "m", "image": "a/b:1"}]}}
    (said,) = _told(*LAB, cluster(), workload("a", pods={"template": template}))
    words = "hostNetwork is not for users to set: it reaches past the pod (it is true)"
    assert said == f"/spec/podSets/0/template/spec/hostNetwork: {words}"


def test_a_snapshot_stands_alone_and_is_one() -> None:
    snapshot = {"apiVersion": "muster.dev/v1", "kind": "Snapshot", "now": "2026-03-01T12:00:00Z", "policy": {}}
    assert "a Snapshot is a whole world, so it stands alone" in _told({**snapshot, "snapshot": {"pool": 1}}, *LAB)[0]
    assert "a snapshot names its pool" in _told({**snapshot, "snapshot": {}})[0]
    assert "this is no Snapshot that a plane gave" in _told({**snapshot, "snapshot": {"pool": 1, "nodes": [[1, 2]]}})[0]


def test_of_very_many_mistakes_the_first_are_told_and_the_others_counted() -> None:
    said = mistakes("".join(f"---\n{json.dumps(queue(f'a/q{number}'))}\n" for number in range(80)))
    assert (len(said), said[-1]) == (51, "and 30 more")
