"""A plane as an installation runs it: several processes of each kind behind one address, and simulated clusters.

Any process may be killed, started again, or run from another folder of sources than the others. Work is submitted
through the address, each piece with a key of its own, and asked again until somebody answers.
"""

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from controlplane import bootstrap
from controlplane.embedded.home import free_port
from controlplane.settings import Settings
from tests.kube.processes import Program
from tests.support.balancer import Balancer
from tests.support.databases import Database
from tests.support.waiting import eventually

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
H100 = "nvidia-h100-80gb"
NODES, DEVICES = 4, 8
START_SECONDS = 90.0
ANSWER_SECONDS = 60.0
SPEED = 20
NO_TLS = False
"""Plain HTTP on the loopback: to load the system's certificates for each request would cost more than the request."""

BEGIN = "controlplane.embedded.begin"
MODULES = {
    "api": (BEGIN, "controlplane.api.serve"),
    "worker": (BEGIN, "controlplane.workers.run", "worker"),
    "planner": (BEGIN, "controlplane.workers.run", "planner"),
}


@dataclass(slots=True)
class Fleet:
    """All of it. Names of processes are a kind and a number, as in `api-1`."""

    folder: Path
    database: Database
    valkey: str
    people: Balancer
    agents: Balancer
    token: str
    programs: dict[str, Program] = field(default_factory=dict)
    ports: dict[str, tuple[int, int]] = field(default_factory=dict)
    clusters: list[str] = field(default_factory=list)

    def start(self, name: str, source: Path = ROOT) -> None:
        """A process of the plane, from these sources; one that was killed begins again where it was."""
        if name not in self.programs:
            kind = name.partition("-")[0]
            if name not in self.ports:
                self.ports[name] = (free_port(), free_port()) if kind == "api" else (0, 0)
            self.programs[name] = Program(name, self._command(name, MODULES[kind], source), self.folder)
        self.programs[name].start()

    def serve_from(self, *names: str) -> None:
        """Let the address lead to these APIs, once all of them listen."""

        def listen() -> bool:
            self.check()
            assert all(_answers(self.ports[name][0]) for name in names), self.said()
            return True

        eventually(listen, START_SECONDS, f"{', '.join(names)} to listen")
        self.people.to(self.ports[name][0] for name in names)
        self.agents.to(self.ports[name][1] for name in names)

    def restart(self, name: str) -> None:
        """Asked to end, and started again, with what it is to be told now."""
        self.stop(name)
        self.start(name)

    def renew_token(self, source: Path = ROOT) -> None:
        """Another token for the first admin, made by the code in `source`."""
        self.token = _first_token(self.database, self.valkey, source)

    def environment(self) -> dict[str, str]:
        """What an operator's shell has, who works on this plane."""
        api = next((ports[0] for name, ports in self.ports.items() if name.startswith("api")), 0)
        told = {name: text for name, text in os.environ.items() if not name.startswith("MUSTER_")}
        return told | {
            **self.database.environment(),
            "REDIS_URL": self.valkey,
            "MUSTER_SECRETS_DIR": str(self.folder / "secrets"),
            "MUSTER_URL": f"http://127.0.0.1:{self.people.port}",
            "MUSTER_TOKEN": self.token,
            "MUSTER_CONFIG": str(self.folder / "cli.yaml"),
            "API_URL": f"http://127.0.0.1:{api}",
            "PYTHONPATH": str(ROOT),
        }

    def kill(self, name: str) -> None:
        """`kill -9`."""
        self.programs[name].kill()

    def stop(self, name: str) -> None:
        """As a rolling update does: asked to end, and given time."""
        program = self.programs.pop(name)
        os.kill(program.pid, 15)
        eventually(lambda: not program.is_running(), 30, f"{name} to end")
        program.kill()

    def check(self) -> None:
        """Every process that should run does."""
        for program in self.programs.values():
            program.check()

    def said(self) -> str:
        """The last words of everybody, for a failing test."""
        return "\n".join(f"{name}: {program.last_words()}" for name, program in self.programs.items())

    def ask(self, method: str, path: str, body: object = None, key: str = "") -> Json:
        """A request through the address, repeated while nobody answers for good; `key` makes that safe."""
        headers = {"Authorization": f"Bearer {self.token}"} | ({"Idempotency-Key": key} if key else {})
        url = f"http://127.0.0.1:{self.people.port}/api/v1{path}"

        def answered() -> httpx.Response:
            try:
                # Each request over a connection of its own: so every replica gets some.
                answer = httpx.request(
                    method, url, json=body, headers=headers, timeout=10, trust_env=False, verify=NO_TLS
                )
            except httpx.TransportError as error:
                raise AssertionError(f"{type(error).__name__}: {error}") from error
            assert answer.status_code < 500, answer.text
            assert answer.status_code not in {409, 429} or "in-progress" not in answer.text, answer.text
            return answer

        answer = eventually(answered, ANSWER_SECONDS, f"an answer to {method} {path}", pause=0.2)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        found: Json = answer.json() if answer.content else {}
        return found

    def add_cluster(self, name: str, source: Path = ROOT) -> None:
        """A simulated cluster with an agent from these sources, ready for work."""
        world = self.folder / f"{name}.yaml"
        nodes = {"count": NODES, "devices": {"flavor": H100, "count": DEVICES}}
        documents: list[Json] = [
            {"kind": "Queue", "metadata": {"name": "team"}, "spec": {"namespace": "team"}},
            {"kind": "Cluster", "metadata": {"name": name}, "spec": {"nodes": [nodes]}},
        ]
        world.write_text(yaml.safe_dump_all(documents))
        made = self.ask("POST", "/clusters", {"name": name}, key=uuid.uuid4().hex)
        token = self.folder / f"{name}.token"
        token.write_text(made["token"])
        command = [
            *_python(source, {"MUSTER_AGENT_BACKOFF_SECONDS_MAX": "1"}), "agents.main", "run",
            "--simulated", str(world), "--state-dir", str(self.folder / f"state-{name}"), "--speed", str(SPEED),
            "--cluster", name, "--plane-url", f"http://127.0.0.1:{self.agents.port}", "--token-file", str(token),
        ]  # fmt: skip
        self.programs[name] = Program(name, command, self.folder)
        self.programs[name].start()
        self.clusters.append(name)
        self.until_cluster(name, "enrolled")
        self.ask("POST", f"/clusters/{name}/accept")
        self.until_cluster(name, "ready")

    def until_cluster(self, name: str, state: str) -> None:
        def has_state() -> bool:
            seen = self.ask("GET", f"/clusters/{name}")
            assert seen["state"] == state, f"{name} is {seen['state']}; {self.said()}"
            return True

        eventually(has_state, START_SECONDS, f"{name} {state}", pause=0.2)

    def open_queue(self) -> None:
        """One Queue that may take everything there is."""
        units = 2 * NODES * DEVICES
        spec = {"namespace": "team", "quotas": [{"flavor": H100, "nominal": units}]}
        document = {"apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": "team"}, "spec": spec}
        self.ask("POST", "/apply", document, key=uuid.uuid4().hex)

    def states(self) -> dict[str, str]:
        """State of every Workload by name."""
        found = self.ask("GET", "/workloads?limit=500")["items"]
        return {each["name"]: each["state"] for each in found}

    def until_done(self, count: int, within: float = 120.0) -> None:
        """Until so many Workloads have succeeded."""

        def are_done() -> bool:
            self.check()
            states = list(self.states().values())
            assert "failed" not in states, self.said()
            assert states.count("succeeded") >= count, f"{states}; {self.said()}"
            return True

        eventually(are_done, within, f"{count} that succeeded", pause=0.5)

    def heartbeats(self, kind: str) -> set[str]:
        """Processes of that kind that reach Postgres."""
        from tests.services.planes import Plane  # noqa: PLC0415 - who only replaces processes needs no plane by hand

        plane = Plane(self.database)
        try:
            rows = plane.rows("SELECT name FROM process_heartbeat WHERE kind = :kind", kind=kind)
            return {row.name for row in rows}
        finally:
            plane.close()

    def _command(self, name: str, module: Sequence[str], source: Path) -> list[str]:
        api, agents = self.ports[name]
        told = {
            **self.database.environment(),
            "REDIS_URL": self.valkey,
            "MUSTER_SWEEP_SECONDS": "1",
            "MUSTER_POLL_SECONDS": "5",
            "MUSTER_API_PORT": str(api),
            "MUSTER_AGENT_PORT": str(agents),
            "MUSTER_AGENT_URL": f"http://127.0.0.1:{self.agents.port}",
            "MUSTER_SECRETS_DIR": str(self.folder / "secrets"),
        }
        return [*_python(source, told), *module]


