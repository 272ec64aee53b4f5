"""Plans the next cycle while one is being committed, on the world that the commit will leave.

A cycle that was planned on another stands on all of it: where the commit loses a decision, what was planned meanwhile
is thrown away and planned again. What is committed is checked on fresh rows in any case.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from controlplane.core.assumed import can_assume
from controlplane.services.scheduling import Flight, Landed, Planned, Planner, Step


class Overlap:
    """Runs one Planner's cycles on two threads; `run` is called by one thread alone."""

    def __init__(self, planner: Planner) -> None:
        """The second thread starts with the first cycle."""
        self._planner = planner
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="planner-commit")
        self._flight: Flight | None = None
        self._landing: Future[Landed] | None = None
        self._stands = True  # whether what was planned on the last one holds

    def run(self, cycles_max: int, told: Callable[[Step], bool]) -> Step:
        """Plan and commit until nothing is left to do, or `cycles_max`; returns what the last cycle came to.

        `told` is called after each cycle and says whether to go on. Raises what planning or committing raised; nothing
        is under way afterwards.
        """
        step = Step.IDLE
        try:
            for _ in range(cycles_max):
                planned = self._planner.plan(self._flight)
                if self._flight is not None:
                    step = self._land()
                    if not told(step):
                        return step
                    if planned is None or not self._stands:
                        if step is not Step.AGAIN:
                            return step
                        continue
                elif planned is None:
                    return Step.IDLE
                self._start(planned)
                if not can_assume(planned.plan):  # what comes of it is read before anything is planned on it
                    step = self._land()
                    if not told(step) or step is not Step.AGAIN:
                        return step
        finally:
            if self._flight is not None:
                step = self._land()
        return step

    def close(self) -> None:
        """End the second thread."""
        self._writer.shutdown()

    def _start(self, planned: Planned) -> None:
        self._flight = self._planner.begin(planned)
        self._landing = self._writer.submit(self._planner.write, self._flight)

    def _land(self) -> Step:
        """Wait for what is under way."""
        flight, landing = self._flight, self._landing
        assert flight is not None
        assert landing is not None
        landed: Landed | None = None
        try:
            landed = landing.result()
        finally:
            self._flight = self._landing = None
            self._stands = landed is not None and landed.is_whole
            step = self._planner.end(flight, landed)
        return step
