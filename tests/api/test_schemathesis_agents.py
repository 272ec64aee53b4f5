"""The agents' listener keeps its OpenAPI document too, also towards whoever holds a good key and talks nonsense.

Requests are signed, since nothing else is even read. They come from the document, and from sound messages of a cluster
in the middle of its work, with something else in the place of anything.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings

from controlplane.contract.agent.enrolment import EnrolRequest, HelloRequest
from controlplane.contract.agent.inventory import HealthReason
from tests.api.agents_http import ENROL, HELLO, SYNC, HttpAgent, http_agent
from tests.api.fuzzing import EXAMPLES, STEADY, Case, answer_checks, cases_of, schema_of, spoilt
from tests.services.agents import create, envelope, new_key, node, placed, token_for
from tests.services.planes import Plane
from tests.support.api import Api
from tests.support.databases import Database

KNOWN = {200, 400, 401, 403, 409, 413, 422, 426, 429}
IN_TIME = 120  # hellos are signed each a second later than the one before, and may run ahead of the clock so far


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    plane = Plane(database)
    yield plane
    plane.close()


@pytest.fixture
def agent(plane: Plane, api: Api) -> HttpAgent:
    return http_agent(plane, api, "eu", node("n1"), node("n2"))


def test_whatever_an_agent_sends_the_answer_is_one_that_is_documented(api: Api, agent: HttpAgent) -> None:
    schema = schema_of(api.agent_url)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert {each.path for each in operations} >= {ENROL, HELLO, SYNC}

    def check(case: Case) -> None:
        if case.method == "GET" or case.path == ENROL:
            answer = case.call(base_url=api.agent_url, timeout=20)
        else:
            answer = _signed(agent, case.path, _at_once(case.body))
        case.validate_response(answer, checks=answer_checks())

    for operation in operations:
        cases_of(operation, check, {})


def test_a_sound_hello_with_anything_in_the_place_of_anything_is_taken_or_refused(agent: HttpAgent) -> None:
    sound = HelloRequest(
        instance_id="pod-1", fingerprint=agent.fingerprint, features=["pin"], namespaces=["team"], acked_number=1,
        kubernetes_version="1.36", next_key={"kty": "EC", "crv": "P-256", "x": "a", "y": "b"}, next_key_proof="a.b.c",
    )  # fmt: skip
    without_key = sound.model_copy(update={"next_key": None, "next_key_proof": None})
    bodies = [each.model_dump(mode="json") for each in (sound, without_key)]
    _spoil(bodies, lambda body: _signed(agent, HELLO, body), most=IN_TIME)


def test_a_sound_report_with_anything_in_the_place_of_anything_is_taken_or_refused(
    plane: Plane, agent: HttpAgent
) -> None:
    gang, name = placed(plane, agent, plane.queue("team", nominal=16))
    ill = HealthReason(source="exporter", code="xid:79", text="fell off the bus")
    report = node("n1")
    report = report.model_copy(
        update={"devices": [report.devices[0].model_copy(update={"health": "warn", "health_reasons": [ill]})]}
    )
    told = [agent.told(name, state) for state in ("prepared", "started", "gone")]
    pods = [*agent.pods(name, "running"), *agent.pods(name, "failed", exit_code=1, reason="Error")]
    bodies = [
        agent.request(attempts=told[:1], pods=pods[:2]),
        agent.request(attempts=told, pods=pods, desired_digest=agent.digest()),
        agent.request(inventory=agent.delta(report, node("n3"), removed=["uid-n2"])),
        agent.request(attempts=told[1:2], pods=pods, whole=True),
        agent.request(kube_reachable=False),
    ]
    _spoil([each.model_dump(mode="json") for each in bodies], lambda body: _signed(agent, SYNC, _at_once(body)))
    agent.hello()
    assert agent.sync().seq == 1, "the cluster is heard as before"
    assert plane.state(gang) != ""


def test_a_sound_enrolment_with_anything_in_the_place_of_anything_is_taken_or_refused(plane: Plane, api: Api) -> None:
    token = token_for(plane, create(plane, "us"))
    sound = EnrolRequest(token=token, fingerprint="kube-system-uid", instance_id="pod-1", agent_version="0.1")
    with httpx.Client(base_url=api.agent_url, trust_env=False, verify=False, timeout=20) as http:

        def enrol(body: Any) -> httpx.Response:  # noqa: ANN401 - anything
            jws = envelope(new_key(), _Spoilt(json.dumps(body) if not isinstance(body, bytes) else body.decode()))
            return http.post(ENROL, json={"jws": jws})

        _spoil([sound.model_dump(mode="json")], enrol)


class _Spoilt(EnrolRequest):
    """Any text where a request is expected: only its text is asked for."""

    def __init__(self, text: str) -> None:
        super().__init__(token="t" * 20, fingerprint="f" * 8, instance_id="i")
        object.__setattr__(self, "_text", text)

    def model_dump_json(self, **_: Any) -> str:  # noqa: ANN401 - as pydantic has it
        return str(object.__getattribute__(self, "_text"))


def _spoil(sound: list[Any], send: Callable[[bytes], httpx.Response], most: int = 10_000) -> None:
    @settings(STEADY, max_examples=min(most, 10 * EXAMPLES))
    @given(body=spoilt(sound))
    def ask(body: bytes) -> None:
        answer = send(body)
        assert answer.status_code in KNOWN, (answer.status_code, answer.text, body)

    ask()


def _at_once(body: Any) -> Any:  # noqa: ANN401 - anything
    """The same, and nobody waits for news."""
    body = _loaded(body)
    return (
        {**body, "wait_seconds": 0} if isinstance(body, dict) and _is_amount(body.get("wait_seconds", 25), 60) else body
    )


def _signed(agent: HttpAgent, path: str, body: Any) -> httpx.Response:  # noqa: ANN401 - anything
    """Sent as the next request of the Session, if it leaves that open."""
    body = _loaded(body)
    claims: dict[str, object] = {}
    if path == HELLO:
        agent.signed_at += 1
        claims = {"iat": agent.signed_at}
    elif isinstance(body, dict) and _is_amount(body.get("seq")) and _is_amount(body.get("session_epoch")):
        agent.seq += 1
        body = {**body, "session_epoch": agent.epoch, "seq": agent.seq}
        claims = {"se": agent.epoch, "seq": agent.seq}
    answer = agent.post(path, body if isinstance(body, bytes) else json.dumps(body).encode(), **claims)
    if path == HELLO and answer.status_code == 200:
        agent.epoch, agent.seq = answer.json()["session_epoch"], 0
    return answer


def _loaded(body: Any) -> Any:  # noqa: ANN401 - anything
    try:
        return json.loads(body) if isinstance(body, bytes) else body
    except ValueError:
        return body


def _is_amount(value: object, most: int = 2**53) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
