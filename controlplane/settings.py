"""Every knob of the management plane's processes, typed, read once from the environment.

Policy (what the planner may do) is not here: it is data in Postgres. Each field is set by the
environment variable of its upper-case name with the prefix `MUSTER_`; the two server addresses keep the
names that everybody uses, `DATABASE_URL` and `REDIS_URL`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

Seconds = Annotated[int, Field(ge=1, le=86_400)]
TLS_BROKER, CHECKED = "rediss://", "ssl_cert_reqs"


def _trimmed(given: object) -> object:
    """An address often comes from a file, whose last line ends: a database's name does not."""
    return given.strip() if isinstance(given, str) else given


def _checked(given: object) -> object:
    """Celery's broker client takes any certificate unless the address speaks of that; others would not."""
    if not isinstance(given, str) or not given.startswith(TLS_BROKER) or f"{CHECKED}=" in given:
        return given
    return f"{given}{'&' if '?' in given else '?'}{CHECKED}=required"


def _address_of(*schemes: str) -> Callable[[SecretStr], SecretStr]:
    """Refuses what is no address of such a server, and never repeats it: it may hold a password."""

    def check(given: SecretStr) -> SecretStr:
        try:
            parts = urlsplit(given.get_secret_value())
            _ = parts.port  # raises where it is no number
        except ValueError:
            parts = urlsplit("")
        if parts.scheme.partition("+")[0] not in schemes:
            raise ValueError(f"not an address of the form {schemes[0]}://HOST[:PORT]/NAME")
        return given

    return check


Address = Annotated[SecretStr, BeforeValidator(_trimmed), AfterValidator(_address_of("postgresql", "postgres"))]
BrokerAddress = Annotated[  # the last of those before comes first
    SecretStr,
    BeforeValidator(_checked),
    BeforeValidator(_trimmed),
    AfterValidator(_address_of("redis", "rediss")),
]


class Settings(BaseSettings):
    """What a process of the plane needs to know before it can ask the database."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_", extra="ignore", frozen=True)

    database_url: Address = Field(validation_alias=AliasChoices("DATABASE_URL", "MUSTER_DATABASE_URL"))
    redis_url: BrokerAddress = Field(validation_alias=AliasChoices("REDIS_URL", "MUSTER_REDIS_URL"))
    database_role: str = Field(default="", description="Role that each connection takes by SET ROLE; empty: none.")
    database_pool_size: int = Field(default=8, ge=1, le=200)

    api_host: str = "127.0.0.1"
    api_port: int = Field(default=8440, ge=0, le=65535)
    agent_host: str = "127.0.0.1"
    agent_port: int = Field(default=8441, ge=0, le=65535)
    agent_url: str = Field(default="", description="The agents' listener as they know it; empty: from host and port.")
    tls_cert_file: Path | None = Field(default=None, description="Both listeners speak TLS with this chain (PEM).")
    tls_key_file: Path | None = Field(default=None, description="Its private key (PEM); both are read again.")
    body_bytes_max: int = Field(default=1_048_576, ge=1_024, le=16_777_216)
    body_seconds: Seconds = Field(default=30, description="How long a request's head, then its body, may take to come.")
    requests_per_second: int = Field(default=500, ge=1, le=100_000, description="Of one principal, in each process.")
    requests_burst: int = Field(default=1_000, ge=1, le=1_000_000, description="The same, at once after a silence.")
    streams_max: int = Field(default=200, ge=1, le=10_000, description="Streams of events open at once, each process.")
    streams_per_principal: int = Field(default=10, ge=1, le=10_000, description="Of these, those of one principal.")
    secrets_dir: Path | None = Field(default=None, description="Folder of the plane's signing key; the API needs it.")

    # No longer than the agents' protocol lets them wait: contract/agent/sync.py.
    poll_seconds: int = Field(
        default=25, ge=1, le=60, description="The longest that an agent's sync waits for directives."
    )
    lease_seconds: Seconds = Field(default=60, description="How long an agent's Session may act after a reply.")
    planner_lease_seconds: Seconds = Field(default=3, description="How long a planner owns its Pool unrenewed.")
    sweep_seconds: Seconds = Field(default=2, description="Pause between two sweeps of the due rows.")
    worker_concurrency: int = Field(default=1, ge=1, le=64, description="Threads of a worker; planners have one.")
    cycle_base_every: int = Field(default=200, ge=1, le=100_000, description="Cycles between two stored bases.")
    cycle_retention_hours: int = Field(default=72, ge=1, le=8_760)
    metrics_port: int = Field(default=0, ge=0, le=65535, description="Of a worker's or planner's metrics; 0: none.")
    health_host: str = Field(default="127.0.0.1", description="Where a worker, planner or beat answers probes.")
    health_port: int = Field(default=0, ge=0, le=65535, description="Of /livez, /readyz and /metrics; 0: none.")
    log_level: str = "INFO"

    @model_validator(mode="after")
    def _certificate_and_key_come_together(self) -> Self:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("MUSTER_TLS_CERT_FILE and MUSTER_TLS_KEY_FILE: give both or neither")
        return self

    def agent_audience(self) -> str:
        """The external address of the agents' listener; signed requests name it as their audience."""
        scheme = "https" if self.tls_cert_file else "http"
        return self.agent_url or f"{scheme}://{self.agent_host}:{self.agent_port}"


class SettingsUnusable(Exception):
    """The environment does not say what a process needs; its text names each variable, in one line."""


def settings_of_environment() -> Settings:
    """What the environment says; raises SettingsUnusable."""
    try:
        return Settings()
    except ValidationError as error:
        problems = [(_variable(each["loc"]), each["type"], each["msg"]) for each in error.errors()]
    missing = [variable for variable, kind, _ in problems if kind == "missing"]
    wrong = [
        f"{variable}: {message.removeprefix('Value error, ')}".removeprefix(": ")
        for variable, kind, message in problems
        if kind != "missing"
    ]
    raise SettingsUnusable("; ".join([f"not set: {', '.join(missing)}"] * bool(missing) + wrong))


def _variable(place: tuple[int | str, ...]) -> str:
    """The variable of a field that was found wrong; "" for one that is not a single field's."""
    name = str(place[0]) if place else ""
    return f"MUSTER_{name.upper()}" if name in Settings.model_fields else name
