"""One-time tokens, keys and their rotation, an admin's word, and who is refused."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from joserfc import jws
from joserfc.jwk import ECKey

from controlplane.contract.agent.enrolment import EnrolRequest
from controlplane.core.facts.queries import Scope
from controlplane.core.ids import NodeId, WorkloadId
from controlplane.core.lifecycle import ClusterState
from controlplane.db.snapshot_reader import SqlSnapshotReader
from controlplane.services import enrolment, sync
from controlplane.services.errors import Conflict, Forbidden, Invalid, TooNew, Unauthenticated
from controlplane.services.explaining import explained
from controlplane.services.live_worlds import LiveWorlds
from controlplane.services.signing import public_part
from tests.services.agents import (
    Agent,
    create,
    enrol_tools,
    envelope,
    new_key,
    node,
    placed,
    plan,
    ready,
    token_for,
    tools,
)
from tests.services.planes import Plane


def test_of_a_hundred_uses_of_one_token_exactly_one_wins(plane: Plane) -> None:
    cluster = create(plane, "eu")
    token = token_for(plane, cluster)

    def attempt(_: int) -> str:
        try:
            return Agent(plane, cluster, "eu").enrol(token).key_thumbprint
        except Conflict as error:
            return error.slug

    with ThreadPoolExecutor(8) as many:
        answers = list(many.map(attempt, range(100)))
    assert answers.count("enrolment-token-used") == 99
    [row] = plane.rows("SELECT uses, used_by_thumbprint FROM enrolment_token")
    assert (row.uses, row.used_by_thumbprint) == (1, next(a for a in answers if a != "enrolment-token-used"))
    assert plane.rows("SELECT count(*) AS n FROM agent_key")[0].n == 1


def test_an_agent_that_lost_the_answer_gets_it_again_and_another_key_does_not(plane: Plane) -> None:
    cluster = create(plane, "eu")
    token = token_for(plane, cluster)
    agent = Agent(plane, cluster, "eu")
    assert agent.enrol(token) == agent.enrol(token)
    with pytest.raises(Conflict):
        Agent(plane, cluster, "eu").enrol(token)
    plane.do("UPDATE enrolment_token SET last_used_at = last_used_at - interval '11 minutes'")
    with pytest.raises(Unauthenticated):
        agent.enrol(token)


def test_every_bad_token_is_refused_in_the_same_words(plane: Plane) -> None:
    one, other = create(plane, "one"), create(plane, "other")
    good = token_for(plane, one)
    expired = token_for(plane, one)
    plane.do("UPDATE enrolment_token SET created_at = now() - interval '2 hours',"
             " expires_at = now() - interval '1 second' WHERE id = (SELECT max(id) FROM enrolment_token)")  # fmt: skip
    of_the_other = good.replace(f"mst_{one}.", f"mst_{other}.")
    revoked = token_for(plane, other)
    with plane.uow() as uow:
        enrolment.revoke(uow, other, "root")
    said = set()
    for bad in (expired, of_the_other, revoked, good[:-1], good + "A", f"mst_{one}.{'A' * 43}", "x" * 40):
        with pytest.raises(Unauthenticated) as refusal:
            Agent(plane, one, "one").enrol(bad)
        said.add((refusal.value.slug, refusal.value.detail))
    assert len(said) == 1
    assert said.pop()[0] == "invalid-enrolment-token"
    assert Agent(plane, one, "one").enrol(good).state == "enrolled", "nothing that was refused cost its use"


def test_a_token_lives_for_a_day_at_most_and_is_stored_as_a_hash(plane: Plane) -> None:
    cluster = create(plane, "eu")
    with pytest.raises(Invalid):
        token_for(plane, cluster, valid_seconds=86_401)
    token = token_for(plane, cluster)
    found = plane.rows("SELECT CAST(enrolment_token AS text) || (SELECT string_agg(CAST(facts AS text), '') FROM audit)"
                       " AS everything FROM enrolment_token")  # fmt: skip
    assert token.partition(".")[2] not in found[0].everything


def test_a_new_cluster_never_takes_the_name_of_an_enrolled_one(plane: Plane) -> None:
    """T43: refused unless it is the same cluster by its uid, and then its keys are the new ones."""
    first = ready(plane, "eu", node("n1"))
    with pytest.raises(Conflict):
        create(plane, "eu")
    stranger = Agent(plane, first.cluster, "eu", fingerprint="another-kube-system")
    with pytest.raises(Conflict) as refusal:
        stranger.enrol(token_for(plane, first.cluster))
    assert refusal.value.slug == "cluster-already-enrolled"
    assert first.sync().rejected == [], "the first one goes on undisturbed"
    again = Agent(plane, first.cluster, "eu")
    assert again.enrol(token_for(plane, first.cluster)).state == "ready"
    again.hello()
    with pytest.raises(Unauthenticated):
        first.known()


def test_one_cluster_is_enrolled_under_one_name_only(plane: Plane) -> None:
    ready(plane, "eu", node("n1"))
    other = create(plane, "eu-again")
    copy = Agent(plane, other, "eu-again", fingerprint="kube-system-of-eu")
    with pytest.raises(Conflict) as refusal:
        copy.enrol(token_for(plane, other))
    assert refusal.value.slug == "cluster-already-enrolled"
    assert plane.rows("SELECT uses FROM enrolment_token ORDER BY id DESC")[0].uses == 0


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda key: {"jwk": {**public_part(key), "crv": "P-384"}}, id="another curve"),
        pytest.param(lambda key: {"jwk": {**public_part(key), "x": "AA"}}, id="not on the curve"),
        pytest.param(lambda key: {"jwk": key.as_dict(private=True)}, id="with its secret"),
        pytest.param(lambda key: {"jwk": public_part(new_key())}, id="somebody else's"),
        pytest.param(lambda key: {"jwk": {"kty": "oct", "k": "AAAA"}}, id="symmetric"),
        pytest.param(lambda key: {"typ": "agent-pop+jwt"}, id="another type"),
    ],
)
def test_a_key_that_is_weak_or_not_proven_is_refused(plane: Plane, spoil: Callable[[ECKey], dict[str, object]]) -> None:
    cluster = create(plane, "eu")
    request = EnrolRequest(token=token_for(plane, cluster), fingerprint="kube-system-uid", instance_id="pod-1")
    key = new_key()
    with pytest.raises(Invalid) as refusal:
        enrolment.enrol(enrol_tools(plane), envelope(key, request, **spoil(key)))
    assert refusal.value.slug == "invalid-key"
    assert plane.rows("SELECT uses FROM enrolment_token")[0].uses == 0


def test_an_agent_newer_than_the_plane_is_told_so(plane: Plane) -> None:
    cluster = create(plane, "eu")
    request = EnrolRequest(
        token=token_for(plane, cluster), fingerprint="kube-system-uid", instance_id="pod-1", protocol_oldest=9,
        protocol_newest=9,
    )  # fmt: skip
    with pytest.raises(TooNew):
        enrolment.enrol(enrol_tools(plane), envelope(new_key(), request))


def test_an_enrolled_cluster_waits_for_an_admins_word(plane: Plane) -> None:
    cluster = create(plane, "eu")
    agent = Agent(plane, cluster, "eu")
    assert agent.enrol(token_for(plane, cluster)).state == "enrolled"
    with pytest.raises(Forbidden) as refusal:
        agent.hello()
    assert refusal.value.slug == "not-accepted"
    for _ in range(2):
        with plane.uow() as uow:
            assert enrolment.accept(uow, cluster, "root") is ClusterState.ACCEPTED
    agent.hello()
    assert plane.rows("SELECT state FROM cluster")[0].state == "ready"


def test_a_bad_bootstrap_that_is_put_right_works_without_anything_else(plane: Plane) -> None:
    """T73: after a refused token a good one is enough, with the same key and in the same process."""
    cluster = create(plane, "eu")
    agent = Agent(plane, cluster, "eu")
    with pytest.raises(Unauthenticated):
        agent.enrol(f"mst_{cluster}.{'A' * 43}")
    agent.enrol(token_for(plane, cluster, auto_accept=True))
    agent.hello()
    with plane.uow() as uow:
        enrolment.revoke(uow, cluster, "root")
    with pytest.raises(Forbidden) as refusal:
        agent.sync()
    assert refusal.value.slug == "agent-banned"
    again = Agent(plane, cluster, "eu")
    assert again.enrol(token_for(plane, cluster)).state == "ready"
    again.hello()


def proof(key: ECKey) -> dict[str, object]:
    signed = jws.serialize_compact({"alg": "ES256"}, key.thumbprint(), key, algorithms=["ES256"])
    return {"next_key": public_part(key), "next_key_proof": signed}


def test_a_key_rotates_by_its_first_use_and_a_crash_at_any_point_leaves_one_that_works(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"))
    old, new = agent.key, new_key()
    agent.hello(**proof(new))
    agent.sync()  # the agent fell before it used the new key: the old one still speaks
    agent.hello(**proof(new))  # and offers it again
    agent.key = new
    agent.known()  # the first use; its answer was lost
    agent.hello()
    agent.sync()
    with pytest.raises(Unauthenticated):
        Agent(plane, agent.cluster, "eu", key=old).known()
    slots = {row.slot: row.thumbprint for row in plane.rows("SELECT slot, thumbprint FROM agent_key")}
    assert slots == {"current": new.thumbprint(), "retired": old.thumbprint()}
    late = plane.rows("SELECT count(*) AS n FROM audit WHERE action = 'cluster.retired-key-used'")[0].n
    assert late == 1, "late use of the old key is noted"


def test_an_offered_key_that_was_never_used_gives_way_to_another(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"))
    agent.hello(**proof(new_key()))
    second = new_key()
    agent.hello(**proof(second))
    slots = {
        row.slot: row.thumbprint for row in plane.rows("SELECT slot, thumbprint FROM agent_key WHERE slot <> 'retired'")
    }
    assert slots == {"current": agent.key.thumbprint(), "next": second.thumbprint()}


def test_a_next_key_without_its_own_proof_is_refused(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"))
    good, other = new_key(), new_key()
    stolen = {**proof(other), "next_key": public_part(good)}
    with pytest.raises(Invalid):
        agent.hello(**stolen)
    with pytest.raises(Invalid):
        agent.hello(next_key=public_part(good))


def test_a_key_that_was_copied_to_another_cluster_opens_nothing_there(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"))
    copy = Agent(plane, agent.cluster, "eu", key=agent.key, fingerprint="another-kube-system")
    with pytest.raises(Forbidden) as refusal:
        copy.hello()
    assert refusal.value.slug == "wrong-cluster"
    assert agent.sync().rejected == [], "the true one's session is as it was"
    assert plane.rows("SELECT count(*) AS n FROM audit WHERE action = 'cluster.wrong-cluster'")[0].n == 1


def test_an_agent_touches_nothing_of_another_cluster(plane: Plane) -> None:
    mine = ready(plane, "eu", node("n1"))
    thief = ready(plane, "us", node("n1", uid="other-n1"))
    team = plane.queue("team", nominal=16)
    plane.do("UPDATE node SET cordoned_by_us = 'test' WHERE cluster_id = :id", id=thief.cluster)
    gang, name = placed(plane, mine, team, pods=1)
    reply = thief.sync(attempts=[mine.told(name, "prepared")], pods=mine.pods(name, "running"))
    assert [(each.object_id, each.code) for each in reply.rejected] == [(name, "stale-attempt")]
    assert (plane.state(gang), plane.rows("SELECT state FROM pod")[0].state) == ("reserved", "placed")
    answer = sync.exchange(tools(plane), thief.known(), thief.request())
    assert answer.directives_jws is None


def test_a_cluster_whose_agent_is_banned_takes_nothing_until_another_enrols(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"), node("n2"))
    team = plane.queue("team", nominal=16)
    caught, _ = placed(plane, agent, team, pods=1)
    warm = plane.planner()
    warm.step()
    with plane.uow() as uow:
        enrolment.revoke(uow, agent.cluster, "root")
    gang = plane.workload("waiting", team, pods=1)
    for _ in range(3):
        warm.step()
    assert plane.state(gang) == "pending", "a planner that was warm has seen it"
    warm.let_go()
    [row] = plane.rows("SELECT reasons FROM workload WHERE state = 'pending'")
    assert row.reasons[0]["sentence"] == (
        "eu is without an agent: the last one is banned, and none has enrolled since."
    )
    with plane.uow() as uow:
        [shown] = uow.queries.clusters("eu")
    assert (shown.agent, shown.state) == ("banned", "ready")
    told = explained(plane.uow, LiveWorlds(SqlSnapshotReader(plane.engine)), Scope(None), WorkloadId(caught)).text
    assert "creating its pods" not in told
    assert "The agent of eu is banned" in told
    again = Agent(plane, agent.cluster, "eu")
    again.enrol(token_for(plane, agent.cluster))
    plan(plane)
    assert plane.state(gang) == "reserved"
    with plane.uow() as uow:
        assert uow.queries.clusters("eu")[0].agent == "enrolled"


def test_a_plan_that_was_made_before_a_ban_is_not_written_after_it(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"))
    with plane.uow() as uow:
        [number] = [NodeId(row.id) for row in plane.rows("SELECT id FROM node")]
        assert uow.planning.lock_nodes({number})[number].is_schedulable
    with plane.uow() as uow:
        enrolment.revoke(uow, agent.cluster, "root")
    with plane.uow() as uow:
        assert not uow.planning.lock_nodes({number})[number].is_schedulable
