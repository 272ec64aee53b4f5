"""`make compose-check`: builds the images, brings docker-compose.yml up, sends a gang through it, takes it all down.

Exit code 0 when that was seen, or when no container engine can be had here (the reason is printed; with REQUIRE_ALL=1
that is a failure, too); 1 when anything failed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from controlplane.embedded.home import free_port
from tests.compose import standins
from tests.compose.engine import Engine, Failed, NoEngine, engine, run, say

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "muster-check"
OURS = {"MUSTER_CONTROLPLANE_IMAGE": "muster-check/controlplane", "MUSTER_AGENT_IMAGE": "muster-check/agent"}
UP_SECONDS = 240
GANG_SECONDS = 120
GANGS = (("pretrain", "nvidia-h100-80gb", 4), ("finetune", "nvidia-a100-80gb", 2))
REGISTRY_SECONDS = 20


def main() -> int:
    """Run the check; what it returns is the exit code."""
    signal.signal(signal.SIGTERM, _stopped)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="muster-compose-"))
    try:
        with engine(folder) as found:
            _check(found)
    except NoEngine as reason:
        say(f"not run: {reason}")
        return 1 if os.environ.get("REQUIRE_ALL") else 0
    except (Failed, subprocess.SubprocessError) as error:
        say(f"FAILED: {error}")
        return 1
    except KeyboardInterrupt:
        say("stopped; what was brought up is taken down")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    say(f"passed in {time.monotonic() - began:.0f} s")
    return 0


def _check(found: Engine) -> None:
    chosen = {} if _reaches_a_registry(found) else standins.images(found, _cache())
    port = free_port()
    environment = {**found.environment, **chosen, **OURS, "MUSTER_API_PORT": str(port), "COMPOSE_PROJECT_NAME": PROJECT}
    _build(found, chosen.get("BASE_IMAGE"))
    with _up(found, environment):
        _wait(lambda: _all_well(found, environment), UP_SECONDS, "every service to be well")
        _send_gangs(found, environment, port)


def _reaches_a_registry(found: Engine) -> bool:
    try:
        pulled = subprocess.run(
            ("docker", "pull", "--quiet", "python:3.12-slim"), env=dict(found.environment), capture_output=True,
            check=False, timeout=600 if not found.is_ours else REGISTRY_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return pulled.returncode == 0


def _cache() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "muster" / "compose"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _build(found: Engine, base: str | None) -> None:
    for name, dockerfile in (
        ("MUSTER_CONTROLPLANE_IMAGE", "controlplane/Dockerfile"),
        ("MUSTER_AGENT_IMAGE", "agents/Dockerfile"),
    ):
        say(f"building {OURS[name]}")
        chosen = ("--build-arg", f"BASE_IMAGE={base}") if base else ()
        network = ("--network", "host") if found.is_ours else ()  # ours has no bridge
        found.docker("build", *network, *chosen, "--tag", OURS[name], "--file", str(ROOT / dockerfile), str(ROOT))
        size = int(found.docker("image", "inspect", "--format", "{{.Size}}", OURS[name]))
        under = int(found.docker("image", "inspect", "--format", "{{.Size}}", base)) if base else 0
        say(f"{OURS[name]} is {(size - under) // 1_000_000} MB{' above its base' if base else ''}")


@contextmanager
def _up(found: Engine, environment: Mapping[str, str]) -> Iterator[None]:
    compose = (*found.compose, "--file", str(ROOT / "docker-compose.yml"))
    try:
        say("bringing everything up")
        run((*compose, "up", "--detach", "--no-build"), environment, cwd=ROOT)
        yield
    except BaseException:
        told = subprocess.run(
            (*compose, "logs", "--tail", "25", "--no-color"),
            env=dict(environment),
            capture_output=True,
            check=False,
            cwd=ROOT,
        )
        say("what the services said:\n" + told.stdout.decode(errors="replace")[-12_000:])
        raise
    finally:
        say("taking everything down")
        run((*compose, "down", "--volumes", "--timeout", "15"), environment, cwd=ROOT)


def _all_well(found: Engine, environment: Mapping[str, str]) -> bool:
    """Each container is healthy, or ended well; raises Failed where one ended badly."""
    ids = found.docker("ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}").split()
    states = json.loads(found.docker("inspect", *ids)) if ids else []
    well = 0
    for each in states:
        name, state = each["Config"]["Labels"]["com.docker.compose.service"], each["State"]
        if state["Status"] == "exited" and each["HostConfig"]["RestartPolicy"]["Name"] in {"", "no"}:
            if state["ExitCode"]:
                raise Failed(f"{name} ended with {state['ExitCode']}")
            well += 1
        elif state.get("Health", {}).get("Status") == "healthy":
            well += 1
    return bool(states) and well == len(states) == len(_services(found, environment))


def _services(found: Engine, environment: Mapping[str, str]) -> list[str]:
    compose = (*found.compose, "--file", str(ROOT / "docker-compose.yml"))
    return run((*compose, "config", "--services"), environment, cwd=ROOT).split()


def _send_gangs(found: Engine, environment: Mapping[str, str], port: int) -> None:
    """One for each cluster, with the command, from outside of the containers."""
    compose = (*found.compose, "--file", str(ROOT / "docker-compose.yml"))
    token = run((*compose, "exec", "-T", "api", "cat", "/var/lib/muster/plane/admin-token"), environment, cwd=ROOT)
    told = {**os.environ, "MUSTER_URL": f"http://127.0.0.1:{port}", "MUSTER_TOKEN": token.strip()}
    muster = str(Path(sys.executable).with_name("muster"))
    for name, flavor, pods in GANGS:
        run((muster, "submit", "--file", "-"), told, given=_gang(name, flavor, pods))
    for name, _, pods in GANGS:
        _wait(lambda name=name: _state(muster, told, name) == "succeeded", GANG_SECONDS, f"{name} to succeed")  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        say(f"the gang {name} of {pods} pods succeeded")
    say(run((muster, "cluster", "list"), told).rstrip())
    run((muster, "doctor"), told)


def _gang(name: str, flavor: str, pods: int) -> bytes:
    template = {
        "metadata": {"annotations": {"simulated.muster.dev/run-seconds": "2"}},
        "spec": {"containers": [{"name": "main", "image": "registry.example.com/train:1"}]},
    }
    pod_set = {"name": "main", "replicas": pods, "devices": 8, "flavors": [{"name": flavor}], "template": template}
    document = {"apiVersion": "muster.dev/v1", "kind": "Workload", "metadata": {"name": name}}
    return json.dumps({**document, "spec": {"queue": "lab/vision", "podSets": [pod_set]}}).encode()


def _state(muster: str, told: Mapping[str, str], name: str) -> str:
    state = str(json.loads(run((muster, "describe", name, "-o", "json"), told))["state"])
    if state in {"failed", "cancelled"}:
        raise Failed(f"{name} {state}")
    return state


def _wait(check: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise Failed(f"waited {seconds:.0f} s for {what}")
        time.sleep(1)


def _stopped(*_: object) -> NoReturn:
    """SIGTERM unwinds like Ctrl-C, so that everything is taken down."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
