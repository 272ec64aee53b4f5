"""The Celery application: JSON only, late acknowledgement, no results.

Time limits bind forked workers alone; ours are one thread or several, whose tasks the database's time-outs end.
Redis carries hints and nothing that matters: every task re-reads Postgres, may run twice, and would be found
by a sweep if its message were lost.
"""

import kombu
import redis.exceptions
from celery import Celery
from kombu.transport import redis as kombu_redis

VISIBILITY_SECONDS = 900  # above the hard time limit; a task that is slower may come twice, and its run is claimed once
HARD_LIMIT_SECONDS = 300
SOFT_LIMIT_SECONDS = 240


def make_app(redis_url: str, *, worker_queue: str = "periodic") -> Celery:
    """The application of a worker, planner or beat; importing `workers.tasks` gives it its tasks."""
    _guard_kombu()
    app = Celery("muster", broker=redis_url, set_as_current=True)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        result_backend=None,
        task_ignore_result=True,
        task_store_eager_result=False,
        task_default_queue=worker_queue,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_acks_on_failure_or_timeout=True,
        task_time_limit=HARD_LIMIT_SECONDS,
        task_soft_time_limit=SOFT_LIMIT_SECONDS,
        task_publish_retry_policy={"max_retries": 3, "interval_start": 0.1, "interval_max": 1.0},
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_eta_task_limit=1000,
        worker_cancel_long_running_tasks_on_connection_loss=False,  # the default flips in a coming release
        worker_soft_shutdown_timeout=5,
        worker_enable_soft_shutdown_on_idle=False,
        worker_hijack_root_logger=False,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_SECONDS,
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,
            "socket_timeout": 30,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 15,
            "global_keyprefix": "muster:",
            "queue_order_strategy": "priority",
            "priority_steps": [0, 3, 6, 9],
        },
    )
    return app


def _guard_kombu() -> None:
    """Keep a broker restart under a running task from killing the worker.

    kombu 5.7.0 builds a new connection pool for a channel whose connection is already gone and fails with an
    AttributeError, which Celery does not forgive; a ConnectionError it does. Drop this when kombu does.
    """
    if kombu.__version__ != "5.7.0" or getattr(kombu_redis.Channel, "_muster_guarded", False):
        return
    original = kombu_redis.Channel._connparams  # noqa: SLF001 - see above

    def connparams(self: kombu_redis.Channel, asynchronous: bool = False) -> dict[str, object]:  # noqa: FBT001, FBT002 - kombu's own
        if self.connection is None or self.connection.client is None:
            raise redis.exceptions.ConnectionError("the broker connection is already torn down")
        params: dict[str, object] = original(self, asynchronous)  # type: ignore[no-untyped-call]  # kombu has no types
        return params

    kombu_redis.Channel._connparams = connparams  # type: ignore[method-assign]  # noqa: SLF001 - see above
    kombu_redis.Channel._muster_guarded = True  # type: ignore[attr-defined]  # noqa: SLF001 - our own mark
