"""The CLI's config after `up`: points at the plane, keeps what was there, holds no secret."""

import stat
from pathlib import Path

import pytest
import yaml

from controlplane.embedded.cli_config import config_file, database_named, is_remembered, remember
from controlplane.embedded.home import Home, write_private

URL = "http://127.0.0.1:8440"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("MUSTER_CONFIG", str(tmp_path / "config" / "config.yaml"))
    home = Home.open(tmp_path / "home")
    write_private(home.admin_token, "secret-token\n")
    return home


def test_the_context_names_the_file_of_the_token_and_not_the_token(home: Home) -> None:
    assert not is_remembered(home, URL)
    remember(home, URL)
    assert is_remembered(home, URL)
    text = config_file().read_text()
    assert "secret-token" not in text
    assert yaml.safe_load(text) == {
        "current": "local",
        "contexts": {"local": {"url": URL, "token_file": str(home.admin_token)}},
    }
    assert stat.S_IMODE(config_file().stat().st_mode) == 0o600


def test_other_contexts_and_the_choice_among_them_stay(home: Home) -> None:
    config_file().parent.mkdir()
    prod = {"url": "https://muster.example"}
    config_file().write_text(yaml.safe_dump({"current": "prod", "contexts": {"prod": prod}}))
    remember(home, URL)
    found = yaml.safe_load(config_file().read_text())
    assert found["current"] == "prod"
    assert found["contexts"]["prod"] == prod
    assert found["contexts"]["local"]["url"] == URL


def test_another_port_or_database_or_a_lost_token_is_noticed(home: Home) -> None:
    remember(home, URL)
    assert not is_remembered(home, "http://127.0.0.1:8442")
    named = database_named({"DATABASE_URL": "postgresql://muster:secret@db.example:5432/muster?sslmode=require"})
    assert named == "db.example:5432/muster"
    assert not is_remembered(home, URL, named)
    home.admin_token.unlink()
    assert not is_remembered(home, URL)


def test_the_config_lies_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MUSTER_CONFIG", "MUSTER_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config_file() == tmp_path / ".config" / "muster" / "config.yaml"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert config_file() == tmp_path / "xdg" / "muster" / "config.yaml"
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "home"))
    assert config_file() == tmp_path / "home" / "config.yaml"
    monkeypatch.setenv("MUSTER_CONFIG", str(tmp_path / "mine.yaml"))
    assert config_file() == tmp_path / "mine.yaml"
