"""Hints that something changed: a poke makes a sleeping planner look now instead of at its next sweep.

A poke is one Celery message on the Pool's own queue. It may be lost, doubled or late; then work waits for the
next sweep, and nothing else happens. So callers never wait for Redis: a daemon thread sends, and while the
broker is away it drops what it is given.
"""

import threading
import time
from collections.abc import Callable

import structlog
from celery import Celery

PLAN_TASK = "muster.plan_pool"
PERIODIC_TASK = "muster.run_periodic"
BURST_SECONDS = 0.02
BACK_OFF_SECONDS = 5.0

log = structlog.get_logger(__name__)


def plan_queue(pool: int) -> str:
    """The Celery queue that only planners of this Pool read."""
    return f"plan.{pool}"


def make_celery(redis_url: str) -> Celery:
    """A client that only sends; the workers' full configuration is in `workers.app`."""
    app = Celery("muster", broker=redis_url, set_as_current=False)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "global_keyprefix": "muster:",
            "socket_timeout": 5,
            "socket_connect_timeout": 2,
            "queue_order_strategy": "priority",
            "priority_steps": [0, 3, 6, 9],
        },
        task_publish_retry=False,
    )
    return app


class Wakeups:
    """Sends pokes from a thread of its own; equal pokes that wait together are sent once."""

    def __init__(self, redis_url: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the broker's address; nothing is connected before the first poke."""
        self._redis_url = redis_url
        self._clock = clock
        self._waiting: set[int] = set()
        self._signal = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def poke(self, pool: int) -> None:
        """Say that `pool` has work; returns at once, whether or not anybody hears it."""
        with self._signal:
            if self._closed:
                return
            self._waiting.add(pool)
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_for_ever, name="wakeups", daemon=True)
                self._thread.start()
            self._signal.notify()

    def close(self) -> None:
        """Stop sending; what waits is dropped, since sweeps find the work anyway."""
        with self._signal:
            self._closed = True
            self._waiting.clear()
            self._signal.notify()

    def _send_for_ever(self) -> None:
        app = make_celery(self._redis_url)
        silent_until = 0.0
        while True:
            with self._signal:
                while not self._waiting and not self._closed:
                    self._signal.wait()
                if self._closed:
                    return
                batch, self._waiting = self._waiting, set()
            if self._clock() < silent_until:
                continue
            for pool in sorted(batch):
                if not self._send(app, pool):
                    silent_until = self._clock() + BACK_OFF_SECONDS
                    break
            self._rest()

    def _rest(self) -> None:
        """Let pokes of a burst come together: the first of them went at once, the others make one."""
        with self._signal:
            self._signal.wait_for(lambda: self._closed, BURST_SECONDS)

    @staticmethod
    def _send(app: Celery, pool: int) -> bool:
        try:
            app.send_task(PLAN_TASK, args=[pool], queue=plan_queue(pool), expires=60)
        except Exception as error:  # noqa: BLE001 - a hint must never fail its sender, whatever the broker does
            log.warning("poke lost", pool=pool, error=type(error).__name__)
            return False
        return True
