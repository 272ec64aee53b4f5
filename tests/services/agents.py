"""An agent for tests, as the wire sees it: its own key, its Session, its cluster's nodes and pods as it tells them.

It speaks to the services directly, in the contract's messages, serialised both ways; `tests/api` sends the same over
HTTP. Work gets to it through the real planner.
"""

import hashlib
import json
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from joserfc import jws
from joserfc.jwk import ECKey

from controlplane.contract.agent.attempts import AttemptObservation, Directive, PodObservation, PodPhase
from controlplane.contract.agent.enrolment import ENROL_TYPE, EnrolReply, EnrolRequest, HelloReply, HelloRequest
from controlplane.contract.agent.inventory import (
    DeviceReport,
    ForeignPod,
    InventoryDelta,
    NodeReport,
    ResourceCount,
    inventory_digest,
    node_digest,
)
from controlplane.contract.agent.sync import DirectiveBatch, SyncReply, SyncRequest
from controlplane.core.facts.fleet import KeyFact
from controlplane.core.ids import ClusterId
from controlplane.services import attempt_batch, enrolment, fleet, sync
from controlplane.services.enrolment import EnrolTools
from controlplane.services.signing import Signer, public_part
from controlplane.services.sync import SyncTools
from tests.services.planes import Plane

GPU = "nvidia.com/gpu"
AUDIENCE = "http://127.0.0.1:8441"
SIGNER = Signer(ECKey.generate_key("P-256"))


def new_key() -> ECKey:
    return ECKey.generate_key("P-256")


def tools(plane: Plane, lease_seconds: int = 60) -> SyncTools:
    return SyncTools(plane.uow, SIGNER, lease_seconds=lease_seconds, poll_seconds=25)


def enrol_tools(plane: Plane) -> EnrolTools:
    return EnrolTools(plane.uow, SIGNER, AUDIENCE)


def envelope(key: ECKey, request: EnrolRequest, **header: object) -> str:
    """The self-signed body of an enrolment."""
    head = {"alg": "ES256", "typ": ENROL_TYPE, "jwk": public_part(key), **header}
    return jws.serialize_compact(head, request.model_dump_json(), key, algorithms=["ES256"])


def create(plane: Plane, name: str, **spec: int) -> ClusterId:
    with plane.uow() as uow:
        return fleet.create_cluster(uow, name, "default", {}, spec, "root")


def token_for(plane: Plane, cluster: ClusterId, *, auto_accept: bool = False, valid_seconds: int = 3_600) -> str:
    with plane.uow() as uow:
        return enrolment.issue_token(uow, cluster, "root", auto_accept=auto_accept, valid_seconds=valid_seconds).token


def node(
    name: str, devices: int = 8, *, ready: bool = True, rack: str = "r1", uid: str = "", ill: int = 0, foreign: int = 0
) -> NodeReport:
    """An H100 machine; its last `ill` cards are unhealthy, `foreign` cards are in use by pods that are not ours."""
    cards = [
        DeviceReport(
            device_key=f"GPU-{name}-{index}",
            key_quality="uuid",
            vendor="nvidia",
            resource=GPU,
            model_raw="NVIDIA-H100-80GB-HBM3",
            memory_mib=81_559,
            health="unhealthy" if index >= devices - ill else "ok",
        )
        for index in range(devices)
    ]
    pods = [ForeignPod(namespace="others", name="squatter", uid="f1", resource=GPU, amount=foreign)] if foreign else []
    return NodeReport(
        uid=uid or f"uid-{name}",
        name=name,
        ready=ready,
        ready_changed_at=datetime.now(UTC) - timedelta(seconds=5),
        domains={"rack": rack},
        cpu_milli=192_000,
        memory_bytes=2 * 10**12,
        resources=[ResourceCount(resource=GPU, capacity=devices, allocatable=devices - ill, foreign=foreign)],
        devices=cards,
        foreign_pods=pods,
    )


