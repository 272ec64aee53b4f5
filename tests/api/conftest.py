"""A plane's API for each test, with a small quota tree where a test asks for one; one for all that only refuses."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from controlplane.embedded.postgres import Postgres
from controlplane.embedded.valkey import Valkey
from tests.api.bodies import QUEUES
from tests.api.refusals import refusing
from tests.support.api import Api, serving, settings_for
from tests.support.databases import Database


@pytest.fixture
def api(database: Database, valkey: str, tmp_path: Path) -> Iterator[Api]:
    """Listening on free ports."""
    with serving(settings_for(database, valkey, tmp_path)) as started:
        yield started


@pytest.fixture
def admin(api: Api) -> httpx.Client:
    """A client that may do everything."""
    return api.client()


@pytest.fixture
def tree(admin: httpx.Client) -> httpx.Client:
    """The same, once there are queues."""
    answer = admin.post("/api/v1/apply", content=QUEUES, headers={"Content-Type": "application/yaml"})
    assert answer.status_code == 200, answer.text
    return admin


@pytest.fixture(scope="package")
def still(
    postgres: Postgres, migrated: str, valkey_server: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """An administrator of one plane with queues, for tests in which all is refused: none of them may change it."""
    with refusing(postgres, migrated, valkey_server, tmp_path_factory) as api:
        admin = api.client()
        stood = admin.get("/api/v1/audit").json()["items"]
        assert stood
        yield admin
        assert admin.get("/api/v1/audit").json()["items"] == stood
