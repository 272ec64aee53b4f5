"""Tokens and roles over real HTTP: made, narrowed, bounded by who made them, listed, ended; cursors and rates."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from controlplane.api.limits import CallerLimits
from controlplane.services.errors import TooMany
from tests.api.bodies import YAML, workload
from tests.support.api import Api, serving, settings_for
from tests.support.databases import Database

TOKENS, BINDINGS = "/api/v1/tokens", "/api/v1/bindings"


def made(client: httpx.Client, **wanted: object) -> dict[str, Any]:
    answer = client.post(TOKENS, json={"principal": "ada", "queue": "research/nlp", **wanted})
    assert answer.status_code == 201, answer.text
    token: dict[str, Any] = answer.json()
    return token


def slug(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].removeprefix("/problems/")


def test_a_token_is_shown_once_lives_ninety_days_and_is_stored_as_a_hash(api: Api, tree: httpx.Client) -> None:
    token = made(tree, name="laptop")
    left = datetime.fromisoformat(token["expiresAt"]) - datetime.now(UTC)
    assert timedelta(days=89) < left <= timedelta(days=90)
    assert api.client(token["token"]).get("/api/v1/whoami").json() == {
        "principal": "ada", "kind": "person", "roles": ["member of research/nlp"],
        "scopes": ["admin", "read", "submit"], "token": token["id"], "expiresAt": token["expiresAt"],
    }  # fmt: skip
    (line,) = tree.get(TOKENS, params={"principal": "ada"}).json()["items"]
    assert (line["id"], line["name"], line["scopes"], line["createdBy"]) == (
        token["id"], "laptop", ["admin"], "person:admin",
    )  # fmt: skip
    with api.container.engine.connect() as connection:
        for table in ("api_token", "audit", "idempotency_key"):
            rows = connection.exec_driver_sql(f"SELECT {table}::text FROM {table}").scalars().all()
            assert not [row for row in rows if token["token"] in row], table


def test_its_end_can_be_said_and_is_a_year_away_at_most(api: Api, tree: httpx.Client) -> None:
    short = made(tree, expiresIn="1h")
    assert datetime.fromisoformat(short["expiresAt"]) - datetime.now(UTC) < timedelta(hours=1)
    for wrong in ("367d", "0s", "soon", -1):
        answer = tree.post(TOKENS, json={"principal": "ada", "expiresIn": wrong})
        assert slug(answer) == (422, "invalid-quantity"), wrong
    with api.container.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE api_token SET expires_at = now() WHERE id = %s", (short["id"],))
    assert slug(api.client(short["token"]).get("/api/v1/whoami")) == (401, "invalid-token")
    assert [each["id"] for each in tree.get(TOKENS, params={"principal": "ada"}).json()["items"]] == []
    assert [each["id"] for each in tree.get(TOKENS, params={"principal": "ada", "ended": "true"}).json()["items"]]


def test_the_day_of_its_last_use_is_written_once_a_day(api: Api, tree: httpx.Client) -> None:
    token = made(tree)
    client = api.client(token["token"])

    def written() -> tuple[str, str]:
        with api.container.engine.connect() as connection:
            row = connection.exec_driver_sql(
                "SELECT last_used_on::text, xmin::text FROM api_token WHERE id = %s", (token["id"],)
            ).one()
        return row[0], row[1]

    assert written()[0] is None
    assert client.get("/api/v1/whoami").status_code == 200
    first = written()
    assert first[0] == datetime.now(UTC).date().isoformat()
    for _ in range(5):
        client.get("/api/v1/whoami")
    assert written() == first
    (line,) = client.get(TOKENS).json()["items"]
    assert line["lastUsedOn"] == first[0]


def test_the_same_key_makes_one_token_whose_text_is_not_told_again(tree: httpx.Client) -> None:
    key = {"Idempotency-Key": "one-token"}
    wanted = {"principal": "ci", "kind": "service", "role": "member", "queue": "research/nlp", "scopes": ["submit"]}
    first = tree.post(TOKENS, json=wanted, headers=key).json()
    again = tree.post(TOKENS, json=wanted, headers=key)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json() == {**first, "token": ""}
    assert len(tree.get(TOKENS, params={"kind": "service"}).json()["items"]) == 1


def test_a_revoked_token_is_over_at_once_and_its_bearer_may_end_it_too(api: Api, tree: httpx.Client) -> None:
    mine, others = made(tree), made(tree, principal="bob")
    client = api.client(mine["token"])
    assert client.delete(f"{TOKENS}/{others['id']}").status_code == 404, "another's is not there"
    assert client.delete(f"{TOKENS}/{mine['id']}").status_code == 204
    assert slug(client.get("/api/v1/whoami")) == (401, "invalid-token")
    assert tree.delete(f"{TOKENS}/{mine['id']}").status_code == 404, "it has ended already"
    for number in ("0", "-1", "x", "9" * 30):
        assert tree.delete(f"{TOKENS}/{number}").status_code == 400, number


def test_a_lead_gives_what_lies_below_its_own_right(api: Api, tree: httpx.Client) -> None:
    lead = api.client(api.token("lena", "team-lead", "research"))
    assert made(lead, role="member")["within"] == "research"
    assert made(lead, principal="deputy", role="team-lead")["within"] == "research"
    for wanted in (
        {"role": "platform-admin"},
        {"role": "team-lead", "queue": "research"},
        {"role": "member", "queue": None},
    ):
        for path in (TOKENS, BINDINGS):
            answer = lead.post(path, json={"principal": "eve", "queue": "research/nlp", **wanted})
            assert slug(answer) == (403, "forbidden"), (path, wanted)
    stranger = api.client(api.token("sven", "team-lead", "research/vision"))
    for path in (TOKENS, BINDINGS):
        answer = stranger.post(path, json={"principal": "eve", "role": "member", "queue": "research/nlp"})
        assert slug(answer) == (422, "queue-unknown"), "another tenant's queue is not there"


def test_a_token_that_a_lead_made_reaches_no_further_than_the_lead(api: Api, tree: httpx.Client) -> None:
    lead = api.client(api.token("lena", "team-lead", "research/nlp"))
    eve = api.client(made(lead, principal="eve")["token"])
    for role, queue in (("platform-admin", None), ("member", "research/vision"), ("auditor", None)):
        assert tree.post(BINDINGS, json={"principal": "eve", "role": role, "queue": queue}).status_code == 201
    assert eve.get("/api/v1/whoami").json()["roles"] == ["member of research/nlp", "auditor of research/nlp"]
    assert eve.get("/api/v1/queues/research/vision").status_code == 404
    assert eve.get("/api/v1/doctor").status_code == 403
    refused = lead.post(TOKENS, json={"principal": "eve", "role": "member", "queue": "research/nlp"})
    assert slug(refused) == (403, "forbidden"), "who has roles elsewhere gets tokens from an administrator"
    assert "research/nlp" in refused.json()["detail"]


def test_everybody_sees_the_own_tokens_and_roles_a_lead_the_subtrees_an_auditor_all(
    api: Api, tree: httpx.Client
) -> None:
    ada, lead, auditor = (
        api.client(api.token(name, role, queue))
        for name, role, queue in (
            ("ada", "member", "research/nlp"), ("lena", "team-lead", "research/nlp"), ("ines", "auditor", None),
        )
    )  # fmt: skip
    api.token("sven", "member", "research/vision")
    for path, owners in ((TOKENS, "principal"), (BINDINGS, "principal")):
        seen = [{each[owners] for each in client.get(path).json()["items"]} for client in (ada, lead, auditor)]
        assert seen == [{"ada"}, {"ada", "lena"}, {"admin", "ada", "lena", "ines", "sven"}], path
    assert {each["queue"] for each in auditor.get(BINDINGS, params={"queue": "research"}).json()["items"]} == {
        "research/nlp", "research/vision",
    }  # fmt: skip


def test_a_role_is_given_once_and_counts_from_the_next_request_on(api: Api, tree: httpx.Client) -> None:
    ada = api.client(api.token("ada", "member", "research/nlp"))
    assert ada.get("/api/v1/queues/research/vision").status_code == 404
    wanted = {"principal": "ada", "role": "member", "queue": "research/vision"}
    first, second = tree.post(BINDINGS, json=wanted), tree.post(BINDINGS, json=wanted)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    assert ada.get("/api/v1/queues/research/vision").status_code == 200
    assert tree.delete(f"{BINDINGS}/{first.json()['id']}").status_code == 204
    assert ada.get("/api/v1/queues/research/vision").status_code == 404
    assert tree.delete(f"{BINDINGS}/{first.json()['id']}").status_code == 404
    told = tree.get("/api/v1/audit", params={"object": "person:ada"}).json()["items"]
    assert [line["action"] for line in told] == ["binding.delete", "binding.create", "token.create"]


def test_the_last_administrator_stays(tree: httpx.Client) -> None:
    (binding,) = tree.get(BINDINGS, params={"role": "platform-admin"}).json()["items"]
    assert slug(tree.delete(f"{BINDINGS}/{binding['id']}")) == (409, "last-admin")
    assert tree.post(BINDINGS, json={"principal": "zoe", "role": "platform-admin"}).status_code == 201
    assert tree.delete(f"{BINDINGS}/{binding['id']}").status_code == 204


def test_the_last_token_of_an_administrator_stays(api: Api, tree: httpx.Client) -> None:
    (last,) = tree.get(TOKENS, params={"principal": "admin"}).json()["items"]
    made(tree)
    admin: dict[str, Any] = {"principal": "zoe", "role": "platform-admin", "queue": None}
    reads = made(tree, **admin, scopes=["read"])
    refused = tree.delete(f"{TOKENS}/{last['id']}")
    assert slug(refused) == (409, "last-admin")
    assert f"token {last['id']} is the last" in refused.json()["detail"]
    assert tree.delete(f"{TOKENS}/{reads['id']}").status_code == 204, "it could not have administered anything"
    zoe = api.client(made(tree, **admin)["token"])
    assert zoe.delete(f"{TOKENS}/{last['id']}").status_code == 204


def test_a_wrong_question_about_people_is_refused_by_field(tree: httpx.Client) -> None:
    for wanted, told in (
        ({"principal": "Ada"}, "invalid-name"),
        ({"principal": "ada", "role": "king"}, "invalid-value"),
        ({"principal": "ada", "kind": "agent"}, "invalid-value"),
        ({"principal": "ada", "scopes": ["write"]}, "invalid-value"),
        ({"principal": "ada", "scopes": ["read", "read"]}, "invalid-value"),
        ({"principal": "ada", "colour": "red"}, "unknown-field"),
        ({"principal": "ada", "queue": "nowhere"}, "queue-unknown"),
        ({}, "missing-field"),
    ):
        answer = tree.post(TOKENS, json=wanted)
        assert answer.status_code == 422, wanted
        assert answer.json()["errors"][0]["slug"] == told, wanted
    assert tree.post(BINDINGS, json={"principal": "ada"}).status_code == 422
    assert tree.get(TOKENS, params={"kind": "agent"}).status_code == 400


def test_a_cursor_is_good_for_its_list_its_filter_and_what_its_caller_may_see(api: Api, tree: httpx.Client) -> None:
    for name in ("a", "b", "c"):
        tree.post("/api/v1/workloads", json=workload(name, pod_set={"replicas": 1}))
    ada = api.client(api.token("ada", "member", "research/nlp"))
    bob = api.client(api.token("bob", "member", "research/nlp"))
    sven = api.client(api.token("sven", "member", "research/vision"))
    cursor = ada.get("/api/v1/workloads", params={"limit": 1}).json()["next"]
    assert ada.get("/api/v1/workloads", params={"limit": 1, "cursor": cursor}).status_code == 200
    assert bob.get("/api/v1/workloads", params={"cursor": cursor}).status_code == 200, "he sees the same"
    changed = cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")
    for client, path, asked in (
        (sven, "/api/v1/workloads", {"cursor": cursor}),
        (tree, "/api/v1/workloads", {"cursor": cursor}),
        (ada, "/api/v1/nodes", {"cursor": cursor}),
        (ada, "/api/v1/workloads", {"cursor": cursor, "state": "pending"}),
        (ada, "/api/v1/workloads", {"cursor": changed}),
        (ada, "/api/v1/workloads", {"cursor": ""}),
        (ada, "/api/v1/workloads", {"cursor": "é" * 20}),
    ):
        assert slug(client.get(path, params=asked)) == (400, "invalid-cursor"), asked


def test_who_asks_too_often_waits_with_all_its_tokens_and_others_do_not(
    database: Database, valkey: str, tmp_path: Path
) -> None:
    settings = settings_for(database, valkey, tmp_path, requests_per_second=1, requests_burst=20)
    with serving(settings) as api:
        first, second = (api.client(api.token("eager", "auditor")) for _ in range(2))
        answers = [client.get("/api/v1/whoami") for _ in range(15) for client in (first, second)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert answers[0].status_code == 200
        assert refused
        assert slug(refused[0]) == (429, "rate-limited")
        assert refused[0].headers["Retry-After"] == "1"
        assert api.client().get("/api/v1/whoami").status_code == 200


def test_a_bucket_fills_with_time_and_belongs_to_a_principal() -> None:
    now = [0.0]
    limits = CallerLimits(per_second=2, burst=2, clock=lambda: now[0])

    def asks(token: str, owner: str) -> bool:
        try:
            limits.before(token)
            limits.known(token, owner)
        except TooMany:
            return False
        return True

    assert [asks("one", "ada"), asks("two", "ada"), asks("one", "ada"), asks("x", "bob")] == [True, True, False, True]
    now[0] = 1.0
    assert [asks("two", "ada") for _ in range(3)] == [True, True, False]


def test_a_lead_divides_what_its_queues_own_and_gives_no_more(api: Api, tree: httpx.Client) -> None:
    lead = api.client(api.token("lena", "team-lead", "research"))

    def queue(path: str, nominal: int, **more: object) -> dict[str, object]:
        spec: dict[str, object] = {"quotas": [{"flavor": "nvidia-h100-80gb", "nominal": nominal}], **more}
        return {"apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": path}, "spec": spec}

    def put(*documents: dict[str, object]) -> httpx.Response:
        return lead.post("/api/v1/apply", json=list(documents))

    smaller = queue("research/nlp", 96, namespace="nlp")
    more = put(smaller, queue("research/new", 33))
    assert slug(more) == (403, "quota-not-granted")
    assert "own 192 nvidia-h100-80gb together, and 193 are asked for" in more.json()["detail"]
    assert put(smaller, queue("research/new", 32)).status_code == 200, "what one gives up another one gets"
    assert slug(put(queue("research/new", 32, namespace="kube-admin"))) == (422, "namespace-not-granted")
    assert slug(put(queue("research", 1_000))) == (403, "forbidden")
    assert slug(put(queue("sales", 1))) == (403, "forbidden")
    etag = {"If-Match": "*"}
    assert lead.delete("/api/v1/queues/research/new", headers=etag).status_code == 204
    assert slug(lead.delete("/api/v1/queues/research", headers=etag)) == (403, "forbidden")
    policy = "apiVersion: muster.dev/v1\nkind: Policy\nmetadata: {name: default}\nspec: {reclaim: false}\n"
    assert slug(lead.post("/api/v1/apply", content=policy, headers=YAML)) == (403, "forbidden")
