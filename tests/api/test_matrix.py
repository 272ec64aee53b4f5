"""Who may call what: every route, asked by every role through the real listener, against the one table (`authz`).

What is allowed must get beyond the question who asks; what is not is 403; what is another tenant's is not there.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from controlplane.api.app import ROUTERS
from controlplane.core.facts.tenancy import Role, TokenScope
from controlplane.services.authz import MAY, ROUTES, Action, By, Rule, scope_of
from tests.api.bodies import QUEUES, YAML, workload
from tests.support.api import Api, serving, settings_for
from tests.support.databases import Database

OWN = "research/nlp"
NEVER = {"If-Match": '"no-such-state"'}
CALLERS = ("admin", "lead", "member", "auditor", "stranger", "nobody")
ROLES = {
    "admin": Role.PLATFORM_ADMIN, "lead": Role.TEAM_LEAD, "member": Role.MEMBER, "auditor": Role.AUDITOR,
    "stranger": Role.MEMBER,
}  # fmt: skip
EVERYWHERE = frozenset({"admin", "auditor"})
Ask = Callable[[httpx.Client], httpx.Response]
_numbers = itertools.count(1)


class Outcome(Enum):
    ALLOWED = "allowed"
    REFUSED = "refused"
    HIDDEN = "hidden"


class World:
    """A plane with two tenants, a cluster, and somebody of each role."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.admin = api.client()
        assert self.admin.post("/api/v1/apply", content=QUEUES, headers=YAML).status_code == 200
        assert self.admin.post("/api/v1/clusters", json={"name": "eu-west"}).status_code == 201
        self.clients = {
            "admin": self.admin,
            "lead": api.client(api.token("lena", "team-lead", "research")),
            "member": api.client(api.token("bob", "member", OWN)),
            "auditor": api.client(api.token("ines", "auditor")),
            "stranger": api.client(api.token("sven", "member", "research/vision")),
            "nobody": api.client(api.token("noah", "member", "research/vision")),
        }
        (mine,) = self.admin.get("/api/v1/bindings", params={"principal": "noah"}).json()["items"]
        assert self.admin.delete(f"/api/v1/bindings/{mine['id']}").status_code == 204
        owner = api.client(api.token("ann", "member", OWN))
        self.workload = owner.post("/api/v1/workloads", json=workload()).json()["id"]

    def token(self) -> int:
        """A token of somebody of the tenant, that nobody has ended yet."""
        made = self.admin.post("/api/v1/tokens", json={"principal": "ann", "role": "member", "queue": OWN})
        return int(made.json()["id"])

    def binding(self) -> int:
        """A role in the tenant, that nobody has taken away yet."""
        wanted = {"principal": f"temp-{next(_numbers)}", "role": "member", "queue": OWN}
        return int(self.admin.post("/api/v1/bindings", json=wanted).json()["id"])

    def path(self, route: str) -> str:
        """The route with something that is there in the place of its parameters."""
        number = 1
        if "/tokens/" in route:
            number = self.token()
        elif "/bindings/" in route:
            number = self.binding()
        name = OWN if "/documents/" in route else "eu-west"
        values = {
            "{reference}": self.workload, "{path:path}": OWN, "{name:path}": name, "{name}": name, "{kind}": "Queue",
            "{cluster}": "eu-west", "{number}": str(number), "{pool}": "default",
        }  # fmt: skip
        for part, value in values.items():
            route = route.replace(part, value)
        return route

    def ask(self, client: httpx.Client, method: str, route: str) -> httpx.Response:
        """With a body that means something, and a state that nothing is in, so that what others need stays."""
        headers = {} if method == "GET" else dict(NEVER)
        with client.stream(method, self.path(route), json=BODIES.get((method, route), {}), headers=headers) as answer:
            if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                return httpx.Response(answer.status_code)
            answer.read()
            return answer


BODIES: Mapping[tuple[str, str], Any] = {
    ("POST", "/api/v1/workloads"): workload("again"),
    ("PATCH", "/api/v1/workloads/{reference}"): {"priority": 7},
    ("POST", "/api/v1/queues/{path:path}/move"): {"path": "research/elsewhere"},
    ("PUT", "/api/v1/documents/{kind}/{name:path}"): {
        "apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": OWN}, "spec": {"weight": 9},
    },
    ("POST", "/api/v1/apply"): workload("applied"),
    ("POST", "/api/v1/tokens"): {"principal": "new", "role": "member", "queue": OWN},
    ("POST", "/api/v1/bindings"): {"principal": "new", "role": "member", "queue": OWN},
}  # fmt: skip


