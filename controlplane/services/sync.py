"""The plane's half of the conversation with an agent: hello opens a Session, each exchange moves it on by one.

A request is taken in one transaction (sequence, inventory, observations); new directives get their numbers in a
second, tiny one; the answer is made in a third, as often as the waiting request is woken, and kept, so that the same
request gets the same answer. Absence never means delete: what a list does not name is asked for, not removed.
"""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from controlplane.contract.agent.attempts import Directive
from controlplane.contract.agent.enrolment import DIRECTIVES_TYPE, HelloReply, HelloRequest
from controlplane.contract.agent.sync import DirectiveBatch, ItemAnswer, ListPart, SyncReply, SyncRequest
from controlplane.core.facts.fleet import ClusterFact, Document, KeyFact, SessionFact
from controlplane.core.ids import ClusterId
from controlplane.core.lifecycle import ClusterState
from controlplane.services import attempt_batch, attempts, enrolment, fleet, recovery, wire
from controlplane.services.errors import Conflict, Forbidden
from controlplane.services.ports.unit_of_work import UnitOfWork, UnitOfWorkFactory, run
from controlplane.services.signing import Signer

DIRECTIVES_MAX = 200
BATCH_BYTES_MAX = 1_048_576
FULL_AGAIN_SECONDS = 60  # nothing is asked for whole more often than this, whatever the digests say
RECOVERY = "recovery"
_NOT_ACCEPTED = frozenset({ClusterState.CREATED, ClusterState.ENROLLED})


@dataclass(frozen=True, slots=True)
class SyncTools:
    """What the conversation works with."""

    uow_factory: UnitOfWorkFactory
    signer: Signer
    lease_seconds: int
    poll_seconds: int


@dataclass(frozen=True, slots=True)
class Taken:
    """A request that was taken and waits for its answer; `answer` is what it was answered before, if it was.

    `has_spoken`: it brought something, so its answer must not wait for directives.
    """

    cluster: ClusterId
    cluster_name: str
    epoch: int
    seq: int
    cursor: int
    poll_seconds: int
    answer: Document | None = None
    has_spoken: bool = False
    wants_inventory: bool = False
    wants_full: bool = False
    refused: dict[str, str] = field(default_factory=dict)


def hello(tools: SyncTools, key: KeyFact, request: HelloRequest, signed_at: int) -> HelloReply:
    """Open a Session and end the one before; raises Forbidden, Conflict, TooNew, Invalid.

    `signed_at` must be later than that of the hello before, else whoever heard one could end Sessions with it.
    """
    version = enrolment.require_version(request.protocol_oldest, request.protocol_newest)

    def work(uow: UnitOfWork) -> HelloReply | None:
        cluster = _admitted(uow, key)
        if cluster.fingerprint != request.fingerprint:
            enrolment.note_wrong_cluster(uow, key, "its key was used in another cluster")
            return None
        if not uow.agents.take_hello(key.thumbprint, signed_at):
            raise Conflict("this hello, or one signed later, was taken already; sign another", slug="hello-replayed")
        if request.next_key is not None:
            enrolment.offer_next_key(uow, key, request.next_key, request.next_key_proof)
        uow.fleet.set_identity(cluster.id, request.fingerprint, request.agent_version, request.kubernetes_version)
        uow.fleet.set_hello(cluster.id, request.features, request.namespaces)
        if set(request.namespaces) != set(cluster.namespaces):
            uow.wake_pool(cluster.pool)  # work may have waited for a namespace
        lease_until = uow.now + timedelta(seconds=tools.lease_seconds)
        # A number that was never given is no proof of anything: from another plane, or a backup older than the agent.
        acked = min(request.acked_number, uow.agents.last_number(cluster.id))
        epoch = uow.agents.open_session(cluster.id, request.instance_id, key.thumbprint, acked, lease_until)
        fleet.hear(uow, cluster)
        facts = {"epoch": epoch, "instance": request.instance_id}
        uow.audit.record(
            actor=f"agent:{cluster.name}",
            action="cluster.hello",
            object_kind="cluster",
            object_id=str(cluster.id),
            facts=facts,
        )
        uow.notify_cluster(cluster.id)  # the Session before may still wait for an answer
        plane, opened = uow.agents.plane(), uow.agents.session(cluster.id)
        return HelloReply(
            session_epoch=epoch,
            incarnation=plane.incarnation,
            plane_epoch=plane.epoch,
            protocol=version,
            mode=RECOVERY if opened is not None and opened.is_recovering else "normal",
            server_time=uow.now,
            lease_seconds=tools.lease_seconds,
            poll_seconds=poll_seconds(cluster, tools.poll_seconds),
            plane_keys=tools.signer.public_keys(),
            spec=wire.cluster_spec(cluster.spec),
        )

    reply = run(tools.uow_factory, work)
    if reply is None:
        raise Forbidden("this key belongs to another cluster", slug="wrong-cluster")
    return reply


