"""Who called a moment ago is not looked up again, and nobody's ended token works for more than a second."""

import threading

import httpx
import psycopg

from controlplane.api.callers import AGE_MAX_SECONDS, RecentCallers
from controlplane.core.facts.tenancy import Principal
from tests.support.api import Api
from tests.support.databases import Database
from tests.support.waiting import eventually

WAITING = """SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'"""
ANN = Principal(1, "person", "ann")


def test_a_caller_is_remembered_for_a_second_and_no_longer() -> None:
    now = [100.0]
    callers = RecentCallers(lambda: now[0])
    callers.keep("mst_one", ANN, callers.ticket())
    now[0] += AGE_MAX_SECONDS - 0.01
    assert callers.get("mst_one") == ANN
    assert callers.get("mst_other") is None
    now[0] += 0.01
    assert callers.get("mst_one") is None


def test_a_token_that_is_revoked_here_is_refused_at_once(api: Api) -> None:
    token = api.token("ada", "member")
    assert api.client(token).get("/api/v1/whoami").status_code == httpx.codes.OK
    listed = api.client().get("/api/v1/tokens").json()["items"]
    number = next(each["id"] for each in listed if each["principal"] == "ada")
    ended = api.client().delete(f"/api/v1/tokens/{number}", headers={"If-Match": "*"})
    assert ended.status_code == httpx.codes.NO_CONTENT, ended.text
    assert api.client(token).get("/api/v1/whoami").status_code == httpx.codes.UNAUTHORIZED


def test_a_token_that_another_process_revoked_is_refused_soon(api: Api) -> None:
    token = api.token("ada", "member")
    assert api.client(token).get("/api/v1/whoami").status_code == httpx.codes.OK
    with api.container.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE api_token SET revoked_at = now() WHERE scopes IS NOT NULL AND id > 1")
    eventually(
        lambda: api.client(token).get("/api/v1/whoami").status_code == httpx.codes.UNAUTHORIZED,
        within=10,
        what="the token's end",
    )


def test_what_was_looked_up_before_rights_changed_is_not_kept_afterwards() -> None:
    callers = RecentCallers(lambda: 100.0)
    before = callers.ticket()
    callers.changing()
    callers.keep("mst_one", ANN, before)
    assert callers.get("mst_one") is None
    meanwhile = callers.ticket()
    callers.changed()
    for ticket in (before, meanwhile):
        callers.keep("mst_one", ANN, ticket)
        assert callers.get("mst_one") is None
    callers.keep("mst_one", ANN, callers.ticket())
    assert callers.get("mst_one") == ANN


def test_how_long_a_look_took_counts() -> None:
    now = [100.0]
    callers = RecentCallers(lambda: now[0])
    ticket = callers.ticket()
    now[0] += AGE_MAX_SECONDS
    callers.keep("mst_one", ANN, ticket)
    assert callers.get("mst_one") is None


def test_a_token_that_was_used_while_it_was_being_revoked_is_refused_at_once(api: Api, database: Database) -> None:
    token = api.token("ada", "member")
    reader, admin = api.client(token), api.client()
    number = reader.get("/api/v1/whoami").json()["token"]
    ended: list[int] = []
    revoke = threading.Thread(target=lambda: ended.append(admin.delete(f"/api/v1/tokens/{number}").status_code))
    with psycopg.connect(database.superuser_url) as other:
        other.execute("SELECT FROM api_token WHERE id = %s FOR UPDATE", (number,))
        revoke.start()
        with psycopg.connect(database.superuser_url, autocommit=True) as watch:
            eventually(lambda: watch.execute(WAITING).fetchone() == (1,), within=10, what="the revocation waits")
        assert reader.get("/api/v1/whoami").status_code == httpx.codes.OK
    revoke.join(10)
    assert ended == [httpx.codes.NO_CONTENT]
    assert reader.get("/api/v1/whoami").status_code == httpx.codes.UNAUTHORIZED
