"""Translation between stored values and the agents' messages: nothing lost, nothing believed that cannot be."""

from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest

from controlplane.contract.agent.attempts import ApplyBody, Rejection
from controlplane.contract.agent.inventory import DeviceReport, NodeReport, ResourceCount
from controlplane.core.facts.attempts import PodPin, WorkloadOrder
from controlplane.core.facts.fleet import NumberedDirective
from controlplane.core.facts.ledger import AttemptKey
from controlplane.core.ids import AttemptNumber, WorkloadId
from controlplane.services import fleet, wire
from tests.services.agents import GPU, node

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CODES = get_args(Rejection.model_fields["code"].annotation)


def order(manifest: dict[str, object] | None = None) -> WorkloadOrder:
    spec = {
        "podSets": [
            {"name": "leader", "replicas": 1, "template": {"spec": {"containers": [{"name": "a"}]}}},
            {"name": "worker", "replicas": 4, "template": {"spec": {"containers": [{"name": "b"}]}}},
        ]
    }
    return WorkloadOrder(AttemptKey(WorkloadId("w"), AttemptNumber(2)), "gang", "team", 5, spec, manifest)


def pins(*ranks: int) -> list[PodPin]:
    return [PodPin("leader" if rank == 0 else "worker", max(0, rank - 1), rank, f"n{rank}", GPU, 8) for rank in ranks]


def test_one_clusters_part_of_a_gang_has_its_own_sizes_and_the_whole_gangs_world() -> None:
    body = ApplyBody.model_validate(wire.apply_body(order(), pins(0, 2, 3)))
    assert {each.name: each.replicas for each in body.pod_sets} == {"leader": 1, "worker": 2}
    assert body.world_size == 5
    assert [(pin.pod_set, pin.index, pin.rank, pin.node) for pin in body.pins] == [
        ("leader", 0, 0, "n0"), ("worker", 1, 2, "n2"), ("worker", 2, 3, "n3"),
    ]  # fmt: skip
    assert body.environment["MUSTER_ATTEMPT"] == "2"
    assert body.pod_sets[1].template == {"spec": {"containers": [{"name": "b"}]}}


def test_of_a_submitted_job_only_what_is_obeyed_is_passed_on() -> None:
    manifest: dict[str, object] = {"spec": {"podFailurePolicy": {"rules": []}, "backoffLimit": 3, "suspend": True}}
    body = ApplyBody.model_validate(wire.apply_body(order(manifest), pins(0)))
    assert body.pod_sets[0].job == {"podFailurePolicy": {"rules": []}}


def test_a_stored_order_is_told_as_it_was_given() -> None:
    stored = NumberedDirective(7, "w.2", 1, "apply", "w", 2, wire.apply_body(order(), pins(0, 1)))
    told = wire.directive(stored)
    assert (told.number, told.object_id, told.gen, told.kind, told.attempt) == (7, "w.2", 1, "apply", 2)
    assert told.apply == ApplyBody.model_validate(stored.body)
    assert wire.directive(NumberedDirective(8, "w.2", 2, "tombstone", "w", 2)).apply is None


@pytest.mark.parametrize("code", CODES)
def test_every_refusal_is_a_sentence_even_without_its_numbers(code: str) -> None:
    told = Rejection.model_validate({"code": code})
    assert "eu" in wire.rejection_reason(told, "no words", "eu").sentence() or code in {"budget-passed", "foreign-pods"}


def test_an_agent_cannot_speak_in_another_clusters_name() -> None:
    told = Rejection.model_validate({"code": "local-policy", "facts": {"cluster": "us", "words": "no"}})
    assert wire.rejection_reason(told, "", "eu").facts["cluster"] == "eu"


def test_times_of_the_future_and_of_another_age_count_as_now() -> None:
    assert wire.believable(None, NOW) is None
    assert wire.believable(NOW - timedelta(hours=1), NOW) == NOW - timedelta(hours=1)
    for strange in (datetime(9999, 12, 31, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)):
        assert wire.believable(strange, NOW) == NOW


