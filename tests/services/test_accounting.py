"""Quota kept like money, on real Postgres: placed, posted, voided, settled, each once."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from controlplane.core.facts.ledger import AccountKey, AttemptKey, Proof, Usage
from controlplane.core.ids import FlavorName, QueueId
from controlplane.services import accounting
from tests.builders.rows import H100, NOW, Rows
from tests.support.databases import Database


@pytest.fixture
def rows(database: Database) -> Iterator[Rows]:
    made = Rows(database)
    yield made
    made.dispose()


class Company:
    """One organisation with two teams on a cluster of two nodes; `team` keeps 4 of its 8 devices."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.pool = rows.pool()
        self.cluster = rows.cluster(self.pool)
        self.nodes = [rows.node(self.cluster, name) for name in ("n1", "n2")]
        self.org = rows.queue("org", nominal=0)
        self.team = rows.queue("org/team", self.org, nominal=8, lend_limit=4)
        self.other = rows.queue("org/other", self.org, nominal=8)
        rows.sync_accounts()

    def start(self, *amounts: int, queue: QueueId | None = None) -> list[AttemptKey]:
        queue = queue or self.team
        keys: list[AttemptKey] = []
        for amount in amounts:
            workload = self.rows.workload(queue, self.pool)
            keys.append(self.rows.place(workload, queue, {self.nodes[len(keys) % 2]: amount}, self.cluster))
        return keys

    def end(self, *keys: AttemptKey) -> None:
        """What happens beside the ledger when Attempts end."""
        for key in keys:
            self.rows.finish(key)

    def overdraft(self) -> int:
        [(units,)] = self.rows.run("SELECT overdraft FROM account a JOIN queue q ON q.id = queue_id WHERE path = 'org'")
        return int(str(units))

    def usage(self) -> dict[str, tuple[int, int]]:
        found = self.rows.run("SELECT path, pending, posted FROM account a JOIN queue q ON q.id = a.queue_id")
        return {str(path): (int(str(pending)), int(str(posted))) for path, pending, posted in found}


@pytest.fixture
def company(rows: Rows) -> Company:
    return Company(rows)


def run_whole(company: Company, keys: list[AttemptKey]) -> None:
    with company.rows.uow() as uow:
        accounting.post(uow, keys)
    for key in keys:
        company.rows.advance(key, "prepared", "starting", "running")
        company.rows.move(key.workload, "running")
        company.rows.run("UPDATE pod SET state = 'running' WHERE workload_id = :w", w=key.workload)


def test_a_whole_life_leaves_every_account_at_zero(company: Company) -> None:
    keys = company.start(3, 4)
    assert company.usage() == {"org": (0, 3), "org/team": (7, 0), "org/other": (0, 0)}
    run_whole(company, keys)
    assert company.usage() == {"org": (0, 3), "org/team": (0, 7), "org/other": (0, 0)}
    company.end(*keys)
    with company.rows.uow() as uow:
        accounting.settle(uow, keys, Proof.AGENT_REPORT)
    assert set(company.usage().values()) == {(0, 0)}
    assert company.rows.run("SELECT DISTINCT state, proof FROM reservation") == [("released", "agent-report")]


def test_called_again_each_changes_nothing(company: Company) -> None:
    keys = company.start(3)
    run_whole(company, keys)
    with company.rows.uow() as uow:
        accounting.post(uow, keys)
        accounting.void(uow, keys, Proof.TOMBSTONE_ACK)
    assert company.usage()["org/team"] == (0, 3)
    company.end(*keys)
    for _ in range(2):
        with company.rows.uow() as uow:
            accounting.settle(uow, keys, Proof.AGENT_REPORT)
            accounting.void(uow, keys, Proof.TOMBSTONE_ACK)
    assert company.rows.run("SELECT kind, count(*) FROM transfer GROUP BY kind ORDER BY kind") == [
        ("place", 1),
        ("post", 1),
        ("reverse", 1),
    ]


def test_what_never_ran_whole_is_voided_when_it_is_settled(company: Company) -> None:
    posted, placed = company.start(2, 4)
    run_whole(company, [posted])
    company.rows.advance(placed, "stopping")
    company.rows.move(placed.workload, "stopping")
    company.end(posted, placed)
    with company.rows.uow() as uow:
        accounting.settle(uow, [posted, placed], Proof.TOMBSTONE_ACK)
    assert set(company.usage().values()) == {(0, 0)}
    assert company.rows.run("SELECT count(*) FROM transfer WHERE kind IN ('void', 'reverse')") == [(2,)]