class Stream:
    """Submits one Workload after another until told to stop, from a thread of its own."""

    def __init__(self, fleet: Fleet, pause_seconds: float = 0.4) -> None:
        self._fleet = fleet
        self._pause = pause_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stream", daemon=True)
        self.accepted: list[str] = []
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(ANSWER_SECONDS + 10)

    def until_accepted(self, count: int) -> None:
        """Until so many in all were taken."""
        eventually(lambda: len(self.accepted) >= count or self.failures, START_SECONDS, f"{count} accepted")
        assert not self.failures, self.failures

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            name = f"job-{number}"
            try:
                self._fleet.ask("POST", "/workloads", a_gang(name), key=uuid.uuid4().hex)
            except AssertionError as error:
                self.failures.append(str(error))
                return
            self.accepted.append(name)
            self._stop.wait(self._pause)


def a_gang(name: str, pods: int = 2, run_seconds: int = 20) -> Json:
    """A Workload that ends by itself, after `run_seconds` of the clusters' hastened time."""
    template = {
        "metadata": {"annotations": {"simulated.muster.dev/run-seconds": str(run_seconds)}},
        "spec": {"containers": [{"name": "main", "image": "registry.example/train@sha256:" + "0" * 64}]},
    }
    flavors = [{"name": H100}]
    pod_set = {"name": "main", "replicas": pods, "devices": DEVICES, "flavors": flavors, "template": template}
    head = {"apiVersion": "muster.dev/v1", "kind": "Workload", "metadata": {"name": name}}
    return {**head, "spec": {"queue": "team", "podSets": [pod_set]}}


