"""Whether the plane's path works: database, schema, Redis, a worker and a planner that make progress."""

from collections.abc import Callable, Mapping

from controlplane.contract.rest.operations import Readiness
from controlplane.core.facts.collisions import Unavailable
from controlplane.services.ports.unit_of_work import UnitOfWorkFactory

KINDS_NEEDED = ("worker", "planner")
FINE = "ok"
DATABASE = "database"

Probe = Callable[[], str]
"""What is wrong, in words; "" if nothing is."""


def can_serve(probes: Mapping[str, Probe]) -> Readiness:
    """Whether this process can answer requests: no more than its own way to the database, and what is in it.

    What a load balancer asks. A worker that is away, or Redis, must not take the API from people and agents.
    """
    answer = _asked(probes[DATABASE]) or FINE
    return Readiness(ready=answer == FINE, parts={DATABASE: answer})


def readiness(factory: UnitOfWorkFactory, probes: Mapping[str, Probe], heartbeat_seconds_max: int) -> Readiness:
    """Ask every part; one that does not answer counts as broken, and says no more than that."""
    parts = {name: _asked(probe) or FINE for name, probe in probes.items()}
    parts |= _processes(factory, heartbeat_seconds_max)
    return Readiness(ready=all(answer == FINE for answer in parts.values()), parts=parts)


def _asked(probe: Probe) -> str:
    try:
        return probe()
    except Exception as error:  # noqa: BLE001 - whatever it is, the part does not work; that is the answer
        return f"no answer ({type(error).__name__})"


def _processes(factory: UnitOfWorkFactory, age_max: int) -> dict[str, str]:
    try:
        with factory() as uow:
            beats = uow.queries.heartbeats()
    except Unavailable:
        return dict.fromkeys(KINDS_NEEDED, "no answer (Unavailable)")
    ages = {kind: [beat.age_seconds for beat in beats if beat.kind == kind] for kind in KINDS_NEEDED}
    return {kind: _progress(found, age_max) for kind, found in ages.items()}


def _progress(ages: list[int], age_max: int) -> str:
    if not ages:
        return "none has started yet"
    return FINE if min(ages) <= age_max else f"no progress for {min(ages)} s"
