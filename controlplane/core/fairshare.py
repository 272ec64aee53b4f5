"""Whose turn it is: a tournament at each level of the quota tree, from the root down.

Between siblings: what the cycle before left over; within a soft budget before beyond it; not borrowing before
borrowing, judged on the Flavors that the head asks for; then the lower dominant share after admission, over
the weight that history leaves (`memory`); then priority, submission, id. Within a leaf: `line`. Shares are
fractions of integers, compared by cross-multiplication. An admission changes the standing of one path only,
so a turn costs time by the depth of the tree and not by the number of Queues.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from functools import partial
from heapq import heappop, heappush

from controlplane.core.demand import Workload
from controlplane.core.entitlement import first_choice
from controlplane.core.history import WHOLE
from controlplane.core.ids import FlavorName, QueueId, WorkloadId
from controlplane.core.line import Line
from controlplane.core.memory import Memory
from controlplane.core.quota import QuotaTree

Asks = tuple[tuple[FlavorName, int], ...]


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


_NOTHING = Share(0, 1, 1)
Standing = tuple[bool, bool, bool, Share, int, datetime, WorkloadId]


def _nobody_is_over(_queue: QueueId) -> bool:
    return False


class _Seat:
    """One Queue with something waiting below it, and who speaks for it."""

    __slots__ = ("asks", "depth", "heap", "line", "parent", "queue", "turn", "workload")

    def __init__(self, queue: QueueId, parent: "_Seat | None", line: Line) -> None:
        self.queue = queue
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.line = line  # its own
        self.heap: list[tuple[Standing, int, _Seat]] = []  # its children; entries of old turns are skipped
        self.workload: Workload | None = None
        self.asks: Asks = ()  # what reaches this Queue's accounts if its head is admitted
        self.turn = 0


class Contest:
    """All waiting Workloads, one after the other, in the order of their turns."""

    def __init__(
        self,
        tree: QuotaTree,
        waiting: Iterable[Workload],
        memory: Memory | None = None,
        left_over: Collection[WorkloadId] = (),
        is_over: Callable[[QueueId], bool] = _nobody_is_over,
    ) -> None:
        """`left_over` is what the cycle before did not reach; `is_over` tells whose soft budgets are used up.

        Without a memory plain weights count, and owners are alike.
        """
        self._tree = tree
        self._memory = memory
        self._left_over = frozenset(left_over)
        self._is_over = is_over
        self._top: list[tuple[Standing, int, _Seat]] = []
        self._seats: dict[QueueId, _Seat] = {}
        self._last: _Seat | None = None
        for workload in waiting:
            self._seat(workload.queue).line.add(workload, is_late=self._is_late(workload))
        for seat in sorted(self._seats.values(), key=lambda seat: (-seat.depth, seat.queue)):
            seat.line.close()
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
        self._last.line.pop()
        return workload

    def next_in(self, queue: QueueId, is_wanted: Callable[[Workload], bool]) -> Iterator[Workload]:
        """Those next in the leaf whose turn it was, as long as they are wanted, taken out; no usage may change."""
        line = self._seats[queue].line
        while (head := line.head()) is not None and is_wanted(head):
            line.pop()
            yield head

    def ahead(self, queue: QueueId) -> list[Workload]:
        """What still waits in one leaf, in order."""
        seat = self._seats.get(queue)
        return [] if seat is None else seat.line.rest()

    def left(self) -> list[Workload]:
        """All that have not had their turn, leaf by leaf."""
        return [workload for queue in sorted(self._seats) for workload in self.ahead(queue)]

    def _seat(self, queue: QueueId) -> _Seat:
        seat = self._seats.get(queue)
        if seat is None:
            parent = self._tree.queues[queue].parent
            line = Line() if self._memory is None else Line(partial(self._memory.used, queue))
            seat = self._seats[queue] = _Seat(queue, None if parent is None else self._seat(parent), line)
        return seat

    def _is_late(self, workload: Workload) -> bool:
        """Whether it waits until all that the cycle before left over had their turn."""
        return bool(self._left_over) and workload.id not in self._left_over and not workload.is_repair

    def _stand(self, seat: _Seat) -> None:
        """Find who speaks for a seat now, and enter it among its siblings."""
        seat.turn += 1
        head = seat.line.head()
        best = None if head is not None else _best(seat.heap)
        if head is not None:
            seat.workload = head
            seat.asks = first_choice(head)
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
        borrows, share = False, _NOTHING
        if seat.parent is not None:
            borrows, share = self._borrowing(seat, seat.parent.queue)
        late, over, workload = self._is_late(seat.workload), self._is_over(seat.queue), seat.workload
        return late, over, borrows, share, -workload.priority, workload.submitted_at, workload.id

    def _borrowing(self, seat: _Seat, parent: QueueId) -> tuple[bool, Share]:
        """Whether it would borrow a Flavor it asks for, and its dominant share over all Flavors, once admitted."""
        asked = dict(seat.asks)
        borrows, worst, weight = False, _NOTHING, None
        for flavor in asked:
            self._tree.account(seat.queue, flavor)
        for flavor, account in self._tree.accounts_of(seat.queue).items():
            over = account.u + asked.get(flavor, 0) - account.s
            if over > 0:
                borrows = borrows or flavor in asked
                weight = self._weight(seat.queue) if weight is None else weight
                share = Share(over, self._tree.potential(parent, flavor), weight)
                worst = max(worst, share)
        return borrows, worst

    def _weight(self, queue: QueueId) -> int:
        """In millionths of a whole one."""
        return self._tree.queues[queue].weight * WHOLE if self._memory is None else self._memory.weight(queue)


def _best(heap: list[tuple[Standing, int, _Seat]]) -> _Seat | None:
    """The first valid entry; what stands there from earlier turns is thrown away."""
    while heap:
        _, turn, seat = heap[0]
        if turn == seat.turn and seat.workload is not None:
            return seat
        heappop(heap)
    return None
