"""Who called a moment ago is not looked up again, and nobody's ended token works for more than a second."""

import httpx

from controlplane.api.callers import AGE_MAX_SECONDS, RecentCallers
from controlplane.core.facts.tenancy import Principal
from tests.support.api import Api
from tests.support.waiting import eventually

ANN = Principal(1, "person", "ann")


def test_a_caller_is_remembered_for_a_second_and_no_longer() -> None:
    now = [100.0]
    callers = RecentCallers(lambda: now[0])
    callers.keep("mst_one", ANN)
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
