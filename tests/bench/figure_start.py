"""Submit → running of one 16-pod gang on a real Kubernetes with an idle plane, and where the time goes.

The plane, the agent and both API servers are real; KWOK plays the kubelets without delay. Times are the database's.
"""

import statistics
import tempfile
from datetime import datetime
from pathlib import Path

from tests.bench.figures import Result, at_most
from tests.e2e.federation import Federation, federation, gang
from tests.kube.cluster import KubeCluster
from tests.kube.objects import RACK, NodeShape

PODS, DEVICES = 16, 8
WARM_UP, ROUNDS = 2, 15
TARGET = at_most(1.0)


def submit_to_running() -> list[Result]:
    """The median of the whole, and of its three parts."""
    with (
        tempfile.TemporaryDirectory() as folder,
        KubeCluster("east", Path(folder) / "kube-east") as east,
        KubeCluster("west", Path(folder) / "kube-west") as west,
        federation(Path(folder), [east, west]) as together,
    ):
        together.add_nodes(together.east, 32, NodeShape(gpus=DEVICES, topology={RACK: 16}))
        together.set_quotas({"nlp": 256})
        rounds = [_round(together, number) for number in range(WARM_UP + ROUNDS)][WARM_UP:]
    parameters: dict[str, object] = {"pods": PODS, "devices_per_pod": DEVICES, "rounds": ROUNDS, "nodes": 32}
    parts = ("placed", "prepared", "running", "whole")
    medians = {name: statistics.median(one[number] for one in rounds) for number, name in enumerate(parts)}
    return [
        Result("submit-to-running", round(medians.pop("whole"), 3), "s", TARGET, parameters),
        *(
            Result(f"submit-to-running/{name}", round(value, 3), "s", None, parameters)
            for name, value in medians.items()
        ),
    ]


def _round(together: Federation, number: int) -> tuple[float, float, float, float]:
    submitted = together.submit(gang(f"bench-{number}", PODS, devices=DEVICES, rack="rack"))
    seen = together.wait_state(submitted, "running")
    attempt = seen["attempts"][0]
    moments = [seen["submittedAt"], attempt["placedAt"], attempt["preparedAt"], attempt["runningAt"]]
    start, placed, prepared, running = map(datetime.fromisoformat, moments)
    together.cancel(submitted)
    together.wait_state(submitted, "cancelled")
    return (
        (placed - start).total_seconds(),
        (prepared - placed).total_seconds(),
        (running - prepared).total_seconds(),
        (running - start).total_seconds(),
    )
