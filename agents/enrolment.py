"""The way in: enrol once with a one-time token, open Sessions, rotate the key, and enrol anew when the token changes.

A wrong or used token never ends the process: pods run on, and a new token in the same file is taken up without a
restart. What the key signs is `transport`'s; where it lies is `identity`'s.
"""

import hashlib
from pathlib import Path

import structlog

from agents.cluster import Identity as ClusterIdentity
from agents.identity import Keeper, proof_of, public
from agents.transport import PlaneRefused, PlaneUnreachable, Transport
from controlplane.contract.agent.base import PROTOCOL_OLDEST, PROTOCOL_VERSION
from controlplane.contract.agent.enrolment import EnrolRequest, HelloReply, HelloRequest

# The plane does not know this key (any more): only a new enrolment helps.
KEY_REFUSED = frozenset({"invalid-token", "agent-banned"})
log = structlog.get_logger()


class TokenMissing(PlaneUnreachable):
    """Nothing to enrol with yet; the file is looked at again."""


class Enroller:
    """Keeps the agent known to its plane."""

    def __init__(self, transport: Transport, keeper: Keeper, token_file: Path | None) -> None:
        self.transport = transport
        self._keeper = keeper
        self._token_file = token_file
        self._key_was_refused = False
        self._offered_next = False

    async def open(self) -> None:
        """Read or make the key. Raises ClusterUnreachable, IdentityUnreadable."""
        await self._keeper.open()

    async def enrol(self, cluster: ClusterIdentity, instance: str, agent_version: str) -> None:
        """Enrol unless that is done; also if the key was refused and there is another token than last time."""
        identity = self._keeper.identity
        token = self._token()
        digest = hashlib.sha256(token.encode()).hexdigest()
        if identity.is_enrolled and not (self._key_was_refused and token and digest != identity.token_sha256):
            return
        if not token:
            raise TokenMissing("not enrolled, and no token to enrol with")
        if self._key_was_refused:
            await self._keeper.renew()
            self._key_was_refused = False
        request = EnrolRequest(
            token=token,
            fingerprint=cluster.fingerprint,
            kubernetes_version=cluster.kubernetes_version,
            agent_version=agent_version,
            instance_id=instance,
            protocol_oldest=PROTOCOL_OLDEST,
            protocol_newest=PROTOCOL_VERSION,
        )
        reply = await self.transport.enrol(request)
        await self._keeper.update(
            cluster=reply.cluster, audience=reply.audience, plane_keys=reply.plane_keys, token_sha256=digest
        )
        log.info("enrolled", cluster=reply.cluster, state=reply.state, key=reply.key_thumbprint)

    async def hello(self, request: HelloRequest) -> HelloReply:
        """Open a Session. A key that grew old offers its successor; the next `hello` is signed with that one."""
        successor = await self._keeper.next_key()
        if successor is None:
            return await self.transport.hello(request)
        if self._offered_next:
            reply = await self.transport.hello(request, successor)
            await self._keeper.promote()
            log.info("key rotated")
            self._offered_next = False
            return reply
        proof = {"next_key": public(successor), "next_key_proof": proof_of(successor)}
        await self.transport.hello(request.model_copy(update=proof))
        self._offered_next = True
        return await self.hello(request)

    def is_key_old(self) -> bool:
        """Whether the next `hello` would offer another key."""
        return self._keeper.is_key_old

    async def opened(self, reply: HelloReply) -> None:
        """Keep what the plane says of itself, as far as it can be believed."""
        await self._keeper.trust(reply.plane_keys)
        if reply.plane_epoch > self._keeper.identity.plane_epoch:
            await self._keeper.update(plane_epoch=reply.plane_epoch)
        self._key_was_refused = False

    async def refused(self, error: PlaneRefused) -> None:
        """Remember a refusal of the key itself; everything else passes."""
        if error.slug not in KEY_REFUSED:
            return
        if self._keeper.identity.next_key is not None:
            # Killed between the plane's promotion of the next key and our note of it: the other one may be right.
            self._offered_next = not self._offered_next
        self._key_was_refused = True

    def _token(self) -> str:
        if self._token_file is None:
            return ""
        try:
            return self._token_file.read_text(encoding="utf-8").strip()
        except OSError:
            return ""
