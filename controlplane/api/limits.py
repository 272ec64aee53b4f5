"""How often a caller may ask, per process: a bucket that fills with time. Nothing is shared between processes."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from controlplane.services.errors import TooMany
from controlplane.services.tokens import digest

KEYS_MAX = 10_000  # the longest silent are forgotten, which only fills their buckets


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class Limit:
    """At most `burst` at once and `per_second` in the long run, for each key."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str) -> None:
        """Count one request; raises TooMany."""
        now = self._clock()
        with self._lock:
            bucket = self._buckets.pop(key, None) or _Bucket(self._burst, now)
            self._buckets[key] = bucket
            if len(self._buckets) > KEYS_MAX:
                self._buckets.popitem(last=False)
            bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._per_second)
            bucket.at = now
            if bucket.left < 1:
                raise TooMany("ask again in a second")
            bucket.left -= 1


class CallerLimits:
    """How often each principal may ask, with however many tokens.

    Whose a token is, is remembered from its last use, so that asking too often is refused before anything is looked up.
    What is remembered gives no right: it only says whose bucket a request is taken from.
    """

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = Limit(per_second, burst, clock)
        self._owners: OrderedDict[bytes, str] = OrderedDict()
        self._lock = threading.Lock()

    def before(self, token: str) -> None:
        """Count one request of a token whose bearer is known; raises TooMany."""
        with self._lock:
            owner = self._owners.get(digest(token))
        if owner is not None:
            self._limit.take(owner)

    def known(self, token: str, owner: str) -> None:
        """Remember whose token it is; its first request is counted now. Raises TooMany."""
        token_hash = digest(token)
        with self._lock:
            is_new = self._owners.get(token_hash) != owner
            self._owners[token_hash] = owner
            if len(self._owners) > KEYS_MAX:
                self._owners.popitem(last=False)
        if is_new:
            self._limit.take(owner)
