"""Stories on a real node: programs in real containers, a real kubelet, and cards that a device plugin tells of."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.checks import settled
from tests.e2e.federation import H100, SUSPECT_SECONDS, UNREACHABLE_SECONDS, Federation, gang
from tests.kube.client import Json
from tests.kube.node import images
from tests.kube.node.node import RealNode
from tests.kube.node.places import CARDS, VISIBLE_DEVICES

FOREVER = "while true; do sleep 0.1; done"
LOOP = f"trap 'exit 0' TERM; {FOREVER}"
MISSING = "registry.example/nobody-made-this:1"
PULL_SECONDS = 4

pytestmark = pytest.mark.timeout(240)  # the first story may have to start federation and node


@pytest.fixture(scope="module")
def node_program(
    running: Federation, kube_programs: Path, node_software: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealNode]:
    """The node of cluster `east`, its kubelet not started yet."""
    folder = tmp_path_factory.mktemp("node")
    with RealNode(running.east.kube, folder, kube_programs, node_software) as node:
        yield node


@pytest.fixture
def node(federation: Federation, node_program: RealNode) -> RealNode:
    """The same, Ready with eight cards in cluster and plane, and the only node of all."""
    node_program.set_healthy_devices(len(CARDS))
    node_program.start_kubelet()
    federation.wait_for(lambda: usable(federation) == len(CARDS), "eight cards in the plane")
    return node_program


def usable(federation: Federation) -> int:
    """Cards that may be sold now, as the plane tells it of the whole cluster."""
    flavors = federation.cluster(federation.east)["flavors"]
    return sum(int(each["usable"]) for each in flavors if each["flavor"] == H100)


def program(name: str, pods: int, script: str, **spec: object) -> Json:
    """A gang whose program is a shell script."""
    image = str(spec.pop("image", images.PROGRAM))
    document = gang(name, pods, **spec)  # type: ignore[arg-type]  # as `gang` takes it
    policy = "Never" if image == images.PROGRAM else "IfNotPresent"
    container = {"name": "main", "image": image, "imagePullPolicy": policy, "command": ["/bin/sh", "-c", script]}
    document["spec"]["podSets"][0]["template"] = {"spec": {"containers": [container]}}
    return document


def last_words(federation: Federation, workload: Json) -> dict[int, str]:
    """What each rank of its one Attempt said last, as `muster describe` shows it."""
    (attempt,) = federation.attempts(workload)
    return {each["rank"]: each["text"] for each in attempt["words"]}


RENDEZVOUS = f"""
say() {{ echo "$@" > /dev/termination-log; }}
me="rank $RANK of $WORLD_SIZE, rank 0 at $MASTER_ADDR, cards ${VISIBLE_DEVICES}"
if [ "$RANK" = 0 ]; then
  heard=$(nc -l -p "$MASTER_PORT")
  say "$me, heard: $heard"
else
  until echo "hello of rank $RANK" | nc -w 2 "$MASTER_ADDR" "$MASTER_PORT"; do sleep 0.2; done
  say "$me"
