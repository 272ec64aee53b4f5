"""What a program said last is kept beyond its pod and told: its end counts, within bounds."""

from dataclasses import replace
from typing import Any

import pytest

from agents import report
from agents.attempts import Desired, Order
from agents.cluster import View
from agents.facts import TEXT_MAX, PodFacts, object_id, pod_facts
from agents.kube import manifests
from agents.loop import wall_clock
from tests.agents.bench import UID, an_apply


def ended_pod(words: str, code: int = 1) -> dict[str, Any]:
    """A pod as the API server shows it after its one container has ended with these words."""
    terminated = {"exitCode": code, "reason": "Error", "message": words}
    status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": terminated}}]}
    return {"metadata": {"name": "one", "uid": "one"}, "spec": {"nodeName": "a"}, "status": status}


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("saved at step 7\n", "saved at step 7"),
        ("", ""),
        ("x" * 5_000, "x" * TEXT_MAX),
        ("first\n" + "y" * 600 + "\n" + "z" * 600 + "\nlast\n", "z" * 600 + "\nlast"),
    ],
    ids=["one line", "nothing", "one endless line", "the last whole lines"],
)
def test_of_many_words_the_last_are_kept(words: str, kept: str) -> None:
    assert pod_facts(ended_pod(words)).message == kept


def test_what_the_cluster_says_of_the_whole_pod_goes_before_its_program() -> None:
    pod = ended_pod("bye")
    pod["status"]["message"] = "The node was low on resource: memory."
    assert pod_facts(pod).message == "The node was low on resource: memory."


def an_ended(desired: Desired, index: int, words: str) -> PodFacts:
    pod = PodFacts("nlp", f"pod-{index}", f"uid-{index}", "1", phase="Failed", node="a", message=words)
    return replace(
        pod, workload=desired.workload, attempt=desired.attempt, pod_set=desired.pins()[0].pod_set, index=index
    )


def a_stopping_attempt() -> Desired:
    apply = an_apply()
    return Desired(apply.object_id, apply.workload, apply.attempt, 3, Order.DELETE, wall_clock(), apply=apply)


def test_the_words_of_a_pod_that_is_gone_already_are_told_with_its_going() -> None:
    desired, view = a_stopping_attempt(), View()
    view.put_pod(an_ended(desired, 0, "saved at step 7"))
    view.drop_pod("uid-0")

    told = {key[1]: seen for key, seen in report.pod_observations(desired, view)}

    assert (told[0].phase, told[0].message) == ("gone", "saved at step 7")
    assert (told[1].phase, told[1].message) == ("gone", "")


def test_words_are_forgotten_with_their_attempt() -> None:
    desired, view = a_stopping_attempt(), View()
    key = desired.pins()[0].pod_set, 0
    view.put_pod(an_ended(desired, 0, "bye"))
    view.forget_last_words(())
    assert view.last_words(desired.object_id, key) == "bye", "its pod is still there"
    view.drop_pod("uid-0")
    view.forget_last_words({desired.object_id})
    assert view.last_words(desired.object_id, key) == "bye", "its end is not told yet"
    view.forget_last_words(())
    assert view.last_words(object_id(UID, desired.attempt), key) == ""


def test_the_kubelet_keeps_the_last_lines_of_a_failure_unless_the_template_decides() -> None:
    containers = [{"name": "a"}, {"name": "b", "terminationMessagePolicy": "File"}]
    apply = an_apply(template={"spec": {"containers": containers, "initContainers": [{"name": "c"}]}})
    assert apply.apply is not None
    spec = manifests.job(apply, apply.apply.pod_sets[0])["spec"]["template"]["spec"]
    policies = {each["name"]: each["terminationMessagePolicy"] for each in spec["containers"] + spec["initContainers"]}
    assert policies == {"a": "FallbackToLogsOnError", "b": "File", "c": "FallbackToLogsOnError"}
