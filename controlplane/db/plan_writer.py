"""Writes the admissions of one cycle as one batch: a statement per table, whatever the number of gangs.

Whoever calls has locked accounts, node counters and Workloads (in that order) and rechecked every decision, so
nothing here decides. Balances and transfers are the ledger's; these are the rows beside them.
"""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.orm import Session

from controlplane.core.demand import PodNeeds
from controlplane.core.facts.planning import AttemptDraft
from controlplane.db.arrays import plain, texts

FIRST_CHECK_SECONDS = 30  # after this, `check_attempts` looks whether the agent has answered


def write_attempts(
    session: Session, drafts: Sequence[AttemptDraft], cycle: int, placed_at: datetime, now: datetime
) -> None:
    """Write everything that an admission is, save its Transfer."""
    if not drafts:
        return
    _workloads(session, drafts, now)
    _attempts(session, drafts, cycle, placed_at, now)
    _placements(session, drafts)
    _pods_and_holds(session, drafts, now)
    _counters(session, drafts)
    _rare_needs(session, drafts)
    _reservations(session, drafts, now)
    _directives(session, drafts, now)


def _workloads(session: Session, drafts: Sequence[AttemptDraft], now: datetime) -> None:
    session.execute(
        text("""
            UPDATE workload SET state = 'reserved', attempts_made = given.attempt, reasons = CAST('[]' AS jsonb),
                state_changed_at = :now, next_check_at = NULL, version = version + 1
            FROM unnest(CAST(:ids AS uuid[]), CAST(:attempts AS bigint[])) AS given(id, attempt)
            WHERE workload.id = given.id"""),
        {"ids": plain(d.workload for d in drafts), "attempts": plain(d.attempt for d in drafts), "now": now},
    )


def _attempts(session: Session, drafts: Sequence[AttemptDraft], cycle: int, placed_at: datetime, now: datetime) -> None:
    session.execute(
        text("""
            INSERT INTO attempt (workload_id, attempt, state, cycle_id, placed_at, next_check_at)
            SELECT id, attempt, 'placed', :cycle, :placed_at, :check
            FROM unnest(CAST(:ids AS uuid[]), CAST(:attempts AS bigint[])) AS given(id, attempt)"""),
        {
            "ids": plain(d.workload for d in drafts),
            "attempts": plain(d.attempt for d in drafts),
            "cycle": cycle,
            "placed_at": placed_at,
            "check": now + timedelta(seconds=FIRST_CHECK_SECONDS),
        },
    )


def _placements(session: Session, drafts: Sequence[AttemptDraft]) -> None:
    rows = [(d.workload, d.attempt, cluster) for d in drafts for cluster in sorted(d.bodies)]
    session.execute(
        text("""
            INSERT INTO placement (workload_id, attempt, cluster_id, state, wanted_gen, applied_gen)
            SELECT id, attempt, cluster, 'ordered', 1, 0
            FROM unnest(CAST(:ids AS uuid[]), CAST(:attempts AS bigint[]), CAST(:clusters AS bigint[]))
                AS given(id, attempt, cluster)"""),
        dict(zip(("ids", "attempts", "clusters"), map(plain, zip(*rows, strict=True)), strict=True)),
    )


