"""An informer: lists a kind, watches it, and keeps a view of it for ever.

Survives everything that ends a watch: time-outs, silence of a half-open connection, a resource version that is too old
or that a restored API server has never reached (list anew, never the same version twice), refusals, an API server that
is away. It reports objects gone only if the watch said so or a complete new list lacks them. A new list is believed
whole, save about what we wrote ourselves while it was read.
"""

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from agents.cluster import ClusterUnreachable
from agents.facts import Json
from agents.kube.client import KubeClient, KubeError

PAGE = 500
WATCH_SECONDS = 300
SILENCE_SECONDS = 90.0  # bookmarks come about once a minute
BACKOFF_SECONDS = 0.5
BACKOFF_SECONDS_MAX = 10.0
UNREACHABLE_AFTER_SECONDS = 5.0
DROPPED_KEPT = 4096
GONE = 410
FORBIDDEN = 403
GO_ON_AFTER = frozenset({401, 429, 500, 502, 503})  # say nothing about the version that was asked for
STEADY_SECONDS = 1.0  # a watch that ends sooner has failed
FORBIDDEN_SECONDS_MAX = 30.0  # rights change when a person changes them, or as an API server that begins learns them
log = structlog.get_logger()


@dataclass(slots=True)
class Informer:
    """One kind in one scope. `put` and `drop` write the view; `drop` gets the last object that was seen."""

    client: KubeClient
    path: str
    put: Callable[[Json], None]
    drop: Callable[[Json], None]
    label_selector: str = ""
    field_selector: str = ""
    has_listed: bool = False
    is_forbidden: bool = False
    _version: str = ""  # of the newest list or event; "" to list anew
    _known: dict[str, tuple[str, Json]] = field(default_factory=dict)
    _dropped: deque[str] = field(default_factory=lambda: deque(maxlen=DROPPED_KEPT))
    _learned: set[str] = field(default_factory=set)  # what we wrote since the last list began
    _failing_since: float | None = None
    _heard_at: float = field(default_factory=time.monotonic)
    _listed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_reachable(self) -> bool:
        """False once nothing has answered for a while: a single lost connection means nothing."""
        return self._failing_since is None or time.monotonic() - self._failing_since < UNREACHABLE_AFTER_SECONDS

    async def first_list(self) -> None:
        """Wait until everything was seen once, or the API server has forbidden it."""
        await self._listed.wait()

    async def run(self) -> None:
        """Until cancelled."""
        failures = refusals = 0
        while True:
            refused: KubeError | None = None
            watched_from, is_lost = math.inf, False
            try:
                if not self._version:
                    self._version = await self._list()
                watched_from = time.monotonic()
                await self._watch()
            except KubeError as error:
                refused = error
                self._version = self._version if error.status in GO_ON_AFTER else ""
                self._note(error)
            except ClusterUnreachable as error:
                is_lost = True
                self._failing_since = self._failing_since or time.monotonic()
                log.info("watch lost", path=self.path, words=str(error), failures=failures)
            if not self.is_reachable or time.monotonic() - self._heard_at >= SILENCE_SECONDS / 2:
                self._version = ""  # away or silent for so long, it may be a restored one, with lower versions
            if time.monotonic() - watched_from >= STEADY_SECONDS:
                failures = refusals = 0
                if refused is None and not is_lost:
                    continue
            if refused is not None and refused.status == FORBIDDEN:
                refusals += 1
                await self._pause(refusals, refused.retry_seconds, FORBIDDEN_SECONDS_MAX)
            else:
                refusals, failures = 0, failures + 1
                await self._pause(failures, refused.retry_seconds if refused is not None else 0.0)

    def learn(self, raw: Json) -> None:
        """Take an answer to our own write: it is in the view before the watch brings it."""
        uid = raw.get("metadata", {}).get("uid", "")
        if uid and uid not in self._dropped:
            self._learned.add(uid)
            self._put(raw)

    async def _list(self) -> str:
        """All pages, then what is missing from them is gone. Returns the version to watch from."""
        found: set[str] = set()
        self._learned.clear()
        query = {**self._selectors(), "limit": str(PAGE)}
        while True:
            page = await self.client.request("GET", self.path, query=query)
            for raw in page.get("items") or []:
                uid = raw["metadata"]["uid"]
                found.add(uid)
                if uid not in self._learned:  # a restored cluster counts from a lower version
                    self._known.pop(uid, None)
                self._put(raw)
            following = page["metadata"].get("continue", "")
            if not following:
                break
            query = {**self._selectors(), "limit": str(PAGE), "continue": following}
        for uid in self._known.keys() - found - self._learned:
            self._drop(uid)
        self._answered()
        self.has_listed = True
        self.is_forbidden = False
        self._listed.set()
        version: str = page["metadata"].get("resourceVersion", "")
        return version

    async def _watch(self) -> None:
        """Follow from the version we have until the watch ends; without one, everything must be listed anew."""
        query = {
            **self._selectors(),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_SECONDS + random.randrange(60)),  # noqa: S311 - spreads reconnections
        }
        async for event in self.client.lines(self.path, query, SILENCE_SECONDS):
            self._answered()
            raw = event.get("object") or {}
            if event.get("type") == "ERROR":
                self._version = ""  # whatever it says: the same version would bring it again
                raise KubeError(int(raw.get("code") or 0), str(raw.get("reason")), str(raw.get("message")))
            version = raw.get("metadata", {}).get("resourceVersion", self._version)
            if _is_older(version, self._version):
                log.warning("versions went back", path=self.path, version=version, known=self._version)
                self._version = ""
                return
            self._version = version
            if event.get("type") == "DELETED":
                self._drop(raw["metadata"]["uid"])
            elif event.get("type") in ("ADDED", "MODIFIED"):
                self._put(raw)
        self._answered()

    def _put(self, raw: Json) -> None:
        """Keep the newer of two readings of one object: our own writes may be ahead of the watch."""
        metadata = raw["metadata"]
        uid, version = metadata["uid"], metadata.get("resourceVersion", "")
        known = self._known.get(uid)
        if known is not None and _is_older(version, known[0]):
            return
        # Only what a drop needs: the projection has the rest.
        kept: Json = {"metadata": {"name": metadata["name"], "namespace": metadata.get("namespace", ""), "uid": uid}}
        self._known[uid] = (version, kept)
        self.put(raw)

    def _drop(self, uid: str) -> None:
        known = self._known.pop(uid, None)
        self._dropped.append(uid)
        if known is not None:
            self.drop(known[1])

    def _selectors(self) -> dict[str, str]:
        stated = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {name: text for name, text in stated.items() if text}

    def _answered(self) -> None:
        self._failing_since = None
        self._heard_at = time.monotonic()

    def _note(self, error: KubeError) -> None:
        if error.status == FORBIDDEN:
            if self.is_forbidden:
                return
            self.is_forbidden = True
            self._answered()
            self._listed.set()
        elif error.status != GONE:
            self._failing_since = self._failing_since or time.monotonic()
        log.info("watch refused", path=self.path, status=error.status, words=error.message[:200])

    async def _pause(self, failures: int, asked_seconds: float, seconds_max: float = BACKOFF_SECONDS_MAX) -> None:
        ceiling = min(seconds_max, BACKOFF_SECONDS * 2 ** min(failures - 1, 10))
        await asyncio.sleep(max(asked_seconds, random.uniform(ceiling / 4, ceiling)))  # noqa: S311 - spreads retries


def _is_older(version: str, than: str) -> bool:
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
