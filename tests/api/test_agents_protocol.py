"""The agents' listener over real HTTP: who is let in, what a signature is over, how long a poll waits."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from controlplane.contract.agent.base import PROTOCOL_VERSION
from controlplane.contract.agent.enrolment import EnrolRequest
from controlplane.contract.agent.inventory import InventoryDelta
from tests.api.agents_http import ENROL, HELLO, JSON, SYNC, HttpAgent, http_agent
from tests.services.agents import create, envelope, new_key, node, plan, token_for
from tests.services.planes import Plane
from tests.support.api import Api
from tests.support.databases import Database
from tests.support.waiting import eventually

Claims = dict[str, object]


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    plane = Plane(database)
    yield plane
    plane.close()


@pytest.fixture
def agent(plane: Plane, api: Api) -> HttpAgent:
    return http_agent(plane, api, "eu", node("n1"), node("n2"))


def slug(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == "application/problem+json"
    return str(answer.json()["type"]).removeprefix("/problems/")


def test_a_gang_lives_its_whole_life_over_http(plane: Plane, agent: HttpAgent) -> None:
    gang = plane.workload("gang", plane.queue("team", nominal=16), pods=2)
    plan(plane)
    agent.sync()
    name = agent.only()
    agent.run(name)
    assert plane.state(gang) == "running"
    agent.finish(name)
    agent.bury(name)
    assert plane.state(gang) == "succeeded"


def test_a_poll_waits_for_news_and_is_answered_at_once_when_there_is_some(plane: Plane, agent: HttpAgent) -> None:
    agent.sync()
    answered: list[float] = []

    def poll() -> None:
        agent.sync(wait_seconds=20)
        answered.append(time.monotonic())

    waiting = threading.Thread(target=poll)
    waiting.start()
    eventually(lambda: plane.rows("SELECT FROM agent_session WHERE seq = 3 AND answer IS NULL AND ended_at IS NULL"))
    plane.workload("gang", plane.queue("team", nominal=16), pods=1)
    began = time.monotonic()
    plan(plane)
    planned = time.monotonic()
    waiting.join(timeout=20)
    assert answered[0] - planned < 3, f"planned in {planned - began} s, answered {answered[0] - planned} s later"
    assert len(agent.wanted) == 1


def test_a_poll_without_news_ends_when_its_time_is_over(agent: HttpAgent) -> None:
    began = time.monotonic()
    reply = agent.sync(wait_seconds=1)
    assert 0.9 < time.monotonic() - began < 5
    assert reply.directives_jws is None


def test_a_new_session_ends_the_polls_of_the_old_one(plane: Plane, agent: HttpAgent) -> None:
    request = agent.request(wait_seconds=20)
    answers: list[httpx.Response] = []

    def poll() -> None:
        answers.append(agent.post(SYNC, request, se=request.session_epoch, seq=request.seq))

    waiting = threading.Thread(target=poll)
    waiting.start()
    eventually(lambda: plane.rows("SELECT FROM agent_session WHERE seq = 2 AND answer IS NULL AND ended_at IS NULL"))
    agent.hello()
    waiting.join(timeout=20)
    assert (answers[0].status_code, slug(answers[0])) == (409, "session-superseded")


def test_the_listener_notes_that_it_listens(plane: Plane, api: Api) -> None:
    eventually(lambda: plane.rows("SELECT FROM plane WHERE listened_at IS NOT NULL"))


def test_the_listener_of_agents_tells_a_probe_that_it_is_there_and_what_may_be_asked_and_nothing_else(api: Api) -> None:
    with httpx.Client(base_url=api.agent_url, trust_env=False, verify=False) as http:
        assert http.get("/healthz").text == "ok"
        for path in ("/readyz", "/metrics", "/api/v1/queues"):
            assert http.get(path).status_code == 404


OTHER_REQUESTS: dict[str, tuple[Claims, tuple[int, str]]] = {
    "for another plane": ({"aud": "https://elsewhere.example"}, (401, "invalid-token")),
    "another method": ({"htm": "GET"}, (401, "invalid-token")),
    "another path": ({"htu": SYNC}, (401, "invalid-token")),
    "another body": ({"bh": "A" * 43}, (401, "invalid-token")),
    "no end": ({"exp": 0}, (401, "invalid-token")),
    "long ago": ({"iat": 1, "exp": 2}, (401, "clock-skew")),
    "over": ({"iat": int(time.time()) - 90, "exp": int(time.time()) - 31}, (401, "clock-skew")),
    "far away": ({"iat": 2**40, "exp": 2**40 + 1}, (401, "clock-skew")),
    "another cluster's name": ({"sub": "us"}, (403, "wrong-cluster")),
}


def test_a_signature_is_over_this_request_and_no_other(agent: HttpAgent) -> None:
    body = b'{"instance_id": "pod-1", "fingerprint": "kube-system-of-eu"}'
    for case, (claims, expected) in OTHER_REQUESTS.items():
        answer = agent.post(HELLO, body, **claims)
        assert (answer.status_code, slug(answer)) == expected, case
        if expected[1] == "clock-skew":
            assert answer.json()["server_time"], "so that the agent can learn how far off it is"
    assert agent.sync().rejected == [], "the session is as it was"


def test_a_captured_hello_ends_no_session(agent: HttpAgent) -> None:
    body = b'{"instance_id": "pod-1", "fingerprint": "kube-system-of-eu"}'
    signed_at = agent.signed_at + 1
    headers = {**JSON, "Authorization": f"AgentPoP {agent.sign(HELLO, body, agent.key, {'iat': signed_at})}"}
    agent.epoch = agent.http.post(HELLO, content=body, headers=headers).json()["session_epoch"]
    agent.seq = 0
    for captured in (
        headers,
        {**JSON, "Authorization": f"AgentPoP {agent.sign(HELLO, body, agent.key, {'iat': signed_at - 1})}"},
    ):
        answer = agent.http.post(HELLO, content=body, headers=captured)
        assert (answer.status_code, slug(answer)) == (409, "hello-replayed")
    assert agent.sync().rejected == [], "the session is as it was"


STRANGERS: dict[str, Callable[[HttpAgent], str]] = {
    "nothing": lambda _: "",
    "another scheme": lambda _: "Bearer abc",
    "no signature": lambda _: "AgentPoP abc",
    "too long": lambda _: "AgentPoP " + "a" * 9_000,
    "an unknown key": lambda agent: f"AgentPoP {agent.sign(HELLO, b'{}', new_key(), {})}",
    "another's signature under its name": lambda agent: f"AgentPoP {forged(agent)}",
    "algorithm none": lambda agent: f"AgentPoP {unsigned(agent)}",
}


def test_who_does_not_prove_a_known_key_is_not_let_in(agent: HttpAgent) -> None:
    for case, header in STRANGERS.items():
        answer = agent.http.post(HELLO, content=b"{}", headers={**JSON, "Authorization": header(agent)})
        assert answer.status_code == 401, case


def forged(agent: HttpAgent) -> str:
    header, claims, _ = agent.sign(HELLO, b"{}", agent.key, {}).split(".")
    return ".".join((header, claims, agent.sign(HELLO, b"{}", new_key(), {}).split(".")[2]))


def unsigned(agent: HttpAgent) -> str:
    """Under a known key's name, with an algorithm that proves nothing."""
    _, claims, _ = agent.sign(HELLO, b"{}", agent.key, {}).split(".")
    header = json.dumps({"alg": "none", "typ": "agent-pop+jwt", "kid": agent.key.thumbprint()}).encode()
    return ".".join((base64.urlsafe_b64encode(header).rstrip(b"=").decode(), claims, ""))


