"""How a long poll learns that there is something for its cluster."""

from contextlib import AbstractContextManager
from typing import Protocol

from controlplane.core.ids import ClusterId


class Woken(Protocol):
    """One waiting request."""

    async def wait(self, seconds: float) -> bool:
        """Until the cluster is woken, at most so long; True if it was. Asked again, it waits for the next time."""


class Waker(Protocol):
    """Wakes the waiting requests of this process; a wake-up that comes before `wait` is asked is not lost."""

    def watch(self, cluster: ClusterId) -> AbstractContextManager[Woken]:
        """Begin to listen for this cluster, for the length of the block."""