@dataclass
class Agent:
    """One cluster's agent."""

    plane: Plane
    cluster: ClusterId
    name: str
    key: ECKey = field(default_factory=new_key)
    fingerprint: str = ""
    epoch: int = 0
    seq: int = 0
    cursor: int = 0
    signed_at: int = 0
    revision: int = 0
    wanted: dict[str, Directive] = field(default_factory=dict)  # the apply directive of each object
    gens: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, list[str]] = field(default_factory=dict)
    nodes: dict[str, NodeReport] = field(default_factory=dict)
    plane_keys: list[dict[str, str]] = field(default_factory=SIGNER.public_keys)

    def __post_init__(self) -> None:
        self.fingerprint = self.fingerprint or f"kube-system-of-{self.name}"

    def enrol(self, token: str) -> EnrolReply:
        request = EnrolRequest(token=token, fingerprint=self.fingerprint, instance_id="pod-1")
        return enrolment.enrol(enrol_tools(self.plane), envelope(self.key, request))

    def known(self) -> KeyFact:
        """What the listener learns from a signature of its key."""
        key = enrolment.known_key(self.plane.uow, self.key.thumbprint())
        enrolment.use_key(self.plane.uow, key)
        return key

    def hello(self, **more: object) -> HelloReply:
        stated = {"instance_id": "pod-1", "fingerprint": self.fingerprint, "namespaces": ["team"]}
        request = HelloRequest.model_validate({**stated, **more})
        self.signed_at = max(int(time.time()), self.signed_at + 1)
        reply = sync.hello(tools(self.plane), self.known(), request, self.signed_at)
        self.epoch, self.seq, self.cursor = reply.session_epoch, 0, 0
        return reply

    def request(self, **more: object) -> SyncRequest:
        """The next request of the Session."""
        self.seq += 1
        stated = {"session_epoch": self.epoch, "seq": self.seq, "cursor": self.cursor, "wait_seconds": 0}
        return SyncRequest.model_validate({**stated, **more})

    def sync(self, **more: object) -> SyncReply:
        """One exchange; what it brings is kept."""
        return self.send(self.request(**more))

    def send(self, request: SyncRequest) -> SyncReply:
        reply = sync.exchange(tools(self.plane), self.known(), request)
        self.keep(reply)
        return reply

    def keep(self, reply: SyncReply) -> list[Directive]:
        told = directives(reply, self.plane_keys)
        for each in told:
            self.gens[each.object_id] = max(each.gen, self.gens.get(each.object_id, 0))
            self.kinds.setdefault(each.object_id, []).append(each.kind)
            if each.apply is not None:
                self.wanted[each.object_id] = each
        self.cursor = reply.cursor
        return told

    def report(self, *nodes: NodeReport, whole: bool = False, removed: Sequence[str] = ()) -> SyncReply:
        """Tell of nodes."""
        return self.sync(inventory=self.delta(*nodes, whole=whole, removed=removed))

    def delta(self, *nodes: NodeReport, whole: bool = False, removed: Sequence[str] = ()) -> InventoryDelta:
        if whole:
            self.nodes.clear()
        self.nodes.update({each.uid: each for each in nodes})
        for uid in removed:
            self.nodes.pop(uid, None)
        self.revision += 1
        digest = inventory_digest((uid, node_digest(each)) for uid, each in self.nodes.items())
        return InventoryDelta(
            revision=self.revision, whole=whole, levels=["rack", "host"], nodes=list(nodes), removed=list(removed),
            digest=digest,
        )  # fmt: skip

    def digest(self) -> str:
        lines = sorted(f"{name} {gen}" for name, gen in self.gens.items())
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def told(self, object_id: str, state: str, *, gen: int | None = None, **more: object) -> AttemptObservation:
        """How far it is with an object."""
        workload, _, attempt = object_id.rpartition(".")
        applied = self.gens.get(object_id, 0) if gen is None else gen
        stated = {"object_id": object_id, "workload": workload, "attempt": int(attempt), "state": state}
        return AttemptObservation.model_validate({**stated, "applied_gen": applied, **more})

    def pods(
        self, object_id: str, phase: PodPhase, ranks: Iterable[int] | None = None, uid: str = "", **more: object
    ) -> list[PodObservation]:
        """Its pods (or those ranks) in this phase."""
        body = self.wanted[object_id].apply
        assert body is not None
        workload, _, attempt = object_id.rpartition(".")
        chosen = set(ranks) if ranks is not None else {pin.rank for pin in body.pins}
        whose = {"workload": workload, "attempt": int(attempt), "phase": phase}
        return [
            PodObservation.model_validate(
                {
                    **whose,
                    "pod_set": pin.pod_set,
                    "index": pin.index,
                    "uid": f"{uid or 'pod'}-{object_id}-{pin.rank}",
                    "node": pin.node,
                    **more,
                }
            )
            for pin in body.pins
            if pin.rank in chosen
        ]

    def prepare(self, object_id: str) -> SyncReply:
        """Everything is there, gated."""
        return self.sync(attempts=[self.told(object_id, "prepared")], pods=self.pods(object_id, "gated"))

    def start(self, object_id: str) -> SyncReply:
        """The gates came off and every pod runs."""
        return self.sync(attempts=[self.told(object_id, "started")], pods=self.pods(object_id, "running"))

    def run(self, object_id: str) -> None:
        self.prepare(object_id)
        self.start(object_id)

    def finish(self, object_id: str) -> SyncReply:
        return self.sync(pods=self.pods(object_id, "succeeded", exit_code=0))

    def bury(self, object_id: str) -> SyncReply:
        """Nothing of it is left."""
        reply = self.sync(attempts=[self.told(object_id, "gone")])
        self.gens.pop(object_id, None)
        return reply

    def only(self) -> str:
        """The one object that it was told of last."""
        return list(self.wanted)[-1]


