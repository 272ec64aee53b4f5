"""Whose turn it is: a tournament at each level of the quota tree, from the root down.

Between siblings: not borrowing before borrowing, judged on the Flavors that the head asks for; then the
lower dominant share after admission, over the weight; then priority, submission, id. Within a leaf:
repairs, priority, submission, id. Shares are fractions of integers, compared by cross-multiplication.
Decayed usage is not in it. An admission changes the standing of one path only, so a turn costs time by
the depth of the tree and not by the number of Queues.
"""

from collections.abc import Iterable
from datetime import datetime
from heapq import heapify, heappop, heappush

from controlplane.core.demand import Workload
from controlplane.core.entitlement import first_choice
from controlplane.core.ids import FlavorName, QueueId, WorkloadId
from controlplane.core.quota import QuotaTree

Line = tuple[int, int, datetime, WorkloadId]
Asks = tuple[tuple[FlavorName, int], ...]


def line_order(workload: Workload) -> Line:
    """The order within one leaf."""
    return (0 if workload.is_repair else 1, -workload.priority, workload.submitted_at, workload.id)


class Share:
    """A dominant share as a fraction; a Queue without weight that borrows has an infinite one."""

    __slots__ = ("is_infinite", "over", "under")

    def __init__(self, over: int, under: int, weight: int) -> None:
        """`over` units borrowed of `under` that could be lent."""
        self.is_infinite = over > 0 and (weight <= 0 or under <= 0)
        self.over = over
        self.under = max(1, under) * (weight if weight > 0 else 1)

    def __lt__(self, other: "Share") -> bool:
        """Infinite shares are largest; among them the plain fraction decides."""
        if self.is_infinite != other.is_infinite:
            return other.is_infinite
        return self.over * other.under < other.over * self.under

    def __eq__(self, other: object) -> bool:
        """Equal as fractions."""
        if not isinstance(other, Share):
            return NotImplemented
        return self.is_infinite == other.is_infinite and self.over * other.under == other.over * self.under

    __hash__ = None  # type: ignore[assignment]  # compared, never kept in a set


Standing = tuple[bool, Share, int, datetime, WorkloadId]


class _Seat:
    """One Queue with something waiting below it, and who speaks for it."""

    __slots__ = ("asks", "heap", "line", "parent", "queue", "turn", "workload")

    def __init__(self, queue: QueueId, parent: "_Seat | None") -> None:
        self.queue = queue
        self.parent = parent
        self.line: list[tuple[Line, Workload]] = []  # its own, a heap
        self.heap: list[tuple[Standing, int, _Seat]] = []  # its children; entries of old turns are skipped
        self.workload: Workload | None = None
        self.asks: Asks = ()  # what reaches this Queue's accounts if its head is admitted
        self.turn = 0


class Contest:
    """All waiting Workloads, one after the other, in the order of their turns."""

    def __init__(self, tree: QuotaTree, waiting: Iterable[Workload]) -> None:
        self._tree = tree
        self._top: list[tuple[Standing, int, _Seat]] = []
        self._seats: dict[QueueId, _Seat] = {}
        self._last: _Seat | None = None
        for workload in waiting:
            seat = self._seat(workload.queue)
            seat.line.append((line_order(workload), workload))
        depth = {queue: len(tree.path(queue)) for queue in self._seats}
        for queue in sorted(self._seats, key=lambda queue: (-depth[queue], queue)):
            seat = self._seats[queue]
            heapify(seat.line)
            self._stand(seat)

    def next(self) -> Workload | None:
        """The Workload whose turn it is, taken out; None when all had theirs.

        Usage may change between two turns only along the path of the last one's Queue.
        """
        at: _Seat | None = self._last
        while at is not None:
            self._stand(at)
            at = at.parent
        winner = _best(self._top)
        if winner is None or winner.workload is None:
            return None
        workload = winner.workload
        self._last = self._seats[workload.queue]
        heappop(self._last.line)
        return workload

    def ahead(self, queue: QueueId) -> list[Workload]:
        """What still waits in one leaf, in order."""
        seat = self._seats.get(queue)
        return [] if seat is None else [workload for _, workload in sorted(seat.line)]

    def left(self) -> list[Workload]:
        """All that have not had their turn, leaf by leaf."""
        return [workload for queue in sorted(self._seats) for workload in self.ahead(queue)]

    def _seat(self, queue: QueueId) -> _Seat:
        seat = self._seats.get(queue)
        if seat is None:
            parent = self._tree.queues[queue].parent
            seat = self._seats[queue] = _Seat(queue, None if parent is None else self._seat(parent))
        return seat

    def _stand(self, seat: _Seat) -> None:
        """Find who speaks for a seat now, and enter it among its siblings."""
        seat.turn += 1
        best = None if seat.line else _best(seat.heap)
        if seat.line:
            seat.workload = seat.line[0][1]
            seat.asks = first_choice(seat.workload)
        elif best is not None:
            seat.workload = best.workload
            account = self._tree.account
            passed = ((flavor, account(best.queue, flavor).passes_up(amount)) for flavor, amount in best.asks)
            seat.asks = tuple((flavor, amount) for flavor, amount in passed if amount)
        else:
            seat.workload, seat.asks = None, ()
            return
        siblings = self._top if seat.parent is None else seat.parent.heap
        heappush(siblings, (self._standing(seat), seat.turn, seat))

    def _standing(self, seat: _Seat) -> Standing:
        assert seat.workload is not None
        borrows, share = False, Share(0, 1, 1)
        if seat.parent is not None:
            borrows, share = self._borrowing(seat, seat.parent.queue)
        workload = seat.workload
        return borrows, share, -workload.priority, workload.submitted_at, workload.id

    def _borrowing(self, seat: _Seat, parent: QueueId) -> tuple[bool, Share]:
        """Whether it would borrow a Flavor it asks for, and its dominant share over all Flavors, once admitted."""
        weight = self._tree.queues[seat.queue].weight
        asked = dict(seat.asks)
        borrows, worst = False, Share(0, 1, 1)
        for flavor in asked:
            self._tree.account(seat.queue, flavor)
        for flavor, account in self._tree.accounts_of(seat.queue).items():
            over = account.u + asked.get(flavor, 0) - account.s
            if over > 0:
                borrows = borrows or flavor in asked
                share = Share(over, self._tree.potential(parent, flavor), weight)
                worst = max(worst, share)
        return borrows, worst


def _best(heap: list[tuple[Standing, int, _Seat]]) -> _Seat | None:
    """The first valid entry; what stands there from earlier turns is thrown away."""
    while heap:
        _, turn, seat = heap[0]
        if turn == seat.turn and seat.workload is not None:
            return seat
        heappop(heap)
    return None
