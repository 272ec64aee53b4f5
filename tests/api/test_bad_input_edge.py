"""Requests that are wrong before anybody looks at their meaning: size, time, form, method, over real sockets.

Both listeners stand behind the same edge, so what matters to it is asked of both.
"""

import gzip
import json
from collections.abc import Iterator

import httpx
import pytest

from controlplane.embedded.postgres import Postgres
from controlplane.embedded.valkey import Valkey
from tests.api.bodies import workload
from tests.api.refusals import JSON, RawAnswer, assert_problem, line_to, refusing
from tests.support.api import Api

BODY_MAX = 65_536
SUBMIT = "/api/v1/workloads"


@pytest.fixture(scope="module")
def api(
    postgres: Postgres, migrated: str, valkey_server: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    """One for the module, which waits a second for what does not come, and takes small bodies."""
    with refusing(postgres, migrated, valkey_server, tmp_path_factory, body_seconds=1, body_bytes_max=BODY_MAX) as api:
        yield api


@pytest.fixture(params=["people", "agents"])
def door(api: Api, request: pytest.FixtureRequest) -> tuple[str, bytes]:
    """Where to knock, and the first two lines of a request with a body."""
    is_for_people = request.param == "people"
    path = SUBMIT if is_for_people else "/agent/v1/hello"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    if is_for_people:
        head += f"Authorization: Bearer {api.admin_token}\r\n"
    return api.url if is_for_people else api.agent_url, head.encode()


def asked(url: str, *parts: bytes) -> RawAnswer:
    """What is answered to exactly this."""
    with line_to(url) as line:
        line.say(*parts)
        return line.hear()


def test_a_body_of_a_gibibyte_is_refused_by_its_length_before_it_is_read(door: tuple[str, bytes]) -> None:
    url, head = door
    answer = asked(url, head, b"Content-Length: 1073741824\r\n\r\n")  # and nothing of it is sent
    assert (answer.status, answer.slug) == (413, "body-too-large")
    assert str(BODY_MAX) in json.loads(answer.body)["detail"]


def test_a_body_in_chunks_without_end_is_refused_at_the_limit_and_hung_up_on(door: tuple[str, bytes]) -> None:
    url, head = door
    piece = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
    with line_to(url) as line:
        line.say(head, b"Transfer-Encoding: chunked\r\n\r\n")
        line.say(piece * (2 * BODY_MAX // 0x1000))
        answer = line.hear()
        assert (answer.status, answer.slug, answer.headers["connection"]) == (413, "body-too-large", "close")
        assert line.is_hung_up()


def test_a_gzip_bomb_is_not_inflated_because_nothing_ever_is(door: tuple[str, bytes]) -> None:
    url, head = door
    bomb = gzip.compress(b" " * 10_000_000)
    answer = asked(url, head, f"Content-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n".encode(), bomb)
    assert (answer.status, answer.slug) == (415, "unsupported-encoding")
    assert answer.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "application/xml", ""])
def test_a_body_of_another_type_is_refused(api: Api, kind: str) -> None:
    headers = {"Content-Type": kind}
    answer = api.client().post(SUBMIT, content=b"{}", headers=headers)
    problem = assert_problem(answer, 415, "unsupported-media-type")
    assert "application/json" in problem["detail"]
    with httpx.Client(base_url=api.agent_url, trust_env=False, verify=False) as agent:
        assert_problem(agent.post("/agent/v1/enrol", content=b"{}", headers=headers), 415, "unsupported-media-type")


def test_a_body_that_drips_in_is_given_up(door: tuple[str, bytes]) -> None:
    url, head = door
    with line_to(url) as line:
        line.say(head, b"Content-Length: 100\r\n\r\n{")  # and then nothing more
        answer = line.hear()
        assert (answer.status, answer.slug, answer.headers["connection"]) == (408, "request-timeout", "close")
        assert line.is_hung_up()


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_a_head_that_drips_in_is_given_up(door: tuple[str, bytes], begun: bytes) -> None:
    with line_to(door[0]) as line:
        line.say(begun)
        answer = line.hear()
        assert (answer.status, answer.slug) == (408, "request-timeout")
        assert line.is_hung_up()


def test_a_connection_that_is_kept_is_given_its_time_anew(api: Api) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
    with line_to(api.url) as line:
        line.say(ask, b"\r\n")
        assert line.hear().status == 200
        line.say(ask)  # the second head never ends
        assert line.hear().status == 408


@pytest.mark.parametrize("size", [100_000, 300_000])
def test_a_head_without_measure_is_refused(door: tuple[str, bytes], size: int) -> None:
    answer = asked(door[0], b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ", b"a" * size)
    assert (answer.status, answer.slug) == (431, "head-too-large")


def test_a_length_beside_chunks_is_refused_and_hung_up_on(door: tuple[str, bytes]) -> None:
    """Two servers that read such a request differently could be made to see two different requests."""
    url, head = door
    with line_to(url) as line:
        line.say(head, b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n")
        answer = line.hear()
        assert (answer.status, answer.slug, answer.headers["connection"]) == (400, "malformed-http", "close")
        assert line.is_hung_up()


@pytest.mark.parametrize(
    "text",
    [
        b"hello\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost : x\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
    ],
)
def test_what_is_no_http_is_a_problem_too(door: tuple[str, bytes], text: bytes) -> None:
    answer = asked(door[0], text)
    assert (answer.status, answer.slug) == (400, "malformed-http")
    assert len(answer.headers["x-request-id"]) == 32


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "BREW"])
def test_a_method_that_a_list_does_not_have_is_told_which_it_has(api: Api, method: str) -> None:
    answer = api.client().request(method, SUBMIT)
    if method == "BREW":  # the parser knows no such verb
        assert_problem(answer, 400, "malformed-http")
        return
    assert_problem(answer, 405, "method-not-allowed")
    assert {"GET", "POST"} <= {each.strip() for each in answer.headers["allow"].split(",")}


def test_no_header_turns_one_method_into_another(api: Api) -> None:
    headers = {"X-HTTP-Method-Override": "DELETE", "X-HTTP-Method": "DELETE", "X-Method-Override": "DELETE"}
    assert api.client().get("/api/v1/queues/research", headers=headers).status_code == 200
    assert api.client().get("/api/v1/queues/research").status_code == 200, "it is still there"


@pytest.mark.parametrize("query", ["limit=1&limit=9", "limit=9&limit=9", "cursor=&cursor=", "nonsense=1&nonsense=1"])
def test_a_parameter_given_twice_is_refused(api: Api, query: str) -> None:
    problem = assert_problem(api.client().get(f"{SUBMIT}?{query}"), 400, "duplicate-parameter")
    assert query.partition("=")[0] in problem["detail"]


@pytest.mark.parametrize("path", ["/rebalance?pool=a%00b", "/workloads?name=%00", "/queues/a%00b", "/workloads/%00"])
def test_a_nul_in_a_path_or_parameter_never_gets_as_far_as_the_database(api: Api, path: str) -> None:
    assert_problem(api.client().get(f"/api/v1{path}"), 400, "invalid-parameter")


@pytest.mark.parametrize("scheme", ["", "Bearer", "Basic YTpi", "Token x", "AgentPoP x"])
def test_who_shows_no_token_is_told_how_to(api: Api, scheme: str) -> None:
    answer = api.client("").get(SUBMIT, headers={"Authorization": scheme} if scheme else {})
    assert_problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("key", [b"", b"k" * 1_024, b"a b", "\N{LLAMA}".encode(), b"\xff"])
def test_an_idempotency_key_is_a_short_word(api: Api, key: bytes) -> None:
    body = json.dumps(workload()).encode()
    head = f"POST {SUBMIT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.admin_token}\r\n".encode()
    length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n".encode()
    answer = asked(api.url, head, length, b"Idempotency-Key: " + key + b"\r\n\r\n", body)
    assert (answer.status, answer.slug) == (400, "invalid-idempotency-key")


def test_a_refused_request_leaves_its_connection_good_for_the_next(api: Api) -> None:
    client = api.client()
    assert_problem(client.post(SUBMIT, content=b"{", headers=JSON), 400, "malformed-json")
    assert_problem(client.post(SUBMIT, content=b"", headers=JSON), 400, "empty-body")
    assert client.get(SUBMIT).status_code == 200