def _pods_and_holds(session: Session, drafts: Sequence[AttemptDraft], now: datetime) -> None:
    """Both from one list, so that a hold's pod is never looked up."""
    names = ("sets", "flavors", "workloads", "attempts", "clusters", "indexes", "ranks", "nodes", "amounts", "cpus",
             "memories")  # fmt: skip
    rows = [
        (p.pod_set, p.flavor, d.workload, d.attempt, p.cluster, p.index, p.rank, p.node, p.amount, p.needs.cpu_milli,
         p.needs.memory_bytes)
        for d in drafts
        for p in d.pods
    ]  # fmt: skip
    sets, flavors, *numbers = zip(*rows, strict=True)
    bound = dict(zip(names, (texts(sets), texts(flavors), *map(plain, numbers)), strict=True))
    session.execute(
        text("""
            WITH given AS MATERIALIZED (
                SELECT nextval(pg_get_serial_sequence('pod', 'id')) AS pod_id, t.*
                FROM unnest(CAST(:workloads AS uuid[]), CAST(:attempts AS bigint[]), CAST(:clusters AS bigint[]),
                    CAST(:sets AS text[]), CAST(:indexes AS bigint[]), CAST(:ranks AS bigint[]),
                    CAST(:nodes AS bigint[]), CAST(:flavors AS text[]), CAST(:amounts AS bigint[]),
                    CAST(:cpus AS bigint[]), CAST(:memories AS bigint[]))
                    AS t(workload, attempt, cluster, pod_set, index, rank, node, flavor, amount, cpu, memory)),
            pods AS (
                INSERT INTO pod (id, workload_id, attempt, cluster_id, pod_set, index, rank, node_id, flavor, amount,
                    state, changed_at)
                SELECT pod_id, workload, attempt, cluster, pod_set, index, rank, node, flavor, amount, 'placed', :now
                FROM given)
            INSERT INTO hold (pod_id, node_id, cluster_id, flavor, amount, cpu_milli, memory_bytes, workload_id,
                attempt, created_at)
            SELECT pod_id, node, cluster, flavor, amount, cpu, memory, workload, attempt, :now FROM given"""),
        bound | {"now": now},
    )


def _counters(session: Session, drafts: Sequence[AttemptDraft]) -> None:
    units: Counter[tuple[int, str]] = Counter()
    cpu: Counter[int] = Counter()
    memory: Counter[int] = Counter()
    bare: set[int] = set()
    for draft in drafts:
        for pod in draft.pods:
            units[pod.node, pod.flavor] += pod.amount
            cpu[pod.node] += pod.needs.cpu_milli
            memory[pod.node] += pod.needs.memory_bytes
            if not pod.amount:
                bare.add(pod.node)  # else no counter of the node would move, and its pods would not be counted again
    keys = sorted(key for key, amount in units.items() if amount)
    if keys:
        session.execute(
            text("""
                UPDATE node_flavor SET held = held + given.amount
                FROM unnest(CAST(:nodes AS bigint[]), CAST(:flavors AS text[]), CAST(:amounts AS bigint[]))
                    AS given(node, flavor, amount)
                WHERE node_flavor.node_id = given.node AND node_flavor.flavor = given.flavor"""),
            {
                "nodes": plain(node for node, _ in keys),
                "flavors": texts(flavor for _, flavor in keys),
                "amounts": plain(units[key] for key in keys),
            },
        )
    nodes = sorted(node for node in cpu if cpu[node] or memory[node] or node in bare)
    if nodes:
        session.execute(
            text("""
                UPDATE node SET cpu_milli_held = cpu_milli_held + given.cpu,
                    memory_bytes_held = memory_bytes_held + given.memory
                FROM unnest(CAST(:nodes AS bigint[]), CAST(:cpus AS bigint[]), CAST(:memories AS bigint[]))
                    AS given(node, cpu, memory)
                WHERE node.id = given.node"""),
            {"nodes": plain(nodes), "cpus": plain(cpu[n] for n in nodes), "memories": plain(memory[n] for n in nodes)},
        )


