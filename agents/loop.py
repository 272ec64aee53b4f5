"""The agent's life: observe, sync, decide, apply, each at its own pace, for ever.

Two tasks share one workbench: one works whenever the cluster changes, one talks to the plane. What the cluster shows
goes up at once: a waiting long poll is dropped for it. When the plane is dark, work goes on from what is known.
"""

import asyncio
import random
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import structlog

from agents.cluster import Cluster, ClusterUnreachable, Identity
from agents.enrolment import Enroller
from agents.health import OPENING, OPENING_SECONDS, TALK, Pulse
from agents.inventory import DEFAULT_LEVELS, Inventory
from agents.outbox import Outbox, Parcel
from agents.policy import LocalPolicy, allows_namespace
from agents.settings import AgentSettings
from agents.transport import ForgedDirectives, PlaneRefused, PlaneUnreachable, Transport
from agents.work import Workbench
from controlplane.contract.agent.base import PROTOCOL_OLDEST, PROTOCOL_VERSION
from controlplane.contract.agent.enrolment import HelloReply, HelloRequest
from controlplane.contract.agent.inventory import InventoryDelta
from controlplane.contract.agent.sync import WAIT_SECONDS_MAX, ListPart, PodPlace, SyncReply, SyncRequest

TICK_SECONDS = 1.0  # budgets and refusals mature without any event
GATHER_SECONDS = 0.01  # events of one cause come together
LOOKS_SHARE, LOOK_PAUSE_SECONDS_MAX = 2, 0.25  # a look is followed by a pause of twice its length
INVENTORY_SECONDS = 0.5  # least pause between two readings of all nodes
BACKOFF_SECONDS = 1.0
ACCEPTANCE_SECONDS = 1.0
WHOLE_AFTER_EXCHANGES = 2
FAILURES_TO_RECONNECT = 3
TALK_SECONDS = 120.0  # beyond the poll: enrolling, two hellos, and keeping what they said
WORK_SECONDS = 60.0
UNKNOWN_LEVEL = ""
LEVELS_IN_ORDER = ("region", "zone", "datacenter", "block", "spine", UNKNOWN_LEVEL, "rack", "leaf", "nvlink-domain")
NOT_ACCEPTED = "not-accepted"
UNKNOWN_OBJECT = "unknown-object"
RECOVERY = "recovery"
AGENT_VERSION = "0.1.0"
log = structlog.get_logger()


