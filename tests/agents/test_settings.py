"""Each knob of the agent is one environment variable, a flag goes before it, and nonsense is refused at the start."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from agents.settings import AgentSettings

NEEDED = {"MUSTER_AGENT_PLANE_URL": "https://muster.example", "MUSTER_AGENT_CLUSTER": "eu-west"}
GIVEN = {
    "MUSTER_AGENT_TOKEN_FILE": ("token", Path("token")),
    "MUSTER_AGENT_CA_FILE": ("ca.pem", Path("ca.pem")),
    "MUSTER_AGENT_NAMESPACE": ("gpu-agents", "gpu-agents"),
    "MUSTER_AGENT_POLICY_FILE": ("policy.yaml", Path("policy.yaml")),
    "MUSTER_AGENT_STATE_DIR": ("state", Path("state")),
    "MUSTER_AGENT_INSTANCE": ("agent-0", "agent-0"),
    "MUSTER_AGENT_LEASE": ("false", False),
    "MUSTER_AGENT_SPEED": ("60", 60),
    "MUSTER_AGENT_CONTROL_PORT": ("0", 0),
    "MUSTER_AGENT_HEALTH_PORT": ("8081", 8081),
    "MUSTER_AGENT_FULL_LIST_SECONDS": ("30", 30),
    "MUSTER_AGENT_BACKOFF_SECONDS_MAX": ("5", 5),
    "MUSTER_AGENT_LOG_LEVEL": ("DEBUG", "DEBUG"),
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for variable in GIVEN:
        monkeypatch.delenv(variable, raising=False)
    for variable, text in NEEDED.items():
        monkeypatch.setenv(variable, text)
    return monkeypatch


@pytest.mark.parametrize("variable", GIVEN)
def test_a_setting_is_read_from_its_variable(variable: str, environment: pytest.MonkeyPatch) -> None:
    text, value = GIVEN[variable]
    field = variable.removeprefix("MUSTER_AGENT_").lower()
    assert getattr(AgentSettings(), field) != value
    environment.setenv(variable, text)
    assert getattr(AgentSettings(), field) == value


@pytest.mark.parametrize("variable", NEEDED)
def test_an_agent_that_does_not_know_its_plane_or_its_name_does_not_start(
    variable: str, environment: pytest.MonkeyPatch
) -> None:
    environment.delenv(variable)
    with pytest.raises(ValidationError):
        AgentSettings()


def test_a_flag_goes_before_the_environment(environment: pytest.MonkeyPatch) -> None:
    assert AgentSettings(cluster="eu-north").cluster == "eu-north"


@pytest.mark.parametrize("address", ["http://muster.example", "http://10.0.0.7:8441", "ftp://muster.example", "muster"])
def test_plain_http_is_for_loopback_only(address: str, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("MUSTER_AGENT_PLANE_URL", address)
    with pytest.raises(ValidationError, match="plane_url"):
        AgentSettings()


@pytest.mark.parametrize("address", ["http://127.0.0.1:8441", "http://[::1]:8441", "http://localhost:8441"])
def test_loopback_needs_no_certificate(address: str, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("MUSTER_AGENT_PLANE_URL", address)
    assert AgentSettings().plane_url == address
