"""Speaks to the plane: HTTPS out only, each request signed with the agent's own key, each batch of directives checked.

Time-outs, the learned clock offset and the meaning of refusals live here; what is said, and when again, is the loop's.
A request is never repeated by itself.
"""

import asyncio
import base64
import hashlib
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp
from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey
from pydantic import ValidationError

from agents.identity import ALGORITHM, Keeper, public, thumbprint
from agents.settings import AgentSettings
from controlplane.contract.agent.attempts import Directive
from controlplane.contract.agent.base import WireModel
from controlplane.contract.agent.enrolment import (
    AUTH_SCHEME,
    DIRECTIVES_TYPE,
    ENROL_TYPE,
    POP_TYPE,
    EnrolEnvelope,
    EnrolReply,
    EnrolRequest,
    HelloReply,
    HelloRequest,
)
from controlplane.contract.agent.sync import DirectiveBatch, SyncReply, SyncRequest

HELLO_PATH = "/agent/v1/hello"
CONNECT_SECONDS = 10
ANSWER_SECONDS = 15  # beyond what we ask the plane to wait
CLAIM_SECONDS = 60
OFFSET_SECONDS_MAX = 86_400
REPLY_BYTES_MAX = 16_777_216
REFUSED_FROM = 400

Reply = TypeVar("Reply", bound=WireModel)


class PlaneUnreachable(Exception):
    """No answer, or none that can be read."""


class PlaneRefused(Exception):
    """A problem document: what the plane will not do. `slug` is the last part of its type."""

    def __init__(self, status: int, slug: str, detail: str, retry_seconds: float) -> None:
        super().__init__(f"{status} {slug}: {detail}")
        self.status = status
        self.slug = slug
        self.retry_seconds = retry_seconds


class ForgedDirectives(Exception):
    """A batch that no key of our plane has signed, or that is for somebody else."""


@dataclass(slots=True)
class SessionState:
    """The open Session as every request names it."""

    epoch: int = 0
    seq: int = 0


