"""Runs the demonstration from beginning to end and says what came of it.

It keeps a promise only if it was seen kept: a sample over quota, a doctor's finding or a gang that is neither finished
nor accounted for makes the exit code 1.
"""

import json
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Self

import httpx
import yaml

from controlplane.embedded.demo.cast import Cast, DemoFailed, assemble, enrol
from controlplane.embedded.demo.client import Json
from controlplane.embedded.demo.sampling import FINAL, Sampler, settled, waits
from controlplane.embedded.demo.script import STREAM_SECONDS, scenes
from controlplane.embedded.demo.stream import Gang
from controlplane.embedded.demo.view import View, make_view

READY_SECONDS = 30
SETTLE_SECONDS = 60
TICK_SECONDS = 0.1
SUBMIT_TRIES = 20
STRANDED_SIZE = 64


@dataclass(frozen=True, slots=True)
class Summary:
    """What came of it. Waits in milliseconds, utilisation in permille of usable devices while gangs arrived."""

    gangs_submitted: int
    gangs_placed: int
    gangs_succeeded: int
    gangs_lost: int
    attempts: int
    reclaimed: int
    requeued_after_failures: int
    wait_p50_ms: int
    wait_p99_ms: int
    utilisation_permille: int
    samples: int
    samples_over_quota: int
    doctor_violations: int
    seconds: int

    def keeps_its_promises(self) -> bool:
        """Nothing oversold, nothing inconsistent, nothing lost."""
        return not (self.samples_over_quota or self.doctor_violations or self.gangs_lost) and self.gangs_placed > 0


def run_demo(folder: Path, *, seconds: float = STREAM_SECONDS, as_json: bool = False, keep: bool = False) -> int:
    """Run it in `folder` (emptied first), gangs arriving for so long; returns 0 if every promise was kept."""
    say = sys.stderr.write if as_json else sys.stdout.write
    say("muster: starting a plane and four simulated clusters …\n")
    began = time.monotonic()
    cast = assemble(folder)
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as world:
            _set_the_stage(cast, Path(world.name), keep=keep)
            say(f"muster: ready after {time.monotonic() - began:.0f} s; an hour's work now runs in a minute\n")
            summary = _play(cast, seconds, as_json=as_json)
        say(_told(summary, cast, keep=keep))
        if as_json:
            sys.stdout.write(json.dumps(asdict(summary)) + "\n")
        return 0 if summary.keeps_its_promises() else 1
    finally:
        if keep:
            cast.client.close()
        else:
            cast.stop()


def _set_the_stage(cast: Cast, world: Path, *, keep: bool) -> None:
    """Apply the documents, enrol the clusters, and wait until all of them have told their inventory."""
    text = resources.files(__package__).joinpath("world.yaml").read_text(encoding="utf-8")
    world.write_text(text, encoding="utf-8")
    documents = list(yaml.safe_load_all(text))
    clusters = [each for each in documents if each["kind"] == "Cluster"]
    cast.client.post("/apply", [each for each in documents if each["kind"] != "Cluster"])
    enrol(
        cast,
        [(each["metadata"]["name"], _without_nodes(each), each["metadata"]["labels"]) for each in clusters],
        world,
        keep=keep,
    )
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        found = list(cast.client.items("/clusters"))
        if len(found) == len(clusters) and all(each["state"] == "ready" and each["flavors"] for each in found):
            return
        time.sleep(TICK_SECONDS)
    states = {each["name"]: each["state"] for each in cast.client.items("/clusters")}
    raise DemoFailed(f"not all clusters were ready after {READY_SECONDS} s: {states}; logs are in {cast.home.logs}")


def _without_nodes(document: Json) -> Json:
    return {key: value for key, value in document["spec"].items() if key != "nodes"}


class _Submitter:
    """Submits from a thread of its own, so that a slow answer delays no scene; tries again while the API is away."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._waiting: deque[Gang] = deque()
        self._signal = threading.Condition()
        self._is_closed = False
        self.submitted = 0
        self.refused = ""
        self._thread = threading.Thread(target=self._run, name="submitter", daemon=True)
        self._thread.start()

    def __call__(self, gang: Gang) -> None:
        with self._signal:
            self._waiting.append(gang)
            self._signal.notify()

    def close(self) -> None:
        """Submit what waits, then end."""
        with self._signal:
            self._is_closed = True
            self._signal.notify()
        self._thread.join()
        if self.refused:
            raise DemoFailed(self.refused)

    def _run(self) -> None:
        while True:
            with self._signal:
                while not self._waiting and not self._is_closed:
                    self._signal.wait()
                if not self._waiting:
                    return
                gang = self._waiting.popleft()
            self._submit(gang)

    def _submit(self, gang: Gang) -> None:
        for attempt in range(SUBMIT_TRIES):
            try:
                self._cast.client.post("/workloads", gang.document())
            except httpx.TransportError:
                time.sleep(0.1 * (attempt + 1))
            except httpx.HTTPStatusError as error:
                self.refused = f"{gang.name} was refused: {error.response.text[:500]}"
                return
            else:
                self.submitted += 1
                return
        self.refused = f"{gang.name} could not be submitted: the API did not answer"


def _play(cast: Cast, seconds: float, *, as_json: bool) -> Summary:
    sampler, submitter = Sampler(cast.client), _Submitter(cast)
    started = time.monotonic()
    sampler.start()
    with make_view() if not as_json else _Quiet() as view:
        for scene in scenes(cast, submitter, seconds):
            _pass_time(view, sampler, started, until=scene.at)
            if sentence := scene.play():
                view.say(time.monotonic() - started, sentence)
        submitter.close()
        arrived = len(sampler.findings.utilisation_permille)
        view.say(time.monotonic() - started, "no more gangs arrive; the rest finishes")
        while time.monotonic() - started < seconds + SETTLE_SECONDS and not _is_over(sampler):
            _pass_time(view, sampler, started, until=time.monotonic() - started + TICK_SECONDS)
        workloads = settled(cast.client, within=SETTLE_SECONDS / 2)
        sampler.stop()
    return _summary(cast, sampler, submitter.submitted, workloads, arrived, round(time.monotonic() - started))


def _is_over(sampler: Sampler) -> bool:
    states = sampler.latest.states
    return bool(states) and set(states) <= FINAL


def _pass_time(view: View, sampler: Sampler, started: float, until: float) -> None:
    while (seconds := time.monotonic() - started) < until:
        for sentence in sampler.news():
            view.say(seconds, sentence)
        view.show(seconds, sampler.latest)
        time.sleep(min(TICK_SECONDS, until - seconds))


class _Quiet:
    """Shows nothing: only the summary is wanted."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put away."""

    def show(self, seconds: float, look: object) -> None:
        """Not shown."""

    def say(self, seconds: float, sentence: str) -> None:
        sys.stderr.write(f"{seconds:6.1f} s  {sentence}\n")


