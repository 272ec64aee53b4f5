"""What goes up when: a complete list in parts leaves nothing out and says nothing twice."""

import pytest

from agents.outbox import PODS_PER_REQUEST, Outbox, Parcel
from controlplane.contract.agent.attempts import AttemptObservation, PodObservation
from controlplane.contract.agent.sync import ListPart


def fill(outbox: Outbox, name: str, pods: int) -> None:
    attempt = AttemptObservation(object_id=f"{name}.1", workload=name, attempt=1, applied_gen=1, state="prepared")
    seen = [
        PodObservation(workload=name, attempt=1, pod_set="main", index=index, uid=f"{name}-{index}", phase="gated")
        for index in range(pods)
    ]
    outbox.observe(attempt, [((each.pod_set, each.index), each) for each in seen])


def parts_of(outbox: Outbox) -> list[Parcel]:
    parts = [outbox.list_part()]
    while parts[-1].part is not None and parts[-1].part.until is not None:
        assert len(parts) < 100
        parts.append(outbox.list_part(parts[-1].part.until))
    return parts


def place(pod: PodObservation) -> tuple[str, str, int]:
    return f"{pod.workload}.{pod.attempt}", pod.pod_set, pod.index


@pytest.mark.parametrize("sizes", [(4,), (PODS_PER_REQUEST,), (300, 1_200, 0, 100), (1,) * 900, (0,) * 900])
def test_the_parts_of_a_complete_list_name_everything_once_and_pods_before_their_state(sizes: tuple[int, ...]) -> None:
    outbox = Outbox()
    for number, pods in enumerate(sizes):
        fill(outbox, f"gang-{number}", pods)
    parts = parts_of(outbox)
    named = [place(pod) for each in parts for pod in each.pods]
    assert len(named) == len(set(named)) == sum(sizes)
    assert sorted(each.object_id for part in parts for each in part.attempts) == sorted(
        f"gang-{number}.1" for number in range(len(sizes))
    )
    told: set[tuple[str, str, int]] = set()
    for each in parts:
        assert each.part is not None
        assert all(each.part.has(*place(pod)) for pod in each.pods)
        assert len(each.pods) <= PODS_PER_REQUEST
        told |= {place(pod) for pod in each.pods}
        for attempt in each.attempts:
            assert {at for at in named if at[0] == attempt.object_id} <= told


def test_a_list_that_one_request_can_carry_is_no_part() -> None:
    outbox = Outbox()
    fill(outbox, "gang", 4)
    assert outbox.list_part().part == ListPart()
