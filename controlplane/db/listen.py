"""Wakes long polls: one LISTEN connection per API process, read by one thread, with a poll of a second behind it.

A wake-up is a hint and may be missing (Postgres was away) or needless (somebody else's news): whoever waits looks at
the rows afterwards. The other half is the NOTIFY at the end of a unit of work.
"""

import asyncio
import contextlib
import os
import socket
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import psycopg
import structlog
from psycopg import sql
from psycopg.conninfo import make_conninfo

from controlplane.core.ids import ClusterId
from controlplane.db.engine import KEEPALIVE, driver_url
from controlplane.db.unit_of_work import CHANNEL, EVERYBODY

POLL_SECONDS = 1.0
RECONNECT_SECONDS = 0.5
_CONNECT_SECONDS = 3

_log = structlog.get_logger(__name__)

ANYTHING = ClusterId(0)  # no cluster's id: who waits for it is woken by every word

Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class Waker:
    """Start it once per process; `wait` may be called from any event loop, by many at once."""

    def __init__(self, url: str, poll_seconds: float = POLL_SECONDS) -> None:
        """`url` leads straight to Postgres: LISTEN does not pass a transaction pooler."""
        self._poll_seconds = poll_seconds
        self._url = driver_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._waiters: dict[ClusterId, set[Waiter]] = defaultdict(set)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._line: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="listen", daemon=True)

    def start(self) -> None:
        """Begin to listen, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread at once; who still waits goes on polling."""
        self._stopped.set()
        self._hang_up()
        if self._thread.is_alive():
            self._thread.join(self._poll_seconds + _CONNECT_SECONDS)

    async def wait(self, cluster: ClusterId = ANYTHING, seconds: float = POLL_SECONDS) -> bool:
        """Until there may be news for `cluster`, at most `seconds` and never longer than the poll behind it.

        True where a NOTIFY named it. Look at the rows before and after: a commit in between is seen by one of the two.
        """
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiters[cluster].add(waiter)
        try:
            await asyncio.wait_for(waiter[1].wait(), min(seconds, self._poll_seconds))
        except TimeoutError:
            return False
        finally:
            self._forget(cluster, waiter)
        return True

    def _forget(self, cluster: ClusterId, waiter: Waiter) -> None:
        with self._lock:
            waiters = self._waiters[cluster]
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[cluster]

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except psycopg.Error as error:
                if not self._stopped.is_set():
                    _log.warning("listening_interrupted", error=str(error))
                self._stopped.wait(RECONNECT_SECONDS)

    def _listen(self) -> None:
        with (
            psycopg.connect(
                make_conninfo(self._url, **KEEPALIVE),
                autocommit=True,
                connect_timeout=_CONNECT_SECONDS,
                application_name="muster-listen",
            ) as connection,
            self._reachable(connection),
        ):
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))
            self._wake(None)  # what was said while nobody listened is not repeated
            while not self._stopped.is_set():
                for heard in connection.notifies(timeout=self._poll_seconds, stop_after=1):
                    self._wake(None if heard.payload == EVERYBODY else _named(heard.payload))

    @contextmanager
    def _reachable(self, connection: psycopg.Connection) -> Iterator[None]:
        """While it is open, `stop` need not wait until the thread looks up from it."""
        # A copy of the descriptor: it stays this socket's, whatever the driver closes meanwhile.
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            self._line = line
            try:
                yield
            finally:
                self._line = None

    def _hang_up(self) -> None:
        line = self._line
        if line is not None:
            with contextlib.suppress(OSError):  # it was closed just now
                line.shutdown(socket.SHUT_RDWR)

    def _wake(self, clusters: Iterable[ClusterId] | None) -> None:
        """Wake those who wait for these clusters; None: everybody."""
        with self._lock:
            heard = list(self._waiters) if clusters is None else [ANYTHING, *clusters]
            named = [each for each in heard if each in self._waiters]
            waiting = [waiter for cluster in named for waiter in self._waiters[cluster]]
        for loop, event in waiting:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # its loop was closed meanwhile, so nobody waits there any more
                continue


def _named(payload: str) -> list[ClusterId]:
    return [ClusterId(int(each)) for each in payload.split(",") if each.isdecimal()]
