"""What people are told of a workload's life, out of what the API shows: no more than it knows, and each thing once."""

from datetime import UTC, datetime, timedelta

from controlplane.cli import render, story
from controlplane.cli.following import Teller
from controlplane.cli.render import Json
from controlplane.cli.workloads import pod_set_line
from controlplane.contract.rest.common import ReasonView
from controlplane.contract.rest.workloads import (
    AttemptView,
    NodeUse,
    PlacementView,
    PodNeedsView,
    PodSetView,
    PodWords,
    WorkloadView,
)
from controlplane.core.reasons import ReasonCode, reason

NOW = datetime.now(UTC)


def said(code: ReasonCode, **facts: int | str) -> ReasonView:
    return ReasonView(code=code, sentence=reason(code, **facts).sentence(), facts=facts)


def attempt(number: int = 1, **changed: object) -> AttemptView:
    nodes = [NodeUse(node=f"eu-{at}", flavor="h100", pods=1, devices=8, states={"running": 1}) for at in range(2)]
    placed = PlacementView(cluster="eu-west", state="running", nodes=nodes)
    shown = AttemptView(attempt=number, state="running", placed_at=NOW - timedelta(hours=1), placements=[placed])
    return shown.model_copy(update=changed)


def workload(state: str, *attempts: AttemptView, **changed: object) -> Json:
    shown = WorkloadView(
        id="7", name="llama", queue="lab/nlp", pool="default", owner="ada", state=state, priority=500, kind="Workload",
        version=1, pod_sets=[PodSetView(name="main", replicas=2, devices=8, flavors=["h100"])], max_attempts=1,
        submitted_at=NOW - timedelta(hours=2), state_changed_at=NOW, attempts=list(attempts),
    )  # fmt: skip
    view: Json = shown.model_copy(update=changed).model_dump(mode="json", by_alias=True)
    return view


def reclaimed(**changed: object) -> AttemptView:
    why = said(ReasonCode.RECLAIMED, amount=8, flavor="h100", queue="lab/vision", workload="detector")
    ended = attempt(
        state="ended", outcome="preempted", reason=why, ended_at=NOW,
        running_at=NOW - timedelta(minutes=30), stop_ordered_at=NOW - timedelta(minutes=10),
    )  # fmt: skip
    return ended.model_copy(update=changed)


def test_what_a_pod_set_asks_for_is_a_line() -> None:
    asked = PodSetView(
        name="main", replicas=16, devices=8, flavors=["h100", "a100"], topology="required rack", min_replicas=12,
        speeds=[1000, 480],
    )  # fmt: skip
    words = pod_set_line(asked.model_dump(mode="json", by_alias=True))
    assert words == "main: 12 to 16 pods of 8 h100 (speed 1) or a100 (speed 0.48), required rack"
    needs = PodNeedsView(cpu_milli=4_000, rdma=2, hugepages_bytes=2**36, local_storage_bytes=3 * 2**29)
    choosy = PodSetView(name="main", replicas=2, devices=8, flavors=["h100"], needs=needs, nodes="zone=b")
    words = pod_set_line(choosy.model_dump(mode="json", by_alias=True))
    told = "2 RDMA, 64 GiB of huge pages, 1.5 GiB of local disk, on nodes with zone=b"
    assert words == f"main: 2 pods of 8 h100 and {told}"
    plain = PodSetView(name="main", replicas=1, devices=8, flavors=["h100"])
    assert pod_set_line(plain.model_dump(mode="json", by_alias=True)) == "main: 1 pod of 8 h100"


def test_who_waits_is_told_why_and_until_when() -> None:
    ahead = said(ReasonCode.BEHIND_OTHERS, ahead=3, queue="lab/nlp")
    reasons = [ahead, *[said(ReasonCode.NO_CLUSTER, pool="default")] * 4]
    words = story.waiting(workload("pending", reasons=reasons, not_before=datetime.now(UTC) + timedelta(seconds=250)))
    assert words.startswith("llama waits in lab/nlp. 3 workloads of lab/nlp come first. No cluster of pool default")
    assert "(and 2 more: `muster explain llama`)" in words
    assert "It is tried again in 4m (" in words
    assert "tried again" not in story.waiting(workload("pending", not_before=NOW - timedelta(seconds=5)))


def test_who_was_disturbed_is_told_for_whom_and_what_was_lost() -> None:
    words = story.disturbance(workload("pending", reclaimed()), workload("pending", reclaimed())["attempts"][0])
    assert "attempt 1 gave its devices back to the queue that lent them." in words
    assert "Its borrowed 8 h100 went back to lab/vision for detector." in words
    assert "It starts again from its beginning" in words
    assert "20m of running are lost" in words


