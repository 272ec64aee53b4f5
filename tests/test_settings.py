"""Each knob of the plane is one environment variable, and a value that makes no sense is refused at the start."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from controlplane.contract.agent.sync import WAIT_SECONDS_MAX, SyncRequest
from controlplane.settings import Settings, SettingsUnusable, settings_of_environment

SERVERS = {"DATABASE_URL": "postgresql://db.example/muster", "REDIS_URL": "redis://cache.example/0"}
GIVEN = {
    "MUSTER_DATABASE_ROLE": ("muster_app", "muster_app"),
    "MUSTER_DATABASE_POOL_SIZE": ("3", 3),
    "MUSTER_API_HOST": ("::1", "::1"),
    "MUSTER_API_PORT": ("0", 0),
    "MUSTER_AGENT_HOST": ("::1", "::1"),
    "MUSTER_AGENT_PORT": ("9441", 9441),
    "MUSTER_AGENT_URL": ("https://muster.example", "https://muster.example"),
    "MUSTER_BODY_BYTES_MAX": ("2048", 2048),
    "MUSTER_BODY_SECONDS": ("5", 5),
    "MUSTER_REQUESTS_PER_SECOND": ("9", 9),
    "MUSTER_REQUESTS_BURST": ("10", 10),
    "MUSTER_STREAMS_MAX": ("11", 11),
    "MUSTER_STREAMS_PER_PRINCIPAL": ("12", 12),
    "MUSTER_SECRETS_DIR": ("keys", Path("keys")),
    "MUSTER_POLL_SECONDS": ("1", 1),
    "MUSTER_LEASE_SECONDS": ("2", 2),
    "MUSTER_PLANNER_LEASE_SECONDS": ("4", 4),
    "MUSTER_SWEEP_SECONDS": ("5", 5),
    "MUSTER_WORKER_CONCURRENCY": ("2", 2),
    "MUSTER_CYCLE_BASE_EVERY": ("7", 7),
    "MUSTER_CYCLE_RETENTION_HOURS": ("8", 8),
    "MUSTER_METRICS_PORT": ("9464", 9464),
    "MUSTER_HEALTH_HOST": ("::", "::"),
    "MUSTER_HEALTH_PORT": ("8081", 8081),
    "MUSTER_LOG_LEVEL": ("DEBUG", "DEBUG"),
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for variable in GIVEN:
        monkeypatch.delenv(variable, raising=False)
    for variable, text in SERVERS.items():
        monkeypatch.setenv(variable, text)
    return monkeypatch


@pytest.mark.parametrize("variable", GIVEN)
def test_a_setting_is_read_from_its_variable(variable: str, environment: pytest.MonkeyPatch) -> None:
    text, value = GIVEN[variable]
    field = variable.removeprefix("MUSTER_").lower()
    assert getattr(Settings(), field) != value
    environment.setenv(variable, text)
    assert getattr(Settings(), field) == value


def test_an_address_may_come_from_a_file_that_ends_with_its_line(environment: pytest.MonkeyPatch) -> None:
    """As in a Secret made `--from-file`; else the database would be called "muster" and a line break."""
    for variable, text in SERVERS.items():
        environment.setenv(variable, f"{text}\n")
    settings = Settings()
    assert settings.database_url.get_secret_value() == SERVERS["DATABASE_URL"]
    assert settings.redis_url.get_secret_value() == SERVERS["REDIS_URL"]


def test_the_servers_have_the_names_that_everybody_uses(environment: pytest.MonkeyPatch) -> None:
    settings = Settings()
    assert settings.database_url.get_secret_value() == SERVERS["DATABASE_URL"]
    assert settings.redis_url.get_secret_value() == SERVERS["REDIS_URL"]


def test_an_address_with_a_password_is_not_shown(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("DATABASE_URL", "postgresql://muster:hush@db.example/muster")
    assert "hush" not in repr(Settings())


@pytest.mark.parametrize("server", SERVERS)
def test_a_plane_without_a_server_does_not_start(server: str, environment: pytest.MonkeyPatch) -> None:
    environment.delenv(server)
    with pytest.raises(ValidationError):
        Settings()


@pytest.mark.parametrize("variable", [name for name in GIVEN if name.endswith("_SECONDS")])
def test_no_time_is_below_a_second(variable: str, environment: pytest.MonkeyPatch) -> None:
    environment.setenv(variable, "0")
    with pytest.raises(ValidationError):
        Settings()


def test_agents_are_not_asked_to_wait_longer_than_their_protocol_lets_them(environment: pytest.MonkeyPatch) -> None:
    """An agent that is told of a longer wait could not say it, and would end."""
    environment.setenv("MUSTER_POLL_SECONDS", str(WAIT_SECONDS_MAX))
    SyncRequest(session_epoch=1, seq=1, cursor=0, wait_seconds=Settings().poll_seconds)
    environment.setenv("MUSTER_POLL_SECONDS", str(WAIT_SECONDS_MAX + 1))
    with pytest.raises(ValidationError, match="poll_seconds"):
        Settings()


def test_agents_sign_for_the_address_that_they_know(environment: pytest.MonkeyPatch) -> None:
    assert Settings().agent_audience() == "http://127.0.0.1:8441"
    environment.setenv("MUSTER_AGENT_URL", "https://muster.example")
    assert Settings().agent_audience() == "https://muster.example"


def test_certificate_and_key_come_together(environment: pytest.MonkeyPatch) -> None:
    assert Settings().tls_cert_file is None
    environment.setenv("MUSTER_TLS_CERT_FILE", "tls.crt")
    with pytest.raises(ValidationError, match="give both or neither"):
        Settings()
    environment.setenv("MUSTER_TLS_KEY_FILE", "tls.key")
    assert Settings().tls_key_file == Path("tls.key")
    assert Settings().agent_audience() == "https://127.0.0.1:8441"


def test_what_is_wrong_is_said_by_variable_in_one_line(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("REDIS_URL")
    environment.setenv("MUSTER_API_PORT", "70000")
    with pytest.raises(SettingsUnusable) as found:
        settings_of_environment()
    assert str(found.value) == "not set: REDIS_URL; MUSTER_API_PORT: Input should be less than or equal to 65535"