def _rare_needs(session: Session, drafts: Sequence[AttemptDraft]) -> None:
    """RDMA, huge pages and local disk: most gangs ask for none, and must not pay for those that do."""
    asking: dict[tuple[str, str, int], PodNeeds] = {}
    held: dict[int, list[int]] = {}
    for draft in drafts:
        for pod in draft.pods:
            amounts = pod.needs.rdma, pod.needs.hugepages_bytes, pod.needs.local_storage_bytes
            if any(amounts):
                asking[pod.pod_set, draft.workload, draft.attempt] = pod.needs
                before = held.get(pod.node, [0, 0, 0])
                held[pod.node] = [have + more for have, more in zip(before, amounts, strict=True)]
    if not asking:
        return
    session.execute(
        text("""
            UPDATE hold SET rdma = given.rdma, hugepages_bytes = given.hugepages, local_storage_bytes = given.storage
            FROM unnest(CAST(:sets AS text[]), CAST(:workloads AS uuid[]), CAST(:attempts AS bigint[]),
                    CAST(:rdma AS bigint[]), CAST(:hugepages AS bigint[]), CAST(:storage AS bigint[]))
                AS given(pod_set, workload, attempt, rdma, hugepages, storage)
                JOIN pod ON pod.workload_id = given.workload AND pod.attempt = given.attempt
                    AND pod.pod_set = given.pod_set
            WHERE hold.workload_id = given.workload AND hold.attempt = given.attempt AND hold.pod_id = pod.id
                AND hold.released_at IS NULL"""),
        {
            "sets": texts(name for name, *_ in asking),
            "workloads": plain(workload for _, workload, _ in asking),
            "attempts": plain(attempt for *_, attempt in asking),
            "rdma": plain(needs.rdma for needs in asking.values()),
            "hugepages": plain(needs.hugepages_bytes for needs in asking.values()),
            "storage": plain(needs.local_storage_bytes for needs in asking.values()),
        },
    )
    nodes = sorted(held)
    session.execute(
        text("""
            UPDATE node SET rdma_held = rdma_held + given.rdma,
                hugepages_bytes_held = hugepages_bytes_held + given.hugepages,
                local_storage_bytes_held = local_storage_bytes_held + given.storage
            FROM unnest(CAST(:nodes AS bigint[]), CAST(:rdma AS bigint[]), CAST(:hugepages AS bigint[]),
                CAST(:storage AS bigint[])) AS given(node, rdma, hugepages, storage)
            WHERE node.id = given.node"""),
        {
            "nodes": plain(nodes),
            "rdma": plain(held[node][0] for node in nodes),
            "hugepages": plain(held[node][1] for node in nodes),
            "storage": plain(held[node][2] for node in nodes),
        },
    )


def _reservations(session: Session, drafts: Sequence[AttemptDraft], now: datetime) -> None:
    rows = [(flavor, d.workload, d.attempt, d.queue, amount) for d in drafts for flavor, amount in d.charges if amount]
    if not rows:
        return
    names = ("flavors", "workloads", "attempts", "queues", "amounts")
    flavors, *numbers = zip(*rows, strict=True)
    session.execute(
        text("""
            INSERT INTO reservation (workload_id, attempt, flavor, queue_id, amount, created_at)
            SELECT workload, attempt, flavor, queue, amount, :now
            FROM unnest(CAST(:workloads AS uuid[]), CAST(:attempts AS bigint[]), CAST(:flavors AS text[]),
                CAST(:queues AS bigint[]), CAST(:amounts AS bigint[]))
                AS given(workload, attempt, flavor, queue, amount)"""),
        dict(zip(names, (texts(flavors), *map(plain, numbers)), strict=True)) | {"now": now},
    )


def _directives(session: Session, drafts: Sequence[AttemptDraft], now: datetime) -> None:
    # One JSON text, because bodies as elements of an array would each be quoted once more, in Python.
    rows = [
        {"cluster": cluster, "workload": d.workload, "attempt": d.attempt, "body": d.bodies[cluster]}
        for d in drafts
        for cluster in sorted(d.bodies)
    ]
    session.execute(
        text("""
            INSERT INTO directive (cluster_id, object_id, gen, workload_id, attempt, kind, body, created_at)
            SELECT cluster, workload || '.' || attempt, 1, workload, attempt, 'apply', body, :now
            FROM jsonb_to_recordset(CAST(:rows AS jsonb))
                AS given(cluster bigint, workload uuid, attempt bigint, body jsonb)"""),
        {"rows": json.dumps(rows), "now": now},
    )