class Transport:
    """One connection's worth of requests; one at a time."""

    def __init__(self, settings: AgentSettings, keeper: Keeper, link_is_up: Callable[[], bool] | None = None) -> None:
        self._url = settings.plane_url.rstrip("/")
        self._prefix = urlsplit(self._url).path
        self._keeper = keeper
        self._link_is_up = link_is_up
        self._tls = ssl.create_default_context(cafile=settings.ca_file) if settings.ca_file else None
        self._http: aiohttp.ClientSession | None = None
        self.session = SessionState()
        self.offset_seconds = 0.0
        self._hello_at = 0

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def reconnect(self) -> None:
        """Forget connections and names: after repeated failures the address may have moved."""
        await self.close()

    async def enrol(self, request: EnrolRequest) -> EnrolReply:
        """Prove the key, show the one-time token."""
        key = self._keeper.key
        header = {"alg": ALGORITHM, "typ": ENROL_TYPE, "jwk": public(key)}
        signed = jws.serialize_compact(header, request.model_dump_json().encode(), key, algorithms=[ALGORITHM])
        body = EnrolEnvelope(jws=signed).model_dump_json().encode()
        return await self._post("/agent/v1/enrol", body, EnrolReply, wait_seconds=0, signed_by=None)

    async def hello(self, request: HelloRequest, key: ECKey | None = None) -> HelloReply:
        """Open a Session; `key` is another than the current one while keys rotate."""
        self.session = SessionState()
        body = request.model_dump_json(exclude_defaults=True).encode()
        reply = await self._post(HELLO_PATH, body, HelloReply, wait_seconds=0, signed_by=key or self._keeper.key)
        self._learn(reply.server_time.timestamp())
        self.session = SessionState(reply.session_epoch, 0)
        return reply

    async def sync(self, request: SyncRequest) -> SyncReply:
        """One exchange. The plane may take `wait_seconds` to answer."""
        body = request.model_dump_json(exclude_defaults=True).encode()
        return await self._post(
            "/agent/v1/sync", body, SyncReply, wait_seconds=request.wait_seconds, signed_by=self._keeper.key
        )

    def next_seq(self) -> int:
        self.session.seq += 1
        return self.session.seq

    def directives(self, signed: str) -> list[Directive]:
        """Open a signed batch; raise ForgedDirectives unless a trusted key signed it for this cluster."""
        identity = self._keeper.identity
        batch = _opened(signed, [ECKey.import_key({**key}) for key in identity.plane_keys])
        if batch.cluster != identity.cluster:
            raise ForgedDirectives(f"directives for {batch.cluster}, and this is {identity.cluster}")
        if batch.plane_epoch < identity.plane_epoch:
            raise ForgedDirectives(f"directives of plane epoch {batch.plane_epoch} after {identity.plane_epoch}")
        return batch.directives

    async def _post(
        self, path: str, body: bytes, reply: type[Reply], *, wait_seconds: int, signed_by: ECKey | None
    ) -> Reply:
        if self._link_is_up is not None and not self._link_is_up():
            raise PlaneUnreachable("the link is cut")
        headers = {"Content-Type": "application/json"}
        if signed_by is not None:
            headers["Authorization"] = f"{AUTH_SCHEME} {self._claims(self._prefix + path, body, signed_by)}"
        timeout = aiohttp.ClientTimeout(total=wait_seconds + ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        try:
            async with self._client().post(self._url + path, data=body, headers=headers, timeout=timeout) as answer:
                raw = await answer.content.read(REPLY_BYTES_MAX)
                while not answer.content.at_eof() and len(raw) < REPLY_BYTES_MAX:
                    raw += await answer.content.read(REPLY_BYTES_MAX - len(raw))
                if answer.status >= REFUSED_FROM:
                    raise self._refusal(answer.status, raw, answer.headers.get("Retry-After"), answer.headers)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:  # noqa: UP041 - aiohttp raises its own subclass of both
            raise PlaneUnreachable(str(error) or type(error).__name__) from error
        if self._link_is_up is not None and not self._link_is_up():
            raise PlaneUnreachable("the link was cut before the answer came")
        try:
            return reply.model_validate_json(raw)
        except ValidationError as error:
            raise PlaneUnreachable(f"an answer that cannot be read: {error.error_count()} faults") from error

    def _claims(self, path: str, body: bytes, key: ECKey) -> str:
        identity = self._keeper.identity
        now = int(time.time() + self.offset_seconds)
        if path.endswith(HELLO_PATH):  # each later than the one before, or the plane takes it for a copy
            now = self._hello_at = max(now, self._hello_at + 1)
        claims = {
            "sub": identity.cluster,
            "aud": identity.audience or self._url,
            "htm": "POST",
            "htu": path,
            "bh": base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode(),
            "iat": now,
            "exp": now + CLAIM_SECONDS,
            "se": self.session.epoch,
            "seq": self.session.seq,
        }
        header = {"alg": ALGORITHM, "typ": POP_TYPE, "kid": thumbprint(public(key))}
        return jwt.encode(header, claims, key, algorithms=[ALGORITHM])

    def _client(self) -> aiohttp.ClientSession:
        if self._http is None:
            connector = aiohttp.TCPConnector(limit=2, ssl=self._tls or True)
            self._http = aiohttp.ClientSession(connector=connector, trust_env=False)
        return self._http

    def _refusal(self, status: int, raw: bytes, retry_after: str | None, headers: object) -> PlaneRefused:
        slug, detail, told = _problem(raw)
        if slug == "clock-skew":
            date = headers.get("Date", "") if hasattr(headers, "get") else ""
            self._learn(told if told is not None else _http_date(date))
        seconds = float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
        return PlaneRefused(status, slug or f"http-{status}", detail, seconds)

    def _learn(self, plane_time: float | None) -> None:
        """The plane's clock rules; ours may be an hour off without harm."""
        if plane_time is not None and abs(plane_time - time.time()) <= OFFSET_SECONDS_MAX:
            self.offset_seconds = plane_time - time.time()


class _BatchRegistry(jws.JWSRegistry):
    """One order for a large gang is more than the library's 128 kB; the reply's own limit holds."""

    max_payload_length = REPLY_BYTES_MAX


def _opened(signed: str, keys: list[ECKey]) -> DirectiveBatch:
    for key in keys:
        try:
            found = jws.deserialize_compact(signed, key, registry=_BatchRegistry(algorithms=[ALGORITHM]))
        except (JoseError, ValueError):
            continue
        if found.headers().get("typ") != DIRECTIVES_TYPE:
            raise ForgedDirectives("signed, but not as directives")
        try:
            return DirectiveBatch.model_validate_json(found.payload or b"")
        except ValidationError as error:
            raise ForgedDirectives(f"a batch that cannot be read: {error.error_count()} faults") from error
    raise ForgedDirectives("no trusted key of the plane has signed them")


def _problem(raw: bytes) -> tuple[str, str, float | None]:
    """Slug, words and the plane's time of a problem document; empty where it is none."""
    try:
        body = json.loads(raw)
    except ValueError:
        return "", raw[:200].decode(errors="replace"), None
    if not isinstance(body, dict):
        return "", "", None
    told = body.get("server_time")
    try:
        moment = datetime.fromisoformat(told).timestamp() if isinstance(told, str) else None
    except ValueError:
        moment = None
    return str(body.get("type", "")).rpartition("/")[2], str(body.get("detail", ""))[:500], moment


def _http_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError):
        return None
