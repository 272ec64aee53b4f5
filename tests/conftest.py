"""Real servers for every test that asks: one Postgres and one Valkey per test process, a database per test.

A test that touches `database` ends with the doctor. `@pytest.mark.planted_violation` is for tests that plant what the
doctor must find.
"""

import itertools
import os
from collections.abc import Iterator

import pytest
import redis

from controlplane.embedded.postgres import Postgres
from controlplane.embedded.servers import Servers, running
from controlplane.embedded.valkey import Valkey
from tests.support import databases
from tests.support.databases import Database
from tests.support.folders import quick_folder

pytest_plugins = ["tests.kube.fixtures", "tests.plugins.groups"]

VALKEY_DATABASES = 64
_valkey_numbers = itertools.cycle(range(1, VALKEY_DATABASES))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "planted_violation: the test plants what the doctor must find, so it may find it"
    )


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Postgres (without fsync) and Valkey of this test process; whoever kills it ends them too."""
    ours = {name: text for name, text in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
    with (
        quick_folder(tmp_path_factory.mktemp("servers")) as folder,
        running(folder, ours, durable=False) as started,
    ):
        yield started


@pytest.fixture(scope="session")
def postgres(servers: Servers) -> Postgres:
    """The server; most tests want `database`."""
    assert servers.postgres is not None
    return servers.postgres


@pytest.fixture(scope="session")
def valkey_server(servers: Servers) -> Valkey:
    """The server; most tests want `valkey`."""
    assert servers.valkey is not None
    return servers.valkey


@pytest.fixture(scope="session")
def migrated(postgres: Postgres) -> str:
    """The name of the template database, with the whole schema in it."""
    databases.make_template(postgres)
    return databases.TEMPLATE


@pytest.fixture
def database(postgres: Postgres, migrated: str, request: pytest.FixtureRequest) -> Iterator[Database]:
    """A migrated database of this test's own; at its end no invariant may be violated."""
    fresh = databases.clone(postgres, migrated)
    try:
        yield fresh
        if request.node.get_closest_marker("planted_violation") is None:
            violations = databases.found_by_doctor(fresh)
            assert not violations, "the doctor found:\n" + "\n".join(violations)
    finally:
        databases.drop(postgres, fresh)


@pytest.fixture
def valkey(valkey_server: Valkey) -> Iterator[str]:
    """The URL of an empty Valkey database of this test's own."""
    url = valkey_server.url(next(_valkey_numbers))
    yield url
    with redis.Redis.from_url(url) as client:
        client.flushdb()
