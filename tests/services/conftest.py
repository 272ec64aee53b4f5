"""A plane per test, on the test's own database."""

from collections.abc import Iterator

import pytest

from tests.services.planes import Plane
from tests.support.databases import Database


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    plane = Plane(database)
    yield plane
    plane.close()
