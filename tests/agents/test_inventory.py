"""The inventory goes up whole once and then by what changed; what others use is subtracted; absence is not removal."""

import hashlib
import json
from dataclasses import replace

import pytest

from agents.cluster import View
from agents.facts import NodeFacts, PodFacts, effective_requests
from agents.inventory import Inventory
from agents.loop import levels_of
from agents.outbox import Outbox
from controlplane.contract.agent.attempts import AttemptObservation, PodObservation
from controlplane.contract.agent.inventory import NodeReport, inventory_digest, node_digest
from tests.agents.bench import GPU, UID

RACK = "topology.muster.dev/rack"


def _node(name: str, version: str = "1", **others: object) -> NodeFacts:
    made = NodeFacts(
        name=name,
        uid=f"uid-{name}",
        version=version,
        labels={"kubernetes.io/hostname": name, RACK: "r1"},
        ready=True,
        capacity={"cpu": "8", "memory": "64Gi", GPU: "8"},
        allocatable={"cpu": "8", "memory": "64Gi", GPU: "8"},
    )
    return replace(made, **others)  # type: ignore[arg-type]  # fields by name


def _pod(uid: str, node: str = "a", **others: object) -> PodFacts:
    made = PodFacts(
        "ns", uid, uid, "1", phase="Running", node=node, requests={GPU: 3}, needs={"cpu": 500, "memory": 2**30}
    )
    return replace(made, **others)  # type: ignore[arg-type]  # fields by name


def _view(*nodes: str) -> View:
    view = View()
    for name in nodes:
        view.put_node(_node(name))
    return view


def _sent(inventory: Inventory) -> tuple[bool, list[str], list[str]]:
    delta = inventory.next_delta()
    assert delta is not None
    inventory.acknowledge()
    return delta.whole, sorted(node.name for node in delta.nodes), delta.removed


def test_nothing_is_said_before_the_first_reading_since_unread_is_not_empty() -> None:
    inventory = Inventory()
    assert inventory.next_delta() is None
    inventory.update(View(), ())
    assert _sent(inventory) == (True, [], [])


def test_first_all_then_only_what_changed() -> None:
    view, inventory = _view("a", "b"), Inventory()
    inventory.update(view, ())
    assert _sent(inventory) == (True, ["a", "b"], [])
    assert inventory.next_delta() is None
    view.put_node(_node("b", "2", ready=False))
    view.put_node(_node("c"))
    view.drop_node("a")
    inventory.update(view, ())
    assert _sent(inventory) == (False, ["b", "c"], ["uid-a"])
    inventory.forget_acknowledged()
    assert _sent(inventory) == (True, ["b", "c"], [])


def test_what_got_no_answer_is_said_again() -> None:
    view, inventory = _view("a"), Inventory()
    inventory.update(view, ())
    assert inventory.next_delta() is not None
    assert inventory.next_delta() is not None
    inventory.acknowledge()
    assert inventory.next_delta() is None


def test_a_large_whole_list_names_every_node_first_and_sends_the_rest_after() -> None:
    names = [f"n{index:04}" for index in range(1200)]
    view, inventory = _view(*names), Inventory()
    inventory.update(view, ())
    first = inventory.next_delta()
    assert first is not None
    assert first.whole
    assert len(first.model_dump_json()) < 1_000_000
    assert len(first.uids) == len(names)
    sent = {node.name for node in first.nodes}
    inventory.acknowledge()
    while (delta := inventory.next_delta()) is not None:
        assert not delta.whole
        assert not delta.removed
        sent |= {node.name for node in delta.nodes}
        inventory.acknowledge()
        last = delta
    assert sent == set(names)
    assert last.digest == inventory.digest()


def test_both_sides_count_the_same_digest() -> None:
    view, inventory = _view("a", "b"), Inventory()
    inventory.update(view, ())
    delta = inventory.next_delta()
    assert delta is not None
    received = type(delta).model_validate_json(delta.model_dump_json(exclude_defaults=True))
    assert delta.digest == inventory_digest((node.uid, node_digest(node)) for node in received.nodes)


@pytest.mark.parametrize(
    ("pod", "known", "foreign"),
    [
        (_pod("theirs"), (), 3),
        (_pod("done", phase="Succeeded"), (), 0),
        (_pod("failed", phase="Failed"), (), 0),
        (_pod("waiting", node=""), (), 0),
        (_pod("ending", deleting=True), (), 3),
        (_pod("ours", workload=UID, attempt=1), (f"{UID}.1",), 0),
        (_pod("forged", workload=UID, attempt=1), (), 3),
    ],
)
def test_foreign_is_what_is_bound_not_finished_and_not_known_by_a_directive(
    pod: PodFacts, known: tuple[str, ...], foreign: int
) -> None:
    view, inventory = _view("a"), Inventory()
    view.put_pod(pod)
    inventory.update(view, known)
    delta = inventory.next_delta()
    assert delta is not None
    assert delta.nodes[0].resources[0].foreign == foreign
    assert delta.nodes[0].cpu_milli == (7_500 if foreign else 8_000)


