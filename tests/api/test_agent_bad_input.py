"""What agents may get wrong, or somebody who plays one, over real HTTP: refused, or taken for what it is worth.

A cluster's own faults must not cut it off: of a report, what makes no sense is answered one by one or cut, and the rest
is taken. What is no report, or nobody's, changes nothing.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from joserfc import jws
from joserfc.jwk import ECKey, OctKey

from controlplane.contract.agent.enrolment import EnrolRequest
from controlplane.contract.agent.inventory import HealthReason, InventoryDelta
from controlplane.services import enrolment
from controlplane.services.signing import public_part
from tests.api.agents_http import ENROL, HELLO, JSON, SYNC, HttpAgent, http_agent, met
from tests.api.refusals import assert_problem
from tests.services.agents import create, envelope, new_key, node, placed, plan, token_for
from tests.services.planes import Plane
from tests.support.api import Api
from tests.support.databases import Database

HELLO_BODY = b'{"instance_id": "pod-1", "fingerprint": "kube-system-of-eu"}'


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    plane = Plane(database)
    yield plane
    plane.close()


@pytest.fixture
def agent(plane: Plane, api: Api) -> HttpAgent:
    return http_agent(plane, api, "eu", node("n1"), node("n2"))


@pytest.fixture
def team(plane: Plane) -> int:
    return plane.queue("team", nominal=16)


@pytest.fixture
def stranger(api: Api) -> Iterator[httpx.Client]:
    """Whoever found the listener."""
    with httpx.Client(base_url=api.agent_url, trust_env=False, verify=False, timeout=20) as http:
        yield http


def enrolled(http: httpx.Client, token: str, fingerprint: str = "kube-system-uid") -> httpx.Response:
    request = EnrolRequest.model_construct(
        token=token, fingerprint=fingerprint, instance_id="pod-1", protocol_oldest=1, protocol_newest=1,
        agent_version="", kubernetes_version="",
    )  # fmt: skip
    return http.post(ENROL, json={"jws": envelope(new_key(), request)})


def test_every_enrolment_token_that_is_not_good_is_refused_in_the_same_words(
    plane: Plane, stranger: httpx.Client
) -> None:
    one, other = create(plane, "one"), create(plane, "other")
    good, expired = token_for(plane, one), token_for(plane, one)
    plane.do("UPDATE enrolment_token SET created_at = now() - interval '2 hours',"
             " expires_at = now() - interval '1 second' WHERE id = (SELECT max(id) FROM enrolment_token)")  # fmt: skip
    revoked = token_for(plane, other)
    with plane.uow() as uow:
        enrolment.revoke(uow, other, "root")
    of_the_other = good.replace(f"mst_{one}.", f"mst_{other}.")
    said = set()
    for bad in (expired, of_the_other, revoked, good[:-1], f"{good} ", good.upper(), f"mst_{one}.{'A' * 43}"):
        problem = assert_problem(enrolled(stranger, bad), 401, "invalid-enrolment-token")
        said.add((problem["detail"], json.dumps(problem.get("errors"))))
        assert bad.partition(".")[2].strip() not in json.dumps(problem), "no secret comes back"
    assert len(said) == 1
    assert enrolled(stranger, good).status_code == 200, "nothing that was refused cost its use"


def test_a_token_that_was_used_is_told_so_to_who_holds_it_with_another_key(
    plane: Plane, stranger: httpx.Client
) -> None:
    """Only who holds the whole token learns it, and an operator whose token was stolen must learn it."""
    token = token_for(plane, create(plane, "eu"))
    assert enrolled(stranger, token).status_code == 200
    assert_problem(enrolled(stranger, token), 409, "enrolment-token-used")


BAD_KEYS: dict[str, Callable[[ECKey], dict[str, object]]] = {
    "another curve": lambda key: {"jwk": {**public_part(key), "crv": "P-384"}},
    "not on the curve": lambda key: {"jwk": {**public_part(key), "x": "AA"}},
    "its secret with it": lambda key: {"jwk": key.as_dict(private=True)},
    "somebody else's": lambda _: {"jwk": public_part(new_key())},
    "symmetric": lambda _: {"jwk": {"kty": "oct", "k": "AAAA"}},
    "RSA": lambda _: {"jwk": {"kty": "RSA", "n": "AQAB", "e": "AQAB"}},
    "empty": lambda _: {"jwk": {}},
    "another type": lambda _: {"typ": "agent-pop+jwt"},
}


def test_an_enrolment_with_a_bad_key_is_refused_and_costs_nothing(plane: Plane, stranger: httpx.Client) -> None:
    token = token_for(plane, create(plane, "eu"))
    request = EnrolRequest(token=token, fingerprint="kube-system-uid", instance_id="pod-1")
    key = new_key()
    for case, spoil in BAD_KEYS.items():
        answer = stranger.post(ENROL, json={"jws": envelope(key, request, **spoil(key))})
        assert answer.status_code == 422, (case, answer.text)
        assert_problem(answer, 422, "invalid-key")
    for text in ("", "a.b", "a.b.c", "....", "\N{LLAMA}.b.c"):
        answer = stranger.post(ENROL, json={"jws": text})
        assert answer.status_code in {401, 422}, (text, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
    assert_problem(stranger.post(ENROL, json={"jws": "x" * 33_000}), 413, "body-too-large")
    assert plane.rows("SELECT uses FROM enrolment_token")[0].uses == 0


def test_a_cluster_that_is_enrolled_is_not_enrolled_under_another_name(
    plane: Plane, agent: HttpAgent, stranger: httpx.Client
) -> None:
    other = token_for(plane, create(plane, "eu-again"))
    assert_problem(enrolled(stranger, other, agent.fingerprint), 409, "cluster-already-enrolled")
    assert agent.sync().rejected == [], "the first goes on undisturbed"


def test_a_signature_that_proves_nothing_is_refused_whatever_its_algorithm(agent: HttpAgent) -> None:
    now = int(datetime.now(UTC).timestamp())
    claims = {"sub": "eu", "aud": agent.audience, "htm": "POST", "htu": HELLO, "bh": "h", "iat": now, "exp": now + 60}
    public = json.dumps(public_part(agent.key)).encode()
    shared = OctKey.import_key(public)  # the public key taken for a shared secret
    header = {"alg": "HS256", "typ": "agent-pop+jwt", "kid": agent.key.thumbprint()}
    forged = jws.serialize_compact(header, json.dumps(claims), shared, algorithms=["HS256"])
    unknown = jws.serialize_compact(
        {**header, "alg": "ES256", "kid": "k" * 43}, json.dumps(claims), agent.key, algorithms=["ES256"]
    )
    for case, token in (("HS256 over the public key", forged), ("a key that nobody has", unknown)):
        answer = agent.http.post(HELLO, content=HELLO_BODY, headers={**JSON, "Authorization": f"AgentPoP {token}"})
        assert (answer.status_code, answer.json()["type"]) == (401, "/problems/invalid-token"), case


def test_a_key_that_names_another_cluster_is_refused_and_written_down(plane: Plane, agent: HttpAgent) -> None:
    assert_problem(agent.post(HELLO, HELLO_BODY, sub="us"), 403, "wrong-cluster")
    elsewhere = HELLO_BODY.replace(b"-of-eu", b"-of-us")
    assert_problem(agent.post(HELLO, elsewhere, iat=agent.signed_at + 1), 403, "wrong-cluster")
    found = plane.rows("SELECT facts FROM audit WHERE action = 'cluster.wrong-cluster' ORDER BY id")
    assert [each.facts["what"] for each in found] == ["it called itself 'us'", "its key was used in another cluster"]
    assert agent.sync().rejected == []


def test_a_session_that_is_over_speaks_for_nobody(agent: HttpAgent) -> None:
    old = agent.request()
    agent.hello()
    answer = agent.post(SYNC, old, se=old.session_epoch, seq=old.seq)
    assert_problem(answer, 409, "session-superseded")
    ahead = agent.request().model_copy(update={"session_epoch": agent.epoch + 7})
    assert_problem(agent.post(SYNC, ahead, se=ahead.session_epoch, seq=ahead.seq), 409, "session-superseded")
    assert agent.sync().rejected == []


def test_a_report_of_what_is_not_the_agents_is_answered_one_by_one_and_the_rest_is_taken(
    plane: Plane, api: Api, agent: HttpAgent, team: int
) -> None:
    other = http_agent(plane, api, "us", node("m1"))
    plane.do("UPDATE node SET cordoned_by_us = 'test' WHERE cluster_id = :id", id=other.cluster)
    gang, name = placed(plane, agent, team)
    reply = other.sync(attempts=[agent.told(name, "prepared")], pods=agent.pods(name, "running"))
    assert {each.code for each in reply.rejected} == {"stale-attempt"}
    assert plane.state(gang) == "reserved", "another's word about it is none"
    never = "00000000-0000-4000-8000-000000000000.1"
    later = f"{gang}.99"
    reply = agent.sync(
        attempts=[
            agent.told(name, "prepared"), agent.told(never, "started", gen=1), agent.told(later, "gone", gen=2**40),
        ],
        pods=agent.pods(name, "gated"),
    )  # fmt: skip
    assert {each.object_id for each in reply.rejected} == {never, later}
    assert {row.state for row in plane.rows("SELECT state FROM attempt")} == {"starting"}, "what was right was taken"


def test_a_report_that_is_none_is_refused_by_the_place_of_its_mistake(agent: HttpAgent) -> None:
    body = agent.request(inventory=agent.delta(node("n1"))).model_dump(mode="json")
    body["inventory"]["nodes"][0]["devices"][0]["slots_total"] = -1
    problem = assert_problem(agent.post(SYNC, json.dumps(body).encode(), se=agent.epoch, seq=agent.seq), 422, "invalid")
    assert problem["errors"][0]["pointer"] == "/inventory/nodes/0/devices/0/slots_total"
    assert problem["detail"].startswith("slots_total: ")


def test_a_report_of_fifty_thousand_nodes_is_refused_whole(agent: HttpAgent) -> None:
    uids = [f"uid-{number}" for number in range(50_000)]
    delta = InventoryDelta.model_construct(revision=9, whole=True, uids=uids, nodes=[], removed=[])
    body = agent.request().model_dump(mode="json", exclude_defaults=True)
    many = json.dumps({**body, "inventory": delta.model_dump(mode="json", exclude_defaults=True)}).encode()
    assert len(many) < 1_048_576, "it is the count that is refused here"
    assert_problem(agent.post(SYNC, many, se=agent.epoch, seq=agent.seq), 413, "report-too-large")
    wide = node("n1").model_dump(mode="json")
    whole = json.dumps({**body, "inventory": {"revision": 9, "nodes": [wide] * 600}}).encode()
    assert_problem(agent.post(SYNC, whole, se=agent.epoch, seq=agent.seq), 413, "body-too-large")


def test_words_without_end_are_cut_and_the_report_is_taken(plane: Plane, agent: HttpAgent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.prepare(name)
    long = "x" * 100_000
    body = agent.request(
        attempts=[agent.told(name, "started")],
        pods=agent.pods(name, "failed", ranks=[0], exit_code=1) + agent.pods(name, "running", ranks=[1]),
    ).model_dump(mode="json")
    for each in body["pods"]:
        each |= {"message": long, "reason": long, "waiting": long}
    answer = agent.post(SYNC, json.dumps(body).encode(), se=agent.epoch, seq=agent.seq)
    assert (answer.status_code, answer.json()["rejected"]) == (200, []), answer.text
    assert plane.state(gang) == "stopping"
    assert {len(row.message) for row in plane.rows("SELECT message FROM pod WHERE message <> ''")} == {1_024}
    ill = node("n1").model_dump(mode="json")
    ill["devices"][0]["health_reasons"] = [HealthReason(source="x", code="y").model_dump(mode="json") | {"text": long}]
    body = agent.request().model_dump(mode="json") | {"inventory": {"revision": 9, "nodes": [ill]}}
    assert agent.post(SYNC, json.dumps(body).encode(), se=agent.epoch, seq=agent.seq).status_code == 200
    whole = json.dumps({**body, "desired_digest": "x" * 10_485_760}).encode()
    assert_problem(agent.post(SYNC, whole, se=agent.epoch, seq=agent.seq), 413, "body-too-large")


def test_a_time_that_nobody_believes_is_taken_for_now(plane: Plane, agent: HttpAgent, team: int) -> None:
    moments = ("9999-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z")
    gang = plane.workload("gang", team, pods=3, devices=4)
    plan(plane)
    agent.sync()
    name = agent.only()
    assert name.startswith(gang)
    agent.prepare(name)
    for rank, moment in enumerate(moments):
        odd: dict[str, Any] = {"started_at": moment, "finished_at": moment}
        agent.sync(pods=agent.pods(name, "succeeded", ranks=[rank], exit_code=0, **odd))
        agent.report(node("n1").model_copy(update={"ready_changed_at": datetime.fromisoformat(moment)}))
        said = plane.rows("SELECT ready_changed_at AS at FROM node WHERE name = 'n1'")[0].at
        assert abs(datetime.now(UTC) - said) < timedelta(minutes=5), moment
    times = [at for row in plane.rows("SELECT started_at, finished_at FROM pod") for at in row]
    assert any(times)
    assert all(at is None or abs(datetime.now(UTC) - at) < timedelta(minutes=5) for at in times)


def test_a_cursor_beyond_all_that_was_ordered_is_set_back_and_no_order_is_missed(
    plane: Plane, agent: HttpAgent, team: int
) -> None:
    """So it is after a restore of the plane's database: its numbers begin again below what the agent has seen."""
    agent.hello(acked_number=2**40)
    agent.cursor = 2**40
    reply = agent.sync()
    assert (reply.cursor, reply.want_full_list) == (0, True)
    plane.workload("gang", team, pods=2)
    plan(plane)
    agent.sync()
    assert len(agent.wanted) == 1, "the order came"


def test_who_is_banned_not_accepted_or_too_new_is_told_so(plane: Plane, api: Api) -> None:
    waiting = met(plane, api, "eu", auto_accept=False)
    assert_problem(waiting.post(HELLO, HELLO_BODY), 403, "not-accepted")
    with plane.uow() as uow:
        enrolment.accept(uow, waiting.cluster, "root")
    newer = json.dumps({**json.loads(HELLO_BODY), "protocol_oldest": 7, "protocol_newest": 9}).encode()
    assert_problem(waiting.post(HELLO, newer), 426, "agent-too-new")
    with plane.uow() as uow:
        enrolment.revoke(uow, waiting.cluster, "root")
    assert_problem(waiting.post(HELLO, HELLO_BODY), 403, "agent-banned")
