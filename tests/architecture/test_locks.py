"""The locks: complete, hashed, in step with pyproject.toml and with each other, and free of anybody's addresses."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, named

LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)")
NAME = re.compile(r"[A-Za-z0-9_.-]+")


def _pins(lock: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / f"{lock}.lock").read_text().splitlines()
    return {match["name"]: match["version"] for line in lines if (match := PIN.match(line))}


def _wanted(*extras: str) -> set[str]:
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    return {_distribution(requirement) for requirements in lists for requirement in requirements}


def _distribution(requirement: str) -> str:
    match = NAME.match(requirement)
    assert match is not None
    return re.sub(r"[-_.]+", "-", match[0]).lower()


@pytest.mark.parametrize("lock", LOCKS, ids=named)
def test_every_package_is_pinned_and_hashed(lock: Path) -> None:
    entries = lock.read_text().replace("\\\n", " ").splitlines()
    assert entries
    assert [entry for entry in entries if not (PIN.match(entry) and "--hash=sha256:" in entry)] == []


@pytest.mark.parametrize("lock", LOCKS, ids=named)
def test_no_lock_names_an_address_or_a_file(lock: Path) -> None:
    assert re.findall(r".*(?:://|--(?:extra-)?index|--find-links| @ |file:).*", lock.read_text()) == []


def test_what_the_project_asks_for_is_locked() -> None:
    assert _wanted(*PROJECT["optional-dependencies"]) - _pins("all").keys() == set()
    assert _wanted("agent") - _pins("agent").keys() == set()
    assert _wanted("controlplane") - _pins("controlplane").keys() == set()


def test_the_smaller_locks_are_parts_of_the_whole() -> None:
    whole = _pins("all").items()
    assert _pins("agent").items() - whole == set()
    assert _pins("controlplane").items() - whole == set()


def test_an_agent_installs_nothing_of_the_plane() -> None:
    of_the_plane = {"alembic", "celery", "fastapi", "kombu", "psycopg", "redis", "sqlalchemy", "starlette", "uvicorn"}
    assert of_the_plane & _pins("agent").keys() == set()
    assert of_the_plane & _wanted() == set()
