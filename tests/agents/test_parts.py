"""A cluster's part of a gang that lies in several: plain pods that keep their index and rank in the whole."""

from agents.facts import HOSTNAME
from agents.simulated.cluster import SimulatedCluster
from controlplane.contract.agent.attempts import ANNOTATION_RANK, Directive, Pin
from tests.agents.bench import GPU, Bench, a_start, a_template, a_world, an_apply

SPEED = 20


def a_later_part() -> Directive:
    """Pods 2 and 3 of four; the first two are elsewhere."""
    apply = an_apply(2, kind="Pods", template=a_template(run_seconds=1))
    assert apply.apply is not None
    pins = [
        Pin(pod_set="main", index=index, rank=index, node=f"east-{index}", resource=GPU, amount=8) for index in (2, 3)
    ]
    return apply.model_copy(update={"apply": apply.apply.model_copy(update={"pins": pins, "world_size": 4})})


async def test_pods_of_a_later_part_have_their_own_index_rank_and_the_whole_worlds_size() -> None:
    cluster = SimulatedCluster(a_world(), speed=SPEED)
    await cluster.open()
    apply = a_later_part()
    async with Bench(cluster) as bench:
        bench.work.take([apply])
        await bench.until_state(apply.object_id, "prepared")
        for index in (2, 3):
            raw = cluster.store.pods[bench.pod(apply.object_id, index).uid]
            assert raw["metadata"]["annotations"][ANNOTATION_RANK] == str(index)
            assert raw["spec"]["nodeSelector"][HOSTNAME] == f"east-{index}"
            environment = {each["name"]: each.get("value") for each in raw["spec"]["containers"][0]["env"]}
            assert environment["WORLD_SIZE"] == "4"
            assert "MASTER_ADDR" not in environment, "rank 0 is in another cluster, whose names mean nothing here"
        assert len(cluster.view.pods) == 2
        bench.work.take([a_start(apply)])
        await bench.until_phases(apply.object_id, "succeeded", 2)
    await cluster.close()
