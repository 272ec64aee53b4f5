"""Who called a moment ago: a busy caller is looked up once a second in each process, not once a request.

So a token or role that somebody ended through another process may work here for up to `AGE_MAX_SECONDS` more; what this
process is asked to end, it forgets at once.
"""

import hashlib
import threading
import time
from collections.abc import Callable

from controlplane.core.facts.tenancy import Principal

AGE_MAX_SECONDS = 1.0
KEPT_MAX = 10_000


class RecentCallers:
    """Principals by the hash of their token; safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[bytes, tuple[float, Principal]] = {}
        self._lock = threading.Lock()

    def get(self, token: str) -> Principal | None:
        """Whose token it was at most `AGE_MAX_SECONDS` ago; None where nobody looked since."""
        found = self._kept.get(_digest(token))
        if found is None or self._clock() - found[0] >= AGE_MAX_SECONDS:
            return None
        return found[1]

    def keep(self, token: str, principal: Principal) -> None:
        """Remember what was just looked up."""
        with self._lock:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[_digest(token)] = self._clock(), principal

    def forget(self) -> None:
        """Look everybody up anew."""
        with self._lock:
            self._kept.clear()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
