"""A plane's API, and a `muster` that knows it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.embedded.postgres import Postgres
from controlplane.embedded.valkey import Valkey
from tests.api.refusals import refusing
from tests.cli.running import Muster
from tests.support.api import Api, serving, settings_for
from tests.support.databases import Database


@pytest.fixture
def api(database: Database, valkey: str, tmp_path: Path) -> Iterator[Api]:
    """Listening on free ports."""
    with serving(settings_for(database, valkey, tmp_path / "keys")) as started:
        yield started


@pytest.fixture
def muster(api: Api, tmp_path: Path) -> Muster:
    """As the admin of that plane."""
    return Muster(tmp_path, {"MUSTER_URL": api.url, "MUSTER_TOKEN": api.admin_token})


@pytest.fixture(scope="package")
def still_api(
    postgres: Postgres, migrated: str, valkey_server: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    """One plane with queues, for commands that are all refused: none of them may change it."""
    with refusing(postgres, migrated, valkey_server, tmp_path_factory) as api:
        yield api


@pytest.fixture
def refused(still_api: Api, tmp_path: Path) -> Muster:
    """As the admin of a plane that only refuses."""
    return Muster(tmp_path, {"MUSTER_URL": still_api.url, "MUSTER_TOKEN": still_api.admin_token})


@pytest.fixture
def lonely(tmp_path: Path) -> Muster:
    """Without any plane."""
    return Muster(tmp_path)
