"""What NVIDIA nodes own, read from recorded and handmade Node objects: cards, slots and partitions are not confused."""

from pathlib import Path

import pytest
import yaml

from agents import facts, quantities
from agents.devices.registry import read_devices
from agents.facts import NodeFacts
from agents.inventory import node_report

DATA = Path(__file__).parent / "data"
RESOURCE = "nvidia.com/gpu"


def _nodes() -> dict[str, NodeFacts]:
    found: dict[str, NodeFacts] = {}
    for file in sorted(DATA.glob("*.yaml")):
        for raw in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            node = facts.node_facts(raw)
            found[node.name] = node
    return found


NODES = _nodes()


@pytest.mark.parametrize("name", sorted(NODES))
def test_no_node_breaks_the_reader(name: str) -> None:
    report = node_report(NODES[name], [], (("rack", "topology.muster.dev/rack"),))
    assert report.uid == NODES[name].uid
    for device in report.devices:
        assert device.slots_allocatable <= device.slots_total
        assert device.memory_mib != 0, "unknown is not zero"
    assert len({device.device_key for device in report.devices}) == len(report.devices)


@pytest.mark.parametrize(
    ("name", "devices", "kind", "slots", "usable"),
    [
        ("plain-h100", 8, "card", 8, 8),
        ("ts-not-renamed", 8, "slot_pool", 80, 80),
        ("ts-renamed", 8, "slot_pool", 80, 80),
        ("ts-one-unhealthy", 8, "slot_pool", 80, 70),
        ("mig-single", 56, "partition", 56, 56),
        ("mig-reconfiguring", 8, "card", 8, 0),
        ("mig-invalid", 0, "", 0, 0),
        ("gpu-lost", 8, "card", 8, 7),
        ("no-labels", 4, "card", 4, 4),
        ("old-labels", 8, "card", 8, 8),
        ("labels-only", 0, "", 0, 0),
        ("gke-label-only", 56, "partition", 56, 56),
        ("gpu-worker-qa", 2, "card", 2, 2),
        ("gpu-worker-a100-1", 1, "partition", 1, 1),
    ],
)
def test_devices_and_slots_are_counted_apart(name: str, devices: int, kind: str, slots: int, usable: int) -> None:
    found = read_devices(NODES[name]).devices
    assert len(found) == devices
    assert {device.kind for device in found} == ({kind} if kind else set())
    assert sum(device.slots_total for device in found) == slots
    assert sum(device.slots_allocatable for device in found) == usable


def test_partitions_of_several_profiles_stand_beside_whole_cards() -> None:
    found = read_devices(NODES["mig-mixed-2-whole"]).devices
    counts: dict[str, int] = {}
    for device in found:
        counts[device.profile] = counts.get(device.profile, 0) + 1
    assert counts == {"": 2, "1g.10gb": 12, "2g.20gb": 6, "3g.40gb": 6}
    suffixed = read_devices(NODES["mig-suffix-profile"]).devices
    assert {device.profile for device in suffixed} == {"1g.24gb", "2g.48gb+gfx"}


@pytest.mark.parametrize(
    ("name", "model", "memory"),
    [
        ("plain-h100", "NVIDIA-H100-80GB-HBM3", 81559),
        ("ts-not-renamed", "NVIDIA-H100-80GB-HBM3", 81559),
        ("mig-single", "NVIDIA-A100-SXM4-40GB", 4864),
        ("no-labels", "", None),
        ("gpu-worker-qa", "Tesla-T4", 15360),
    ],
)
def test_the_model_is_what_the_vendor_wrote_without_its_suffixes(name: str, model: str, memory: int | None) -> None:
    device = read_devices(NODES[name]).devices[0]
    assert (device.model_raw, device.memory_mib) == (model, memory)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("gpu-lost", "allocatable-below-capacity"),
        ("two-models", "count-label-vs-capacity"),
        ("mig-invalid", "mig-invalid"),
        ("no-labels", "labels-missing"),
        ("labels-only", "labels-frozen"),
    ],
)
def test_sources_that_disagree_are_shown(name: str, code: str) -> None:
    assert code in {each.code for each in read_devices(NODES[name]).discrepancies}


def test_which_card_is_ill_is_not_invented_but_how_many_is_known() -> None:
    found = read_devices(NODES["gpu-lost"]).devices
    assert [device.health for device in found] == ["ok"] * 7 + ["unhealthy"]
    assert found[-1].health_reasons[0].code == "allocatable<capacity"
    assert {device.key_quality for device in found} == {"synthetic"}


@pytest.mark.parametrize(
    ("name", "kind"), [("liqo-remote-1", "virtual"), ("kwok-node-3", "fake"), ("plain-h100", "real")]
)
def test_nodes_that_are_not_machines_are_marked(name: str, kind: str) -> None:
    assert node_report(NODES[name], [], ()).kind == kind


def test_an_unknown_resource_is_named_and_not_counted() -> None:
    node = NodeFacts(name="n", uid="u", version="1", capacity={"example.com/widget": "4"}, allocatable={})
    reading = read_devices(node)
    assert reading.devices == []
    assert [each.code for each in reading.discrepancies] == ["unknown-resource"]


@pytest.mark.parametrize("text", ["-1", "0.5", "1500m", "1e", "0x8", "٨", "8 ", "9" * 40, "🂡"])
def test_a_bad_quantity_is_a_discrepancy_and_no_device(text: str) -> None:
    node = NodeFacts(name="n", uid="u", version="1", capacity={RESOURCE: text}, allocatable={RESOURCE: text})
    reading = read_devices(node)
    assert reading.devices == []
    assert "quantity-invalid" in {each.code for each in reading.discrepancies}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8), ("08", 8), ("8.0", 8), ("8000m", 8), ("1k", 1000), ("1e3", 1000), ("1E3", 1000), ("0.5e1", 5),
        ("2Ki", 2048), ("0", 0), ("1E", None), ("1500m", None), ("0.5", None), ("-1", None), ("", None), ("1K", None),
    ],
)  # fmt: skip
def test_quantities_of_cards_are_whole_or_nothing(text: str, number: int | None) -> None:
    assert quantities.count(text) == number


def test_memory_and_cpu_are_rounded_up_as_the_api_server_does() -> None:
    assert quantities.size_bytes("80Gi") == 80 * 2**30
    assert quantities.size_bytes("128974848000m") == 128974848
    assert quantities.milli("1.5") == 1500
    assert quantities.milli("250m") == 250
    assert quantities.milli("nonsense") == 0


def test_a_pods_request_is_the_largest_that_it_ever_needs_at_once() -> None:
    """Sidecars count with every later init container and with the containers (the scheduler's own rule)."""
    spec = {
        "initContainers": [
            {"resources": {"requests": {RESOURCE: "1"}}, "restartPolicy": "Always"},
            {"resources": {"limits": {RESOURCE: "6"}}},
        ],
        "containers": [{"resources": {"limits": {RESOURCE: "2"}}}, {"resources": {"limits": {RESOURCE: "1"}}}],
    }
    assert facts.effective_requests(spec)[RESOURCE] == 7
