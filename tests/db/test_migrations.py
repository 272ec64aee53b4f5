"""Revisions: up and down on data, never another schema than the models', one runner at a time.

What the revisions make impossible is in `test_refusals`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects.postgresql.base import ischema_names

from controlplane.core import lifecycle
from controlplane.db import migrate
from controlplane.db.base import Base, Xid8
from controlplane.db.tables import fleet, ledger, tenancy, workloads
from controlplane.embedded.postgres import Postgres
from tests.support import databases
from tests.support.databases import Database

MODELS = (fleet, ledger, tenancy, workloads)
ischema_names["xid8"] = Xid8  # which reflection does not know by itself


def revisions() -> list[str]:
    """Every revision, the first one first."""
    scripts = ScriptDirectory(str(migrate.REVISIONS))
    return [script.revision for script in reversed(list(scripts.walk_revisions()))]


@pytest.fixture
def empty(postgres: Postgres) -> Iterator[Database]:
    """A database without any table."""
    fresh = databases.clone(postgres, "template1")
    yield fresh
    databases.drop(postgres, fresh)


def connect(database: Database) -> sa.Connection:
    return sa.create_engine(database.url, poolclass=sa.NullPool).connect()


def schema_of(database: Database) -> list[tuple[object, ...]]:
    """Columns, constraints, indexes, triggers and grants, as text."""
    with sa.create_engine(database.superuser_url, poolclass=sa.NullPool).connect() as connection:
        return [
            tuple(row)
            for row in connection.execute(
                sa.text("""
                    SELECT 'column', table_name || '.' || column_name, data_type || is_nullable ||
                           coalesce(column_default, '')
                    FROM information_schema.columns WHERE table_schema = 'public'
                    UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
                    FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid <> 0
                    UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
                    UNION ALL SELECT 'trigger', tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid)
                    FROM pg_trigger WHERE NOT tgisinternal
                    UNION ALL SELECT 'grant', table_name || '.' || grantee,
                                     string_agg(privilege_type, ' ' ORDER BY privilege_type)
                    FROM information_schema.role_table_grants WHERE table_schema = 'public' GROUP BY table_name, grantee
                    ORDER BY 1, 2, 3
                """)
            )
        ]


def test_models_and_migrations_never_drift(database: Database) -> None:
    assert all(MODELS)
    with connect(database) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_checks_and_exclusions_of_the_models_are_in_the_database(database: Database) -> None:
    assert all(MODELS)
    wanted = {
        str(constraint.name)
        for table in Base.metadata.tables.values()
        for constraint in table.constraints
        if isinstance(constraint, sa.CheckConstraint) or constraint.__visit_name__ == "exclude_constraint"
    }
    with connect(database) as connection:
        found = set(
            connection.execute(sa.text("SELECT conname FROM pg_constraint WHERE contype IN ('c', 'x')")).scalars()
        )
    assert wanted - found == set()


def test_every_revision_goes_up_and_down_with_rows_in_the_tables(empty: Database) -> None:
    schemas: dict[str, list[tuple[object, ...]]] = {}
    for revision in revisions():
        migrate.upgrade(empty.url, revision)
        fill(empty)
        schemas[revision] = schema_of(empty)
    for revision in reversed(revisions()[:-1]):
        migrate.downgrade(empty.url, revision)
        assert schema_of(empty) == schemas[revision], f"down to {revision}"
    migrate.downgrade(empty.url, migrate.BASE)
    with connect(empty) as connection:
        left = set(sa.inspect(connection).get_table_names())
    assert left == {"alembic_version"}
    migrate.upgrade(empty.url)
    assert schema_of(empty) == schemas[revisions()[-1]]


def test_two_runners_at_once_do_the_work_once(empty: Database) -> None:
    told = {**os.environ, **empty.environment(), "REDIS_URL": "redis://127.0.0.1:1/0"}
    command = [sys.executable, "-m", "controlplane.db.migrate"]
    runners = [subprocess.Popen(command, env=told, cwd=databases.ROOT) for _ in range(2)]
    assert [runner.wait(60) for runner in runners] == [0, 0]
    with connect(empty) as connection:
        stored = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalars().all()
    assert stored == [revisions()[-1]]


def test_an_index_that_is_built_beside_the_work_is_given_more_time_than_a_statement_has() -> None:
    """Else an upgrade fails for ever once a table is large: 5 s are enough for a few million rows at best."""
    sources = [file.read_text() for file in (migrate.REVISIONS / "versions").glob("*.py")]
    building = [source for source in sources if "create_index" in source and "postgresql_concurrently" in source]
    assert len(building) > 3
    assert [source[:200] for source in building if "statement_timeout = '10min'" not in source] == []


@pytest.fixture
def nobody(empty: Database) -> Iterator[Database]:
    """An empty database on a server that does not know the plane's role."""
    administrate(empty, "ALTER ROLE muster_app RENAME TO muster_app_elsewhere")
    yield empty
    administrate(
        empty,
        "DO $$ BEGIN IF to_regrole('muster_app') IS NOT NULL THEN DROP OWNED BY muster_app; DROP ROLE muster_app;"
        " END IF; END $$",
        "ALTER ROLE muster_app_elsewhere RENAME TO muster_app",
    )