def _summary(
    cast: Cast, sampler: Sampler, submitted: int, workloads: list[Json], arrived: int, seconds: int
) -> Summary:
    details = [cast.client.get(f"/workloads/{each['id']}") for each in workloads]
    waited = waits(workloads, iter(details))
    attempts = [attempt for detail in details for attempt in detail["attempts"]]
    used = sampler.findings.utilisation_permille[:arrived] or [0]
    return Summary(
        gangs_submitted=submitted,
        gangs_placed=sum(bool(detail["attempts"]) for detail in details),
        gangs_succeeded=sum(each["state"] == "succeeded" for each in workloads),
        gangs_lost=submitted - sum(each["state"] == "succeeded" for each in workloads),
        attempts=len(attempts),
        reclaimed=sum(attempt.get("outcome") == "preempted" for attempt in attempts),
        requeued_after_failures=sum(attempt.get("verdict") == "infrastructure" for attempt in attempts),
        wait_p50_ms=_percentile(waited, 50),
        wait_p99_ms=_percentile(waited, 99),
        utilisation_permille=sum(used) // len(used),
        samples=sampler.findings.looks,
        samples_over_quota=sampler.findings.over_quota,
        doctor_violations=len(cast.client.get("/doctor")["violations"]),
        seconds=seconds,
    )


def _percentile(values: list[float], percent: int) -> int:
    """Of sorted values, in milliseconds; 0 if there are none."""
    return round(1000 * values[min(len(values) - 1, len(values) * percent // 100)]) if values else 0


def _told(summary: Summary, cast: Cast, *, keep: bool) -> str:
    lines = [
        "",
        f"  gangs submitted     {summary.gangs_submitted}",
        f"  gangs placed        {summary.gangs_placed} in {summary.attempts} attempts",
        f"  gangs succeeded     {summary.gangs_succeeded}",
        f"  taken back          {summary.reclaimed} borrowers left whole for the owner of the quota",
        f"  put back            {summary.requeued_after_failures} gangs after failures of machines, whole",
        f"  wait to running     p50 {summary.wait_p50_ms / 1000:.1f} s, p99 {summary.wait_p99_ms / 1000:.1f} s",
        f"  utilisation         {summary.utilisation_permille / 10:.0f} % while gangs arrived",
        f"  samples over quota  {summary.samples_over_quota} of {summary.samples}",
        f"  doctor              {summary.doctor_violations} violations",
        *_measured(cast),
        "",
        "every promise was kept" if summary.keeps_its_promises() else "A PROMISE WAS BROKEN",
        *_next(cast, keep=keep),
    ]
    return "\n".join(lines) + "\n"


def _measured(cast: Cast) -> Iterable[str]:
    """The last scheduled rebalancing pass: it measures and moves nothing."""
    try:
        seen = cast.client.get("/rebalance")
    except httpx.HTTPStatusError:  # none has run yet
        return
    yield f"  rebalancing         measured at {seen['at'][11:19]}, moved nothing:"
    stranded = {
        each["flavor"]: each["stranded"] for each in seen["report"]["stranded"] if each["size"] == STRANDED_SIZE
    }
    for largest in seen["report"]["largest"]:
        if largest["level"] == "rack":
            yield (
                f"    {largest['flavor']:<20}the largest gang that one rack took: {largest['devices']} devices;"
                f" free but of no use to gangs of {STRANDED_SIZE}: {stranded.get(largest['flavor'], 0)}"
            )


def _next(cast: Cast, *, keep: bool) -> Iterable[str]:
    muster = _command()
    if keep:
        yield f"The plane and its clusters run on. In this shell: export MUSTER_HOME={cast.home.path}"
        yield f"then: {muster} queue list, list, cluster list, doctor; {muster} down ends it"
    else:
        yield f"Its data and logs stay in {cast.home.path} until the next demo, or until you remove that folder."
        yield f"What to type next: `{muster} demo --keep` leaves it running to play with, `{muster} up` starts your own"


def _command() -> str:
    """How this shell calls `muster`: by its path where none is on the shell's own."""
    here = Path(sys.executable).with_name("muster")
    return "muster" if shutil.which("muster") or not here.exists() else str(here)
