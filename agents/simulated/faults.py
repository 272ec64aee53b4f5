"""What breaks in a simulated cluster: by the schedule of its world, by seeded chance, or at a word from outside.

The word comes over a loopback listener that takes one JSON object per line, in the form of `worlds.Fault` (`after` is
ignored), and answers with one. It is for demonstrations and tests on one machine.
"""

import asyncio
import json
import random
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from agents.facts import Json
from agents.simulated import pods
from agents.simulated.cluster import SimulatedCluster
from agents.simulated.worlds import GPU, Fault, Faults

LINE_BYTES_MAX = 4096
PORT_FILE = "control-port"


def schedule(cluster: SimulatedCluster, faults: Faults, names: list[str]) -> None:
    """Set the clock-work of the world's faults going; `names` are the nodes that chance chooses from."""
    chance = random.Random(faults.seed)
    drawn = [
        Fault(do="fail-node", after=chance.uniform(0, faults.within), lasting=faults.lasting, node=chance.choice(names))
        for _ in range(faults.random_node_failures if names else 0)
    ]
    for fault in [*faults.schedule, *drawn]:
        cluster.machinery.later(fault.after, partial(strike, cluster, fault))


def strike(cluster: SimulatedCluster, fault: Fault) -> str:
    """Let it happen now; the answer says what, or why not."""
    machinery, store = cluster.machinery, cluster.store
    if fault.do == "cut-link":
        cluster.cut_link(fault.lasting)
        return "the link to the plane is cut"
    if fault.do == "delete-pod":
        found = [uid for uid, raw in store.pods.items() if raw["metadata"]["name"] == fault.name]
        for uid in found:
            machinery.delete_pod(uid)
        return f"{len(found)} pods deleted"
    name = fault.node or _busiest(cluster)
    if name not in store.nodes:
        return f"no node {name}"
    if fault.do == "fail-node":
        machinery.fail_node(name)
        if fault.lasting is not None:
            machinery.later(fault.lasting, lambda: machinery.restore_node(name))
        return f"node {name} is dead"
    if fault.do == "withdraw-devices":
        machinery.set_devices(name, GPU, fault.amount)
        if fault.lasting is not None:
            machinery.later(fault.lasting, lambda: machinery.set_devices(name, GPU, 0))
        return f"{fault.amount} devices of {name} are withdrawn"
    uid = _foreign_pod(cluster, name, fault.amount)
    if fault.lasting is not None:
        machinery.later(fault.lasting, lambda: machinery.delete_pod(uid))
    return f"a foreign pod took {fault.amount} devices of {name}"


async def listen(cluster: SimulatedCluster, port: int, folder: Path | None) -> asyncio.Server:
    """Take words on a loopback port (0: any free one); the port is written into `folder`."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(_answer(cluster, line)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port, limit=LINE_BYTES_MAX)
    if folder is not None:
        (folder / PORT_FILE).write_text(str(server.sockets[0].getsockname()[1]), encoding="utf-8")
    return server


def _answer(cluster: SimulatedCluster, line: bytes) -> Json:
    try:
        words = json.loads(line)
        if isinstance(words, dict) and words.get("do") == "heal-link":
            cluster.heal_link()
            return {"done": "the link is up"}
        if isinstance(words, dict) and words.get("do") == "restore-node":
            cluster.machinery.restore_node(str(words.get("node", "")))
            return {"done": "the node is back"}
        return {"done": strike(cluster, Fault.model_validate(words))}
    except (ValueError, ValidationError) as error:
        return {"error": str(error)[:500]}


def _busiest(cluster: SimulatedCluster) -> str:
    """The node with the most running pods: a failure that nobody notices shows nothing."""

    def running(name: str) -> int:
        return sum(raw["status"].get("phase") == "Running" for raw in cluster.store.pods_on(name))

    return max(sorted(cluster.store.nodes), key=running, default="")


def _foreign_pod(cluster: SimulatedCluster, node: str, amount: int) -> str:
    raw: Json = {
        "metadata": {"name": f"by-hand-{cluster.store.rng.randrange(10**6)}", "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": {GPU: str(amount)}}}]},
        "status": {"phase": "Pending"},
    }
    pods.run(raw, cluster.now())
    cluster.store.put_pod(raw)
    uid: str = raw["metadata"]["uid"]
    return uid
