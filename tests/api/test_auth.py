"""Nobody without a token, and nobody before the token is known: asked of every route, also of those to come."""

import re
from collections.abc import Iterator

from fastapi.routing import APIRoute

from controlplane.api.app import ROUTERS
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
