"""Every example of every help text, typed as it stands there, against a whole plane with a simulated cluster.

They are told in one order, since one makes what the next one shows. `until` marks a line that is repeated until it ends
well, because a process in between takes its time; what stands behind `then` is no example but joins two of them, and is
repeated until it has said what stands behind `~` (with `!`: until it was refused in these words).
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from controlplane.cli.main import app
from controlplane.cli.render import Json
from controlplane.cli.table import COMMANDS, WithExamples
from controlplane.embedded.control import stop
from controlplane.embedded.home import Home, free_port
from tests.cli.running import Muster, Ran
from tests.support.waiting import eventually

LINE_SECONDS = 60.0
PLAN = Path(__file__).parent / "data" / "world.yaml"
SPEED = "20"
TOLD_ELSEWHERE = {
    "muster demo --seconds 12 --json": ("test_demo.py", '"demo", "--seconds", "12", "--json"'),
    "muster explain sweep --if priority=600": ("test_commands.py", '"explain sweep --if priority=600"'),
    "muster explain sweep --if flavor=nvidia-a100-80gb --if replicas=4": (
        "test_commands.py",
        '"explain sweep --if flavor=nvidia-a100-80gb --if replicas=4 -o json"',
    ),
    "muster rebalance --pool default": ("test_commands.py", '"rebalance --pool default"'),  # a report takes a minute
}

STORY = """
muster up --detach
muster status
muster status -o json
muster context list
muster context show
muster context set production --url https://muster.example.com --token-file prod.token
muster context use production
then muster context use local
muster context delete production
muster completion bash
muster completion zsh
muster completion fish
muster whoami
muster schema Queue
muster schema Cluster --world
muster plan -f plan.yaml
muster plan -f plan.yaml --now 2026-03-01T12:00:00Z -o json

muster apply -f org --dry-run
muster apply -f org --dry-run --plan
muster queue apply -f queues.yaml
muster apply -f queues.yaml
muster apply -f org --prune --label managed-by=git --yes
muster queue list
muster queue list -o name
muster queue show lab/vision
muster queue move lab/speech lab/audio
muster queue delete lab/audio
muster document list
muster document list --kind Queue -o name
muster document get Queue lab/vision
muster document get Policy default -o json
EDITOR=true muster document edit Queue lab/vision
muster document delete Policy default

muster cluster create eu-west --label region=eu --token-file eu-west.token
muster cluster token eu-west --valid 30m --token-file again.token
muster cluster revoke eu-west
muster cluster remove eu-west --yes
then muster cluster create home --token-file home.token
until muster cluster accept home
until muster cluster list
muster cluster list -o name
until muster cluster show home
until muster node show home/home-0
muster node list --cluster home
muster node list -o name
muster node cordon home/home-0 --reason 'fan is loud' --for 2h
muster node uncordon home/home-0
until muster device show 1
muster device list --cluster home
muster device list --health unhealthy
muster device cordon 1 --reason 'errors of its memory'
muster device uncordon 1
muster cluster cordon home --reason 'network work' --for 2h
muster cluster uncordon home

muster run -n 2 --devices 8 -q lab/vision --image registry.example.com/train:1 -- torchrun train.py
muster submit -f train.yaml
muster submit --name probe -q lab/vision --image registry.example.com/train:1 --devices 1 -- nvidia-smi
muster run --name sweep -q lab/vision --image registry.example.com/train:1 --priority low --detach -- ./sweep.sh
muster priority sweep 600
muster priority sweep low
muster list
muster list --queue lab --state pending,running -o name
muster describe sweep
muster explain sweep
muster watch --timeout 1
muster watch sweep --timeout 120
then muster submit -f long.yaml
then muster describe train-2 ~ kubectl --context home -n vision logs
then muster cluster remove home --yes ~! 1 live attempt, 16 devices in use
muster cancel train-2
muster list --all --submitted-after 2h
muster events --after 0 --limit 3
muster events --kind cluster --after 0 --limit 1 -o json

until muster cycle show 1
muster replay 1
muster replay 1 --local
muster plan --from-server --save live.json
then muster plan -f live.json ~ Pool default at
muster cycle list --limit 5
muster cycle list -o name
muster ledger accounts --queue lab
muster ledger transfers --queue lab --limit 5
muster ledger transfers --workload sweep
muster audit list --limit 5
muster audit list --kind cluster --since 1d -o json
muster doctor

muster token create ada --queue lab/vision --expires-in 30d --token-file ada.token
muster token create ci --service --role member --queue lab --scope submit --name pipeline --token-file ci.token
muster token list
muster token list -o json
muster token revoke 2
muster binding create bob --role team-lead --queue lab
muster binding list
muster binding delete 2

muster cluster drain home --reason 'new kernels' --deadline 1h
muster cluster undrain home
muster logs api
muster down
"""


QUEUES = """
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: lab}
spec: {quotas: [{flavor: nvidia-h100-80gb}]}
---
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: lab/vision}
spec: {namespace: vision, quotas: [{flavor: nvidia-h100-80gb, nominal: 16}]}
---
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: lab/speech}
spec: {namespace: vision, quotas: [{flavor: nvidia-h100-80gb, nominal: 16}]}
"""
WORLD = """
apiVersion: muster.dev/v1
kind: Cluster
metadata: {name: home}
spec:
  nodes:
    - {count: 4, devices: {flavor: nvidia-h100-80gb, count: 8}, cpu: 192, memory: 2Ti, topology: [{level: rack, of: 2}]}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, labels: {muster.dev/queue: lab.vision}}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: registry.example.com/train:1
          resources: {limits: {nvidia.com/gpu: 8}}
