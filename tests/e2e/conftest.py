"""`federation`: one federation for all stories, given back empty after each, with the doctor's word at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.federation import Federation
from tests.e2e.federation import federation as whole_federation
from tests.kube.cluster import KubeCluster

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stories come last in this folder: the federation keeps its clusters to itself from its start to its end."""
    places = [place for place, item in enumerate(items) if item.path.parent == HERE]
    ours = sorted(
        (items[place] for place in places), key=lambda item: "federation" in getattr(item, "fixturenames", ())
    )
    for place, item in zip(places, ours, strict=True):
        items[place] = item


@pytest.fixture(scope="package")
def running(
    kube_pool: Callable[[int], list[KubeCluster]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Federation]:
    """Started with the first story."""
    with whole_federation(tmp_path_factory.mktemp("federation"), kube_pool(2)) as started:
        yield started


@pytest.fixture
def federation(running: Federation) -> Iterator[Federation]:
    """Two empty clusters; when the story is told nothing may be left and no invariant violated."""
    yield running
    assert not running.doctor(), "right after the story"
    running.reset()
    assert not running.doctor(), "after all work has ended"
