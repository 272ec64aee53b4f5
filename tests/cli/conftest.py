"""A plane's API, and a `muster` that knows it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

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


@pytest.fixture
def lonely(tmp_path: Path) -> Muster:
    """Without any plane."""
    return Muster(tmp_path)
