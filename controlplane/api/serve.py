"""Runs both listeners in one process: `python -m controlplane.api.serve`. One for people, one for agents.

They share a container and an event loop; routes of people run in threads, only the agents' long poll waits in the
loop. Asked to end, it answers what has begun and leaves within seconds.
"""

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import anyio.to_thread
import structlog
import uvicorn
import uvloop
from starlette.types import ASGIApp

from controlplane.api.app import create_agent_app, create_app
from controlplane.api.connection import protocol
from controlplane.api.tls import Certificate, CertificateUnusable
from controlplane.bootstrap import Container, build_container
from controlplane.settings import SettingsUnusable, settings_of_environment
from controlplane.telemetry import configure_logging

GARBAGE_AT = 20_000  # new objects between two looks at the young ones
GRACE_SECONDS = 2
BACKLOG = 1_024
EXIT_UNUSABLE = 2

log = structlog.get_logger(__name__)


class _Server(uvicorn.Server):
    """One listener; signals are the process's to take, since there are two of these in it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True, slots=True)
class Listeners:
    """Both listeners of a process."""

    people: uvicorn.Server
    agents: uvicorn.Server
    certificate: Certificate | None = None

    def stop(self) -> None:
        """Take no more requests and end when those that run are answered."""
        self.people.should_exit = True
        self.agents.should_exit = True

    async def serve(self) -> None:
        """Until `stop`, or until one of the two ends."""
        renewal = asyncio.create_task(self.certificate.follow()) if self.certificate else None
        tasks = [asyncio.create_task(self.people.serve()), asyncio.create_task(self.agents.serve())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self.stop()
        await asyncio.gather(*tasks)
        if renewal:
            renewal.cancel()


def listeners(container: Container) -> Listeners:
    """Both listeners, not listening yet; raises CertificateUnusable."""
    settings = container.settings
    certificate = None
    if settings.tls_cert_file and settings.tls_key_file:
        certificate = Certificate(settings.tls_cert_file, settings.tls_key_file)
    return Listeners(
        people=_server(create_app(container), settings.api_host, settings.api_port, settings.body_seconds, certificate),
        agents=_server(
            create_agent_app(container), settings.agent_host, settings.agent_port, settings.body_seconds, certificate
        ),
        certificate=certificate,
    )


def _server(app: ASGIApp, host: str, port: int, head_seconds: float, certificate: Certificate | None) -> uvicorn.Server:
    return _Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            access_log=False,
            log_config=None,
            log_level="warning",
            lifespan="auto",
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            http=protocol(head_seconds),
            ws="none",
            timeout_graceful_shutdown=GRACE_SECONDS,
            ssl_context_factory=(lambda _config, _default: certificate.context) if certificate else None,
        )
    )


def _collect_rarely() -> None:
    """What is here now stays, so it is not looked through again and again: each time would stop every request."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_AT, 20, 20)


async def _run(container: Container) -> None:
    both = listeners(container)
    _collect_rarely()
    # More threads than connections would only wait for one another.
    anyio.to_thread.current_default_thread_limiter().total_tokens = container.settings.database_pool_size
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        loop.add_signal_handler(name, both.stop)
    await both.serve()


def main() -> None:
    """Read the environment, listen until a signal comes; exit code 2 if the environment does not do."""
    try:
        settings = settings_of_environment()
    except SettingsUnusable as error:
        sys.stderr.write(f"muster: {error}\n")
        sys.exit(EXIT_UNUSABLE)
    configure_logging(settings.log_level)
    container = build_container(settings)
    log.info("listening", people=f"{settings.api_host}:{settings.api_port}", agents=settings.agent_audience())
    try:
        # The event loop of libuv answers the same for less of the processor.
        asyncio.Runner(loop_factory=uvloop.new_event_loop).run(_run(container))
    except CertificateUnusable as error:
        sys.exit(f"muster: {error}")
    finally:
        container.close()


if __name__ == "__main__":
    main()
