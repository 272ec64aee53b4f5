"""What the database itself refuses, whoever asks: the bad state cannot be written, by any code, as any role.

Every statement is tried as the owner of the tables on a database where one Workload waits, one is placed and one has
ended. `rule` is the constraint, index or trigger that stands in the way.
"""

from collections.abc import Iterator
from string import Template

import pytest
import sqlalchemy as sa

from controlplane.core.facts.ledger import Proof
from controlplane.embedded.postgres import Postgres
from controlplane.services import accounting
from tests.builders.rows import Rows
from tests.support import databases

_WORKLOAD = (
    "INSERT INTO workload (id, name, queue_id, pool_id, owner, priority, state, kind, spec, submitted_at,"
    " state_changed_at, changed_xid) SELECT gen_random_uuid(), {name}, queue_id, pool_id, 'x', 0, {state}, 'Workload',"
    " spec, now(), now(), '3' FROM workload WHERE id = '$waiting'"
)
_ATTEMPT = (
    "INSERT INTO attempt (workload_id, attempt, state, placed_at, changed_xid)"
    " VALUES ('{id}', {n}, '{state}', now(), '3')"
)

REFUSED: dict[str, tuple[str, str]] = {
    # Lifecycles
    "a Workload begins pending": ("legal_transition", _WORKLOAD.format(name="'new'", state="'running'")),
    "a Workload takes no step that is not in its table": (
        "legal_transition",
        "UPDATE workload SET state = 'running' WHERE id = '$waiting'",
    ),
    "a finished Workload stays finished": (
        "legal_transition",
        "UPDATE workload SET state = 'pending' WHERE id = '$ended'",
    ),
    "a Workload finishes once": ("final_stays", "UPDATE workload SET finished_at = now() WHERE id = '$ended'"),
    "a Workload keeps its queue age": (
        "queue_age_stays",
        "UPDATE workload SET submitted_at = now() WHERE id = '$waiting'",
    ),
    "a name is free again only when its Workload is over": (
        "uq_workload_name_live",
        _WORKLOAD.format(name="name", state="'pending'"),
    ),
    "an Attempt begins placed": ("legal_transition", _ATTEMPT.format(id="$waiting", n=1, state="running")),
    "an Attempt takes no step that is not in its table": (
        "legal_transition",
        "UPDATE attempt SET state = 'running' WHERE workload_id = '$placed'",
    ),
    "an ended Attempt stays ended": (
        "ended_stays",
        "UPDATE attempt SET state = 'running', outcome = NULL WHERE workload_id = '$ended'",
    ),
    "an ended Attempt keeps its outcome": (
        "ended_stays",
        "UPDATE attempt SET outcome = 'failed' WHERE workload_id = '$ended'",
    ),
    "an ended Attempt is judged once": (
        "verdict_stays",
        (
            "UPDATE attempt SET verdict = 'program' WHERE workload_id = '$ended';"
            "UPDATE attempt SET verdict = 'infrastructure' WHERE workload_id = '$ended'"
        ),
    ),
    "an Attempt ends with an outcome": (
        "ck_attempt_ended_has_outcome",
        "UPDATE attempt SET state = 'ended' WHERE workload_id = '$placed'",
    ),
    "a Workload has one live Attempt": ("uq_attempt_live", _ATTEMPT.format(id="$placed", n=2, state="placed")),
    "the number of an Attempt only rises": ("number_rises", _ATTEMPT.format(id="$ended", n=1, state="placed")),
    "a Cluster begins created": (
        "legal_transition",
        (
            "INSERT INTO cluster (pool_id, name, state, created_at, changed_xid)"
            " SELECT id, 'x', 'ready', now(), '3' FROM pool"
        ),
    ),
    "a Cluster is accepted only after it enrolled": (
        "legal_transition",
        (
            "INSERT INTO cluster (pool_id, name, state, created_at, changed_xid)"
            " SELECT id, 'x', 'created', now(), '3' FROM pool; UPDATE cluster SET state = 'accepted' WHERE name = 'x'"
        ),
    ),
    "a Kubernetes cluster is one Cluster": (
        "uq_cluster_fingerprint_live",
        (
            "INSERT INTO cluster (pool_id, name, state, fingerprint, created_at, changed_xid)"
            " SELECT pool_id, 'x', 'created', fingerprint, now(), '3' FROM cluster"
        ),
    ),
    # Quota
    "a root is not oversold": (
        "ck_account_root_not_oversold",
        "UPDATE account SET posted = subtree + 1 WHERE is_root",
    ),
    "a borrowing limit holds": (
        "ck_account_borrowing_limited",
        "UPDATE account SET posted = 99 WHERE borrow_limit IS NOT NULL",
    ),
    "a balance is not negative": ("ck_account_not_negative", "UPDATE account SET posted = -1"),
    "a placement is charged once": (
        "uq_transfer_place",
        "INSERT INTO transfer (kind, workload_id, attempt, created_at) VALUES ('place', '$placed', 1, now())",
    ),
    "a placement is resolved once": (
        "uq_transfer_resolution",
        (
            "INSERT INTO transfer (kind, pending_id, created_at) SELECT two.kind, id, now() FROM transfer,"
            " (VALUES ('post'), ('void')) AS two (kind) WHERE transfer.kind = 'place'"
        ),
    ),
    "a posted placement is reversed once": (
        "uq_transfer_reverse",
        (
            "INSERT INTO transfer (kind, pending_id, created_at) SELECT 'reverse', id, now() FROM transfer,"
            " generate_series(1, 2) WHERE kind = 'place'"
        ),
    ),
    "a Transfer stays": ("append_only", "UPDATE transfer SET attempt = 9"),
    "a Transfer is not deleted": ("append_only", "DELETE FROM transfer WHERE kind <> 'place'"),
    "a leg stays": ("append_only", "UPDATE leg SET amount = amount + 1"),
    "legs are not emptied": ("append_only_whole", "TRUNCATE leg"),
    "an amount of a leg is above 0": (
        "ck_leg_amount_positive",
        "INSERT INTO leg SELECT id, 1, 'x', 0, 'free', 'posted' FROM transfer LIMIT 1",
    ),
    "a reservation is released once": (
        "released_stays",
        "UPDATE reservation SET released_at = now() WHERE workload_id = '$ended'",
    ),
    "a reservation is released with a proof": (
        "ck_reservation_released_has_proof",
        "UPDATE reservation SET state = 'released', released_at = now() WHERE workload_id = '$placed'",
    ),
    "a reservation keeps its amount": (
        "released_stays",
        "UPDATE reservation SET amount = amount + 1 WHERE workload_id = '$placed'",
    ),
    # Devices
    "a node is not sold twice": ("ck_node_flavor_not_oversold", "UPDATE node_flavor SET held = capacity + 1"),
    "a pod has one live hold": (
        "uq_hold_live",
        (
            "INSERT INTO hold (pod_id, node_id, cluster_id, flavor, amount, workload_id, attempt, created_at)"
            " SELECT pod_id, node_id, cluster_id, flavor, amount, workload_id, attempt, now() FROM hold"
            " WHERE released_at IS NULL LIMIT 1"
        ),
    ),
    "a hold is released once": (
        "released_hold_stays",
        "UPDATE hold SET released_at = NULL WHERE workload_id = '$ended'",
    ),
    "a hold stays on its node": (
        "released_hold_stays",
        "UPDATE hold SET node_id = node_id + 1 WHERE workload_id = '$placed'",
    ),
    "a named device has one live hold": (
        "uq_hold_device_live",
        "INSERT INTO hold_device (hold_id, device_uid) SELECT id, 'card' FROM hold LIMIT 2",
    ),
    "a pod uses no time twice": (
        "ex_usage_interval_pod",
        (
            "INSERT INTO usage_interval (pod_id, workload_id, attempt, queue_id, flavor, amount, during)"
            " SELECT 1, '$ended', 1, 1, 'x', 1, tstzrange(now(), now() + n * interval '1 h')"
            " FROM generate_series(1, 2) AS n"
        ),
    ),
    "a device is used by one pod at a time": (
        "ex_usage_interval_device",
        (
            "INSERT INTO usage_interval (pod_id, workload_id, attempt, queue_id, flavor, amount, device_key, during)"
            " SELECT n, '$ended', 1, 1, 'x', 1, 'card', tstzrange(now(), now() + interval '1 h')"
            " FROM generate_series(1, 2) AS n"
        ),
    ),
    # Agents
    "a directive stays": ("append_only", "UPDATE directive SET kind = 'start'"),
    "a directive is not deleted": ("append_only", "DELETE FROM directive"),
    "a directive has a new generation": (
        "number_rises",
        "INSERT INTO directive SELECT * FROM directive WHERE workload_id = '$placed'",
    ),
    "nothing follows a tombstone": (
        "number_rises",
        (
            "INSERT INTO directive (cluster_id, object_id, gen, workload_id, attempt, kind, body, created_at)"
            " SELECT cluster_id, object_id, gen + n, workload_id, attempt, two.kind, body, now() FROM directive,"
            " (VALUES (1, 'tombstone'), (2, 'start')) AS two (n, kind) WHERE workload_id = '$placed' ORDER BY n"
        ),
    ),
    "an agent is not ahead of its orders": (
        "ck_placement_not_ahead",
        "UPDATE placement SET applied_gen = wanted_gen + 1",
    ),
    "an applied generation stays applied": (
        "generation_rises",
        "UPDATE placement SET applied_gen = 1; UPDATE placement SET applied_gen = 0",
    ),
    "a Cluster has one active Session": (
        "uq_agent_session_active",
        (
            "INSERT INTO agent_session (cluster_id, epoch, instance_id, thumbprint, lease_until, started_at,"
            " last_heard_at) SELECT id, n, 'a', 't', now(), now(), now() FROM cluster, generate_series(1, 2) AS n"
        ),
    ),
    "the epoch of a Session only rises": (
        "number_rises",
        (
            "INSERT INTO agent_session (cluster_id, epoch, instance_id, thumbprint, lease_until, started_at,"
            " last_heard_at, ended_at) SELECT id, 2 - n, 'a', 't', now(), now(), now(), now()"
            " FROM cluster, generate_series(0, 1) AS n"
        ),
    ),
    "numbers of a Session only rise": (
        "sequence_rises",
        (
            "INSERT INTO agent_session (cluster_id, epoch, instance_id, thumbprint, seq, lease_until,"
            " started_at, last_heard_at) SELECT id, 1, 'a', 't', 3, now(), now(), now() FROM cluster;"
            "UPDATE agent_session SET seq = 2"
        ),
    ),
    "a counter only rises": (
        "counter_rises",
        "INSERT INTO cluster_counter SELECT id, 'up', 3 FROM cluster; UPDATE cluster_counter SET value = 2",
    ),
    "an enrolment token is not used too often": (
        "ck_enrolment_token_not_overused",
        (
            "INSERT INTO enrolment_token (cluster_id, token_sha256, uses, created_at, created_by, expires_at)"
            " SELECT id, 'x', 2, now(), 'x', now() + interval '1 h' FROM cluster"
        ),
    ),
    "an enrolment token is not used late": (
        "ck_enrolment_token_not_used_late",
        (
            "INSERT INTO enrolment_token (cluster_id, token_sha256, created_at, created_by, expires_at, last_used_at)"
            " SELECT id, 'x', now(), 'x', now() + interval '1 h', now() + interval '2 h' FROM cluster"
        ),
    ),
    # The rest
    "an audit row stays": ("append_only", "UPDATE audit SET actor = 'nobody'"),
    "an audit row is not deleted": ("append_only", "DELETE FROM audit"),
    "the epoch of a planner only rises": ("epoch_rises", "UPDATE pool SET planner_epoch = -1"),
    "an idempotency key stands for one request": (
        "pk_idempotency_key",
        (
            "INSERT INTO principal (kind, name, created_at) VALUES ('person', 'x', now());"
            "INSERT INTO idempotency_key (principal_id, key, body_sha256, created_at)"
            " SELECT id, 'k', 'x', now() FROM principal, generate_series(1, 2)"
        ),
    ),
}


