"""Job controller, scheduler and kubelets of a simulated cluster: what happens by itself after an object has changed.

Delays are seconds of the simulated world, shortened by its speed. Only what the agent relies on is played: gates, pins,
free devices, replacement of Job pods, ends by themselves, deletion, dead nodes.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial

from agents import quantities
from agents.facts import HOSTNAME, INDEXES_MAX, JOB_INDEX, Json, amount_of, effective_requests, indexes
from agents.memory import ranges
from agents.simulated import pods
from agents.simulated.store import Store

START_SECONDS = (0.05, 0.25)
BIND_SECONDS = 0.005
STOP_SECONDS = 0.1
BACKOFF_SECONDS = 10.0
NOTICE_SECONDS = 2.0  # a node dies -> its Ready condition says so
ABORT_SECONDS = 1.0  # a node dies -> the other ranks of a gang abort
EVICTION_SECONDS = 5.0  # a node is not ready -> its pods are marked for deletion
ABORT_CODE = 1
KILLED_CODE = 137
TERMINATED_CODE = 143
RUN_SECONDS = 30.0  # of a pod that does not say


NOT_PLAYED = frozenset({"cpu", "memory"})


class Machinery:
    """Everything that moves. `later` runs something after simulated seconds."""

    def __init__(self, store: Store, clock: Callable[[], datetime], speed: float) -> None:
        self._store = store
        self._clock = clock
        self._speed = speed
        self._dead: set[str] = set()
        self._unscheduled: set[str] = set()
        self._timers: set[asyncio.TimerHandle] = set()

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Run `act` once, unless the cluster is closed before."""

        def fire() -> None:
            self._timers.discard(timer)
            act()

        timer = asyncio.get_running_loop().call_later(seconds / self._speed, fire)
        self._timers.add(timer)

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    # Jobs

    def fill_job(self, uid: str) -> None:
        """Make the pods that a Job lacks; each index has one pod that has not failed, until it has succeeded."""
        job = self._store.by_uid("Job", uid)
        if job is None or pods.is_deleted(job):
            return
        done = indexes((job.get("status") or {}).get("completedIndexes", ""))
        taken = {self._index(raw) for raw in self._store.pods_of_job(uid) if not self._is_over(raw)}
        for index in range(min(int(job["spec"].get("completions", 1)), INDEXES_MAX)):
            if index not in taken and index not in done:
                self._store.put_pod(pods.of_job(job, index, self._store.new_uid(), self._clock()))

    def delete_job(self, uid: str) -> None:
        """Background propagation: the Job goes at once, its pods follow."""
        self._store.drop_object("Job", uid)
        for raw in list(self._store.pods_of_job(uid)):
            self.delete_pod(raw["metadata"]["uid"])

    # Pods

    def released(self, uid: str) -> None:
        """A pod without gates: the scheduler looks at it."""
        self.later(BIND_SECONDS, lambda: self._schedule(uid))

    def delete_pod(self, uid: str) -> None:
        """Ask it to stop; a pod on a dead node stays until the node is back or its object is gone."""
        raw = self._store.pods.get(uid)
        if raw is None or pods.is_deleted(raw):
            return
        pods.mark_deleted(raw, self._clock())
        self._store.put_pod(raw)
        node = raw["spec"].get("nodeName")
        if not node or pods.is_finished(raw):
            self.later(BIND_SECONDS, lambda: self._remove(uid))
        elif node not in self._dead:
            self.later(STOP_SECONDS, lambda: self._stopped(uid))

    def end_pod(self, uid: str, exit_code: int, reason: str = "") -> None:
        raw = self._store.pods.get(uid)
        if raw is None or pods.is_finished(raw) or pods.is_deleted(raw) or raw["spec"].get("nodeName") in self._dead:
            return
        pods.end(raw, exit_code, self._clock(), reason)
        self._store.put_pod(raw)
        self._after_end(raw, exit_code)

    # Nodes

    def fail_node(self, name: str) -> None:
        """A machine dies without a word: later its gang-mates abort, the node turns NotReady, its pods are evicted."""
        if name not in self._store.nodes or name in self._dead:
            return
        self._dead.add(name)
        mates = {self._gang(raw) for raw in self._store.pods_on(name) if not pods.is_finished(raw)} - {None}
        self.later(ABORT_SECONDS, lambda: self._abort(mates))
        self.later(NOTICE_SECONDS, lambda: self._notice(name))
        self.later(NOTICE_SECONDS + EVICTION_SECONDS, lambda: self._evict(name))

    def restore_node(self, name: str) -> None:
        if name not in self._dead:
            return
        self._dead.discard(name)
        self._set_ready(name, ready=True)
        for raw in self._store.pods_on(name):
            uid = raw["metadata"]["uid"]
            if pods.is_deleted(raw):
                self._remove(uid)
            elif not pods.is_finished(raw):
                self.end_pod(uid, KILLED_CODE, "NodeLost")

    def set_devices(self, name: str, resource: str, withdrawn: int) -> None:
        """The device plugin withdraws so many; capacity keeps them."""
        raw = self._store.nodes.get(name)
        if raw is not None and resource in raw["status"]["capacity"]:
            capacity = quantities.count(raw["status"]["capacity"][resource]) or 0
            raw["status"]["allocatable"][resource] = str(max(0, capacity - withdrawn))
            self._store.put_node(raw)
            self.retry()

    def retry(self) -> None:
        """Something became free: the scheduler tries those again that it refused."""
        for uid in sorted(self._unscheduled):
            self.later(BIND_SECONDS, partial(self._schedule, uid))
        self._unscheduled.clear()

    def _schedule(self, uid: str) -> None:
        raw = self._store.pods.get(uid)
        if raw is None or pods.is_deleted(raw) or raw["spec"].get("nodeName"):
            return
        name = self._pinned_node(raw)
        if refusal := self._refusal(name, raw):
            pods.set_condition(raw, "PodScheduled", "False", self._clock(), "Unschedulable", refusal)
            self._unscheduled.add(uid)
            self._store.put_pod(raw)
            return
        raw["spec"]["nodeName"] = name
        pods.set_condition(raw, "PodScheduled", "True", self._clock())
        self._store.put_pod(raw)
        low, high = START_SECONDS
        self.later(pods.number(raw, pods.START_SECONDS, self._store.rng.uniform(low, high)), lambda: self._start(uid))

    def _start(self, uid: str) -> None:
        raw = self._store.pods.get(uid)
        if raw is None or pods.is_deleted(raw) or pods.is_finished(raw) or raw["spec"]["nodeName"] in self._dead:
            return
        pods.run(raw, self._clock())
        self._store.put_pod(raw)
        code = int(pods.number(raw, pods.EXIT_CODE, 0))
        self.later(pods.number(raw, pods.RUN_SECONDS, RUN_SECONDS), lambda: self.end_pod(uid, code))

    def _after_end(self, raw: Json, exit_code: int) -> None:
        self.retry()
        job = self._job_of(raw)
        if job is None:
            return
        if exit_code == 0:
            done = indexes((job.setdefault("status", {})).get("completedIndexes", "")) | {self._index(raw)}
            job["status"]["completedIndexes"] = ranges(sorted(done))
            self._store.put_object("Job", job)
        else:
            self.later(BACKOFF_SECONDS, lambda: self.fill_job(job["metadata"]["uid"]))

    def _stopped(self, uid: str) -> None:
        raw = self._store.pods.get(uid)
        if raw is None or raw["spec"].get("nodeName") in self._dead:
            return
        if not pods.is_finished(raw):
            pods.end(raw, TERMINATED_CODE, self._clock())
            self._store.put_pod(raw)
        self.later(BIND_SECONDS, lambda: self._remove(uid))

    def _remove(self, uid: str) -> None:
        raw = self._store.pods.get(uid)
        if raw is None:
            return
        self._store.drop_pod(uid)
        self._unscheduled.discard(uid)
        self.retry()
        if (job := self._job_of(raw)) is not None:
            self.fill_job(job["metadata"]["uid"])

    def _abort(self, gangs: set[str | None]) -> None:
        for raw in list(self._store.pods.values()):
            if self._gang(raw) in gangs and raw["status"].get("phase") == "Running":
                self.end_pod(raw["metadata"]["uid"], ABORT_CODE)

    def _notice(self, name: str) -> None:
        if name in self._dead:
            self._set_ready(name, ready=False)

    def _evict(self, name: str) -> None:
        if name not in self._dead:
            return
        for raw in self._store.pods_on(name):
            if not pods.is_finished(raw):
                pods.set_condition(raw, "DisruptionTarget", "True", self._clock(), "DeletionByTaintManager")
                pods.mark_deleted(raw, self._clock())
                self._store.put_pod(raw)

    def _set_ready(self, name: str, *, ready: bool) -> None:
        raw = self._store.nodes.get(name)
        if raw is not None:
            pods.set_condition(raw, "Ready", "True" if ready else "Unknown", self._clock())
            self._store.put_node(raw)

    def _refusal(self, name: str, raw: Json) -> str:
        """The scheduler's words, or "" if the pod fits."""
        node = self._store.nodes.get(name)
        total = len(self._store.nodes)
        if node is None:
            return f"0/{total} nodes are available: {total} node(s) didn't match Pod's node affinity/selector."
        if self._store.view.nodes[name].ready is False:
            return f"0/{total} nodes are available: 1 node(s) had untolerated taint(s)."
        for taint in node["spec"].get("taints") or []:
            if not _is_tolerated(taint, raw["spec"].get("tolerations") or []):
                return f"0/{total} nodes are available: 1 node(s) had untolerated taint {{{taint['key']}}}."
        wanted = {key: value for key, value in (raw["spec"].get("nodeSelector") or {}).items() if key != HOSTNAME}
        if not wanted.items() <= node["metadata"]["labels"].items():
            return f"0/{total} nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
        others = self._store.pods_on(name)
        for resource, asked in {**effective_requests(raw["spec"]), "pods": 1}.items():
            if resource not in NOT_PLAYED:
                free = amount_of(resource, node["status"]["allocatable"].get(resource, "0"))
                free -= sum(self._held(other, resource) for other in others)
                if asked > free:
                    return f"0/{total} nodes are available: 1 Insufficient {resource}."
        return ""

    def _held(self, raw: Json, resource: str) -> int:
        if pods.is_finished(raw):
            return 0
        return 1 if resource == "pods" else effective_requests(raw["spec"]).get(resource, 0)

    def _pinned_node(self, raw: Json) -> str:
        hostname = (raw["spec"].get("nodeSelector") or {}).get(HOSTNAME, "")
        return str(hostname) if hostname else min(self._store.nodes, default="")

    def _job_of(self, raw: Json) -> Json | None:
        owners = raw["metadata"].get("ownerReferences") or []
        return self._store.by_uid("Job", owners[0]["uid"]) if owners else None

    def _gang(self, raw: Json) -> str | None:
        found: str | None = (raw["spec"].get("subdomain") or None) if raw["spec"] else None
        return found

    def _index(self, raw: Json) -> int:
        return int(raw["metadata"]["labels"].get(JOB_INDEX, -1))

    def _is_over(self, raw: Json) -> bool:
        """Whether a Job replaces this pod: `podReplacementPolicy: Failed` waits for the end, not for the deletion."""
        return bool(raw["status"].get("phase") == "Failed")


def _is_tolerated(taint: Json, tolerations: list[Json]) -> bool:
    return taint.get("effect") == "PreferNoSchedule" or any(
        each.get("key", "") in {"", taint["key"]}
        and (each.get("effect") or taint.get("effect")) == taint.get("effect")
        and (each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", ""))
        for each in tolerations
    )
