"""Makes a run honest: under REQUIRE_ALL=1 a skip is a failure, and KUBE=0 is said aloud.

Loaded by name from pyproject.toml, so that it is there before any conftest. It decides nothing else: how a Kubernetes
is built and started is in tests/kube.
"""

import os
from collections.abc import Generator

import pytest

REQUIRE_ALL = os.environ.get("REQUIRE_ALL") == "1"
WITHOUT_KUBE = os.environ.get("KUBE") == "0"
LEFT_OUT = "KUBE=0: the stories on a real Kubernetes are left out"


def pytest_configure() -> None:
    if REQUIRE_ALL and WITHOUT_KUBE:
        message = "REQUIRE_ALL=1 wants every test and KUBE=0 leaves some out: choose one"
        raise pytest.UsageError(message)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not WITHOUT_KUBE:
        return
    left_out = [item for item in items if item.get_closest_marker("kube")]
    items[:] = [item for item in items if not item.get_closest_marker("kube")]
    config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if WITHOUT_KUBE:
        terminalreporter.write_line(LEFT_OUT)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module may skip itself as a whole, before any of its tests is known."""
    report = yield
    if REQUIRE_ALL and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"REQUIRE_ALL=1 and this was skipped: {_reason(report.longrepr)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if REQUIRE_ALL and report.skipped:
        report.longrepr = f"REQUIRE_ALL=1 and this was skipped: {_reason(report.longrepr)}"
        report.outcome = "failed"
    return report


def _reason(longrepr: object) -> str:
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
