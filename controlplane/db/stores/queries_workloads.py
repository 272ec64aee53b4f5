"""Pages of Workloads, youngest first; what a page costs does not grow with what is behind it.

A statement holds the conditions that were asked for and no others: one that says "or nothing was asked" for each gets a
plan that suits nobody once Postgres plans it for all parameters at once.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from functools import cache

from sqlalchemy import TextClause, text

from controlplane.core.facts.queries import Scope, WorkloadFilter

QUEUES_IN_SIGHT_MAX = 200
"""Up to here the youngest of each Queue are read by that Queue's index and merged; beyond, one walk along all."""

_IN_SIGHT = {
    "paths": """EXISTS (SELECT FROM unnest(CAST(:paths AS text[])) AS seen (path)
        WHERE queue.path = seen.path OR starts_with(queue.path, seen.path || '/'))""",
    "queue": "(queue.path = :queue OR starts_with(queue.path, :queue || '/'))",
}
_WANTED = {
    "states": "workload.state = ANY(:states)",
    "owner": "workload.owner = :owner",
    "name": "workload.name = :name",
    "labels": "workload.labels @> CAST(:labels AS jsonb)",
    "cluster": """EXISTS (SELECT FROM placement JOIN cluster ON cluster.id = placement.cluster_id
        WHERE placement.workload_id = workload.id AND placement.attempt = workload.attempts_made
            AND cluster.name = :cluster)""",
    "since": "workload.submitted_at > :since",
    "until": "workload.submitted_at < :until",
    "after_at": "(workload.submitted_at, workload.id) < (:after_at, CAST(:after_id AS uuid))",
}
_YOUNGEST = "ORDER BY workload.submitted_at DESC, workload.id DESC LIMIT :limit"
_LINES = """
    SELECT workload.id, workload.name, queue.path AS queue, pool.name AS pool, workload.owner, workload.state,
           workload.priority, workload.attempts_made, workload.submitted_at, workload.state_changed_at,
           workload.finished_at, workload.reasons, sizes.pods, sizes.devices, places.clusters
    FROM page AS workload JOIN queue ON queue.id = workload.queue_id JOIN pool ON pool.id = workload.pool_id
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(pods), 0) AS pods, coalesce(sum(pods * devices), 0) AS devices
        FROM (
            SELECT devices, CASE  -- an elastic one has as many as it last started with
                WHEN min_replicas < replicas AND workload.state <> 'pending' AND workload.attempts_made > 0 THEN
                    (SELECT count(*) FROM pod WHERE pod.workload_id = workload.id
                         AND pod.attempt = workload.attempts_made AND pod.pod_set = pod_set.name)
                ELSE replicas END AS pods
            FROM pod_set WHERE workload_id = workload.id) AS counted) AS sizes
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(cluster.name ORDER BY cluster.name), '{}') AS clusters
        FROM placement JOIN cluster ON cluster.id = placement.cluster_id
        WHERE placement.workload_id = workload.id AND placement.attempt = workload.attempts_made) AS places
    ORDER BY workload.submitted_at DESC, workload.id DESC"""


def sight(scope: Scope, wanted: WorkloadFilter) -> dict[str, object]:
    """What bounds the Queues that the caller can and wants to see; empty: every Queue."""
    bounds = {"paths": None if scope.paths is None else list(scope.paths), "queue": wanted.queue}
    return {name: value for name, value in bounds.items() if value is not None}


def conditions(wanted: WorkloadFilter, after: tuple[datetime, str] | None) -> dict[str, object]:
    """What else was asked for."""
    asked = {
        "states": list(wanted.states) or None,
        "owner": wanted.owner,
        "name": wanted.name,
        "labels": json.dumps(dict(wanted.labels)) if wanted.labels else None,
        "cluster": wanted.cluster,
        "since": wanted.submitted_after,
        "until": wanted.submitted_before,
        "after_at": after[0] if after else None,
        "after_id": after[1] if after else None,
    }
    return {name: value for name, value in asked.items() if value is not None}


def queues_in_sight(bounds: Mapping[str, object]) -> TextClause:
    """Ids of the Queues within, one more than is read one by one."""
    return _queues(tuple(bounds))


def of_few(given: Mapping[str, object]) -> TextClause:
    """A page of the Queues whose ids are `queues`."""
    return _of_few(tuple(name for name in _WANTED if name in given))


def of_many(bounds: Mapping[str, object], given: Mapping[str, object]) -> TextClause:
    """A page of all that is within the bounds."""
    return _of_many(tuple(bounds), tuple(name for name in _WANTED if name in given))


@cache
def _queues(bounds: tuple[str, ...]) -> TextClause:
    where = " AND ".join(["true", *(_IN_SIGHT[name] for name in bounds)])
    return text(f"SELECT queue.id FROM queue WHERE {where} LIMIT {QUEUES_IN_SIGHT_MAX + 1}")


@cache
def _of_few(given: tuple[str, ...]) -> TextClause:
    where = " AND ".join(["workload.queue_id = mine.id", *(_WANTED[name] for name in given)])
    return text(f"""
        WITH page AS MATERIALIZED (
            SELECT workload.* FROM unnest(CAST(:queues AS bigint[])) AS mine (id)
            CROSS JOIN LATERAL (SELECT workload.* FROM workload WHERE {where} {_YOUNGEST}) AS workload
            {_YOUNGEST})
        {_LINES}""")


@cache
def _of_many(bounds: tuple[str, ...], given: tuple[str, ...]) -> TextClause:
    where = " AND ".join(["true", *(_IN_SIGHT[name] for name in bounds), *(_WANTED[name] for name in given)])
    return text(f"""
        WITH page AS MATERIALIZED (
            SELECT workload.* FROM workload JOIN queue ON queue.id = workload.queue_id WHERE {where} {_YOUNGEST})
        {_LINES}""")