def test_a_place_in_the_session_that_was_not_signed_is_refused(agent: HttpAgent) -> None:
    request = agent.request()
    answer = agent.post(SYNC, request, se=request.session_epoch, seq=request.seq + 1)
    assert (answer.status_code, slug(answer)) == (401, "invalid-token")


def test_bodies_are_limited_typed_and_read_strictly(agent: HttpAgent) -> None:
    big = agent.post(SYNC, b'"' + b"x" * 1_100_000 + b'"')
    assert (big.status_code, slug(big)) == (413, "body-too-large")
    text = agent.http.post(HELLO, content=b"{}", headers={"Content-Type": "text/plain"})
    assert (text.status_code, slug(text)) == (415, "unsupported-media-type")
    broken = agent.post(HELLO, b"{")
    assert (broken.status_code, slug(broken)) == (400, "malformed-json")
    deep = agent.post(HELLO, b'{"features":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert deep.status_code in {400, 422}
    huge = agent.post(SYNC, b'{"session_epoch": 1, "seq": ' + b"9" * 5_000 + b', "cursor": 0}', se=1, seq=1)
    assert huge.status_code in {400, 422}
    many = InventoryDelta(revision=1, removed=["x"] * 5_000).model_dump_json().replace('"x",', '"x","y",', 1)
    body = f'{{"session_epoch": {agent.epoch}, "seq": {agent.seq + 1}, "cursor": 0, "inventory": {many}}}'.encode()
    answer = agent.post(SYNC, body, se=agent.epoch, seq=agent.seq + 1)
    assert (answer.status_code, slug(answer)) == (413, "report-too-large")
    assert agent.sync().rejected == []


def test_strange_words_of_a_cluster_are_stored_without_harm(plane: Plane, agent: HttpAgent) -> None:
    odd = node("n3").model_copy(update={"labels": {"note": "nul\x00here"}, "instance_type": "\x00"})
    agent.report(odd)
    assert plane.rows("SELECT labels FROM node WHERE name = 'n3'")[0].labels == {"note": "nulhere"}


def test_enrolments_are_slowed_down_per_address(plane: Plane, api: Api) -> None:
    cluster = create(plane, "eu")
    request = EnrolRequest(
        token=f"mst_{cluster}.{'A' * 43}", fingerprint="kube-system-uid", instance_id="pod-1",
        protocol_newest=PROTOCOL_VERSION,
    )  # fmt: skip
    key = new_key()
    with httpx.Client(base_url=api.agent_url, trust_env=False, verify=False, timeout=20) as http:

        def knock(_: int) -> httpx.Response:
            return http.post(ENROL, json={"jws": envelope(key, request)})

        with ThreadPoolExecutor(4) as many:
            answers = list(many.map(knock, range(40)))
    kinds = {(answer.status_code, slug(answer)) for answer in answers}
    assert kinds == {(401, "invalid-enrolment-token"), (429, "rate-limited")}
    assert token_for(plane, cluster), "nothing else was slowed down"


def test_no_route_of_agents_stands_on_the_listener_for_people_nor_the_other_way_round(api: Api) -> None:
    assert api.client().post(ENROL, json={}).status_code == 404
    with httpx.Client(base_url=api.agent_url, trust_env=False, verify=False, timeout=20) as http:
        assert http.get("/api/v1/workloads").status_code == 404
