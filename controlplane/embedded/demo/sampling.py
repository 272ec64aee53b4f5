"""Looks at the plane again and again: who uses what, is anything oversold, what has changed since the last look."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

import httpx

from controlplane.embedded.demo.client import Json, PlaneClient

LOOK_SECONDS = 0.5
STORY = ("language-pretrain", "assistant-tune")
FINAL = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(slots=True)
class Look:
    """One look at the plane."""

    clusters: list[Json] = field(default_factory=list)
    queues: list[Json] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    utilisation_permille: int = 0


@dataclass(slots=True)
class Findings:
    """What all looks together have found. `over_quota` counts samples in which some account was oversold."""

    looks: int = 0
    over_quota: int = 0
    missed: int = 0  # the API did not answer
    utilisation_permille: list[int] = field(default_factory=list)


class Sampler:
    """Looks from a thread of its own; `latest` is replaced whole, never changed."""

    def __init__(self, client: PlaneClient) -> None:
        self.latest = Look()
        self.findings = Findings()
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._news: list[str] = []
        self._cluster_states: dict[str, str] = {}
        self._gang_states: dict[str, str] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def news(self) -> list[str]:
        """Sentences about what changed since the last call."""
        with self._lock:
            news, self._news = self._news, []
        return news

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                self.look()
            except httpx.HTTPError:
                self.findings.missed += 1

    def look(self) -> Look:
        """Look once, now."""
        queues = list(self._client.items("/queues"))
        clusters = list(self._client.items("/clusters"))
        workloads = list(self._client.items("/workloads"))
        states = Counter(each["state"] for each in workloads)
        look = Look(clusters, queues, states, _utilisation(clusters))
        self.findings.looks += 1
        self.findings.over_quota += any(_oversold(queue) for queue in queues)
        self.findings.utilisation_permille.append(look.utilisation_permille)
        self._tell(clusters)
        self._tell_of_gangs(workloads)
        self.latest = look
        return look

    def _tell(self, clusters: list[Json]) -> None:
        with self._lock:
            for cluster in clusters:
                before = self._cluster_states.get(cluster["name"])
                if before is not None and before != cluster["state"]:
                    self._news.append(f"{cluster['name']} is {cluster['state']} (was {before})")
                self._cluster_states[cluster["name"]] = cluster["state"]

    def _tell_of_gangs(self, workloads: list[Json]) -> None:
        """Who has to leave, and how the named gangs of the story fare."""
        with self._lock:
            for each in workloads:
                name, state, before = each["name"], each["state"], self._gang_states.get(each["id"])
                self._gang_states[each["id"]] = state
                if state == before or before is None:
                    continue
                if state == "stopping":
                    self._news.append(leaving(name, each["devices"]))
                elif name.startswith(STORY) and state in {"running", "succeeded"}:
                    self._news.append(f"{name} {'runs' if state == 'running' else 'has finished'}")


def leaving(gang: str, devices: int) -> str:
    """What is told when a gang that holds so many devices has to stop."""
    return f"{gang} has to leave its {'1 device' if devices == 1 else f'{devices} devices, whole'}"


def _oversold(queue: Json) -> bool:
    """Whether a root uses more than there is. (Beneath a root, limits are what may be borrowed.)"""
    return any(
        quota["used"] > quota["potential"] and quota.get("overdraft", 0) == 0 for quota in queue.get("quotas", [])
    )


def _utilisation(clusters: list[Json]) -> int:
    usable = sum(flavor["usable"] for cluster in clusters for flavor in cluster["flavors"])
    held = sum(flavor["held"] for cluster in clusters for flavor in cluster["flavors"])
    return held * 1000 // usable if usable else 0


def waits(workloads: list[Json], details: Iterator[Json]) -> list[float]:
    """Seconds from submission to the first running Attempt, of those that ever ran."""
    found = []
    for detail in details:
        ran = [each["runningAt"] for each in detail["attempts"] if each.get("runningAt")]
        if ran:
            found.append(max(0.0, (_moment(min(ran)) - _moment(detail["submittedAt"])).total_seconds()))
    assert len(found) <= len(workloads)
    return sorted(found)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def settled(client: PlaneClient, within: float) -> list[Json]:
    """Wait until every Workload is final, at most so long; returns them all."""
    deadline = time.monotonic() + within
    while True:
        workloads = list(client.items("/workloads"))
        if all(each["state"] in FINAL for each in workloads) or time.monotonic() > deadline:
            return workloads
        time.sleep(LOOK_SECONDS)