def test_what_had_not_run_has_lost_nothing() -> None:
    found = workload("pending", reclaimed(running_at=None, outcome="voided"))
    words = story.disturbance(found, found["attempts"][0])
    assert "was taken back before it started" in words
    assert "nothing is lost" in words


def test_a_step_that_the_plane_does_not_know_is_not_made_up() -> None:
    found = workload("pending", reclaimed(), spec={"checkpoint": {"mode": "periodic"}})
    words = story.disturbance(found, found["attempts"][0])
    assert "goes on from its own last checkpoint, which the plane does not know" in words


def test_a_teller_says_each_thing_once_and_in_order() -> None:
    teller = Teller()
    assert teller.news(workload("pending")) == ["llama waits in lab/nlp."]
    assert teller.news(workload("pending")) == []
    (placed,) = teller.news(workload("reserved", attempt(state="placed")))
    assert placed.startswith("llama, attempt 1 in eu-west (eu-0, eu-1): its nodes are chosen and held")
    pulling = PodWords(pod_set="main", index=0, rank=0, state="waiting", text="Back-off pulling image x")
    (starting,) = teller.news(workload("reserved", attempt(state="starting", words=[pulling])))
    assert "(rank 0: Back-off pulling image x)" in starting
    assert teller.news(workload("running", attempt()))[0].endswith("its pods run")
    disturbed, waits = teller.news(workload("pending", reclaimed()))
    assert "for detector" in disturbed
    assert waits == "llama waits in lab/nlp."
    again = teller.news(workload("running", attempt(2), reclaimed()))
    assert [line.split(" in ")[0] for line in again] == ["llama, attempt 2"]
    done = workload("succeeded", attempt(2, state="ended", outcome="succeeded"), reclaimed(), finished_at=NOW)
    assert teller.news(done) == ["llama succeeded after 2h"]


def test_a_failure_is_told_with_what_the_program_said_last() -> None:
    why = said(ReasonCode.PROGRAM_FAILED, rank=1, exit_code=3)
    words = PodWords(pod_set="main", index=1, rank=1, node="eu-1", state="failed", exit_code=3, text="boom\x1b[2J\nend")
    failed = attempt(state="ended", outcome="failed", verdict="program", reason=why, words=[words])
    lines = Teller().news(workload("failed", failed, finished_at=NOW))
    assert lines == [
        "llama failed after 2h: attempt 1 failed. Rank 1 ended with exit code 3.",
        "  Rank 1 on eu-1 (failed, exit code 3) said last:",
        "    | boom?[2J",
        "    | end",
    ]


def test_a_failure_that_is_not_judged_yet_promises_nothing() -> None:
    ended = attempt(state="ended", outcome="failed", ended_at=NOW)
    teller = Teller()
    (line,) = teller.news(workload("stopping", ended))
    assert line.startswith(
        "llama: attempt 1 failed. It waits, up to the evidence window of pool default, until its program"
    )
    assert "again" not in line
    assert teller.news(workload("stopping", ended)) == []
    why = said(ReasonCode.PROGRAM_FAILED, rank=1, exit_code=3)
    judged = workload("pending", ended.model_copy(update={"verdict": "program", "reason": why}))
    disturbed, waits = teller.news(judged)
    assert "Rank 1 ended with exit code 3." in disturbed
    assert waits == "llama waits in lab/nlp."


def test_machines_are_blamed_in_words_where_they_were_to_blame() -> None:
    found = workload("pending", attempt(state="ended", outcome="failed", verdict="infrastructure"))
    assert "because of its machines, which does not count against it" in story.ending(found["attempts"][0])


def test_the_history_of_an_attempt_says_when_each_step_came() -> None:
    ended = reclaimed(prepared_at=NOW - timedelta(minutes=58), start_ordered_at=NOW - timedelta(minutes=57))
    lines = list(story.history(workload("pending", ended)["attempts"][0]))
    assert lines[0] == "Attempt 1: preempted, after running for 20m"
    assert lines[1] == ("  placed 1h ago, prepared +2m, start ordered +1m, running +27m, stop ordered +20m, ended +10m")
    assert "    eu-0: 1 pod, 8 h100 (1 running)" in lines


def test_moments_and_amounts_are_said_as_people_say_them() -> None:
    now = datetime.now(UTC)
    for seconds, words in ((45, "45s"), (3_590, "1h"), (7_199, "2h"), (5_400, "1h30m"), (2_591_990, "30d")):
        assert render.until((now + timedelta(seconds=seconds)).isoformat()).startswith(f"in {words} (")
    assert render.until((now - timedelta(seconds=90)).isoformat()) == "since 1m"
    assert (render.counted(1, "pod"), render.counted(0, "pod")) == ("1 pod", "0 pods")
