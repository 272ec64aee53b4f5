"""One way at least to break each invariant, in SQL that runs with all triggers off.

`$running`, `$placed` and `$ended` are the ids of three Workloads with one Attempt each, `$cluster` their Cluster's.
`wrote_down(kind, id, before, after)` writes the audit row that goes with a change, so that only the change is wrong.
"""

PLANTED: list[tuple[str, str, str]] = [
    (
        "I1",
        "more in use than the limits allow",
        """
        ALTER TABLE account DROP CONSTRAINT ck_account_root_not_oversold;
        UPDATE account SET subtree = 2 WHERE is_root
        """,
    ),
    ("I1", "overdraft that nothing uses", "UPDATE account SET overdraft = 1 WHERE is_root"),
    (
        "budgets",
        "a budget that no document states",
        """
        UPDATE queue SET budgets = '[{"flavor": "*", "deviceHours": 1, "per": "day", "hard": true}]'
        WHERE parent_id IS NULL
        """,
    ),
    (
        "budgets",
        "another number of Workloads under way than the document states",
        """UPDATE queue SET spec = '{"mostRunning": 3}', most_running = 4 WHERE parent_id IS NULL""",
    ),
    (
        "I2",
        "a reservation that charges less than the accounts hold",
        "UPDATE reservation SET amount = amount - 1 WHERE workload_id = '$running'",
    ),
    ("I3", "a Transfer without legs", "INSERT INTO transfer (kind, created_at) VALUES ('adjust', now())"),
    (
        "I3",
        "a leg without a Transfer",
        "INSERT INTO leg VALUES (999, 1, 'x', 1, 'free', 'posted'), (998, 1, 'x', 1, 'posted', 'free')",
    ),
    (
        "I3",
        "a leg that its Transfer's kind does not know",
        """
        INSERT INTO transfer (id, kind, created_at) VALUES (998, 'adjust', now()), (999, 'adjust', now());
        INSERT INTO leg VALUES (998, 1, 'x', 1, 'free', 'pending'), (999, 1, 'x', 1, 'pending', 'free')
        """,
    ),
    (
        "I4",
        "balances that the log does not give",
        """
        INSERT INTO transfer (id, kind, created_at) VALUES (999, 'adjust', now());
        INSERT INTO leg SELECT 999, queue_id, flavor, 1, 'free', 'posted' FROM account WHERE is_root
        """,
    ),
    (
        "I5",
        "a placement that is posted twice",
        """
        DROP INDEX uq_transfer_resolution;
        INSERT INTO transfer (id, kind, workload_id, attempt, pending_id, created_at)
          SELECT 999, 'post', workload_id, attempt, id, now() FROM transfer
          WHERE kind = 'place' AND workload_id = '$running';
        INSERT INTO leg SELECT 999, queue_id, flavor, 1, 'pending', 'posted' FROM account WHERE pending > 0;
        UPDATE account SET pending = pending - 1, posted = posted + 1 WHERE pending > 0
        """,
    ),
    (
        "I7",
        "a sealed audit row that was changed",
        "UPDATE audit SET actor = 'nobody' WHERE id = (SELECT min(audit_id) FROM audit_seal)",
    ),
    (
        "I7",
        "a sealed audit row that was removed",
        """
        DELETE FROM audit WHERE object_kind = 'cluster' AND state_to = 'enrolled';
        UPDATE audit SET state_from = 'created' WHERE object_kind = 'cluster' AND state_to = 'accepted'
        """,
    ),
    ("I7", "a guard of the history that is missing", "DROP TRIGGER append_only ON leg"),
    ("I7", "a grant that lets the plane change history", "GRANT UPDATE ON transfer TO muster_app"),
    (
        "I8",
        "a pod that used more time than there was",
        """
        ALTER TABLE usage_interval DROP CONSTRAINT ex_usage_interval_pod;
        INSERT INTO usage_interval (pod_id, workload_id, attempt, queue_id, flavor, amount, during)
          SELECT 1, '$running', 1, 1, 'x', 1, tstzrange(now(), now() + n * interval '1 hour')
          FROM generate_series(1, 2) AS n
        """,
    ),
    (
        "I8",
        "a device that two pods used at once",
        """
        ALTER TABLE usage_interval DROP CONSTRAINT ex_usage_interval_device;
        INSERT INTO usage_interval (pod_id, workload_id, attempt, queue_id, flavor, amount, device_key, during)
          SELECT n, '$running', 1, 1, 'x', 1, 'card', tstzrange(now(), now() + interval '1 hour')
          FROM generate_series(1, 2) AS n
        """,
    ),
    ("I10", "a counter that is not the sum of its holds", "UPDATE node_flavor SET held = held + 1"),
    (
        "I10",
        "a node that is sold twice",
        """
        ALTER TABLE node_flavor DROP CONSTRAINT ck_node_flavor_not_oversold;
        UPDATE node_flavor SET capacity = 1
        """,
    ),
    ("I10", "held CPU that no hold explains", "UPDATE node SET cpu_milli_held = 1"),
    ("I10", "held RDMA that no hold explains", "UPDATE node SET rdma_held = 1"),
    (
        "I10",
        "a named device with two live holds",
        """
        DROP INDEX uq_hold_device_live;
        INSERT INTO hold_device SELECT id, 'card' FROM hold WHERE released_at IS NULL LIMIT 2
        """,
    ),
    ("I11", "more held than the inventory knew", "UPDATE node_flavor SET owned = 1"),
    (
        "I12",
        "a gang that runs in part for too long",
        """
        UPDATE attempt SET state = 'starting', start_ordered_at = now() - interval '2 hours'
          WHERE workload_id = '$placed';
        SELECT wrote_down('attempt', '$placed.1', 'placed', 'starting');
        UPDATE pod SET state = 'running' WHERE workload_id = '$placed' AND rank = 0
        """,
    ),
    (
        "I13",
        "two live Attempts of one Workload",
        """
        DROP INDEX uq_attempt_live;
        INSERT INTO attempt (workload_id, attempt, state, placed_at, changed_xid)
          VALUES ('$running', 2, 'placed', now(), '3');
        UPDATE workload SET attempts_made = 2 WHERE id = '$running'
        """,
    ),
    (
        "I13",
        "a Workload that waits although its Attempt lives",
        """
        UPDATE workload SET state = 'pending' WHERE id = '$placed';
        SELECT wrote_down('workload', '$placed', 'reserved', 'pending')
        """,
    ),
    (
        "I14",
        "a Workload that has forgotten an Attempt",
        "UPDATE workload SET attempts_made = 0 WHERE id = '$running'",
    ),
    (
        "I14",
        "a pod of an Attempt that never was",
        """
        INSERT INTO pod (workload_id, attempt, cluster_id, pod_set, index, rank, node_id, flavor, amount, state,
          changed_at) VALUES ('$running', 7, 1, 'main', 0, 0, 1, 'x', 1, 'gone', now())
        """,
    ),
    (
        "I15",
        "a reservation that outlives its Attempt",
        """
        UPDATE attempt SET state = 'ended', outcome = 'lost', ended_at = now() WHERE workload_id = '$placed';
        UPDATE workload SET state = 'stopping' WHERE id = '$placed';
        SELECT wrote_down('attempt', '$placed.1', 'placed', 'ended');
        SELECT wrote_down('workload', '$placed', 'reserved', 'stopping')
        """,
    ),
    (
        "I16",
        "a hold released under a running pod",
        """
        WITH gone AS (UPDATE hold SET released_at = now() WHERE workload_id = '$running' RETURNING *)
        UPDATE node_flavor f SET held = held - amount FROM gone WHERE f.node_id = gone.node_id
        """,
    ),
    (
        "I16",
        "a hold that outlives its pod and its Attempt",
        """
        WITH back AS (UPDATE hold SET released_at = NULL WHERE workload_id = '$ended' RETURNING *)
        UPDATE node_flavor f SET held = held + amount FROM back WHERE f.node_id = back.node_id
        """,
    ),
    (
        "I19",
        "a finished Workload that waits again",
        """
        UPDATE workload SET state = 'pending' WHERE id = '$ended';
        SELECT wrote_down('workload', '$ended', 'succeeded', 'pending')
        """,
    ),
    (
        "I20",
        "an order after a tombstone",
        """
        UPDATE directive SET kind = 'tombstone' WHERE workload_id = '$ended' AND gen = 1;
        UPDATE directive SET kind = 'start' WHERE workload_id = '$ended' AND gen = 2
        """,
    ),
    (
        "I20",
        "a directive that was taken away",
        """
        DELETE FROM directive WHERE workload_id = '$ended' AND gen = 1;
        DELETE FROM directive_number WHERE object_id = '$ended.1' AND gen = 1
        """,
    ),
    (
        "I20",
        "an agent ahead of its orders",
        """
        ALTER TABLE placement DROP CONSTRAINT ck_placement_not_ahead;
        UPDATE placement SET applied_gen = 2 WHERE workload_id = '$running'
        """,
    ),
    (
        "I22",
        "two active Sessions of one Cluster",
        """
        DROP INDEX uq_agent_session_active;
        INSERT INTO agent_session (cluster_id, epoch, instance_id, thumbprint, lease_until, started_at, last_heard_at)
          VALUES ($cluster, 2, 'b', 't', now(), now(), now())
        """,
    ),
    ("I23", "a cursor beyond what was sent", "UPDATE agent_session SET acked_number = 9"),
    ("I23", "a number that no counter gave", "UPDATE directive_number SET number = 9 WHERE number = 3"),
    (
        "I24",
        "one Kubernetes cluster under two names",
        """
        DROP INDEX uq_cluster_fingerprint_live;
        INSERT INTO cluster (pool_id, name, state, fingerprint, created_at, changed_xid)
          SELECT pool_id, 'again', 'created', fingerprint, now(), '3' FROM cluster
        """,
    ),
    (
        "I25",
        "an enrolment token used too often",
        """
        ALTER TABLE enrolment_token DROP CONSTRAINT ck_enrolment_token_not_overused;
        INSERT INTO enrolment_token (cluster_id, token_sha256, uses, created_at, created_by, expires_at, last_used_at)
          VALUES ($cluster, 'x', 2, now(), 'x', now() + interval '1 hour', now())
        """,
    ),
    (
        "I25",
        "an enrolment token that another Cluster's key used",
        """
        INSERT INTO cluster (pool_id, name, state, created_at, changed_xid)
          SELECT pool_id, 'two', 'created', now(), '3' FROM cluster;
        INSERT INTO agent_key (thumbprint, cluster_id, algorithm, jwk, slot, created_at)
          SELECT 'k', id, 'ES256', jsonb_build_object(), 'current', now() FROM cluster WHERE name = 'two';
        INSERT INTO enrolment_token (cluster_id, token_sha256, uses, used_by_thumbprint, created_at, created_by,
          expires_at, last_used_at) VALUES ($cluster, 'x', 1, 'k', now(), 'x', now() + interval '1 hour', now())
        """,
    ),
    (
        "I28",
        "one idempotency key for two requests",
        """
        ALTER TABLE idempotency_key DROP CONSTRAINT pk_idempotency_key;
        INSERT INTO idempotency_key (principal_id, key, body_sha256, created_at)
          VALUES (1, 'k', 'a', now()), (1, 'k', 'b', now())
        """,
    ),
    (
        "I31",
        "a change of state that nobody wrote down",
        "UPDATE attempt SET state = 'prepared' WHERE workload_id = '$placed'",
    ),
    (
        "I31",
        "a change of state that was written down twice",
        "SELECT wrote_down('workload', '$placed', 'pending', 'reserved')",
    ),
    (
        "hold references",
        "a hold of a pod that is elsewhere",
        "UPDATE pod SET node_id = node_id + 100 WHERE workload_id = '$running'",
    ),
    (
        "removed clusters",
        "a node of a Cluster that was removed",
        """
        INSERT INTO cluster (pool_id, name, state, created_at, removed_at, changed_xid)
          SELECT pool_id, 'gone', 'removed', now(), now(), '3' FROM cluster;
        INSERT INTO node (cluster_id, uid, name, ready, first_seen_at, observed_at, changed_xid)
          SELECT id, 'left', 'left', true, now(), now(), '3' FROM cluster WHERE name = 'gone';
        SELECT wrote_down('cluster', CAST(id AS text), 'created', 'removed') FROM cluster WHERE name = 'gone'
        """,
    ),
    (
        "cordons",
        "a cordoned device that is sold all the same",
        "UPDATE device SET cordon_reason = 'ecc' WHERE device_key = 'n1-0'",
    ),
]
