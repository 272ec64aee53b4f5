"""One writer among the agent's replicas: a Lease in the agent's own namespace.

The leader renews it and knows by its own monotonic clock until when it may write. A replica that sees another leader
after it has led itself must end: two of them would speak with one identity.
"""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from agents.cluster import ClusterUnreachable, LeadershipLost
from agents.facts import Json, moment
from agents.health import OPENING, OPENING_SECONDS, Pulse
from agents.kube.client import KubeClient, KubeError, collection

NAME = "muster-agent"
DURATION_SECONDS = 15
RENEW_SECONDS = 4.0
ASK_SECONDS = 2.0
MARGIN_SECONDS = 3.0
NOT_FOUND, CONFLICT = 404, 409
log = structlog.get_logger()


@dataclass(slots=True)
class Election:
    """One replica's part."""

    client: KubeClient
    namespace: str
    holder: str
    pulse: Pulse = field(default_factory=Pulse)
    _valid_until: float = 0.0
    _seen: tuple[str, str] = ("", "")  # holder and time of renewal as last read…
    _seen_at: float = 0.0  # …and when we first read that, by our own clock

    def is_leader(self) -> bool:
        return time.monotonic() < self._valid_until

    async def win(self) -> None:
        """Wait until we lead. Raises ClusterUnreachable."""
        while True:
            self.pulse.within(OPENING, OPENING_SECONDS)
            if await self._try():
                break
            self.pulse.stands_by(waits=True)
            await asyncio.sleep(ASK_SECONDS)
        self.pulse.stands_by(waits=False)
        log.info("leading", holder=self.holder)

    async def keep(self) -> None:
        """Renew until cancelled; raise LeadershipLost when another one leads."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                if not await self._try():
                    raise LeadershipLost(f"{self._seen[0]} leads now")
            except ClusterUnreachable as error:
                log.warning("lease not renewed", words=str(error))

    async def give_up(self) -> None:
        """Let the next one lead at once."""
        if not self.is_leader():
            return
        self._valid_until = 0.0
        try:
            found = await self._read()
            if found is not None and found["spec"].get("holderIdentity") == self.holder:
                found["spec"]["holderIdentity"] = ""
                await self.client.request("PUT", self._path(NAME), found)
        except (KubeError, ClusterUnreachable) as error:
            log.info("lease not given up", words=str(error))

    async def _try(self) -> bool:
        """Take or renew it, unless another holds it; compare-and-set by resource version."""
        asked_at = time.monotonic()
        try:
            found = await self._read()
            if found is None:
                body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}}
                await self.client.request("POST", self._path(), {**body, "spec": self._spec(0)})
            else:
                if self._is_held_by_another(found["spec"]):
                    return False
                changes = int(found["spec"].get("leaseTransitions") or 0)
                is_ours = found["spec"].get("holderIdentity") == self.holder
                found["spec"] = self._spec(changes if is_ours else changes + 1)
                await self.client.request("PUT", self._path(NAME), found)
        except KubeError as error:
            if error.status == CONFLICT:
                return self.is_leader()
            raise ClusterUnreachable(str(error)) from error
        self._valid_until = asked_at + DURATION_SECONDS - MARGIN_SECONDS
        return True

    async def _read(self) -> Json | None:
        try:
            return await self.client.request("GET", self._path(NAME))
        except KubeError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def _is_held_by_another(self, spec: Json) -> bool:
        """Whether it is held and alive, judged by our own clock since its last change: clocks of nodes differ."""
        holder = spec.get("holderIdentity") or ""
        if not holder or holder == self.holder:
            return False
        seen = (holder, str(spec.get("renewTime")))
        if seen != self._seen:
            self._seen, self._seen_at = seen, time.monotonic()
            renewed = moment(spec.get("renewTime"))
            age = (datetime.now(UTC) - renewed).total_seconds() if renewed else 0.0
            if age > 10 * DURATION_SECONDS:  # left over from long ago, whatever the clocks say
                self._seen_at -= DURATION_SECONDS
        return time.monotonic() - self._seen_at < (spec.get("leaseDurationSeconds") or DURATION_SECONDS)

    def _spec(self, transitions: int) -> Json:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": DURATION_SECONDS,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _path(self, name: str = "") -> str:
        return collection("Lease", self.namespace) + (f"/{name}" if name else "")
