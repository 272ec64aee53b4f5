"""A plane's API for each test, with a small quota tree where a test asks for one."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.bodies import QUEUES
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
