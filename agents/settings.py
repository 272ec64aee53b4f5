"""Every knob of the agent, typed, read once from the environment (`MUSTER_AGENT_…`); flags of the command overrule it.

Time-outs that both sides must agree on are not here: they stand in the Cluster's document and come with `hello`.
"""

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class AgentSettings(BaseSettings):
    """What an agent needs to know before it can ask its plane or its cluster."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_AGENT_", extra="ignore", frozen=True)

    plane_url: str = Field(description="The plane's listener for agents: https, or http on loopback.")
    cluster: str = Field(description="The name of the Cluster as the plane's administrator made it.")
    token_file: Path | None = Field(default=None, description="The one-time enrolment token; read again if it changes.")
    ca_file: Path | None = Field(
        default=None, description="Trust these certificates for the plane; absent: the system's."
    )
    namespace: str = Field(default="muster-system", description="Where the agent's own Secret and Lease are.")
    policy_file: Path | None = Field(default=None, description="The local policy; absent: the strict defaults.")
    state_dir: Path | None = Field(default=None, description="Keep the key in a file here instead of in a Secret.")
    instance: str = Field(default="", description="This replica's name; absent: the host name and chance.")
    lease: bool = Field(default=True, description="Elect one writer among replicas by a Lease.")
    speed: Annotated[float, Field(gt=0, le=10_000)] = Field(default=1.0, description="Of a simulated cluster's time.")
    control_port: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        default=None, description="Loopback port where a simulated cluster takes faults; 0: any free one."
    )
    health_port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=0, description="Answer probes on this port of all interfaces; 0: none."
    )
    full_list_seconds: Seconds = Field(default=600, description="Send every observation again this often.")
    backoff_seconds_max: Seconds = Field(default=60, description="The longest pause after failed requests.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @model_validator(mode="after")
    def _is_private(self) -> Self:
        parts = urlsplit(self.plane_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("plane_url must be an https address")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ValueError("plane_url: plain http is for loopback only, use https")
        return self


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
