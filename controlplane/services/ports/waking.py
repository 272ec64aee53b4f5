"""How a long poll learns that there may be something for its cluster."""

from typing import Protocol

from controlplane.core.ids import ClusterId


class Waker(Protocol):
    """Wakes the waiting requests of this process. A wake-up is a hint: look at the rows before and after."""

    def start(self) -> None:
        """Begin to listen."""

    def stop(self) -> None:
        """End it; who still waits goes on polling."""

    async def wait(self, cluster: ClusterId, seconds: float) -> bool:
        """Until there may be news for the cluster, at most so long and never longer than the poll behind it."""
