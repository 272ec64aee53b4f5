"""Nobody without a token, and nobody before the token is known: asked of every route, also of those to come."""

import re
from collections.abc import Iterator

import httpx
from fastapi.routing import APIRoute

from controlplane.api.app import ROUTERS
from controlplane.core.facts.tenancy import Role
from controlplane.services.authz import MAY, Action
from tests.support.api import Api

OPEN = {"/healthz", "/readyz", "/readyz/process", "/metrics"}
VALUES = {"number": "1", "path": "research/nlp"}


def routes() -> Iterator[tuple[str, str]]:
    """Each method and path, with something in the place of its parameters."""
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            path = re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: VALUES.get(found[1], "x"), route.path)
            yield from ((method, path) for method in sorted(route.methods or ()))


def test_every_route_but_the_probes_wants_a_token_before_anything_else(api: Api) -> None:
    client = api.client("")
    asked = [(method, path) for method, path in routes() if path not in OPEN]
    assert len(asked) > 25
    for method, path in asked:
        answer = client.request(method, path, content=b"not even JSON")
        assert answer.status_code == 401, (method, path, answer.text)
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_caller_without_any_role_sees_and_does_nothing(api: Api, tree: httpx.Client) -> None:
    nobody = api.client(api.token("nobody", "member", "research/vision"))
    with api.container.engine.begin() as connection:
        connection.exec_driver_sql(
            "DELETE FROM role_binding USING principal"
            " WHERE principal.id = role_binding.principal_id AND principal.name = 'nobody'"
        )
    for method, path in routes():
        if path in OPEN | {"/api/v1/whoami", "/api/v1/schema/x"}:
            continue
        answer = nobody.request(method, path, json={})
        assert answer.status_code in {403, 404, 422} or answer.json().get("items") == [], (method, path, answer.text)


def test_every_action_has_its_roles_and_an_admin_may_do_all() -> None:
    assert set(MAY) == set(Action)
    assert all(Role.PLATFORM_ADMIN in roles for roles in MAY.values())
    assert Role.AUDITOR not in MAY[Action.WORKLOAD_SUBMIT] | MAY[Action.QUEUE_WRITE] | MAY[Action.CLUSTER_WRITE]