def card(key: str, model: str = "NVIDIA-A100-SXM4-80GB", resource: str = GPU, **more: object) -> DeviceReport:
    stated = {"device_key": key, "key_quality": "uuid", "vendor": "nvidia", "resource": resource, "model_raw": model}
    return DeviceReport.model_validate({**stated, **more})


def counts(report: NodeReport) -> dict[str, tuple[int, int]]:
    """Owned and ours to give, by Flavor."""
    told = wire.flavor_counts(wire.told_resources(report), wire.cards_of(report, fleet.flavors_of(report)))
    return {each.flavor: (each.owned, each.capacity) for each in told}


def test_a_card_that_is_cut_is_counted_by_its_partitions() -> None:
    mig = "nvidia.com/mig-1g.10gb"
    parts = [
        card(f"MIG-{n}", resource=mig, kind="partition", parent_key="GPU-0", memory_mib=9_728, profile="1g.10gb")
        for n in range(7)
    ]
    report = node("n1", devices=0).model_copy(
        update={
            "devices": [card("GPU-0", memory_mib=81_920), *parts],
            "resources": [
                ResourceCount(resource=GPU, capacity=0, allocatable=0),
                ResourceCount(resource=mig, capacity=7, allocatable=7, foreign=2),
            ],
        }
    )
    assert counts(report) == {"nvidia-a100-80gb-mig-1g.10gb": (7, 5)}


def test_shared_cards_are_counted_by_their_slots() -> None:
    pool = card("GPU-0", kind="slot_pool", slots_total=4, slots_allocatable=4, sharing="time-slicing")
    report = node("n1", devices=0).model_copy(
        update={"devices": [pool], "resources": [ResourceCount(resource=GPU, capacity=4, allocatable=4)]}
    )
    assert counts(report) == {"nvidia-a100-80gb": (4, 4)}


def test_what_the_api_server_does_not_count_is_not_given_out_whatever_cards_look_like() -> None:
    report = node("n1", devices=8).model_copy(
        update={"resources": [ResourceCount(resource=GPU, capacity=8, allocatable=6, foreign=1)]}
    )
    assert counts(report) == {"nvidia-h100-80gb": (8, 5)}


def test_two_models_under_one_resource_never_give_out_more_than_there_is() -> None:
    cards = [card("A", "NVIDIA-A100-SXM4-80GB"), card("B", "NVIDIA-H100-80GB-HBM3")]
    report = node("n1", devices=0).model_copy(
        update={"devices": cards, "resources": [ResourceCount(resource=GPU, capacity=2, allocatable=2, foreign=1)]}
    )
    assert sum(capacity for _, capacity in counts(report).values()) == 1


def test_two_resources_that_give_one_flavor_count_once() -> None:
    """A pod asks for one resource, so what the other one gives is out of its reach."""
    cards = [card("A", resource=GPU), card("B", resource="nvidia.com/gpu.shared", slots_total=4, slots_allocatable=4)]
    told = [
        ResourceCount(resource=GPU, capacity=1, allocatable=1),
        ResourceCount(resource="nvidia.com/gpu.shared", capacity=4, allocatable=4),
        ResourceCount(resource=GPU, capacity=1, allocatable=1),
    ]
    report = node("n1", devices=0).model_copy(update={"devices": cards, "resources": told})
    assert list(counts(report).values()) == [(4, 4)]
    assert len(wire.flavor_counts(wire.told_resources(report), wire.cards_of(report, fleet.flavors_of(report)))) == 1


def test_facts_of_a_refusal_that_mean_nothing_change_nothing() -> None:
    told = Rejection(code="refused-by-cluster", facts={"code": "mine", "words": "no", "0": 1})
    assert wire.rejection_reason(told, "", "eu").sentence() == "eu refused it: no"


def test_levels_are_passed_on_as_the_document_names_them() -> None:
    assert wire.cluster_spec({"topologyKeys": {"rack": "example.com/rack"}}) == {
        "topologyKeys": {"rack": "example.com/rack"}
    }
    assert wire.cluster_spec({}) == {}