@pytest.fixture(scope="module")
def world(postgres: Postgres, migrated: str) -> Iterator[Rows]:
    """One database for all cases, since no case leaves anything."""
    rows = Rows(databases.clone(postgres, migrated))
    yield rows
    rows.dispose()
    assert databases.found_by_doctor(rows.database) == []
    databases.drop(postgres, rows.database)


@pytest.fixture(scope="module")
def names(world: Rows) -> dict[str, str]:
    """Three Workloads: one waits, one is placed, one has ended."""
    pool = world.pool()
    cluster = world.cluster(pool)
    node = world.node(cluster)
    team = world.queue("org/team", world.queue("org", nominal=8), nominal=4, borrow_limit=4)
    world.sync_accounts()
    waiting, placed, ended = (world.workload(team, pool) for _ in range(3))
    world.place(placed, team, {node: 2}, cluster)
    key = world.place(ended, team, {node: 2}, cluster)
    world.finish(key)
    with world.uow() as uow:
        accounting.settle(uow, [key], Proof.AGENT_REPORT)
    return {"waiting": waiting, "placed": placed, "ended": ended}


@pytest.mark.parametrize(("rule", "statements"), REFUSED.values(), ids=REFUSED.keys())
def test_the_database_refuses_it(world: Rows, names: dict[str, str], rule: str, statements: str) -> None:
    owner = sa.create_engine(world.database.url, poolclass=sa.NullPool)
    with owner.connect() as connection, pytest.raises(sa.exc.DBAPIError) as refusal:
        connection.exec_driver_sql(Template(statements).substitute(names))
    assert rule_of(refusal.value) == rule


def rule_of(error: sa.exc.DBAPIError) -> str:
    """The constraint that Postgres names."""
    return str(getattr(getattr(error.orig, "diag", None), "constraint_name", None) or error.orig)