class _Batches(jws.JWSRegistry):
    max_payload_length = 16_777_216  # more than the library's 128 kB, as agents take it


def directives(reply: SyncReply, plane_keys: Sequence[dict[str, str]] = ()) -> list[Directive]:
    """What a reply orders, its signature checked."""
    if reply.directives_jws is None:
        return []
    key = ECKey.import_key(dict((plane_keys or SIGNER.public_keys())[0]))
    opened = jws.deserialize_compact(reply.directives_jws, key, registry=_Batches(algorithms=["ES256"]))
    return DirectiveBatch.model_validate(json.loads(opened.payload)).directives


def ready(plane: Plane, name: str, *nodes: NodeReport, **spec: int) -> Agent:
    """A cluster that is enrolled, accepted, has said hello and told its nodes."""
    cluster = create(plane, name, **spec)
    agent = Agent(plane, cluster, name)
    agent.enrol(token_for(plane, cluster, auto_accept=True))
    agent.hello()
    agent.report(*nodes, whole=True)
    return agent


def plan(plane: Plane) -> None:
    """Plan until nothing more can be done, then let planning rest; directives get numbers and wake nobody."""
    planner = plane.planner(f"planner-{uuid.uuid4()}")
    for _ in range(5):
        planner.step()
    planner.let_go()
    with plane.uow() as uow:
        attempt_batch.number(uow, {ClusterId(row.id) for row in plane.rows("SELECT id FROM cluster")})


def placed(plane: Plane, agent: Agent, queue: int, *, pods: int = 2, name: str = "gang") -> tuple[str, str]:
    """A gang that was planned into the agent's cluster and told to it: the workload and its object's name."""
    workload = plane.workload(name, queue, pods=pods)
    plan(plane)
    agent.sync()
    object_id = agent.only()
    assert object_id.startswith(workload)
    return workload, object_id


def tell_time(plane: Plane, seconds: int) -> None:
    """As if so many seconds had passed since everything that is stored: what is due later is due now."""
    back = f"interval '{seconds} seconds'"
    plane.do(f"UPDATE cluster SET last_heard_at = last_heard_at - {back}, next_check_at = now() - interval '1 second'")
    plane.do(f"UPDATE cluster SET lost_at = lost_at - {back} WHERE lost_at IS NOT NULL")
    plane.do(f"UPDATE attempt SET evidence_until = evidence_until - {back}, next_check_at = next_check_at - {back}")
    plane.do(f"UPDATE pod SET finished_at = finished_at - {back}, changed_at = changed_at - {back}")
    plane.do(f"UPDATE node SET ready_changed_at = ready_changed_at - {back}, next_check_at = next_check_at - {back}")
