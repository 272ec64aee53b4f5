"""The Celery tasks: each is a name for a use case. Arguments are an id or a name, never state.

`bind` gives an application its tasks; the container comes from the process that runs them.
"""

from collections.abc import Callable

from celery import Celery

from controlplane.bootstrap import Container
from controlplane.wakeups import PERIODIC_TASK, PLAN_TASK
from controlplane.workers.periodic import run_due


def bind_periodic(app: Celery, container: Container) -> None:
    """Tasks of ordinary workers: one run of the periodic jobs of one period."""

    @app.task(name=PERIODIC_TASK, acks_late=True)
    def run_periodic(names: list[str] | str) -> None:
        run_due(container, [names] if isinstance(names, str) else names)  # a beat of the release before sends one


def bind_planning(app: Celery, wake: Callable[[int], None]) -> None:
    """The task of planners: look at a Pool now. `wake` only sets a flag, so the message is short-lived."""

    @app.task(name=PLAN_TASK, acks_late=True)
    def plan_pool(pool: int) -> None:
        wake(pool)