def test_a_cut_below_what_is_in_use_kills_nothing_and_stops_admission(company: Company) -> None:
    keys = company.start(8, 4)
    company.rows.run("UPDATE quota SET nominal = 1")
    company.rows.sync_accounts()
    assert company.overdraft() == 9
    with pytest.raises(AssertionError, match="over quota"):
        company.start(1)
    run_whole(company, keys)
    company.end(keys[0])
    with company.rows.uow() as uow:
        accounting.settle(uow, keys[:1], Proof.AGENT_REPORT)
    assert company.overdraft() == 1


def test_a_new_lending_limit_moves_what_passes_up_and_the_log_still_replays(company: Company) -> None:
    company.start(7)
    company.rows.run("UPDATE quota SET lend_limit = NULL WHERE lend_limit IS NOT NULL")
    assert company.rows.sync_accounts() == 2
    assert company.usage()["org"] == (0, 7)
    assert company.rows.run("SELECT kind, count(*) FROM transfer GROUP BY kind ORDER BY kind") == [
        ("adjust", 1),
        ("place", 1),
    ]
    assert company.rows.sync_accounts() == 0


def test_a_root_without_a_nominal_counts_what_accepted_clusters_own(rows: Rows) -> None:
    pool = rows.pool()
    rows.node(rows.cluster(pool, "one"), devices=8)
    unaccepted = rows.insert("cluster", pool_id=pool, name="two", state="created", created_at=NOW)
    rows.node(int(str(unaccepted["id"])), "n2", devices=8)
    rows.queue("org", nominal=None)
    rows.sync_accounts()
    assert rows.run("SELECT subtree FROM account") == [(8,)]


def test_a_flavor_that_nobody_listed_lives_off_the_ancestors_and_fails_closed(company: Company) -> None:
    with company.rows.uow() as uow:
        accounts = uow.ledger.lock_accounts([AccountKey(company.team, FlavorName("new"))])
    assert [(account.key.queue, account.subtree) for account in accounts] == [(company.org, 0), (company.team, 0)]


def test_usage_is_written_once_and_rolled_up_once(company: Company) -> None:
    (key,) = company.start(4)
    [(pod,)] = company.rows.run("SELECT id FROM pod")
    account = AccountKey(company.team, H100)
    began = NOW + timedelta(minutes=50, microseconds=700_000)
    usage = Usage(int(str(pod)), key, account, 4, began, began + timedelta(hours=1, seconds=5))
    for _ in range(2):
        with company.rows.uow() as uow:
            accounting.record_usage(uow, [usage, usage])
    hours = "SELECT extract(hour FROM hour AT TIME ZONE 'UTC')::int, device_seconds FROM usage_hour ORDER BY 1"
    for rolled in (1, 0):
        with company.rows.uow() as uow:
            assert accounting.roll_up_usage(uow) == rolled
        assert company.rows.run(hours) == [(12, 4 * 600), (13, 4 * 3005)]


def test_a_card_that_somebody_else_uses_at_that_time_is_not_believed(company: Company) -> None:
    keys = company.start(1, 1)
    pods = [int(str(pod)) for (pod,) in company.rows.run("SELECT id FROM pod ORDER BY id")]
    account = AccountKey(company.team, H100)
    with company.rows.uow() as uow:
        until = NOW + timedelta(hours=1)
        told = [Usage(pod, key, account, 1, NOW, until, "card-1") for pod, key in zip(pods, keys, strict=True)]
        accounting.record_usage(uow, told)
    assert sorted(company.rows.run("SELECT device_key FROM usage_interval")) == [("",), ("card-1",)]


def test_sixteen_writers_on_one_tree_never_exceed_a_cap(company: Company) -> None:
    """Drop the checks of `account` and the lock in `lock_accounts`, and this test goes red."""
    writers, rounds = 16, 6
    seen: list[int] = []
    failures: list[BaseException] = []
    company.nodes = [company.rows.node(company.cluster, f"large-{number}", 100) for number in range(2)]

    def write(number: int) -> None:
        queue = company.team if number % 2 else company.other
        try:
            for turn in range(rounds):
                come_and_go(company, queue, 1 + (number + turn) % 5, seen)
        except BaseException as error:  # noqa: BLE001 - told to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert len(seen) > rounds, "hardly anybody was let in: the test shows nothing"
    assert max(seen) <= 16
    assert set(company.usage().values()) == {(0, 0)}


def come_and_go(company: Company, queue: QueueId, amount: int, seen: list[int]) -> None:
    """Place it if quota allows, look at what all together use, and end it."""
    try:
        keys = company.start(amount, queue=queue)
    except AssertionError:
        return
    [(used,)] = company.rows.run("SELECT sum(pending + posted) FROM account WHERE NOT is_root")
    seen.append(int(str(used)))
    company.end(*keys)
    with company.rows.uow() as uow:
        accounting.settle(uow, keys, Proof.AGENT_REPORT)