"""


def examples() -> dict[str, list[str]]:
    """The lines of each command's help, by the command's words."""
    found: dict[str, list[str]] = {}

    def look(command: object, words: str) -> None:
        if isinstance(command, WithExamples):
            found[words] = (command.epilog or "").splitlines()
            return
        for name, child in getattr(command, "commands", {}).items():
            look(child, f"{words} {name}".strip())

    look(get_command(app), "")
    return found


def test_every_command_has_examples_and_they_are_of_that_command() -> None:
    found = examples()
    assert len(found) > 50
    for words, lines in found.items():
        assert lines, f"muster {words} has no example"
        assert all(re.search(rf"(^| )muster {words}( |$)", line) for line in lines), (words, lines)


def test_every_command_that_answers_writes_in_every_form() -> None:
    silent = {"up", "down", "logs", "demo", "completion"}

    def look(command: object, words: str) -> None:
        for name, child in getattr(command, "commands", {}).items():
            look(child, f"{words} {name}".strip())
        if isinstance(command, WithExamples):
            has_form = any("--output" in parameter.opts for parameter in command.params)
            assert has_form is (words not in silent), f"muster {words}"

    look(get_command(app), "")


def test_the_table_says_of_each_command_what_its_help_says() -> None:
    commands = getattr(get_command(app), "commands", {})
    assert [name for _, name, _, _ in COMMANDS] == list(commands)
    for _, name, _, words in COMMANDS:
        first = (commands[name].help or "").partition("\n\n")[0]
        assert first.startswith(words.removesuffix(".")), f"muster {name}: {first!r} and {words!r}"


def test_the_story_has_every_example_once() -> None:
    told = [line.removeprefix("until ") for line in STORY.splitlines() if line and not line.startswith("then ")]
    every = [line for lines in examples().values() for line in lines]
    assert sorted(told) == sorted(line for line in every if line not in TOLD_ELSEWHERE)
    for name, words in TOLD_ELSEWHERE.values():
        assert words in (Path(__file__).parent / name).read_text(encoding="utf-8")


@pytest.mark.timeout(300)
def test_every_example_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _files(tmp_path)
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    told = {"MUSTER_HOME": str(home), "MUSTER_API_PORT": str(free_port()), "MUSTER_AGENT_PORT": str(free_port())}
    muster = Muster(tmp_path, told)
    for name in ("DATABASE_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    try:
        with _agent(tmp_path, told["MUSTER_AGENT_PORT"]):
            for line in filter(None, STORY.splitlines()):
                _typed(muster, line)
    finally:
        stop(Home.open(home))


def _typed(muster: Muster, line: str) -> None:
    repeated, line = line.startswith("until "), line.removeprefix("until ").removeprefix("then ")
    line, _, wanted = line.partition(" ~")
    code = 4 if wanted.startswith("!") else 0
    before, _, words = line.partition("muster ")
    told = dict(each.split("=") for each in before.split())
    ran: list[Ran] = []

    def ends_well() -> bool:
        ran.append(muster(words, **told))
        return ran[-1].code == code and wanted.lstrip("! ") in ran[-1].out + ran[-1].err

    if repeated or wanted:
        eventually(ends_well, within=LINE_SECONDS, what=line, pause=0.2)
    else:
        assert ends_well(), f"{line}\n{ran[-1].out}\n{ran[-1].err}"
    assert "Traceback" not in ran[-1].err


def _files(folder: Path) -> None:
    (folder / "queues.yaml").write_text(QUEUES, encoding="utf-8")
    (folder / "train.yaml").write_text(JOB, encoding="utf-8")
    (folder / "long.yaml").write_text(yaml.safe_dump(_long(yaml.safe_load(JOB))), encoding="utf-8")
    (folder / "plan.yaml").write_text(PLAN.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "world.yaml").write_text(WORLD + "---" + QUEUES, encoding="utf-8")
    (folder / "org" / "policies").mkdir(parents=True)
    (folder / "org" / "queues.yaml").write_text(QUEUES, encoding="utf-8")
    policy = {
        "apiVersion": "muster.dev/v1",
        "kind": "Policy",
        "metadata": {"name": "default"},
        "spec": {"backoffSeconds": 1},
    }
    (folder / "org" / "policies" / "default.yaml").write_text(yaml.safe_dump(policy), encoding="utf-8")


def _long(job: Json) -> Json:
    """It is still there when somebody wants to cancel it."""
    job["metadata"]["name"] = "train-2"
    job["spec"]["template"]["metadata"] = {"annotations": {"simulated.muster.dev/run-seconds": "36000"}}
    return job


@contextmanager
def _agent(folder: Path, port: str) -> Iterator[None]:
    """An agent that waits for its token, which the story makes."""
    settings = {
        "PLANE_URL": f"http://127.0.0.1:{port}", "CLUSTER": "home", "TOKEN_FILE": str(folder / "home.token"),
        "STATE_DIR": str(folder / "agent"), "SPEED": SPEED, "BACKOFF_SECONDS_MAX": "1",
    }  # fmt: skip
    command = f"{sys.executable} -m agents.main run --simulated world.yaml"
    script = f"until [ -s home.token ]; do sleep 0.1; done; exec {command}"
    with (folder / "agent.log").open("w") as log:
        agent = subprocess.Popen(
            ["sh", "-c", script], cwd=folder, stdout=log, stderr=log,
            env={**os.environ, **{f"MUSTER_AGENT_{name}": text for name, text in settings.items()}},
        )  # fmt: skip
    try:
        yield
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait(20)
