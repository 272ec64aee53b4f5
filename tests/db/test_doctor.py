"""The doctor: silent on a busy, healthy database; names each planted violation, and that one only.

Each case of `planted` writes with triggers off and, where a constraint stands in the way, drops it: what the doctor
finds here, the database would have refused. Every case has a copy of one busy database.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from string import Template

import pytest
import sqlalchemy as sa

from controlplane.core.facts.ledger import AttemptKey, Proof
from controlplane.core.facts.violations import Violation
from controlplane.db import doctor
from controlplane.embedded.postgres import Postgres
from controlplane.services import accounting
from tests.builders.rows import NOW, Rows
from tests.db.planted import PLANTED
from tests.support import databases

_WROTE_DOWN = """
CREATE FUNCTION wrote_down(kind text, id text, before text, after text) RETURNS void LANGUAGE sql AS $$
  INSERT INTO audit (at, actor, action, object_kind, object_id, state_from, state_to)
  VALUES (now(), 'x', 'x', kind, id, before, after)
$$
"""


@dataclass
class Busy:
    """A database in which something of everything has happened."""

    rows: Rows
    cluster: int
    running: AttemptKey
    placed: AttemptKey
    ended: AttemptKey

    def plant(self, statements: str) -> None:
        """Write what the database would refuse."""
        names = {name: getattr(self, name).workload for name in ("running", "placed", "ended")}
        told = Template(statements).substitute(names, cluster=self.cluster)
        self.rows.as_superuser("SET session_replication_role = replica", *told.split(";"))


@pytest.fixture(scope="module")
def template(postgres: Postgres, migrated: str) -> Iterator[Busy]:
    """One busy database, which each test copies."""
    database = databases.clone(postgres, migrated)
    rows = Rows(database)
    made = _busy(rows)
    rows.as_superuser(_WROTE_DOWN)
    rows.dispose()
    yield made
    databases.drop(postgres, database)


@pytest.fixture
def busy(postgres: Postgres, template: Busy) -> Iterator[Busy]:
    database = databases.clone(postgres, template.rows.database.name)
    rows = Rows(database)
    yield replace(template, rows=rows)
    rows.dispose()
    databases.drop(postgres, database)


def _busy(rows: Rows) -> Busy:
    pool = rows.pool()
    cluster = rows.cluster(pool)
    nodes = [rows.node(cluster, name) for name in ("n1", "n2")]
    org = rows.queue("org", nominal=0)
    team = rows.queue("org/team", org, nominal=8, lend_limit=4)
    rows.queue("org/other", org, nominal=8)
    rows.sync_accounts()
    running, placed, ended = (
        rows.place(rows.workload(team, pool), team, {nodes[0]: 2, nodes[1]: amount}, cluster) for amount in (2, 1, 1)
    )
    _number_directives(rows, cluster)
    for key in (running, ended):
        rows.advance(key, "prepared", "starting", start_ordered_at=NOW)
        rows.advance(key, "running")
        rows.move(key.workload, "running")
        rows.run("UPDATE pod SET state = 'running' WHERE workload_id = :w", w=key.workload)
        with rows.uow() as uow:
            accounting.post(uow, [key])
    rows.finish(ended)
    with rows.uow() as uow:
        accounting.settle(uow, [ended], Proof.AGENT_REPORT)
    with rows.uow() as uow:
        assert uow.audit.seal(1_000) > 10
    rows.insert(
        "agent_session", cluster_id=cluster, epoch=1, instance_id="a", thumbprint="t", seq=3, acked_number=2,
        lease_until=NOW, started_at=NOW, last_heard_at=NOW,
    )  # fmt: skip
    return Busy(rows, cluster, running, placed, ended)


def _number_directives(rows: Rows, cluster: int) -> None:
    rows.insert("cluster_counter", cluster_id=cluster, direction="down", value=3)
    rows.run(
        "INSERT INTO directive_number (cluster_id, number, object_id, gen)"
        " SELECT cluster_id, row_number() OVER (ORDER BY object_id), object_id, gen FROM directive"
    )


def examine(busy: Busy) -> list[Violation]:
    with busy.rows.engine.connect() as connection:
        return doctor.violations(connection)


def test_a_busy_healthy_database_is_clean(busy: Busy) -> None:
    assert examine(busy) == []


def test_a_violation_says_what_should_hold_and_which_rows_break_it() -> None:
    assert str(Violation("I0", "This holds.", ("a=1", "a=2"))) == "I0: This holds. Broken by: a=1; a=2"


@pytest.mark.parametrize(
    ("invariant", "what", "statements"), PLANTED, ids=[f"{one} {what}" for one, what, _ in PLANTED]
)
def test_a_planted_violation_is_named_and_nothing_else(busy: Busy, invariant: str, what: str, statements: str) -> None:
    busy.plant(statements)
    found = examine(busy)
    assert {violation.invariant for violation in found} == {invariant}
    assert all(violation.rows for violation in found)


def test_a_reservation_released_while_its_attempt_lives_is_named(busy: Busy) -> None:
    with busy.rows.uow() as uow:
        accounting.settle(uow, [busy.running], Proof.DECLARED_LOST)
    assert {violation.invariant for violation in examine(busy)} == {"I15"}


def test_how_long_a_gang_may_run_in_part_is_for_the_caller_to_say(busy: Busy) -> None:
    busy.plant("""
        UPDATE attempt SET state = 'starting', start_ordered_at = now() - interval '1 minute'
          WHERE workload_id = '$placed';
        SELECT wrote_down('attempt', '$placed.1', 'placed', 'starting');
        UPDATE pod SET state = 'running' WHERE workload_id = '$placed' AND rank = 0
    """)
    assert examine(busy) == []
    with busy.rows.engine.connect() as connection:
        found = doctor.violations(connection, partial_seconds=30)
    assert [violation.invariant for violation in found] == ["I12"]


def test_every_invariant_that_rows_can_show_has_a_planted_case() -> None:
    planted = {invariant for invariant, *_ in PLANTED}
    assert planted == {check.invariant for check in doctor.CHECKS}
    wanted = "I1 I2 I3 I4 I5 I7 I8 I10 I11 I12 I13 I14 I15 I16 I19 I20 I22 I23 I24 I25 I28 I31"
    assert planted == {*wanted.split(), "hold references", "removed clusters", "cordons", "budgets"}


def test_the_doctor_only_reads(busy: Busy) -> None:
    with busy.rows.engine.connect() as connection:
        doctor.violations(connection)
        assert not connection.in_transaction()
        assert connection.execute(sa.text("SHOW transaction_read_only")).scalar_one() == "off"
