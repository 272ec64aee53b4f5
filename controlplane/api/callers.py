"""Who called a moment ago: a busy caller is looked up once a second in each process, not once a request.

So a token or role that somebody ended through another process may work here for up to `AGE_MAX_SECONDS` more. While
this process itself may be ending one, nobody is remembered, and nothing that was looked up until then is kept.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from controlplane.core.facts.tenancy import Principal
from controlplane.services.tokens import digest

AGE_MAX_SECONDS = 1.0
KEPT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Ticket:
    """When somebody went to look, and after how many changes of rights."""

    at: float
    changes: int


class RecentCallers:
    """Principals by the hash of their token; safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[bytes, tuple[float, Principal]] = {}
        self._lock = threading.Lock()
        self._changes = 0
        self._changing = 0

    def get(self, token: str) -> Principal | None:
        """Whose token it was at most `AGE_MAX_SECONDS` ago; None where nobody looked since."""
        found = self._kept.get(digest(token))
        if found is None or self._clock() - found[0] >= AGE_MAX_SECONDS:
            return None
        return found[1]

    def ticket(self) -> Ticket:
        """To be taken before somebody is looked up."""
        return Ticket(self._clock(), self._changes)

    def keep(self, token: str, principal: Principal, ticket: Ticket) -> None:
        """Remember what was looked up, unless rights may have changed since."""
        with self._lock:
            if self._changing or ticket.changes != self._changes:
                return
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[digest(token)] = ticket.at, principal

    def changing(self) -> None:
        """Remember nobody until `changed`, which follows for certain."""
        with self._lock:
            self._changing += 1
            self._kept.clear()

    def changed(self) -> None:
        """What may have changed rights is over."""
        with self._lock:
            self._changing -= 1
            self._changes += 1