def test_pods_rdma_huge_pages_and_disk_are_told_less_what_foreign_pods_take() -> None:
    allowed = {"pods": "250", "rdma/hca_a": "4", "rdma/hca_b": "4", "hugepages-2Mi": "1Gi", "hugepages-1Gi": "2Gi",
               "ephemeral-storage": "100Gi"}  # fmt: skip
    theirs = effective_requests(
        {"containers": [{"resources": {"requests": {"rdma/hca_b": "1", "hugepages-2Mi": "512Mi"}}},
                        {"resources": {"requests": {"ephemeral-storage": "10Gi"}}}]}
    )  # fmt: skip
    by_domain = {name: {at: amount for at, amount in theirs.items() if ("/" in at) == name} for name in (True, False)}
    view, inventory = View(), Inventory()
    view.put_node(_node("a", allocatable=allowed))
    view.put_pod(_pod("theirs", requests=by_domain[True], needs=by_domain[False]))
    inventory.update(view, ())
    delta = inventory.next_delta()
    assert delta is not None
    (told,) = delta.nodes
    assert (told.pods, told.rdma) == (249, 7)
    assert (told.hugepages_bytes, told.local_storage_bytes) == (2**31 + 2**29, 90 * 2**30)


def test_a_node_that_has_none_of_it_says_so_and_one_that_says_no_pods_takes_the_usual() -> None:
    view, inventory = _view("a"), Inventory()
    inventory.update(view, ())
    delta = inventory.next_delta()
    assert delta is not None
    (told,) = delta.nodes
    assert (told.pods, told.rdma, told.hugepages_bytes, told.local_storage_bytes) == (110, 0, 0, 0)


def test_labels_that_rules_may_name_are_told_and_those_that_change_all_the_time_are_not() -> None:
    view, inventory = View(), Inventory()
    labels = {
        "zone": "a", "feature.node.kubernetes.io/pci-10de.present": "true", "nvidia.com/gfd.timestamp": "17",
        "feature.node.kubernetes.io/cpu-cpuid.AVX512F": "true",
    }  # fmt: skip
    view.put_node(_node("a", labels=labels))
    inventory.update(view, ())
    delta = inventory.next_delta()
    assert delta is not None
    assert set(delta.nodes[0].labels) == {"zone", "feature.node.kubernetes.io/pci-10de.present"}


def test_an_agent_that_tells_nothing_new_counts_the_digest_that_it_always_counted() -> None:
    """An older agent does not know pods, RDMA and the like: else the plane would ask it for everything for ever."""
    old = NodeReport(uid="u", name="a", ready=True)
    fields = old.model_dump(mode="json")
    for name in ("pods", "rdma", "hugepages_bytes", "local_storage_bytes"):
        del fields[name]
    assert (
        node_digest(old)
        == hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    )
    assert node_digest(old.model_copy(update={"rdma": 0})) != node_digest(old)


def test_a_pod_that_comes_or_goes_makes_its_node_news() -> None:
    view, inventory = _view("a", "b"), Inventory()
    inventory.update(view, ())
    _sent(inventory)
    view.put_pod(_pod("theirs", node="b"))
    inventory.update(view, ())
    assert _sent(inventory) == (False, ["b"], [])
    view.drop_pod("theirs")
    inventory.update(view, ())
    assert _sent(inventory) == (False, ["b"], [])


def test_levels_are_those_that_nodes_bear_and_end_with_the_host() -> None:
    view, inventory = _view("a"), Inventory()
    inventory.update(view, ())
    delta = inventory.next_delta()
    assert delta is not None
    assert delta.levels == ["rack", "host"]
    assert delta.nodes[0].domains == {"rack": "r1"}


def test_the_clusters_document_names_labels_of_levels() -> None:
    stated = levels_of({"topologyKeys": {"rack": "example.com/r", "block": "example.com/b", "aisle": "example.com/a"}})
    assert stated == (("block", "example.com/b"), ("aisle", "example.com/a"), ("rack", "example.com/r"))
    assert levels_of({})[1] == ("rack", RACK)
    assert levels_of({"topologyKeys": "nonsense"}) == levels_of({})


def test_only_changed_observations_go_up_and_a_pod_before_the_state_that_rests_on_it() -> None:
    outbox = Outbox()
    attempt = AttemptObservation(object_id=f"{UID}.1", workload=UID, attempt=1, applied_gen=1, state="applying")
    pod = PodObservation(workload=UID, attempt=1, pod_set="main", index=0, uid="u", phase="gated")
    outbox.observe(attempt, [(("main", 0), pod)])
    parcel = outbox.parcel()
    assert (parcel.attempts, parcel.pods) == ((attempt,), (pod,))
    assert outbox.has_news(), "not told until the answer came"
    outbox.told(parcel)
    assert not outbox.has_news()
    outbox.observe(attempt, [(("main", 0), pod.model_copy(update={"phase": "running"}))])
    assert [each.phase for each in outbox.parcel().pods] == ["running"]
    outbox.tell_all_again()
    assert len(outbox.parcel().attempts) == 1