@pytest.fixture
def world(database: Database, valkey: str, tmp_path: Path) -> Iterator[World]:
    with serving(settings_for(database, valkey, tmp_path)) as api:
        yield World(api)


def listed() -> set[tuple[str, str]]:
    """Every method and path that the app answers."""
    return {
        (method, route.path)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }


def expected(caller: str, rule: Rule) -> set[Outcome]:
    """What the table says of this caller; the thing that is asked for lies in OWN."""
    if rule.action is None:
        return {Outcome.ALLOWED}
    role = ROLES.get(caller)
    has_role = role is not None and role in MAY[rule.action]
    if rule.by is By.PLANE:
        return {Outcome.ALLOWED if has_role and caller in EVERYWHERE else Outcome.REFUSED}
    if rule.by is By.ANYWHERE:
        # Lists show to whoever has no role that there is nothing for them.
        sees_nothing = role is None and rule.action.endswith(".read")
        return {Outcome.ALLOWED, Outcome.REFUSED} if sees_nothing else _one(is_allowed=has_role)
    is_seen = caller in EVERYWHERE or caller == "lead" or (caller == "member" and rule.by not in {By.TOKEN, By.BINDING})
    if not is_seen:
        return {Outcome.HIDDEN}
    return _one(is_allowed=has_role)


def _one(*, is_allowed: bool) -> set[Outcome]:
    return {Outcome.ALLOWED if is_allowed else Outcome.REFUSED}


def outcome(answer: httpx.Response, rule: Rule) -> Outcome:
    if answer.status_code == 403:
        return Outcome.REFUSED
    # A number or name of the plane may well be missing in this world; a tenant's thing is there.
    if answer.status_code == 404 and rule.by not in {By.PLANE, By.ANYWHERE, By.CALLER}:
        return Outcome.HIDDEN
    assert answer.status_code not in {401, 429, 500, 503}, answer.text
    return Outcome.ALLOWED


def test_every_route_has_a_line_in_the_table_and_every_line_a_route() -> None:
    assert listed() - ROUTES.keys() == set(), "a route without a line is closed"
    assert ROUTES.keys() - listed() == set(), "a line without a route says nothing"


def test_every_action_has_its_roles_and_an_admin_may_do_all() -> None:
    assert set(MAY) == set(Action)
    assert all(Role.PLATFORM_ADMIN in roles for roles in MAY.values())
    assert not [action for action in Action if Role.AUDITOR in MAY[action] and not action.endswith(".read")]
    assert {rule.action for rule in ROUTES.values()} - {None} <= set(Action)


def test_every_route_obeys_the_table_for_every_role(world: World) -> None:
    wrong = []
    for method, route in sorted(listed()):
        rule = ROUTES[method, route]
        for caller in CALLERS:
            if rule.by is By.NOBODY:
                continue
            answer = world.ask(world.clients[caller], method, route)
            if (found := outcome(answer, rule)) not in expected(caller, rule):
                wrong.append(f"{caller}: {method} {route} is {found.value} ({answer.status_code} {answer.text[:200]})")
    assert not wrong, "\n".join(wrong)


def test_a_token_does_no_more_than_its_scope(world: World) -> None:
    wrong = []
    for scope in TokenScope:
        wanted = {"principal": "scoped", "role": "platform-admin", "scopes": [scope]}
        client = world.api.client(world.admin.post("/api/v1/tokens", json=wanted).json()["token"])
        for method, route in sorted(listed()):
            rule = ROUTES[method, route]
            if rule.by is By.NOBODY:
                continue
            answer = world.ask(client, method, route)
            is_narrow = answer.status_code == 403 and answer.json()["type"] == "/problems/scope-too-narrow"
            if is_narrow != (rule.action is not None and scope_of(rule.action) not in scope.holds()):
                wrong.append(f"{scope}: {method} {route} {answer.status_code} {answer.text[:200]}")
            assert scope is not TokenScope.READ or method == "GET" or is_narrow, "read looks only"
    assert not wrong, "\n".join(wrong)


def test_the_document_names_every_line_and_none_else(world: World) -> None:
    document = world.admin.get("/openapi.json").json()
    told = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert told == {(method, path.replace(":path}", "}")) for method, path in ROUTES}
