"""Starts one process of the workers: `python -m controlplane.workers.run worker|planner|beat`.

worker runs periodic jobs that beat or a sweep calls for; planner plans Pools with a warm world and is never
recycled; beat only sends what the table says is due. None of the three need be alone, and none must be there for
work to end, as long as one worker or planner is.
"""

import contextlib
import logging
import os
import signal
import socket
import sys
import uuid
import warnings
from collections.abc import Iterator

import structlog
from celery import Celery, beat
from celery.exceptions import SecurityWarning
from prometheus_client import start_http_server

from controlplane import telemetry
from controlplane.bootstrap import Container, build_container
from controlplane.core.ids import PoolId
from controlplane.settings import SettingsUnusable, settings_of_environment
from controlplane.wakeups import PERIODIC_TASK, plan_queue
from controlplane.workers import health
from controlplane.workers.app import make_app
from controlplane.workers.garbage import collect_rarely
from controlplane.workers.periodic import PERIODIC
from controlplane.workers.planning import PlannerLoop
from controlplane.workers.sweeper import Sweeper
from controlplane.workers.tasks import bind_periodic, bind_planning

log = structlog.get_logger(__name__)
ROLES = ("worker", "planner", "beat")
PERIODIC_QUEUE = "periodic"
CONTROL_SECONDS = 2.0


def process_name(role: str) -> str:
    """Unique among all processes of all machines, readable in heartbeats and leases."""
    return f"{role}-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _celery_worker(app: Celery, name: str, queues: str, concurrency: int) -> None:
    pool = "solo" if concurrency == 1 else "threads"
    # Its advice is about pickled messages, and none is taken here; an embedded plane may well be root's.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    app.worker_main(
        ["--quiet", "worker", "-Q", queues, "-n", f"{name}@muster", "-c", str(concurrency), "-P", pool,
         "--without-gossip", "--without-mingle", "--loglevel", "WARNING"]
    )  # fmt: skip


def run_worker(container: Container) -> None:
    """Periodic jobs, by message and by sweep."""
    name = process_name("worker")
    app = make_app(container.settings.redis_url.get_secret_value(), worker_queue=PERIODIC_QUEUE)
    bind_periodic(app, container)
    with _sweeping(container, Sweeper(container, name, "worker")):
        _celery_worker(app, name, PERIODIC_QUEUE, container.settings.worker_concurrency)


@contextlib.contextmanager
def _sweeping(container: Container, sweeper: Sweeper) -> Iterator[None]:
    """Sweep, and answer probes about it, until the block ends."""
    settings = container.settings
    sweeper.start()
    try:
        with health.answering(settings.health_host, settings.health_port, sweeper, container.heartbeat_seconds_max()):
            yield
    finally:
        sweeper.stop()


def run_planner(container: Container) -> None:
    """Plans, with a warm world; its own queue never holds anything, Pools' queues come and go with leases."""
    collect_rarely()
    name = process_name("planner")
    app = make_app(container.settings.redis_url.get_secret_value(), worker_queue=f"idle.{name}")
    destination = [f"{name}@muster"]

    def subscribe(pool: PoolId, *, on: bool) -> bool:
        # Without a broker the sweep serves, and it is asked again later.
        with contextlib.suppress(Exception):
            change = app.control.add_consumer if on else app.control.cancel_consumer
            return bool(change(plan_queue(pool), destination=destination, reply=True, timeout=CONTROL_SECONDS))
        return False

    loop = PlannerLoop(container, name, subscribe)
    bind_planning(app, loop.wake)
    sweeper = Sweeper(container, name, "planner", loop.makes_progress)

    loop.start()
    try:
        with _sweeping(container, sweeper):
            _celery_worker(app, name, f"idle.{name}", 1)
    finally:
        loop.stop()


def serve_metrics(port: int) -> None:
    """Tell Prometheus of this process, on the loopback; 0: nowhere. A port that is taken must not stop the work."""
    if not port:
        return
    try:
        start_http_server(port, addr="127.0.0.1")
    except OSError as error:
        log.warning("metrics are not served", port=port, text=str(error))


def schedule() -> dict[str, dict[str, object]]:
    """What beat sends: one message for all jobs of one period, since each message costs a claim."""
    periods = sorted({job.every_seconds for job in PERIODIC})
    return {
        f"every {seconds} s": {
            "task": PERIODIC_TASK,
            "schedule": seconds,
            "args": [[job.name for job in PERIODIC if job.every_seconds == seconds]],
            "options": {"queue": PERIODIC_QUEUE, "expires": max(seconds * 2, 5)},
        }
        for seconds in periods
    }


def run_beat(container: Container) -> None:
    """Send the periodic jobs on time; its memory is the table, so nothing is lost when it dies."""
    logging.getLogger("celery.beat").setLevel(logging.WARNING)  # a line for each message would drown all others
    app = make_app(container.settings.redis_url.get_secret_value(), worker_queue=PERIODIC_QUEUE)
    app.conf.beat_schedule = schedule()
    service = beat.Service(app, scheduler_cls="celery.beat:Scheduler")
    signal.signal(signal.SIGTERM, lambda *_: service.stop())
    signal.signal(signal.SIGQUIT, lambda *_: service.stop())
    with _sweeping(container, Sweeper(container, process_name("beat"), "beat")):
        service.start()


def main(arguments: list[str]) -> int:
    """Run one role until it is told to stop; exit code 2 for a wrong role or environment."""
    if len(arguments) != 1 or arguments[0] not in ROLES:
        sys.stderr.write(f"role must be one of {', '.join(ROLES)}, got {' '.join(arguments) or 'nothing'}\n")
        return 2
    # Until Celery takes them: the first process of a container has no default way to end, and a lease wants letting go.
    for number in (signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        settings = settings_of_environment()
    except SettingsUnusable as error:
        sys.stderr.write(f"muster: {error}\n")
        return 2
    telemetry.configure_logging(settings.log_level)
    if arguments[0] != "beat":
        serve_metrics(settings.metrics_port)
    container = build_container(settings)
    {"worker": run_worker, "planner": run_planner, "beat": run_beat}[arguments[0]](container)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
