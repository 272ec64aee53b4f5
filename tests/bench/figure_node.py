"""How soon cards that a real kubelet withdraws are no longer sold, and how soon a large gang is bound.

The first needs a real node (root and Debian; without, its reason is said and no figure comes), whose kubelet tells its
status every second; Kubernetes' usual ten seconds come on top elsewhere. The second runs on KWOK's nodes.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from controlplane.contract.agent.attempts import LABEL_WORKLOAD
from tests.bench.figures import Result, at_most
from tests.e2e.federation import H100, Federation, federation, gang
from tests.kube import build
from tests.kube.client import Json
from tests.kube.cluster import KubeCluster
from tests.kube.node import packages
from tests.kube.node.node import RealNode
from tests.kube.node.places import CARDS
from tests.kube.objects import NodeShape

WITHDRAWN, ROUNDS = 3, 10
SOLD_TARGET = at_most(2.0)
PODS, NODES, DEVICES = 512, 64, 8
PATIENCE = {"kind": "Policy", "metadata": {"name": "default"}, "spec": {"nodeLostSeconds": 300}}
"""KWOK renews hundreds of leases beside everything else here: a late one is no dead machine."""

BOUND_TARGET = at_most(15.0)
LOOK_SECONDS = 0.02
LOOK_SECONDS_AT_PODS = 0.1
WAIT_SECONDS = 300.0


def devices_withdrawn() -> list[Result]:
    """From the plugin's word to the plane's capacity, the worst of ten; and the median, and the way back."""
    try:
        software = packages.software()
    except packages.NodeUnavailable as reason:
        sys.stderr.write(f"bench: devices-withdrawn is left out: {reason}\n")
        return []
    with (
        _together() as (together, folder),
        RealNode(together.east.kube, folder / "node", build.programs(), software) as node,
    ):
        node.start_kubelet()
        _until_usable(together, len(CARDS))
        withdrawn: list[float] = []
        returned: list[float] = []
        for _ in range(ROUNDS):
            for count, seconds in ((len(CARDS) - WITHDRAWN, withdrawn), (len(CARDS), returned)):
                began = time.monotonic()
                node.set_healthy_devices(count)
                _until_usable(together, count)
                seconds.append(time.monotonic() - began)
    parameters: dict[str, object] = {"withdrawn": WITHDRAWN, "of": len(CARDS), "rounds": ROUNDS}
    return [
        Result("devices-withdrawn", round(max(withdrawn), 3), "s", SOLD_TARGET, parameters),
        Result("devices-withdrawn/median", round(statistics.median(withdrawn), 3), "s", None, parameters),
        Result("devices-withdrawn/returned", round(statistics.median(returned), 3), "s", None, parameters),
    ]


def large_gang() -> list[Result]:
    """From the start order, by the database's clock, to the moment when no pod is without its node; and to running."""
    with _together() as (together, _):
        together.apply([PATIENCE])
        together.add_nodes(together.east, NODES, NodeShape(gpus=DEVICES))
        together.set_quotas({"nlp": PODS})
        submitted = together.submit(gang("large", PODS, devices=1))
        together.wait_for(lambda: _attempt(together, submitted).get("startOrderedAt"), "the start order", WAIT_SECONDS)
        bound = _all_bound(together, submitted)
        together.wait_state(submitted, "running", within=WAIT_SECONDS)
        attempt = _attempt(together, submitted)
        together.cancel(submitted)
        together.wait_state(submitted, "cancelled", within=WAIT_SECONDS)
    ordered, running = (datetime.fromisoformat(attempt[name]) for name in ("startOrderedAt", "runningAt"))
    placed, prepared = (datetime.fromisoformat(attempt[name]) for name in ("placedAt", "preparedAt"))
    parameters: dict[str, object] = {"pods": PODS, "devices_per_pod": 1, "nodes": NODES}
    return [
        Result("large-gang-bound", round((bound - ordered).total_seconds(), 2), "s", BOUND_TARGET, parameters),
        Result("large-gang-bound/prepared", round((prepared - placed).total_seconds(), 2), "s", None, parameters),
        Result("large-gang-bound/running", round((running - ordered).total_seconds(), 2), "s", None, parameters),
    ]


@contextmanager
def _together() -> Iterator[tuple[Federation, Path]]:
    with (
        tempfile.TemporaryDirectory() as name,
        KubeCluster("east", Path(name) / "kube-east") as east,
        KubeCluster("west", Path(name) / "kube-west") as west,
        federation(Path(name), [east, west]) as together,
    ):
        yield together, Path(name)


def _until_usable(together: Federation, count: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while sum(int(each["usable"]) for each in _flavors(together)) != count:
        assert time.monotonic() < deadline, f"never {count} usable cards"
        time.sleep(LOOK_SECONDS)


def _flavors(together: Federation) -> list[Json]:
    return [each for each in together.cluster(together.east)["flavors"] if each["flavor"] == H100]


def _attempt(together: Federation, workload: Json) -> Json:
    found = together.attempts(workload)
    return found[-1] if found else {}


def _all_bound(together: Federation, workload: Json) -> datetime:
    kube, deadline = together.east.kube, time.monotonic() + WAIT_SECONDS
    query = {"labelSelector": f"{LABEL_WORKLOAD}={workload['id']}", "fieldSelector": "spec.nodeName=", "limit": "1"}
    while kube.client.request("GET", kube.client.path("Pod"), query=query)["items"]:
        assert time.monotonic() < deadline, "never all bound"
        time.sleep(LOOK_SECONDS_AT_PODS)
    return datetime.now(UTC)
