"""Whatever happens in whatever order: balances are what the quota tree says, and the doctor finds nothing.

Seeded chance over the real path: admissions, starts, ends, cuts, new limits, Queues that move. A failure names its seed
and step.
"""

from collections.abc import Iterator
from random import Random

import pytest

from controlplane.core.facts.ledger import AttemptKey, Proof
from controlplane.core.facts.violations import Violation
from controlplane.core.ids import QueueId
from controlplane.core.quota import QuotaTree
from controlplane.db import doctor
from controlplane.services import accounting
from tests.builders.rows import H100, Rows
from tests.support.databases import Database

STEPS = 45


@pytest.fixture
def rows(database: Database) -> Iterator[Rows]:
    made = Rows(database)
    yield made
    made.dispose()


class Story:
    """Two departments with two teams each, and everything that may happen to their quota."""

    def __init__(self, rows: Rows, seed: int) -> None:
        self.rows = rows
        self.chance = Random(seed)
        self.pool = rows.pool()
        self.cluster = rows.cluster(self.pool)
        self.node = rows.node(self.cluster, devices=0)
        rows.run("UPDATE node_flavor SET owned = 400, allocatable = 400, capacity = 400")
        org = rows.queue("org", nominal=4)
        self.departments = [rows.queue(f"org/{name}", org, nominal=0) for name in "ab"]
        self.teams = [
            rows.queue(f"org/{name}/t", parent, nominal=8, lend_limit=lend)
            for name, parent, lend in zip("abcd", self.departments * 2, (4, None, 0, 2), strict=True)
        ]
        rows.sync_accounts()
        self.placed: list[AttemptKey] = []
        self.posted: list[AttemptKey] = []

    def step(self) -> str:
        deeds = [self.admit, self.admit, self.admit, self.start, self.end, self.end, self.limit, self.move]
        deed = self.chance.choice(deeds)
        deed()
        return deed.__name__

    def admit(self) -> None:
        queue = self.chance.choice(self.teams)
        workload = self.rows.workload(queue, self.pool)
        try:
            self.placed.append(self.rows.place(workload, queue, {self.node: self.chance.randint(1, 6)}, self.cluster))
        except AssertionError:  # over quota, so nothing was written
            return

    def start(self) -> None:
        if self.placed:
            key = self.placed.pop(self.chance.randrange(len(self.placed)))
            self.rows.advance(key, "prepared", "starting", "running")
            self.rows.move(key.workload, "running")
            with self.rows.uow() as uow:
                accounting.post(uow, [key])
            self.posted.append(key)

    def end(self) -> None:
        live = self.placed + self.posted
        if live:
            key = self.chance.choice(live)
            (self.placed if key in self.placed else self.posted).remove(key)
            self.rows.finish(key)
            with self.rows.uow() as uow:
                accounting.settle(uow, [key], Proof.AGENT_REPORT)

    def limit(self) -> None:
        """A cut or a rise of one of three numbers of one Queue."""
        self.rows.run(
            f"UPDATE quota SET {self.chance.choice(['nominal', 'lend_limit', 'borrow_limit'])} = :amount"
            " WHERE queue_id = :queue",
            amount=self.chance.randint(0, 10), queue=self.chance.choice([*self.teams, *self.departments]),
        )  # fmt: skip
        self.rows.sync_accounts()

    def move(self) -> None:
        self.rows.run(
            "UPDATE queue SET parent_id = :parent WHERE id = :queue",
            parent=self.chance.choice(self.departments), queue=self.chance.choice(self.teams),
        )  # fmt: skip
        self.rows.sync_accounts()

    def stored(self) -> dict[QueueId, int]:
        return {
            QueueId(int(str(q))): int(str(u))
            for q, u in self.rows.run("SELECT queue_id, pending + posted FROM account")
        }

    def broken(self) -> list[Violation]:
        with self.rows.engine.connect() as connection:
            return doctor.violations(connection)

    def recomputed(self) -> dict[QueueId, int]:
        with self.rows.uow() as uow:
            usage = {(key.queue, key.flavor): amount for key, amount in uow.ledger.leaf_usage().items()}
            tree = QuotaTree(uow.ledger.quota_tree(), usage, uow.ledger.owned())
        return {queue: tree.account(queue, H100).u for queue in tree.queues}


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_balances_are_what_the_tree_says_after_every_step(rows: Rows, seed: int) -> None:
    story = Story(rows, seed)
    done: list[str] = []
    for number in range(STEPS):
        done.append(story.step())
        assert story.stored() == story.recomputed(), f"seed {seed}, step {number}: {done[-1]}"
        if number % 5 == 0:
            assert story.broken() == [], f"seed {seed}, step {number}: {done[-1]}"
    assert set(done) == {"admit", "start", "end", "limit", "move"}
    while story.placed or story.posted:
        story.end()
    assert set(story.stored().values()) == {0}
