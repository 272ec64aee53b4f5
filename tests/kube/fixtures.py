"""Real Kubernetes clusters as fixtures: `kube`, `two_kubes` and `kube_proxy`; `node_software` for a node.

Clusters are started when the first test asks, once per test process, and given back as new after each test. Building
the programs comes before the first test, because a test's time-out is no place for it.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kube import build
from tests.kube.cluster import KubeCluster
from tests.kube.node import packages
from tests.kube.proxy import TcpProxy

ASKS_FOR_KUBE = frozenset({"kube", "two_kubes", "kube_pool", "kube_programs"})
NEED_TWO = frozenset({"two_kubes", "federation"})


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need Kubernetes, for KUBE=0 to find them, and keep them on two workers.

    Clusters are big: those that need two share one worker's, all others use the one of another worker.
    """
    for item in items:
        names: Iterable[str] = getattr(item, "fixturenames", ())
        if ASKS_FOR_KUBE.intersection(names):
            item.add_marker("kube")
            if item.get_closest_marker("xdist_group") is None:
                group = "kube-stories" if NEED_TWO.intersection(names) else "kube"
                item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test; with several workers one builds and the others wait for it."""
    if session.config.option.collectonly or not any(item.get_closest_marker("kube") for item in session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with ExitStack() as stack:
        if capture is not None:
            stack.enter_context(capture.global_and_fixture_disabled())
        _programs_or_reason()
        if any("node_software" in getattr(item, "fixturenames", ()) for item in session.items):
            _software_or_reason()


@functools.cache
def _programs_or_reason() -> Path | str:
    try:
        return build.programs()
    except build.KubeUnavailable as reason:
        return str(reason)


@pytest.fixture(scope="session")
def kube_programs() -> Path:
    """The folder of the built programs; tests are skipped where they cannot be had, and the reason is printed."""
    found = _programs_or_reason()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@functools.cache
def _software_or_reason() -> Path | str:
    try:
        return packages.software()
    except packages.NodeUnavailable as reason:
        return str(reason)


@pytest.fixture(scope="session")
def node_software(kube_programs: Path) -> Path:
    """What a real node needs beside Kubernetes; tests are skipped where it cannot be had, and the reason is printed."""
    found = _software_or_reason()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="session")
def kube_pool(
    kube_programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[int], list[KubeCluster]]]:
    """Ask for so many running clusters; those of earlier tests are used again."""
    running: list[KubeCluster] = []
    with ExitStack() as stack:

        def take(count: int) -> list[KubeCluster]:
            while len(running) < count:
                name = f"kube-{len(running)}"
                cluster = KubeCluster(name, tmp_path_factory.mktemp(name), kube_programs)
                running.append(stack.enter_context(cluster))
            return running[:count]

        yield take


@pytest.fixture
def kube(kube_pool: Callable[[int], list[KubeCluster]]) -> Iterator[KubeCluster]:
    """One real cluster without nodes and without tenants."""
    (cluster,) = kube_pool(1)
    yield cluster
    _give_back(cluster)


@pytest.fixture
def two_kubes(kube_pool: Callable[[int], list[KubeCluster]]) -> Iterator[tuple[KubeCluster, KubeCluster]]:
    """Two real clusters without nodes and without tenants."""
    first, second = kube_pool(2)
    with ExitStack() as stack:
        stack.callback(_give_back, first)
        stack.callback(_give_back, second)
        yield first, second


def _give_back(cluster: KubeCluster) -> None:
    """Fail the test that left a cluster unusable, and only that one."""
    try:
        cluster.reset()
    except Exception:
        cluster.stop()
        cluster.start()
        raise


@pytest.fixture
def kube_proxy() -> Iterator[Callable[[int], TcpProxy]]:
    """Make proxies to ports of this machine; they end with the test."""
    with ExitStack() as stack:
        yield lambda port: stack.enter_context(TcpProxy(port))