def test_the_role_is_made_where_the_migrating_role_may_make_roles(nobody: Database) -> None:
    migrate.upgrade(nobody.superuser_url)
    granted = {line[1]: line[2] for line in schema_of(nobody) if str(line[1]).endswith(".muster_app")}
    assert granted["workload.muster_app"] == "DELETE INSERT SELECT UPDATE"
    assert granted["transfer.muster_app"] == "INSERT SELECT"


def test_where_it_may_not_nothing_is_granted_and_all_else_is_done(nobody: Database) -> None:
    migrate.upgrade(nobody.url)
    assert not [line for line in schema_of(nobody) if "muster_app" in str(line[1])]
    assert databases.found_by_doctor(nobody) == []
    migrate.downgrade(nobody.url, migrate.BASE)


def administrate(database: Database, *statements: str) -> None:
    with psycopg.connect(database.superuser_url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_the_database_holds_the_same_lifecycles_as_the_code(database: Database) -> None:
    steps = {
        ("workload", "", lifecycle.WorkloadState.PENDING.value),
        ("attempt", "", lifecycle.AttemptState.PLACED.value),
        ("cluster", "", lifecycle.ClusterState.CREATED.value),
    }
    steps |= {("workload", before.value, after.value) for (before, _), after in lifecycle.WORKLOAD.items()}
    steps |= {("attempt", before.value, after.value) for (before, _), after in lifecycle.ATTEMPT.items()}
    steps |= {("cluster", before.value, after.value) for (before, _), after in lifecycle.CLUSTER.items()}
    with connect(database) as connection:
        stored = {tuple(row) for row in connection.execute(sa.text("SELECT * FROM state_transition"))}
    assert stored == steps


def test_planners_find_changed_rows_by_an_index(database: Database) -> None:
    tracked = {table.name for table in Base.metadata.tables.values() if "changed_xid" in table.columns}
    with connect(database) as connection:
        touched = connection.execute(sa.text("SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = 'touch'"))
        assert {name.strip('"') for name in touched.scalars()} == tracked
        connection.execute(sa.text("SET enable_seqscan = off"))
        for name in sorted(tracked):
            plan = connection.execute(
                sa.text(f"""EXPLAIN SELECT * FROM "{name}" WHERE changed_xid >= CAST('7' AS xid8)""")
            )
            assert f"ix_{name}_changed_xid" in "\n".join(plan.scalars())


def fill(database: Database) -> None:
    """A row in each table that is there and that has no row yet, whatever it needs."""
    with connect(database) as connection:
        there = set(sa.inspect(connection).get_table_names())
        for table, columns in ROWS.items():
            if table in there and not connection.execute(sa.text(f'SELECT count(*) FROM "{table}"')).scalar_one():
                connection.execute(sa.text(f'INSERT INTO "{table}" {columns}'))
        connection.commit()


_NOW = "'2026-01-01T00:00:00Z'"
_WORKLOAD = "'00000000-0000-7000-8000-000000000001'"
ROWS = {
    "pool": "(id, name) VALUES (1, 'default')",
    "cluster": f"(id, pool_id, name, state, created_at, changed_xid) VALUES (1, 1, 'one', 'created', {_NOW}, '3')",
    "node": "(id, cluster_id, uid, name, ready, first_seen_at, observed_at, changed_xid)"
    f" VALUES (1, 1, 'u', 'n', true, {_NOW}, {_NOW}, '3')",
    "node_flavor": "(node_id, flavor, cluster_id, owned, allocatable, capacity, changed_xid)"
    " VALUES (1, 'f', 1, 8, 8, 8, '3')",
    "queue": f"(id, path, created_at, changed_xid) VALUES (1, 'team', {_NOW}, '3')",
    "quota": "(queue_id, flavor, nominal, changed_xid) VALUES (1, 'f', 8, '3')",
    "workload": "(id, name, queue_id, pool_id, owner, priority, state, kind, spec, submitted_at, state_changed_at,"
    f" changed_xid) VALUES ({_WORKLOAD}, 'w', 1, 1, 'o', 0, 'pending', 'Workload', '{{}}', {_NOW}, {_NOW}, '3')",
    "attempt": f"(workload_id, attempt, state, placed_at, changed_xid) VALUES ({_WORKLOAD}, 1, 'placed', {_NOW}, '3')",
    "directive": "(cluster_id, object_id, gen, workload_id, attempt, kind, body, created_at)"
    f" VALUES (1, 'o', 1, {_WORKLOAD}, 1, 'apply', '{{}}', {_NOW})",
    "account": "(queue_id, flavor, is_root, subtree) VALUES (1, 'f', true, 8)",
    "audit": f"(id, at, actor, action, object_kind, object_id) VALUES (1, {_NOW}, 'a', 'b', 'c', 'd')",
}
