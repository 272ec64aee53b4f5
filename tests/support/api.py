"""The API over real HTTP, on free ports, in a thread of the test's process: Postgres and Valkey are real too."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from controlplane.api.serve import Listeners, listeners
from controlplane.bootstrap import Container, build_container, first_admin_token
from controlplane.contract.rest.people import TokenCreate
from controlplane.services import tokens
from controlplane.services.authz import Caller
from controlplane.services.ports.unit_of_work import run
from controlplane.settings import Settings
from tests.support.databases import Database
from tests.support.waiting import eventually


@dataclass(frozen=True, slots=True)
class Api:
    """A plane's API, listening."""

    container: Container
    url: str
    agent_url: str
    admin_token: str
    clients: dict[str, httpx.Client] = field(default_factory=dict)

    def client(self, token: str | None = None) -> httpx.Client:
        """A client that bears the admin's token, or another one; "" bears none. One per token, closed at the end."""
        bearer = self.admin_token if token is None else token
        if bearer not in self.clients:
            headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
            # Plain HTTP on the loopback; loading certificates would take longer than most tests.
            self.clients[bearer] = httpx.Client(
                base_url=self.url, headers=headers, timeout=20, trust_env=False, verify=False
            )
        return self.clients[bearer]

    def token(self, principal: str, role: str, queue: str | None = None) -> str:
        """A token for somebody else."""
        wanted = TokenCreate.model_validate({"principal": principal, "role": role, "queue": queue})
        with self.container.uow_factory() as uow:
            admin = uow.tenancy.principal("person", tokens.FIRST_ADMIN)
        assert admin is not None
        return run(self.container.uow_factory, lambda uow: tokens.create(uow, Caller(admin), wanted)).token


def settings_for(database: Database, valkey: str, secrets: Path, **others: object) -> Settings:
    """What a process would read from its environment."""
    given = {
        "DATABASE_URL": database.url,
        "REDIS_URL": valkey,
        "database_role": database.app_role,
        "api_port": 0,
        "agent_port": 0,
        "secrets_dir": secrets,
        **others,
    }
    return Settings.model_validate(given)


@contextmanager
def serving(settings: Settings) -> Iterator[Api]:
    """Both listeners, until the block ends."""
    token = first_admin_token(settings)
    container = build_container(settings)
    both = listeners(container)
    thread = threading.Thread(target=lambda: asyncio.run(both.serve()), name="api", daemon=True)
    thread.start()
    try:
        eventually(lambda: both.people.started and both.agents.started, within=20, what="both listeners")
        api = Api(container, _url(both, agents=False), _url(both, agents=True), token)
        try:
            yield api
        finally:
            for client in api.clients.values():
                client.close()
    finally:
        both.stop()
        thread.join(timeout=30)
        container.close()
    assert not thread.is_alive(), "the API did not end when it was asked to"


def _url(both: Listeners, *, agents: bool) -> str:
    server = both.agents if agents else both.people
    port = server.servers[0].sockets[0].getsockname()[1]
    return f"{'https' if server.config.is_ssl else 'http'}://127.0.0.1:{port}"