fi
"""


def test_a_gang_of_two_finds_itself_and_its_cards_in_real_containers(federation: Federation, node: RealNode) -> None:
    workload = federation.submit(program("pair", 2, RENDEZVOUS, devices=4))

    federation.wait_state(workload, "succeeded")

    told = last_words(federation, workload)
    assert set(told) == {0, 1}
    assert told[0].endswith("heard: hello of rank 1")
    cards = {rank: text.partition("cards ")[2].partition(", ")[0].split(",") for rank, text in told.items()}
    assert all(f"rank {rank} of 2, rank 0 at pair-" in text for rank, text in told.items())
    assert sorted(cards[0][:4] + cards[1][:4]) == sorted(CARDS), "each card was given to one of them"
    settled(federation)


def test_what_is_cancelled_hears_sigterm_and_its_last_line_is_kept(federation: Federation, node: RealNode) -> None:
    script = f"trap 'echo saved at step 7; exit 3' TERM; echo training; {FOREVER}"
    workload = federation.submit(program("saver", 2, script, devices=4))
    federation.wait_state(workload, "running")

    federation.cancel(workload)

    federation.wait_state(workload, "cancelled")
    assert [words.splitlines()[-1] for words in last_words(federation, workload).values()] == ["saved at step 7"] * 2
    settled(federation)


def test_an_exit_code_of_one_is_the_programs_failure_and_counts(federation: Federation, node: RealNode) -> None:
    workload = federation.submit(program("broken", 1, "echo no such file: corpus >&2; exit 1"))

    federation.wait_state(workload, "failed")

    (attempt,) = federation.attempts(workload)
    assert (attempt["outcome"], attempt["verdict"]) == ("failed", "program")
    assert attempt["reason"]["sentence"] == "Rank 0 ended with exit code 1."
    seen = federation.workload(workload)
    assert (seen["programFailures"], seen["maxAttempts"], seen["infrastructureEnds"]) == (1, 1, 0)
    assert last_words(federation, workload) == {0: "no such file: corpus"}
    assert "Rank 0 said last: no such file: corpus." in federation.explain(workload)
    settled(federation)


def test_a_killed_kubelet_is_no_failure_of_the_program(federation: Federation, node: RealNode) -> None:
    """Back soon, nothing has happened; away for long, its gang is taken up again when the machine is back."""
    workload = federation.submit(program("steady", 2, LOOP, devices=4))
    federation.wait_state(workload, "running")
    began = {pod.name: started(pod.raw) for pod in federation.east.pods_of(workload)}

    node.kill_kubelet()
    node.start_kubelet()
    assert {pod.name: started(pod.raw) for pod in federation.east.pods_of(workload)} == began
    assert federation.workload(workload)["state"] == "running"

    node.kill_kubelet()
    federation.east.kube.mark_node(node.name)  # what the node controller does after its grace
    federation.wait_for(lambda: federation.attempts(workload)[0]["verdict"], "a verdict")
    node.start_kubelet()

    federation.wait_for(lambda: len(federation.attempts(workload)) == 2, "a second attempt", within=60)
    federation.wait_state(workload, "running", within=60)
    first, _ = federation.attempts(workload)
    assert (first["verdict"], first["reason"]["code"]) == ("infrastructure", "node-lost")
    seen = federation.workload(workload)
    assert (seen["programFailures"], seen["infrastructureEnds"]) == (0, 1)
    assert {pod.name for pod in federation.east.pods_of(workload)}.isdisjoint(began)


def started(pod: Json) -> str:
    """When its container began: another container began at another time."""
    return str(pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"])


def test_three_withdrawn_devices_are_seen_and_no_longer_sold(federation: Federation, node: RealNode) -> None:
    node.set_healthy_devices(5)
    federation.wait_for(lambda: usable(federation) == 5, "five cards in the plane")

    eight = federation.submit(program("eight", 1, LOOP, devices=8))
    federation.wait_for(lambda: federation.workload(eight)["reasons"], "a stored Reason")
    five = federation.submit(program("five", 1, LOOP, devices=5))
    federation.wait_state(five, "running")

    assert federation.workload(eight)["state"] == "pending"
    (flavor,) = (each for each in federation.cluster(federation.east)["flavors"] if each["flavor"] == H100)
    assert (flavor["owned"], flavor["usable"], flavor["held"], flavor["free"]) == (8, 5, 5, 0)
    assert "east has room for 0 of 1 pods of 8" in federation.explain(eight)

    federation.cancel(five)
    node.set_healthy_devices(8)
    federation.wait_state(eight, "running")


def test_an_image_that_cannot_be_pulled_is_tried_again_explained_and_given_up_by_its_budget(
    federation: Federation, node: RealNode, short_pulls: None
) -> None:
    """The kubelet tries again within the budget, the plane beyond it; once the image is there, it runs by itself."""
    workload = federation.submit(program("imageless", 1, LOOP, image=MISSING))

    def explained() -> str:
        text = federation.explain(workload)
        assert MISSING in text, text
        assert "ErrImagePull" in text or "ImagePullBackOff" in text, text
        return text

    assert "Rank 0 waits on real-0: " in federation.wait_for(explained, "the kubelet's words about the image")
    federation.wait_for(lambda: federation.attempts(workload)[0]["outcome"] == "voided", "its budget to pass")
    first = federation.attempts(workload)[0]
    assert first["reason"]["code"] == "budget-passed"
    assert MISSING in first["reason"]["sentence"]
    seen = federation.workload(workload)
    assert (seen["programFailures"], seen["infrastructureEnds"]) == (0, 0)
    assert MISSING in explained()

    node.add_image(MISSING)
    federation.wait_state(workload, "running", within=60)
    assert len(federation.attempts(workload)) > 1


@pytest.fixture
def short_pulls(federation: Federation) -> Iterator[None]:
    """Images have to be there soon."""
    set_pull_budget(federation, PULL_SECONDS)
    yield
    set_pull_budget(federation)


def set_pull_budget(federation: Federation, seconds: int = 1_800) -> None:
    spec = {"suspectSeconds": SUSPECT_SECONDS, "unreachableSeconds": UNREACHABLE_SECONDS}
    budgets = {"budgets": {"pullSeconds": seconds}}
    federation.apply([{"kind": "Cluster", "metadata": {"name": "east"}, "spec": {**spec, **budgets}}])
