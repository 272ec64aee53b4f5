"""One Attempt's life in a cluster, as the agent brings it about: prepared, started, replaced, ended, cleaned away."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from agents.attempts import owned, take
from agents.cluster import Action, Create, Delete, Outcome, Verdict
from agents.facts import HOSTNAME, ObjectFacts
from agents.kube import manifests
from agents.loop import wall_clock
from agents.reconcile import decide
from agents.rejections import REFUSAL_SETTLES
from agents.simulated.cluster import SimulatedCluster
from agents.simulated.faults import strike
from agents.simulated.worlds import Fault
from controlplane.contract.agent.attempts import ANNOTATION_RANK, LABEL_ATTEMPT, LABEL_WORKLOAD, Budgets, Directive
from tests.agents.bench import GPU, NAMESPACE, UID, Bench, a_start, a_template, a_tombstone, a_world, an_apply

SPEED = 20


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    made = SimulatedCluster(a_world(), speed=SPEED)
    await made.open()
    yield made
    await made.close()


@pytest.mark.parametrize("kind", ["Job", "Pods"])
async def test_pods_are_gated_and_pinned_rank_by_rank_until_the_start_is_ordered(
    cluster: SimulatedCluster, kind: str
) -> None:
    apply = an_apply(kind=kind)
    async with Bench(cluster) as bench:
        bench.work.take([apply])
        seen = await bench.until_state(apply.object_id, "prepared")
        assert seen.applied_gen == 1
        for pin in apply.apply.pins if apply.apply else []:
            pod = bench.pod(apply.object_id, pin.index)
            assert pod.is_gated
            assert not pod.node
            raw = cluster.store.pods[pod.uid]
            assert raw["spec"]["nodeSelector"][HOSTNAME] == pin.node
            assert raw["metadata"]["annotations"][ANNOTATION_RANK] == str(pin.rank)
        bench.work.take([a_start(apply)])
        pods = await bench.until_phases(apply.object_id, "running", 4)
        assert [pod.node for pod in pods] == ["east-0", "east-1", "east-2", "east-3"]
        started = await bench.until_state(apply.object_id, "started")
        assert started.applied_gen == 2


async def test_a_finished_gang_stays_finished_though_somebody_cleans_its_pods_away(cluster: SimulatedCluster) -> None:
    apply = an_apply(kind="Pods", template=a_template(run_seconds=1))
    async with Bench(cluster) as bench:
        bench.work.take([apply, a_start(apply)])
        await bench.until_phases(apply.object_id, "succeeded", 4)
        await bench.until(lambda: "0-3" in _anchor(cluster, apply).done)
        for pod in list(cluster.view.pods.values()):
            cluster.machinery.delete_pod(pod.uid)
        await bench.until(lambda: not cluster.view.pods)
    async with Bench(cluster) as again:
        await again.until_phases(apply.object_id, "succeeded", 4)
        assert not cluster.view.pods


@pytest.mark.parametrize("created", [1, 3, 5])
async def test_killed_after_some_creations_the_agent_finishes_its_work(cluster: SimulatedCluster, created: int) -> None:
    """The next process knows nothing but what lies in the cluster; the plane is silent."""
    apply = an_apply(kind="Pods")
    order = apply.apply.pod_sets[0] if apply.apply else None
    assert apply.apply is not None
    assert order is not None
    service = manifests.service(apply)
    made = [Create("Service", NAMESPACE, service["metadata"]["name"], service)]
    for pin in apply.apply.pins:
        pod = manifests.pod(apply, order, pin, pin.node)
        made.append(Create("Pod", NAMESPACE, pod["metadata"]["name"], pod))
    for action in made[:created]:
        await cluster.carry_out(action)
    async with Bench(cluster) as bench:
        await bench.until_state(apply.object_id, "prepared")
        assert len(cluster.view.pods) == 4


@pytest.mark.parametrize("released", [0, 1, 3])
async def test_killed_in_the_middle_of_a_start_the_agent_lets_the_rest_go(
    cluster: SimulatedCluster, released: int
) -> None:
    apply = an_apply()
    async with Bench(cluster) as bench:
        bench.work.take([apply])
        await bench.until_state(apply.object_id, "prepared")
    await _begin(cluster, [apply, a_start(apply)], actions=1 + released)
    async with Bench(cluster) as again:
        await again.until_phases(apply.object_id, "running", 4)


@pytest.mark.parametrize("deleted", [0, 1])
async def test_killed_in_the_middle_of_a_deletion_the_agent_restores_nothing(
    cluster: SimulatedCluster, deleted: int
) -> None:
    apply = an_apply()
    async with Bench(cluster) as bench:
        bench.work.take([apply, a_start(apply)])
        await bench.until_phases(apply.object_id, "running", 4)
    await _begin(cluster, [apply, a_tombstone(apply)], actions=1 + deleted)
    async with Bench(cluster) as again:
        await again.until_state(apply.object_id, "gone")
        assert not cluster.view.pods
        assert not cluster.view.objects


async def test_gone_is_said_only_when_nothing_is_left(cluster: SimulatedCluster) -> None:
    apply = an_apply()
    async with Bench(cluster) as bench:
        bench.work.take([apply, a_start(apply)])
        await bench.until_phases(apply.object_id, "running", 4)
        cluster.machinery.fail_node("east-0")
        await bench.until(lambda: not cluster.view.nodes["east-0"].ready)
        bench.work.take([a_tombstone(apply)])
        await bench.until_phases(
            apply.object_id, "gone", 3 - sum(p.phase == "failed" for p in bench.pods(apply.object_id))
        )
        seen = await bench.until_state(apply.object_id, "stopping")
        assert seen.applied_gen == 3
        assert bench.pods(apply.object_id)[0].phase == "running", "a pod on a dead node is still there"
        cluster.machinery.restore_node("east-0")
        await bench.until_state(apply.object_id, "gone")


async def test_an_object_of_that_name_that_is_not_ours_is_a_conflict_and_stays_as_it_is(
    cluster: SimulatedCluster,
) -> None:
    """T10."""
    apply = an_apply()
    assert apply.apply is not None
    name = manifests.base_name(apply.apply, apply.workload, apply.attempt)
    theirs = {
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "theirs"}},
        "spec": {"completions": 0},
    }
    cluster.store.put_object("Job", theirs)
    async with Bench(cluster) as bench:
        bench.work.take([apply])
        seen = await bench.until_state(apply.object_id, "rejected")
        assert seen.rejection is not None
        assert seen.rejection.code == "name-conflict"
        assert seen.rejection.facts["name"] == name
        bench.work.take([a_tombstone(apply)])
        await bench.until_state(apply.object_id, "gone")
    found = cluster.store.find("Job", NAMESPACE, name)
    assert found is not None
    assert found["spec"] == {"completions": 0}


async def test_a_missing_namespace_is_a_reason(cluster: SimulatedCluster) -> None:
    apply = an_apply()
    cluster.view.drop_namespace(NAMESPACE)
    async with Bench(cluster) as bench:
        bench.work.take([apply])
        seen = await bench.until_state(apply.object_id, "rejected")
        assert seen.rejection is not None
        assert seen.rejection.code == "cluster-without-namespace"


async def test_foreign_pods_that_came_first_void_the_attempt_with_their_nodes(cluster: SimulatedCluster) -> None:
    apply = an_apply()
    async with Bench(cluster) as bench:
        bench.work.take([apply])
        await bench.until_state(apply.object_id, "prepared")
        strike(cluster, Fault(do="foreign-pod", node="east-2", amount=3))
        seen = await bench.until_state(apply.object_id, "rejected")
        assert seen.rejection is not None
        assert seen.rejection.code == "foreign-pods"
        assert seen.rejection.nodes == ["east-2"]
        assert seen.rejection.facts["amount"] == 3
        bench.work.take([a_start(apply)])
        await bench.looked_again()
        assert all(pod.is_gated for pod in cluster.view.pods.values() if pod.workload), "a rejected gang never starts"


async def test_foreign_pods_beside_another_gang_of_ours_void_the_one_that_waits(cluster: SimulatedCluster) -> None:
    """Of eight cards four belong to a gang that runs: a foreign pod of four leaves none for the other one."""
    other = "0197a000-0000-7000-8000-00000000beef"
    runs, waits = (_of_four(an_apply(1, workload=workload)) for workload in (other, UID))
    async with Bench(cluster) as bench:
        bench.work.take([runs, a_start(runs)])
        await bench.until_phases(runs.object_id, "running", 1)
        bench.work.take([waits])
        await bench.until_state(waits.object_id, "prepared")
        strike(cluster, Fault(do="foreign-pod", node="east-0", amount=4))
        seen = await bench.until_state(waits.object_id, "rejected")
        assert seen.rejection is not None
        assert (seen.rejection.code, seen.rejection.facts["amount"]) == ("foreign-pods", 4)


def _of_four(apply: Directive) -> Directive:
    assert apply.apply is not None
    pins = [pin.model_copy(update={"amount": 4}) for pin in apply.apply.pins]
    return apply.model_copy(update={"apply": apply.apply.model_copy(update={"pins": pins})})


async def test_an_attempt_that_was_given_up_stays_so_over_a_restart(cluster: SimulatedCluster) -> None:
    """Whatever passed meanwhile: the plane has planned it anew elsewhere."""
    apply = an_apply()
    async with Bench(cluster) as bench:
        bench.work.take([apply])
        await bench.until_state(apply.object_id, "prepared")
        strike(cluster, Fault(do="foreign-pod", node="east-2", amount=3))
        await bench.until_state(apply.object_id, "rejected")
        await bench.until(lambda: _anchor(cluster, apply).rejection)
    for pod in [pod for pod in cluster.view.pods.values() if not pod.workload]:
        cluster.store.drop_pod(pod.uid)
    async with Bench(cluster) as again:
        again.work.take([a_start(apply)])
        seen = await again.until_state(apply.object_id, "rejected")
        assert seen.rejection is not None
        assert seen.rejection.code == "foreign-pods"
        assert all(pod.is_gated for pod in cluster.view.pods.values())


async def test_a_gang_that_has_run_is_not_given_up_because_a_replacement_waits(cluster: SimulatedCluster) -> None:
    apply = an_apply()
    async with Bench(cluster) as bench:
        bench.work.take([apply, a_start(apply)])
        await bench.until_phases(apply.object_id, "running", 4)
        await bench.until(lambda: _anchor(cluster, apply).ran)
    lost = next(pod for pod in cluster.view.pods.values() if pod.index == 1)
    cluster.machinery.set_devices("east-1", GPU, 8)
    cluster.machinery.delete_pod(lost.uid)
    passed: list[timedelta] = [timedelta()]
    async with Bench(cluster, clock=lambda: wall_clock() + passed[-1]) as again:
        await again.until(lambda: again.pod(apply.object_id, 1).unschedulable)
        passed.append(2 * REFUSAL_SETTLES)
        await again.looked_again()
        seen = again.attempt(apply.object_id)
        assert seen is not None
        assert seen.state == "started"
        cluster.machinery.set_devices("east-1", GPU, 0)
        await again.until_phases(apply.object_id, "running", 4)


async def test_the_schedulers_refusal_comes_back_with_its_words_and_node(cluster: SimulatedCluster) -> None:
    apply = an_apply()
    async with Bench(cluster) as bench:
        bench.work.take([apply])
        await bench.until_state(apply.object_id, "prepared")
        cluster.machinery.set_devices("east-1", GPU, 1)
        bench.work.take([a_start(apply)])
        seen = await bench.until_state(apply.object_id, "rejected")
        assert seen.rejection is not None
        assert seen.rejection.code == "unmodelled-constraint"
        assert seen.rejection.nodes == ["east-1"]
        assert "Insufficient nvidia.com/gpu" in str(seen.rejection.facts["words"])


async def test_a_budget_that_passes_is_said_with_its_limit(cluster: SimulatedCluster) -> None:
    template = a_template()
    template["metadata"]["annotations"]["simulated.muster.dev/start-seconds"] = "600"  # type: ignore[index]  # a plain dictionary
    apply = an_apply(template=template, budgets=Budgets(pull_seconds=1))
    async with Bench(cluster) as bench:
        bench.work.take([apply, a_start(apply)])
        seen = await bench.until_state(apply.object_id, "rejected")
        assert seen.rejection is not None
        assert seen.rejection.code == "budget-passed"
        assert seen.rejection.facts["limit"] == 1


@pytest.mark.parametrize("kind", ["Job", "Pods"])
async def test_a_pod_that_somebody_deletes_comes_back_on_its_ranks_node(cluster: SimulatedCluster, kind: str) -> None:
    """T62: no plane is there, and a running gang heals from its directive."""
    apply = an_apply(kind=kind)
    async with Bench(cluster) as bench:
        bench.work.take([apply, a_start(apply)])
        await bench.until_phases(apply.object_id, "running", 4)
    async with Bench(cluster) as again:
        before = again.pod(apply.object_id, 2)
        cluster.machinery.delete_pod(before.uid)
        await again.until(
            lambda: (pod := again.pod(apply.object_id, 2)).uid != before.uid and pod.phase == "Running" and pod
        )
        assert again.pod(apply.object_id, 2).node == "east-2"
        assert all(pod.phase != "failed" for pod in again.pods(apply.object_id))


async def test_a_program_that_failed_is_told_and_not_let_go_again(cluster: SimulatedCluster) -> None:
    apply = an_apply(template=a_template(run_seconds=2, exit_code=7))
    async with Bench(cluster) as bench:
        bench.work.take([apply, a_start(apply)])
        pods = await bench.until_phases(apply.object_id, "failed", 4)
        assert {pod.exit_code for pod in pods} == {7}
        assert not any(pod.disrupted for pod in pods)
        await bench.until(lambda: any(pod.is_gated for pod in cluster.view.pods.values()))  # the Job's next try
        await bench.looked_again()
        assert {pod.phase for pod in bench.pods(apply.object_id)} == {"failed"}
        assert not any(pod.phase == "Running" for pod in cluster.view.pods.values())


async def test_a_node_that_dies_takes_its_pod_and_the_others_are_told_as_they_end(cluster: SimulatedCluster) -> None:
    apply = an_apply()
    async with Bench(cluster) as bench:
        bench.work.take([apply, a_start(apply)])
        await bench.until_phases(apply.object_id, "running", 4)
        cluster.machinery.fail_node("east-3")
        pods = await bench.until_phases(apply.object_id, "failed", 3)
        assert [pod.exit_code for pod in pods] == [1, 1, 1, None]
        await bench.until(lambda: bench.pods(apply.object_id)[3].disrupted)


async def test_objects_that_no_directive_names_are_told_and_never_touched(cluster: SimulatedCluster) -> None:
    raw = {
        "metadata": {
            "name": "left-over",
            "namespace": NAMESPACE,
            "labels": {LABEL_WORKLOAD: "0197a000-0000-7000-8000-0000000000ff", LABEL_ATTEMPT: "7"},
        },
        "spec": {},
    }
    cluster.store.put_object("Job", raw)
    async with Bench(cluster) as bench:
        await bench.until_state("0197a000-0000-7000-8000-0000000000ff.7", "unknown")
        assert bench.work.has_unknown()
    assert cluster.store.find("Job", NAMESPACE, "left-over") is not None


async def test_a_tombstone_of_what_never_was_is_answered_gone(cluster: SimulatedCluster) -> None:
    apply = an_apply()
    async with Bench(cluster) as bench:
        bench.work.take([a_tombstone(apply)])
        seen = await bench.until_state(apply.object_id, "gone")
        assert seen.applied_gen == 3


async def test_an_older_generation_changes_nothing(cluster: SimulatedCluster) -> None:
    apply = an_apply()
    async with Bench(cluster) as bench:
        bench.work.take([apply, a_start(apply), a_tombstone(apply)])
        bench.work.take([a_start(apply), apply])
        await bench.until_state(apply.object_id, "gone")
        assert not cluster.view.pods


async def test_another_object_of_the_same_name_is_not_deleted_in_the_place_of_ours(cluster: SimulatedCluster) -> None:
    outcome = await cluster.carry_out(Delete("Pod", NAMESPACE, "some-pod", uid="the-uid-that-was-seen"))
    assert outcome.verdict == "done"


def _anchor(cluster: SimulatedCluster, apply: Directive) -> ObjectFacts:
    found = owned(cluster.view, apply.object_id).anchor
    assert found is not None
    return found


async def _begin(cluster: SimulatedCluster, directives: list[Directive], actions: int) -> None:
    """Carry out the first few actions that these orders ask for, as an agent that is killed then."""
    wish = None
    for directive in directives:
        wish = take(wish, directive, wall_clock())
    assert wish is not None
    for action in decide(wish, cluster.view, wall_clock())[:actions]:
        outcome = await cluster.carry_out(action)
        assert outcome.verdict == "done"


class _Closed(SimulatedCluster):
    """It has taken away the right to delete."""

    asked = 0

    async def carry_out(self, action: Action) -> Outcome:
        if isinstance(action, Delete):
            self.asked += 1
            return Outcome(Verdict.NO_NAMESPACE, 'jobs "train" is forbidden: User "agent" cannot delete')
        return await super().carry_out(action)


async def test_what_the_cluster_does_not_let_us_do_is_tried_again_with_pauses() -> None:
    cluster = _Closed(a_world(), speed=SPEED)
    await cluster.open()
    apply = an_apply()
    async with Bench(cluster) as bench:
        bench.work.take([apply])
        await bench.until_state(apply.object_id, "prepared")
        bench.work.take([a_tombstone(apply)])
        await bench.until(lambda: cluster.asked)
        for _ in range(100):
            bench.work.step()
            await asyncio.sleep(0)
        assert cluster.asked <= 3
    await cluster.close()
