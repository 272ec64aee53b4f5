"""Reads a Pool's world for its planner: everything once, then only what changed since the last reading.

A reading is one REPEATABLE READ, read-only transaction. Warm readings rest on `changed_xid`: every row whose
writer was not finished at the last reading has a transaction id at or above that reading's xmin, so asking for
those can return a row twice but never skip one, in whatever order transactions commit.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Engine, Row
from sqlalchemy.orm import Session

from controlplane.core.capacity import Cluster
from controlplane.core.demand import (
    Earmark,
    Exclusion,
    NodeRules,
    NodeShare,
    PodNeeds,
    PodSet,
    RunningAttempt,
    StrategyName,
    TopologyMode,
    Workload,
)
from controlplane.core.facts.planning import Change, Horizon, Reading, Table
from controlplane.core.ids import (
    AttemptNumber,
    ClusterId,
    FlavorName,
    NodeId,
    PoolId,
    QueueId,
    WorkloadId,
)
from controlplane.core.lifecycle import AttemptState, ClusterState
from controlplane.core.policy import policy_from
from controlplane.core.records import rules_from
from controlplane.core.tenancy import Queue, Quota
from controlplane.db import history_reader, node_reader
from controlplane.db.arrays import plain
from controlplane.db.node_reader import known_json
from controlplane.db.owned_sql import COUNTED, OWNED_ELSEWHERE
from controlplane.db.planning_sql import (
    ATTEMPTS,
    CHARGES,
    CLOCK,
    CLUSTERS,
    EARMARKS,
    ELSEWHERE,
    EXCLUSIONS,
    POD_SETS,
    POLICY,
    QUEUES,
    QUEUES_CHANGED,
    QUOTAS,
    SHARES,
    WORKLOADS,
)
from controlplane.db.spent_reader import SpentReader, budgets_of

SqlRow = Row[Any]
Bound = Mapping[str, object]
_SHARE = frozenset(each.name for each in fields(NodeShare))  # planners of the next version may write more


class SqlSnapshotReader:
    """Fulfils `services.ports.planning.SnapshotReader` on one engine.

    It remembers what it told of each Pool, so that whoever reads a Pool warm has a reader that nobody else reads it by.
    """

    def __init__(self, engine: Engine) -> None:
        """Take the engine; each reading borrows one connection."""
        self._engine = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._spent = SpentReader()

    def read(self, pool: PoolId, since: Horizon | None) -> Reading:
        """Return the changes since `since`, or everything if it is None."""
        with Session(self._engine) as session, session.begin():
            now, seen = session.execute(CLOCK).one()
            xmin, xmax, running = seen.split(":")  # Postgres's own form
            bound = {"pool": pool, "since": since.xmin if since else 0}
            known = since or Horizon(0)
            own = {**bound, "own": plain(known.own)}
            of_workloads = {**own, "again": plain(known.workloads_again)}
            budgets, spent = self._spent.read(session, pool, now, since)
            changes = [
                *_clusters(session, bound),
                *node_reader.nodes(session, bound),
                *(node_reader.held(session, {**own, "again": plain(known.nodes_again)}) if since else ()),
                *_queues(session, bound),
                *_waiting(session, of_workloads),
                *_running(session, of_workloads),
                *_earmarks(session, bound),
                *_exclusions(session, bound, now),
                *_elsewhere(session, bound),
                *_owned(session, bound),
                *budgets,
                *history_reader.standings(session, bound),
                *history_reader.owners(session, bound),
            ]
            row = session.execute(POLICY, bound).one()
            return Reading(
                pool=pool,
                pool_name=row.name,
                changes=changes,
                horizon=Horizon(int(xmin), tuple(one for one in known.own if one >= int(xmin)), spent=spent),
                is_whole=since is None,
                policy=policy_from(row.version, row.spec),
                now=now,
                xmax=int(xmax),
                in_progress=frozenset(map(int, running.split(",") if running else ())),
            )


def _clusters(session: Session, bound: Bound) -> Iterator[Change]:
    for row in session.execute(CLUSTERS, bound):
        here = row.pool_id == bound["pool"] and row.removed_at is None
        value = _cluster(row) if here else None
        yield Change(Table.CLUSTERS, row.id, value)


def _cluster(row: SqlRow) -> Cluster:
    return Cluster(
        id=ClusterId(row.id),
        name=row.name,
        state=ClusterState(row.state),
        levels=tuple(row.levels),
        labels=tuple(sorted(row.labels.items())),
        namespaces=frozenset(row.namespaces),
        inventory_at=row.inventory_at,
        cordon=row.cordon_reason,
        cordon_until=row.cordon_until,
        drain=row.drain_reason,
        is_banned=row.agent_banned,
        network_domain=row.network_domain,
        member_address=row.member_address,
        facts=frozenset(_facts(row.facts)),
    )


def _queues(session: Session, bound: Bound) -> Iterator[Change]:
    """Any change of the tree brings the whole tree: it is small, and namespaces are inherited down it."""
    if not session.execute(QUEUES_CHANGED, bound).scalar_one():
        return
    quotas: dict[int, list[Quota]] = defaultdict(list)
    for row in session.execute(QUOTAS):
        quotas[row.queue_id].append(Quota(FlavorName(row.flavor), row.nominal, row.borrow_limit, row.lend_limit))
    namespaces: dict[int | None, str] = {None: ""}
    for row in session.execute(QUEUES):  # parents first
        namespaces[row.id] = row.namespace or namespaces.get(row.parent_id, "")
        value = Queue(
            id=QueueId(row.id),
            path=row.path,
            parent=None if row.parent_id is None else QueueId(row.parent_id),
            weight=row.weight,
            quotas=tuple(quotas[row.id]),
            namespace=namespaces[row.id],
            budgets=budgets_of(row.budgets),
            most_running=row.most_running,
        )
        yield Change(Table.QUEUES, row.id, None if row.deleted_at else value)


def _waiting(session: Session, bound: Bound) -> Iterator[Change]:
    rows = session.execute(WORKLOADS, bound).all()
    pending = [row.id for row in rows if row.state == "pending" and row.pool_id == bound["pool"]]
    pod_sets: dict[str, list[PodSet]] = defaultdict(list)
    if pending:
        for row in session.execute(POD_SETS, {"workloads": plain(pending)}):
            pod_sets[row[0]].append(_pod_set(row[1:]))
    wanted = set(pending)
    for row in rows:
        value = _workload(row, tuple(pod_sets[row.id])) if row.id in wanted else None
        yield Change(Table.WAITING, row.id, value)


@lru_cache(maxsize=10_000)
def _pod_set(told: tuple[Any, ...]) -> PodSet:
    """Columns of POD_SETS. Thousands of rows say the same few things, and what is one object is compared at once."""
    name, replicas, devices, flavors, cpu, memory, mode, level, least, *others = told
    rdma, hugepages, storage, slice_size, slice_level, with_pod_set, speeds, rules = others
    return PodSet(
        name=name,
        replicas=replicas,
        devices=devices,
        flavors=tuple(FlavorName(flavor) for flavor in known_json(flavors)),
        needs=PodNeeds(cpu, memory, rdma, hugepages, storage),
        topology_mode=TopologyMode(mode),
        topology_level=level,
        speeds=tuple(known_json(speeds)),
        min_replicas=least,
        slice_size=slice_size,
        slice_level=slice_level,
        with_pod_set=with_pod_set,
        rules=_rules(rules),
    )


@lru_cache(maxsize=10_000)
def _rules(text: str) -> NodeRules:
    """Many PodSets have the same."""
    return rules_from(json.loads(text))


def _workload(row: SqlRow, pod_sets: tuple[PodSet, ...]) -> Workload:
    clusters = known_json(row.clusters) if row.clusters else {}
    old_place = tuple(NodeId(node) for node in known_json(row.old_place))
    return Workload(
        id=WorkloadId(row.id),
        name=row.name,
        queue=QueueId(row.queue_id),
        owner=row.owner,
        priority=row.priority,
        submitted_at=row.submitted_at,
        next_attempt=AttemptNumber(row.attempts_made + 1),
        pod_sets=pod_sets,
        strategy=StrategyName(row.strategy or StrategyName.PACK),
        namespace=row.namespace,
        clusters_avoided=frozenset(clusters.get("avoid") or ()),
        cluster_selector=tuple(sorted((clusters.get("selector") or {}).items())),
        shape=row.shape,
        not_before=row.not_before,
        is_repair=bool(old_place),  # only an end by the infrastructure leaves one, until it ends otherwise
        preferred_nodes=old_place,
        disturbances=row.infrastructure_ends,
        clusters_max=clusters.get("max") or 1,
        requires=tuple(_facts(known_json(row.requires) if row.requires else None)),
    )


def _facts(stated: dict[str, Any] | None) -> list[str]:
    """What a Cluster's document says it has, or a Workload's that it requires, as core compares them."""
    return [f"{kind}/{name}" for kind in ("storage", "data") for name in (stated or {}).get(kind) or ()]


def _running(session: Session, bound: Bound) -> Iterator[Change]:
    rows = session.execute(ATTEMPTS, bound).all()
    live = [row for row in rows if row.state != "ended" and row.pool_id == bound["pool"]]
    keys = {"workloads": plain(row.workload_id for row in live), "attempts": plain(row.attempt for row in live)}
    shares: dict[str, list[NodeShare]] = defaultdict(list)
    clusters: dict[str, set[int]] = defaultdict(set)
    charges: dict[str, list[tuple[FlavorName, int]]] = defaultdict(list)
    if live:
        for row in session.execute(SHARES, keys):
            share = NodeShare(
                node=NodeId(row.node_id),
                flavor=FlavorName(row.flavor),
                amount=int(row.amount),
                cpu_milli=int(row.cpu_milli),
                memory_bytes=int(row.memory_bytes),
                pods=row.pods,
                rdma=int(row.rdma),
                hugepages_bytes=int(row.hugepages_bytes),
                local_storage_bytes=int(row.local_storage_bytes),
            )
            shares[row.workload_id].append(share)
            clusters[row.workload_id].add(row.cluster_id)
        for row in session.execute(CHARGES, keys):
            charges[row.workload_id].append((FlavorName(row.flavor), row.amount))
    present = {row.workload_id for row in live}
    # An older attempt that ended must not hide the live one that followed it in the same reading.
    for row in rows:
        if row.workload_id not in present:
            yield Change(Table.RUNNING, row.workload_id, None)
    for row in live:
        yield Change(
            Table.RUNNING,
            row.workload_id,
            RunningAttempt(
                workload=WorkloadId(row.workload_id),
                name=row.name,
                attempt=AttemptNumber(row.attempt),
                queue=QueueId(row.queue_id),
                priority=row.priority,
                state=AttemptState(row.state),
                placed_at=row.placed_at,
                clusters=tuple(ClusterId(one) for one in sorted(clusters[row.workload_id])),
                charges=tuple(sorted(charges[row.workload_id])),
                shares=tuple(sorted(shares[row.workload_id], key=lambda share: (share.node, share.flavor))),
                owner=row.owner,
            ),
        )


def _earmarks(session: Session, bound: Bound) -> Iterator[Change]:
    for row in session.execute(EARMARKS, bound):
        value = Earmark(
            workload=WorkloadId(row.workload_id),
            cluster=ClusterId(row.cluster_id),
            shares=tuple(
                NodeShare(**{name: told for name, told in each.items() if name in _SHARE}) for each in row.shares
            ),
            until=row.until,
        )
        yield Change(Table.EARMARKS, row.workload_id, None if row.ended_at else value)


def _exclusions(session: Session, bound: Bound, now: datetime) -> Iterator[Change]:
    for row in session.execute(EXCLUSIONS, bound):
        value = Exclusion(shape=row.shape, node=NodeId(row.node_id), until=row.until, words=row.words)
        yield Change(Table.EXCLUSIONS, (row.shape, row.node_id), value if row.until > now else None)


def _elsewhere(session: Session, bound: Bound) -> Iterator[Change]:
    for row in session.execute(ELSEWHERE, bound):
        yield Change(Table.USAGE_ELSEWHERE, (row.queue_id, row.flavor), int(row.amount) or None)


def _owned(session: Session, bound: Bound) -> Iterator[Change]:
    for row in session.execute(OWNED_ELSEWHERE, bound):
        yield Change(Table.OWNED_ELSEWHERE, row.flavor, int(row.amount) or None)
    for row in session.execute(COUNTED, bound):
        yield Change(Table.OWNED_COUNTED, (row.cluster_id, row.flavor), row.units or None)