def poll_seconds(cluster: ClusterFact, longest: int) -> int:
    """How long a poll of this Cluster may wait: an agent with nothing to say is heard before it counts as suspect."""
    return max(1, min(longest, fleet.seconds_of(cluster, "suspectSeconds", fleet.SUSPECT_SECONDS) // 2))


def take(tools: SyncTools, key: KeyFact, request: SyncRequest) -> Taken:
    """Take a request's observations and inventory, once; raises Conflict where its Session is over, Forbidden."""
    taken, clusters = run(tools.uow_factory, lambda uow: _take(uow, tools, key, request))
    if clusters:
        run(tools.uow_factory, lambda uow: attempt_batch.number(uow, clusters))
    return taken


def answer(tools: SyncTools, taken: Taken, *, is_last: bool) -> SyncReply | None:
    """The answer, or None while there is nothing to say and it need not be the last word. Raises Conflict."""
    if taken.answer is not None:
        return SyncReply.model_validate(taken.answer)

    def work(uow: UnitOfWork) -> SyncReply | None:
        session = _require_current(uow.agents.session(taken.cluster), taken.epoch)
        if session.seq != taken.seq:
            raise Conflict("a later request of this session was taken", slug="session-superseded")
        # Of a plane that came from a backup a cluster hears nothing before the plane has heard everything of it.
        upto = taken.cursor if session.is_recovering else uow.agents.last_number(taken.cluster)
        has_news = upto > taken.cursor
        if not (has_news or is_last or taken.has_spoken or taken.wants_full or taken.wants_inventory):
            return None
        waiting = uow.agents.directives_after(taken.cluster, taken.cursor, upto, DIRECTIVES_MAX + 1) if has_news else []
        if has_news and not waiting and not (is_last or taken.has_spoken or taken.wants_full or taken.wants_inventory):
            return None
        chosen = _one_batch([wire.directive(each) for each in waiting])
        reply = _reply(tools, uow, taken, chosen, upto, more=len(chosen) < len(waiting))
        kept = uow.agents.store_answer(taken.cluster, taken.epoch, taken.seq, reply.model_dump(mode="json"))
        if kept is None:
            raise Conflict("a later request of this session was taken", slug="session-superseded")
        return SyncReply.model_validate(kept)

    return run(tools.uow_factory, work)


def exchange(tools: SyncTools, key: KeyFact, request: SyncRequest) -> SyncReply:
    """Take a request and answer it at once, without waiting."""
    reply = answer(tools, take(tools, key, request), is_last=True)
    assert reply is not None
    return reply


def number_left_over(uow: UnitOfWork, limit: int) -> int:
    """Number directives that a crash left between their commit and their number; returns for how many clusters."""
    left = set(uow.agents.unnumbered(limit))
    attempt_batch.number(uow, left)
    return len(left)


def _take(uow: UnitOfWork, tools: SyncTools, key: KeyFact, request: SyncRequest) -> tuple[Taken, set[ClusterId]]:
    cluster = _admitted(uow, key)
    session = uow.agents.lock_session(cluster.id)
    current = _require_current(session, request.session_epoch)
    poll = poll_seconds(cluster, tools.poll_seconds)
    taken = Taken(cluster.id, cluster.name, current.epoch, request.seq, request.cursor, poll)
    if request.seq == current.seq:
        return replace(taken, answer=current.answer), set()
    lease_until = uow.now + timedelta(seconds=tools.lease_seconds)
    # A cursor beyond all that was ever numbered would skip what comes next: such an agent hears everything again.
    last = uow.agents.last_number(cluster.id)
    is_ahead = request.cursor > last
    if not uow.agents.take_seq(cluster.id, current.epoch, request.seq, min(request.cursor, last), lease_until):
        raise Conflict("a later request of this session was taken", slug="session-superseded")
    if is_ahead:
        taken = replace(taken, cursor=0, wants_full=True)
    if not request.kube_reachable:  # what it last saw is old: nothing follows from it, and its cluster stays silent
        return taken, set()
    cluster = fleet.hear(uow, cluster)
    clusters: set[ClusterId] = set()
    wants_inventory = False
    if request.inventory is not None:
        applied = fleet.apply_inventory(uow, cluster, request.inventory)
        clusters |= applied.clusters
        wants_inventory = applied.differs
    part = ListPart() if request.whole else request.part
    told = attempts.Told(request.attempts, request.pods, part, is_recovering=current.is_recovering)
    recorded = attempts.record(uow, cluster, told)
    clusters |= recorded.clusters
    if current.is_recovering and part is not None and part.until is None:
        recovery.heard_whole(uow, cluster)
    wants_full = not current.is_recovering and _differs(uow, cluster.id, request)
    if wants_full or wants_inventory:
        if _asked_lately(uow, current):
            wants_full = wants_inventory = False
        else:
            uow.agents.full_asked(cluster.id, current.epoch)
    wants_full = wants_full or is_ahead  # its cursor comes back good, so this is said once, however lately it was asked
    return replace(
        taken,
        cursor=0 if wants_full else request.cursor,
        has_spoken=bool(request.attempts or request.pods or request.inventory is not None),
        wants_inventory=wants_inventory,
        wants_full=wants_full,
        refused=recorded.refused,
    ), clusters


def _admitted(uow: UnitOfWork, key: KeyFact) -> ClusterFact:
    """The key's Cluster, locked, if it may talk."""
    cluster = uow.fleet.lock_cluster(key.cluster)
    if cluster is None:
        raise Forbidden("this cluster was removed", slug="agent-banned")
    if cluster.state in _NOT_ACCEPTED:
        raise Forbidden("an admin has not accepted this cluster yet", slug="not-accepted")
    return cluster


def _require_current(session: SessionFact | None, epoch: int) -> SessionFact:
    if session is None or session.epoch != epoch:
        raise Conflict("a newer session speaks for this cluster; say hello again", slug="session-superseded")
    return session


def _differs(uow: UnitOfWork, cluster: ClusterId, request: SyncRequest) -> bool:
    """Whether the agent knows other objects than one that received everything up to its cursor."""
    if not request.desired_digest:
        return False
    known = uow.agents.known_objects(cluster, request.cursor)
    return wire.desired_digest(known) != request.desired_digest


def _asked_lately(uow: UnitOfWork, session: SessionFact) -> bool:
    asked = session.full_asked_at
    return asked is not None and uow.now - asked < timedelta(seconds=FULL_AGAIN_SECONDS)


def _one_batch(waiting: list[Directive]) -> list[Directive]:
    """As many as one answer may carry, in order; at least one, so that a very large one passes alone."""
    chosen: list[Directive] = []
    size = 0
    for each in waiting[:DIRECTIVES_MAX]:
        size += len(each.model_dump_json())
        if chosen and size > BATCH_BYTES_MAX:
            break
        chosen.append(each)
    return chosen


def _reply(
    tools: SyncTools, uow: UnitOfWork, taken: Taken, chosen: list[Directive], upto: int, *, more: bool
) -> SyncReply:
    cursor = chosen[-1].number if more else upto
    signed = None
    if chosen:
        batch = DirectiveBatch(
            cluster=taken.cluster_name,
            plane_epoch=uow.agents.plane().epoch,
            after=taken.cursor,
            upto=cursor,
            directives=chosen,
        )
        signed = tools.signer.sign(DIRECTIVES_TYPE, batch.model_dump_json(exclude_defaults=True).encode())
    return SyncReply(
        seq=taken.seq,
        directives_jws=signed,
        cursor=cursor,
        more=more,
        lease_seconds=tools.lease_seconds,
        poll_seconds=taken.poll_seconds,
        want_whole_inventory=taken.wants_inventory,
        want_full_list=taken.wants_full,
        rejected=[ItemAnswer(object_id=name, code=code) for name, code in sorted(taken.refused.items())],
    )
