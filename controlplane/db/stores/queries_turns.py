"""What views of Queues say of turns: what each is entitled to now, what history makes of its weight. Never writes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.orm import Session

from controlplane.contract.rest.tenancy import QueueView, QuotaView
from controlplane.core.history import WHOLE
from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.quota import QuotaTree
from controlplane.core.shares import fair_shares

Line = Row[Any]
_MICROSECONDS_PER_HOUR = 3_600 * WHOLE

# In use, and waiting: a Workload that could choose among Flavors wants the first.
_DEMAND = text("""
    SELECT queue_id, flavor, sum(amount) AS amount FROM (
        SELECT queue_id, flavor, amount FROM reservation WHERE state = 'held'
        UNION ALL
        SELECT workload.queue_id, pod_set.flavors ->> 0, pod_set.replicas * pod_set.devices
        FROM workload JOIN pod_set ON pod_set.workload_id = workload.id
        WHERE workload.state = 'pending' AND pod_set.devices > 0) AS wanted (queue_id, flavor, amount)
    WHERE flavor IS NOT NULL GROUP BY queue_id, flavor""")
_PASTS = text("""
    SELECT queue_id, flavor, min(weight) AS weight, sum(credit) AS credit FROM queue_history
    GROUP BY queue_id, flavor""")


def with_turns(session: Session, tree: QuotaTree, rows: Iterable[Line], views: Sequence[QueueView]) -> list[QueueView]:
    """The same views with shares, weights and credits; `rows` are those of all Queues with id, path and weight."""
    queues = {row.path: row for row in rows}
    demand = {
        (QueueId(row.queue_id), FlavorName(row.flavor)): int(row.amount)
        for row in session.execute(_DEMAND)
        if row.queue_id in tree
    }
    shares = fair_shares(tree, demand, {QueueId(row.id): row.weight for row in queues.values()})
    by_queue: dict[int, dict[str, dict[str, float]]] = {}
    for (queue, flavor), share in shares.items():
        by_queue.setdefault(queue, {})[flavor] = {"entitled": int(share * 100) / 100}
    weights: dict[int, int] = {}
    for past in session.execute(_PASTS):
        credit = {"burst_credit": round(int(past.credit) / _MICROSECONDS_PER_HOUR, 2)}
        by_queue.setdefault(past.queue_id, {}).setdefault(past.flavor, {}).update(credit)
        weights[past.queue_id] = min(weights.get(past.queue_id, WHOLE), past.weight)
    return [
        view.model_copy(
            update={
                "weight_now": view.weight * weights.get(queues[view.path].id, WHOLE) / WHOLE,
                "quotas": _quotas(view, tree, queues[view.path].id, by_queue.get(queues[view.path].id, {})),
            }
        )
        for view in views
    ]


def _quotas(view: QueueView, tree: QuotaTree, queue: int, said: Mapping[str, Mapping[str, float]]) -> list[QuotaView]:
    """Those that are listed or in use already, and those of which only turns have something to say."""
    listed = {quota.flavor: quota for quota in view.quotas}
    for flavor in said.keys() - listed.keys() if queue in tree else ():
        key = QueueId(queue), FlavorName(flavor)
        listed[flavor] = QuotaView(flavor=flavor, potential=tree.potential(*key), available=tree.available(*key))
    return [listed[flavor].model_copy(update=dict(said.get(flavor, {}))) for flavor in sorted(listed)]