@contextmanager
def fleet(folder: Path, database: Database, valkey: str, token_by: Path = ROOT) -> Iterator[Fleet]:
    """No process yet, and both addresses; the first admin's token is made by the code in `token_by`."""
    with ExitStack() as stack:
        people, agents = (stack.enter_context(Balancer()) for _ in range(2))
        token = _first_token(database, valkey, token_by)
        made = Fleet(folder, database, valkey, people, agents, token)
        try:
            yield made
        finally:
            for program in made.programs.values():
                program.kill()


def nothing_lost_nothing_double(whole: Fleet, names: Sequence[str]) -> None:
    """Each that was accepted is there once, ran once, and holds nothing any more."""
    assert sorted(whole.states()) == sorted(names)
    for name in names:
        seen = whole.ask("GET", f"/workloads/{name}")
        assert [(each["attempt"], each["outcome"]) for each in seen["attempts"]] == [(1, "succeeded")], name
    usage = whole.ask("GET", "/queues/team")["quotas"][0]
    assert (usage["used"], usage["pending"]) == (0, 0)
    for cluster in whole.clusters:
        assert all(flavor["held"] == 0 for flavor in whole.ask("GET", f"/clusters/{cluster}")["flavors"])


def _first_token(database: Database, valkey: str, source: Path) -> str:
    if source == ROOT:  # which is loaded here already; another process would load it again
        told = {"DATABASE_URL": database.url, "REDIS_URL": valkey, "database_role": database.app_role}
        return bootstrap.first_admin_token(Settings.model_validate(told))
    script = "from controlplane import bootstrap, settings; print(bootstrap.first_admin_token(settings.Settings()))"
    command = [*_python(source, {**database.environment(), "REDIS_URL": valkey})[:-1], "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=START_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _python(source: Path, told: dict[str, str]) -> list[str]:
    """An interpreter that sees these sources before those that are installed."""
    words = [f"{name}={text}" for name, text in {"PYTHONPATH": str(source), **told}.items()]
    return ["env", "-C", str(source), *words, sys.executable, "-m"]


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5, trust_env=False, verify=NO_TLS).is_success
    except httpx.TransportError:
        return False
