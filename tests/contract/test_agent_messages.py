"""Every message between agents and the plane, per protocol version, as files: a change of the wire shows as a diff.

The plane speaks versions N to N-2, so a file of an older version is never edited; what it holds must still be read.
`REWRITE_GOLDEN=1` writes the files of the newest version anew.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from controlplane.contract.agent.attempts import (
    ApplyBody,
    AttemptObservation,
    Budgets,
    Directive,
    Pin,
    PodObservation,
    PodSetOrder,
    Rejection,
)
from controlplane.contract.agent.base import PROTOCOL_OLDEST, PROTOCOL_VERSION, WireModel
from controlplane.contract.agent.enrolment import (
    EnrolEnvelope,
    EnrolReply,
    EnrolRequest,
    HelloReply,
    HelloRequest,
    SignedClaims,
)
from controlplane.contract.agent.inventory import (
    DeviceReport,
    DiscrepancyReport,
    ForeignPod,
    HealthReason,
    InventoryDelta,
    NodeReport,
    ResourceCount,
)
from controlplane.contract.agent.sync import DirectiveBatch, ItemAnswer, ListPart, PodPlace, SyncReply, SyncRequest

GOLDEN = Path(__file__).parent / "golden"
AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
UID = "4d0f1c52-7f5e-4c57-9d0e-9c1f3f6f8f11"
OBJECT = f"{UID}.2"
JWK = {"kty": "EC", "crv": "P-256", "x": "eA" * 21 + "e", "y": "eQ" * 21 + "e"}

DEVICE = DeviceReport(
    device_key="GPU-1", key_quality="uuid", vendor="nvidia", kind="partition", parent_key="GPU-0",
    resource="nvidia.com/gpu", model_raw="NVIDIA-H100-80GB-HBM3", arch="hopper", compute_capability="9.0",
    memory_mib=81_559, profile="1g.10gb", slots_total=2, slots_allocatable=1, sharing="time-slicing",
    pci_bus_id="0000:01:00.0", nvlink_domain="d1", health="warn", sources=["labels"],
    health_reasons=[HealthReason(source="exporter", code="xid:79", text="fell off the bus", since=AT)],
)  # fmt: skip
NODE = NodeReport(
    uid="node-1", name="n1", ready=True, ready_changed_at=AT, cordoned=True, deleting=False,
    taints=[{"key": "k", "effect": "NoSchedule"}], labels={"a": "b"}, domains={"rack": "r1"}, cpu_milli=192_000,
    memory_bytes=2**41, pods=240, rdma=8, hugepages_bytes=2**30, local_storage_bytes=2**40,
    instance_type="p5", provider_id="aws:///x", driver_versions={"driver": "570"},
    resources=[ResourceCount(resource="nvidia.com/gpu", capacity=8, allocatable=7, foreign=1)], devices=[DEVICE],
    foreign_pods=[ForeignPod(namespace="x", name="y", uid="z", owner="w", resource="nvidia.com/gpu", amount=1)],
    discrepancies=[DiscrepancyReport(code="count", values={"labels": "8"}, believed="api")],
)  # fmt: skip
APPLY = ApplyBody(
    name="llama", namespace="nlp", world_size=16, environment={"A": "b"}, budgets=Budgets(bind_seconds=60),
    pod_sets=[PodSetOrder(name="trainer", kind="Pods", replicas=1, template={"spec": {}}, job={"x": 1})],
    pins=[Pin(pod_set="trainer", index=0, rank=3, node="n1", resource="nvidia.com/gpu", amount=8)],
    on_cluster_loss="replace", grace_seconds=30,
)  # fmt: skip
ORDER = Directive(
    number=7, object_id=OBJECT, gen=1, kind="apply", workload=UID, attempt=2, apply=APPLY, required_features=["pin"]
)
TOLD = AttemptObservation(
    object_id=OBJECT, workload=UID, attempt=2, applied_gen=1, state="rejected", message="no",
    rejection=Rejection(code="foreign-pods", facts={"amount": 1, "node": "n1"}, nodes=["n1"]),
)  # fmt: skip
POD = PodObservation(
    workload=UID, attempt=2, pod_set="trainer", index=0, uid="pod-1", phase="failed", node="n1", ready=False,
    exit_code=137, disrupted=True, reason="Evicted", message="gone", unschedulable="0/1", waiting="ImagePullBackOff",
    device_keys=["GPU-1"], started_at=AT, finished_at=AT,
)  # fmt: skip
INVENTORY = InventoryDelta(
    revision=4, whole=True, levels=["rack", "host"], nodes=[NODE], uids=["node-1"], removed=["node-0"], digest="d"
)

MESSAGES: dict[str, WireModel] = {
    "enrol-envelope": EnrolEnvelope(jws="a.b.c"),
    "enrol-request": EnrolRequest(
        token=f"mst_1.{'A' * 43}", fingerprint="kube-system-uid", kubernetes_version="1.36", agent_version="0.1",
        instance_id="pod-1",
    ),
    "enrol-reply": EnrolReply(
        cluster="eu", state="enrolled", key_thumbprint="t" * 43, plane_keys=[JWK], audience="https://plane.example"
    ),
    "hello-request": HelloRequest(
        instance_id="pod-1", fingerprint="kube-system-uid", features=["pin"], namespaces=["nlp"], acked_number=7,
        next_key=JWK, next_key_proof="a.b.c",
    ),
    "hello-reply": HelloReply(
        session_epoch=3, incarnation="i", plane_epoch=1, protocol=1, mode="normal", server_time=AT, lease_seconds=60,
        poll_seconds=15, plane_keys=[JWK], spec={"topologyKeys": {"rack": "example.com/rack"}},
    ),
    "signed-claims": SignedClaims(
        sub="eu", aud="https://plane.example", htm="POST", htu="/agent/v1/sync", bh="h" * 43, iat=1, exp=61, se=3, seq=9
    ),
    "sync-request": SyncRequest(
        session_epoch=3, seq=9, cursor=7, attempts=[TOLD], pods=[POD], inventory=INVENTORY, desired_digest="d",
        whole=True, kube_reachable=False,
        part=ListPart(since=PodPlace(object_id=OBJECT, pod_set="trainer", index=4), until=PodPlace(object_id=OBJECT)),
    ),
    "sync-reply": SyncReply(
        seq=9, directives_jws="a.b.c", cursor=8, more=True, lease_seconds=60, poll_seconds=15,
        want_whole_inventory=True, want_full_list=True, rejected=[ItemAnswer(object_id=OBJECT, code="stale-attempt")],
    ),
    "directive-batch": DirectiveBatch(cluster="eu", plane_epoch=1, after=6, upto=7, directives=[ORDER]),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_the_newest_version_is_written_as_its_file_says(name: str) -> None:
    file = GOLDEN / f"v{PROTOCOL_VERSION}" / f"{name}.json"
    written = json.dumps(MESSAGES[name].model_dump(mode="json"), indent=2, sort_keys=True) + "\n"
    if os.environ.get("REWRITE_GOLDEN") == "1":
        file.write_text(written, encoding="utf-8")
    assert written == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("version", range(PROTOCOL_OLDEST, PROTOCOL_VERSION + 1))
@pytest.mark.parametrize("name", MESSAGES)
def test_every_version_that_is_spoken_is_read_whole(name: str, version: int) -> None:
    text = (GOLDEN / f"v{version}" / f"{name}.json").read_text(encoding="utf-8")
    read = type(MESSAGES[name]).model_validate_json(text)
    if version == PROTOCOL_VERSION:
        assert read == MESSAGES[name]


@pytest.mark.parametrize("name", MESSAGES)
def test_what_a_newer_peer_adds_is_passed_over(name: str) -> None:
    stated = MESSAGES[name].model_dump(mode="json") | {"added_later": {"by": "a newer version"}}
    assert type(MESSAGES[name]).model_validate(stated) == MESSAGES[name]
