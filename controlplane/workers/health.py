"""What a worker, planner or beat tells whoever probes it: /livez, /readyz, /metrics on a port of its own.

A process lives while its sweep and, in a planner, its planning come round, whether or not the database answers: to
restart it because Postgres is away would mend nothing. It is ready while its sweeps reach the database.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import ClassVar, Protocol

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

PROBE_SECONDS = 5


class Pulse(Protocol):
    """Whose progress is told."""

    def is_hung(self) -> bool:
        """Whether its loop has not come round for far longer than it may take."""
        ...

    def seconds_since_reached(self) -> float | None:
        """How long ago it last wrote to the database; None: never yet."""
        ...


@contextmanager
def answering(host: str, port: int, pulse: Pulse, silent_seconds_max: int) -> Iterator[int]:
    """Answer probes until the block ends, and yield the port; 0: on none. Raises OSError where it is taken."""
    if not port:
        yield 0
        return

    class Handler(_Handler):
        asked = pulse
        silence = silent_seconds_max

    class Server(ThreadingHTTPServer):
        address_family = AF_INET6 if ":" in host else AF_INET
        daemon_threads = True

    with Server((host, port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="health", daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(PROBE_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    asked: ClassVar[Pulse]
    silence: ClassVar[int]
    timeout = PROBE_SECONDS
    server_version = "muster"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/livez":
            self._say("hung: the sweep or the planning does not come round" if self.asked.is_hung() else "")
        elif path == "/readyz":
            self._say(self._silence())
        elif path == "/metrics":
            self._send(200, generate_latest(), CONTENT_TYPE_LATEST)
        else:
            self._send(404, b"not found\n")

    def log_message(self, *_: object) -> None:
        """Probes are not worth a line each."""

    def _silence(self) -> str:
        seconds = self.asked.seconds_since_reached()
        if seconds is None:
            return "the database has not been reached yet"
        return f"the database was last reached {seconds:.0f} s ago" if seconds > self.silence else ""

    def _say(self, trouble: str) -> None:
        self._send(503 if trouble else 200, f"{trouble or 'ok'}\n".encode())

    def _send(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
