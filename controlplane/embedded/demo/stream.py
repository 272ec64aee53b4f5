"""A stream of gangs shaped by real traces: sizes of one published cluster, durations of another, time compressed.

Both tables stand beside this module with their origin. Chance comes in as a seed, so a stream can be told again.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from random import Random

TEAMS = (("company/research/language", 5), ("company/research/vision", 3), ("company/product/assistant", 3))
EIGHTS = ("nvidia-h100-80gb", "nvidia-h200-141gb", "nvidia-a100-80gb")  # flavors of 8-device nodes
FOURS = "nvidia-gb200-192gb"
COMPRESSION = 7_200  # seconds of the trace in one second here
SHORTEST_SECONDS, LONGEST_SECONDS = 2, 9
RACK_FROM_PODS = 2


@dataclass(frozen=True, slots=True)
class Gang:
    """One gang to submit `at` seconds after the start; its pods run `run_seconds`."""

    name: str
    queue: str
    pods: int
    devices: int
    flavors: tuple[str, ...]
    run_seconds: int
    at: float = 0.0
    level: str = ""  # of topology, preferred

    def document(self) -> dict[str, object]:
        """The Workload document, as a person would write it."""
        pod_set: dict[str, object] = {
            "name": "trainer",
            "replicas": self.pods,
            "devices": self.devices,
            "flavors": [{"name": flavor} for flavor in self.flavors],
            "template": {
                "metadata": {"annotations": {"simulated.muster.dev/run-seconds": str(self.run_seconds)}},
                "spec": {
                    "containers": [
                        {"name": "main", "image": "example.org/train:1", "command": ["torchrun", "train.py"]}
                    ]
                },
            },
        }
        if self.level:
            pod_set["topology"] = {"preferred": self.level}
        return {
            "apiVersion": "muster.dev/v1",
            "kind": "Workload",
            "metadata": {"name": self.name},
            "spec": {"queue": self.queue, "podSets": [pod_set]},
        }


def gangs(seed: int, seconds: float, per_second: float) -> Iterator[Gang]:
    """Gangs in order of time, Poisson in time, for so many seconds."""
    chance = Random(seed)
    sizes, durations = _sizes(), _durations()
    shapes = [(pods, devices) for pods, devices, _ in sizes]
    jobs = [count for *_, count in sizes]
    at, number = chance.expovariate(per_second), 0
    while at < seconds:
        number += 1
        [(pods, devices)] = chance.choices(shapes, jobs)
        [(queue, _)] = chance.choices(TEAMS, [weight for _, weight in TEAMS])
        flavors = tuple(chance.sample(EIGHTS, k=len(EIGHTS)))
        if chance.random() < 0.25 and devices in {1, 2, 8}:  # a quarter goes to the racks of four-device nodes
            flavors, pods, devices = (FOURS,), pods * 2 if devices == 8 else pods, min(devices, 4)
        yield Gang(
            name=f"{queue.rpartition('/')[2]}-{number}",
            queue=queue,
            pods=pods,
            devices=devices,
            flavors=flavors,
            run_seconds=_compressed(_drawn(durations, pods * devices, chance)),
            at=at,
            level="rack" if pods >= RACK_FROM_PODS else "",
        )
        at += chance.expovariate(per_second)


def _compressed(seconds: int) -> int:
    return max(SHORTEST_SECONDS, min(LONGEST_SECONDS, round(seconds / COMPRESSION)))


def _drawn(durations: list[tuple[int, list[int]]], devices: int, chance: Random) -> int:
    """A duration between two neighbouring deciles of the class of this size."""
    deciles = next(row for least, row in reversed(durations) if devices >= least)
    low = chance.randrange(len(deciles) - 1)
    return chance.randint(deciles[low], deciles[low + 1])


def _sizes() -> list[tuple[int, int, int]]:
    return [(int(row["pods"]), int(row["devices"]), int(row["jobs"])) for row in _table("gangs.csv")]


def _durations() -> list[tuple[int, list[int]]]:
    return [
        (int(row["devices_from"]), [int(text) for name, text in row.items() if name.startswith("p")])
        for row in _table("durations.csv")
    ]


def _table(name: str) -> list[dict[str, str]]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
