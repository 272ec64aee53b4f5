"""After the plane's data came from a backup: nothing is ordered before each cluster has told everything once.

The rows speak of a past; the clusters went on. `begin` gives the data a new life (incarnation, epoch), ends every
Session and stops planning; a cluster gets no order before its complete list was taken (`heard_whole`). The last one
ends the recovery, or a sweep that finds nobody awaited (`settle`), or an operator, for clusters that will not come
(`end`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.core.facts.fleet import ClusterFact
from controlplane.core.facts.ledger import AttemptKey
from controlplane.services.errors import Conflict, NotFound
from controlplane.services.ports.unit_of_work import UnitOfWork

HELD_BACK = timedelta(minutes=30)
"""How long a Workload waits after an agent last told of an Attempt of it that the plane does not know."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Since when the plane recovers (None: it does not), and which clusters have not told everything since."""

    since: datetime | None
    waiting: tuple[str, ...]


def begin(uow: UnitOfWork, actor: str) -> Recovery:
    """Start a new life of the data. Doing it again starts over."""
    epoch = uow.agents.begin_recovery()
    _note(uow, actor, "plane.recovery-begun", {"epoch": epoch})
    return status(uow)


def status(uow: UnitOfWork) -> Recovery:
    """Where the recovery stands."""
    return Recovery(uow.agents.plane().recovering_since, tuple(uow.agents.recovering()))


def end(uow: UnitOfWork, actor: str, without: Collection[str]) -> Recovery:
    """Plan again although these clusters have not told everything; raises Conflict for others that have not, NotFound.

    They still get no order before they do. What the rows say of them is believed until then.
    """
    found = status(uow)
    if found.since is None:
        return found
    unknown = sorted(name for name in without if uow.fleet.cluster_named(name) is None)
    if unknown:
        raise NotFound(f"there is no cluster {', '.join(unknown)}")
    left = sorted(set(found.waiting) - set(without))
    if left:
        raise Conflict(
            f"{', '.join(left)} have not told everything yet; name those that will not come", slug="recovering"
        )
    _end(uow, actor, {"without": sorted(without)})
    return status(uow)


def heard_whole(uow: UnitOfWork, cluster: ClusterFact) -> None:
    """A cluster's complete list was taken: from now on it gets orders. The last one ends the recovery."""
    uow.agents.recovered(cluster.id)
    _note(uow, f"agent:{cluster.name}", "cluster.recovered", {"cluster": cluster.name})
    settle(uow)


def settle(uow: UnitOfWork) -> int:
    """End a recovery in which no cluster is awaited any more; returns 1 if one was ended.

    Asked now and then, too: of two clusters that are heard at once neither sees that it is the last, one that is
    removed is not heard at all, and there may have been none.
    """
    found = status(uow)
    if found.since is None or found.waiting:
        return 0
    _end(uow, "plane", {})
    return 1


def hold_back(uow: UnitOfWork, cluster: ClusterFact, unknown: Collection[AttemptKey]) -> None:
    """Agents know Attempts that the plane does not: their Workloads wait, and their numbers are never given again."""
    if unknown:
        uow.agents.note_unknown(cluster.pool, unknown, uow.now + HELD_BACK)


def _end(uow: UnitOfWork, actor: str, facts: dict[str, object]) -> None:
    uow.agents.end_recovery()
    for pool, _ in uow.planning.pools():
        uow.wake_pool(pool)
    _note(uow, actor, "plane.recovery-ended", facts)


def _note(uow: UnitOfWork, actor: str, action: str, facts: dict[str, object]) -> None:
    uow.audit.record(actor=actor, action=action, object_kind="plane", object_id="1", facts=facts)