class Agent:
    """One cluster's agent."""

    def __init__(
        self,
        settings: AgentSettings,
        cluster: Cluster,
        enroller: Enroller,
        policy: LocalPolicy,
        pulse: Pulse | None = None,
    ) -> None:
        """`pulse` learns how the tasks get on, for whoever probes this process."""
        self._pulse = pulse or Pulse()
        self._stage = OPENING
        self._settings = settings
        self._cluster = cluster
        self._enroller = enroller
        self._policy = policy
        self._transport: Transport = enroller.transport
        self._instance = settings.instance
        self._wake = asyncio.Event()
        self._news = asyncio.Event()
        self._outbox = Outbox()
        self._inventory = Inventory()
        self._bench = Workbench(cluster, policy, self._outbox, self._wake.set, wall_clock)
        self._identity = Identity("", "")
        self._cursor = 0
        self._incarnation = ""
        self._poll_seconds = 25
        self._inventory_seen = (-1, 0.0)
        self._inventory_known: frozenset[str] = frozenset()
        self._failures = 0
        self._exchanges = 0
        self._wants_whole = False
        self._is_recovering = False  # the plane came from a backup and waits for everything we have
        self._has_looked = False  # at everything, since the Session opened
        self._listed_upto: PodPlace | None = None  # of a complete list that takes several requests
        self._is_open = False
        self._namespaces_told: list[str] = []

    async def run(self) -> None:
        """Live until cancelled."""
        async with AsyncExitStack() as ways_out:  # whatever ends us, also before the cluster is open
            ways_out.push_async_callback(self._cluster.close)
            ways_out.push_async_callback(self._transport.close)
            self._pulse.within(OPENING, OPENING_SECONDS)
            self._identity = await self._open()
            ways_out.push_async_callback(self._bench.finish)
            self._bench.recall()
            log.info("cluster opened", fingerprint=self._identity.fingerprint, nodes=len(self._cluster.view.nodes))
            await self._open_identity()  # only the leader may make a key
            self._pulse.done(OPENING)
            self._stage = TALK
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch())
                tasks.create_task(self._work())
                tasks.create_task(self._talk())
                tasks.create_task(self._full_lists())

    async def _open(self) -> Identity:
        while True:
            try:
                return await self._cluster.open()
            except ClusterUnreachable as error:
                self._pulse.kube_answers(is_so=False)
                self._pulse.stands_by(waits=False)
                await self._pause(0.0, "cluster unreachable", str(error))

    async def _open_identity(self) -> None:
        while True:
            try:
                return await self._enroller.open()
            except ClusterUnreachable as error:
                await self._pause(0.0, "the key cannot be read yet", str(error))

    async def _watch(self) -> None:
        version = -1
        while True:
            self._pulse.within("watch", WORK_SECONDS)
            await self._cluster.wait(version, TICK_SECONDS)
            self._pulse.kube_answers(is_so=self._cluster.view.is_complete and self._cluster.view.is_reachable)
            version = self._cluster.view.version
            self._wake.set()
            await asyncio.sleep(GATHER_SECONDS)

    async def _work(self) -> None:
        looked_at = 0.0
        while True:
            self._pulse.within("work", WORK_SECONDS)
            await self._wake.wait()
            self._wake.clear()
            began = time.monotonic()
            view = self._cluster.view
            if view.is_complete and view.is_reachable:
                is_time = time.monotonic() - looked_at >= TICK_SECONDS
                looked_at = time.monotonic() if is_time else looked_at
                self._bench.step(everything=is_time)
                self._has_looked |= is_time
                self._read_inventory()
                list_is_due = self._is_recovering and self._has_looked and self._wants_whole
                if self._outbox.has_news() or self._inventory.has_news() or list_is_due:
                    self._news.set()
            # A look at a large gang takes long, and its pods change one by one: meanwhile their news come together.
            await asyncio.sleep(min(LOOKS_SHARE * (time.monotonic() - began), LOOK_PAUSE_SECONDS_MAX))

    def _read_inventory(self) -> None:
        version, read_at = self._inventory_seen
        current = self._cluster.view.inventory_version
        if current == version and self._inventory_known == self._bench.known():
            return
        if time.monotonic() - read_at < INVENTORY_SECONDS:
            return  # the tick comes back to it
        self._inventory_known = self._bench.known()
        self._inventory.update(self._cluster.view, self._inventory_known)
        self._inventory_seen = (current, time.monotonic())

    async def _full_lists(self) -> None:
        while True:
            await asyncio.sleep(self._settings.full_list_seconds)
            self._wants_whole = True
            self._news.set()

    async def _talk(self) -> None:
        """A lost connection does not end a Session, so what was told stays told; a refusal does."""
        while True:
            self._pulse.within(TALK, self._poll_seconds + TALK_SECONDS)
            try:
                if not self._is_open and not self._cluster.is_leader():
                    await asyncio.sleep(TICK_SECONDS)  # a hello would end the Session of the replica that leads
                    continue
                if not self._is_open:
                    await self._open_session()
                await self._exchange()
            except PlaneUnreachable as error:
                await self._pause(0.0, "plane unreachable", str(error))
            except PlaneRefused as error:
                self._close_session()
                await self._enroller.refused(error)
                if error.slug == NOT_ACCEPTED:  # a person will say yes; they should not wait for our back-off
                    self._failures = 0
                    await self._pause(error.retry_seconds or ACCEPTANCE_SECONDS, "waiting to be accepted", str(error))
                else:
                    await self._pause(error.retry_seconds, "plane refused", str(error))
            except ForgedDirectives as error:
                self._close_session()
                await self._pause(0.0, "directives refused", str(error))
            except ClusterUnreachable as error:
                self._is_open = False
                await self._pause(0.0, "what the plane said cannot be kept yet", str(error))

    async def _open_session(self) -> None:
        """Enrol if need be, say hello."""
        await self._enroller.enrol(self._identity, self._instance, AGENT_VERSION)
        self._namespaces_told = self._namespaces()
        reply = await self._hello()
        self._opened(reply)
        await self._enroller.opened(reply)
        self._is_open = True

    def _close_session(self) -> None:
        self._is_open = False
        self._pulse.session_lives(0)

    def _namespaces(self) -> list[str]:
        """Those that we may write to, by the cluster's word and by the local policy's."""
        return sorted(name for name in self._cluster.view.bound if allows_namespace(self._policy, name))[:10_000]

    async def _hello(self) -> HelloReply:
        request = HelloRequest(
            instance_id=self._instance,
            fingerprint=self._identity.fingerprint,
            kubernetes_version=self._identity.kubernetes_version,
            agent_version=AGENT_VERSION,
            protocol_oldest=PROTOCOL_OLDEST,
            protocol_newest=PROTOCOL_VERSION,
            namespaces=self._namespaces_told,
            acked_number=self._cursor,
        )
        return await self._enroller.hello(request)

    def _opened(self, reply: HelloReply) -> None:
        """A new Session hears everything again; another plane (or the same one, restored) also repeats its orders."""
        log.info("session opened", epoch=reply.session_epoch, mode=reply.mode, plane_epoch=reply.plane_epoch)
        if reply.incarnation != self._incarnation:
            self._cursor = 0
        self._incarnation = reply.incarnation
        self._poll_seconds = min(reply.poll_seconds, WAIT_SECONDS_MAX)
        self._pulse.session_lives(reply.lease_seconds)
        self._exchanges = 0
        self._wants_whole, self._listed_upto = True, None
        self._is_recovering, self._has_looked = reply.mode == RECOVERY, False
        self._outbox.tell_all_again()
        self._inventory.set_levels(levels_of(reply.spec))
        self._inventory_seen = (-1, 0.0)
        self._inventory.forget_acknowledged()
        self._wake.set()

    async def _exchange(self) -> None:
        """One request: with news at once, else a long poll that news may end early."""
        self._news.clear()
        # What was last seen of a cluster that does not answer is old: nothing is told of it, orders still come.
        is_seen = self._cluster.view.is_complete and self._cluster.view.is_reachable
        whole = self._whole_parcel() if is_seen else None
        parcel = whole or (self._outbox.parcel() if is_seen else Parcel())
        delta = self._inventory.next_delta() if is_seen and whole is None else None
        if whole is not None or not parcel.is_empty or delta is not None:
            request = self._request(0, parcel, delta)
            self._wants_whole |= whole is not None  # until it is answered
            reply = await self._transport.sync(request)
            if whole is not None and whole.part is not None:
                self._listed_upto = whole.part.until
                self._wants_whole = self._listed_upto is not None
                self._is_recovering &= self._wants_whole
            self._took(reply, parcel, delta)
            return
        poll = asyncio.create_task(self._transport.sync(self._request(self._poll_seconds, parcel, None)))
        news = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait((poll, news), return_when=asyncio.FIRST_COMPLETED)
            if poll.done():
                self._took(poll.result(), parcel, None)
            else:
                await asyncio.sleep(GATHER_SECONDS)
        finally:
            for task in (poll, news):
                task.cancel()
            await asyncio.gather(poll, news, return_exceptions=True)

    def _whole_parcel(self) -> Parcel | None:
        """The complete list, once per Session and then each `full_list_seconds`: what it does not name is gone.

        Only when orders have come and were looked at, and nothing unknown is about. A long one takes several requests.
        A plane that recovers gives no orders before it has the list: whatever was seen, unknown or nothing at all.
        """
        if self._is_recovering:
            is_time = self._has_looked and not self._inventory.has_news()  # the next pass, or answer, comes back to it
        else:
            is_time = self._exchanges >= WHOLE_AFTER_EXCHANGES
        if not self._wants_whole or not is_time:
            return None
        self._wants_whole = False
        if self._listed_upto is None:
            self._outbox.tell_all_again()
        if self._bench.has_unknown() and not self._is_recovering:
            self._listed_upto = None
            return None
        parcel = self._outbox.list_part(self._listed_upto)
        if parcel.is_empty and not self._is_recovering:
            self._listed_upto = None
            return None
        return parcel

    def _request(self, wait_seconds: int, parcel: Parcel, delta: InventoryDelta | None) -> SyncRequest:
        gone = [seen.object_id for seen in parcel.attempts if seen.state == "gone"]
        return SyncRequest(
            session_epoch=self._transport.session.epoch,
            seq=self._transport.next_seq(),
            cursor=self._cursor,
            wait_seconds=wait_seconds,
            attempts=list(parcel.attempts),
            pods=list(parcel.pods),
            whole=parcel.part == ListPart(),
            part=None if parcel.part == ListPart() else parcel.part,
            inventory=delta,
            desired_digest=self._bench.digest(gone),
            kube_reachable=self._cluster.view.is_reachable,
        )

    def _took(self, reply: SyncReply, parcel: Parcel, delta: InventoryDelta | None) -> None:
        """The reply has come: what was sent is known, what came is wanted."""
        self._failures = 0
        self._exchanges += 1
        self._pulse.session_lives(reply.lease_seconds)
        self._outbox.told(parcel)
        if delta is not None:
            self._inventory.acknowledge()
        for refused in reply.rejected:
            log.info("observation not taken", object=refused.object_id, code=refused.code)
            if refused.code == UNKNOWN_OBJECT:
                self._bench.disown(refused.object_id)
                self._inventory_seen = (-1, 0.0)
        if reply.directives_jws is not None:
            directives = self._transport.directives(reply.directives_jws)
            self._bench.take(directives)
            for directive in directives:
                log.info("directive", object=directive.object_id, kind=directive.kind, gen=directive.gen)
        self._cursor = reply.cursor
        self._poll_seconds = min(reply.poll_seconds, WAIT_SECONDS_MAX)
        if self._namespaces() != self._namespaces_told or self._enroller.is_key_old():
            self._is_open = False  # only a hello can tell
        self._bench.forget_gone()
        if reply.want_whole_inventory:
            self._inventory.forget_acknowledged()
        if reply.want_full_list:
            self._outbox.tell_all_again()

    async def _pause(self, asked_seconds: float, what: str, words: str) -> None:
        """Full jitter: many agents that lost one plane must not come back in step."""
        self._failures += 1
        if self._failures % FAILURES_TO_RECONNECT == 0:
            await self._transport.reconnect()
        ceiling = min(self._settings.backoff_seconds_max, BACKOFF_SECONDS * 2 ** min(self._failures - 1, 10))
        seconds = max(asked_seconds, random.uniform(0.05, ceiling))  # noqa: S311 - spreads retries, guards nothing
        log.warning(what, words=words, failures=self._failures, seconds=round(seconds, 2))
        self._pulse.within(self._stage, max(seconds, OPENING_SECONDS if self._stage == OPENING else 0.0))
        await asyncio.sleep(seconds)


def levels_of(spec: dict[str, object]) -> tuple[tuple[str, str], ...]:
    """Topology levels, coarse to fine, by the Cluster's document (`topologyKeys: {level: label}`); else the usual ones.

    The document is a mapping and has no order, so that of `LEVELS_IN_ORDER` counts; unknown levels come before rack.
    """
    stated = spec.get("topologyKeys") or spec.get("topology_keys")
    if not isinstance(stated, dict):
        return DEFAULT_LEVELS
    pairs = [(str(level), label) for level, label in stated.items() if isinstance(label, str) and level != "host"]
    return tuple(sorted(pairs, key=lambda pair: (_place(pair[0]), pair[0])))[:7] or DEFAULT_LEVELS


def _place(level: str) -> int:
    return LEVELS_IN_ORDER.index(level if level in LEVELS_IN_ORDER else UNKNOWN_LEVEL)


def wall_clock() -> datetime:
    return datetime.now(UTC)
