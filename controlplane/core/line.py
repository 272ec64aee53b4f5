"""Who goes first within one leaf: what a cycle left over, repairs, priority, whoever used less lately, age, id.

Owners take turns by what they used, so it is asked anew whenever a Workload starts; that costs time by the number of
owners that changed, not of Workloads.
"""

from collections.abc import Callable
from datetime import datetime
from heapq import heapify, heappop, heappush, heapreplace

from controlplane.core.demand import Workload
from controlplane.core.ids import WorkloadId

Rank = tuple[bool, bool, int]
Used = Callable[[str], int]


def nothing_used(_owner: str) -> int:
    """Nobody has a past."""
    return 0


def rank_of(workload: Workload, *, is_late: bool = False) -> Rank:
    """What is looked at before owners are compared; lowest first."""
    return is_late, not workload.is_repair, -workload.priority


class Line:
    """All that wait in one leaf."""

    def __init__(self, used: Used = nothing_used) -> None:
        """`used(owner)` only ever grows while the Line lives."""
        self._used = used
        self._ranks: list[Rank] = []
        self._waiting: dict[Rank, dict[str, list[tuple[datetime, WorkloadId, Workload]]]] = {}
        self._owners: dict[Rank, list[tuple[int, datetime, WorkloadId, str]]] = {}

    def add(self, workload: Workload, *, is_late: bool = False) -> None:
        """One more; only before the first look at the head."""
        rank = rank_of(workload, is_late=is_late)
        waiting = self._waiting.setdefault(rank, {})
        waiting.setdefault(workload.owner, []).append((workload.submitted_at, workload.id, workload))

    def close(self) -> None:
        """All have been added."""
        self._ranks = sorted(self._waiting)
        for rank, waiting in self._waiting.items():
            for each in waiting.values():
                heapify(each)
            self._owners[rank] = [(self._used(owner), *each[0][:2], owner) for owner, each in waiting.items()]
            heapify(self._owners[rank])

    def head(self) -> Workload | None:
        """Whose turn it is in this leaf; None if nobody waits."""
        while self._ranks:
            rank = self._ranks[0]
            owners = self._owners[rank]
            while owners:
                used, submitted, name, owner = owners[0]
                now = self._used(owner)
                if now == used:
                    return self._waiting[rank][owner][0][2]
                heapreplace(owners, (now, submitted, name, owner))
            del self._ranks[0]
        return None

    def pop(self) -> None:
        """The head had its turn."""
        if self.head() is None:
            return
        rank = self._ranks[0]
        used, _, _, owner = heappop(self._owners[rank])
        line = self._waiting[rank][owner]
        heappop(line)
        if line:
            heappush(self._owners[rank], (used, *line[0][:2], owner))

    def rest(self) -> list[Workload]:
        """All that still wait, in the order of now."""
        found = [
            (rank, self._used(owner), submitted, name, workload)
            for rank in self._ranks
            for owner, line in self._waiting[rank].items()
            for submitted, name, workload in line
        ]
        return [each[-1] for each in sorted(found, key=lambda each: each[:-1])]
