"""A Workload document from options: what `run` and `submit` send where nobody writes YAML."""

import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from controlplane.cli.errors import CommandError, Exit
from controlplane.cli.render import Json

NAME_MAX = 50
_ODD = re.compile(r"[^a-z0-9]+")
_MODES = ("required", "preferred")


@dataclass(frozen=True, slots=True)
class Asked:
    """Identical pods of one container, in one queue."""

    queue: str
    image: str
    name: str = ""
    replicas: int = 1
    devices: int = 0
    command: Sequence[str] = ()
    flavors: Sequence[str] = ()
    topology: str = ""
    priority: str = ""
    max_runtime: str = ""
    env: Sequence[str] = ()
    labels: Json = field(default_factory=dict)

    def document(self) -> Json:
        """As the plane takes it; raises CommandError for an option that means nothing."""
        container: Json = {"name": "main", "image": self.image}
        if self.command:
            container["command"] = list(self.command)
        if self.env:
            container["env"] = [_variable(each) for each in self.env]
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        pods: Json = {"name": "main", "replicas": self.replicas, "devices": self.devices, "template": template}
        if self.flavors:
            pods["flavors"] = [{"name": each} for each in self.flavors]
        if self.topology:
            pods["topology"] = _topology(self.topology)
        spec: Json = {"queue": self.queue, "podSets": [pods]}
        if self.priority:
            spec |= priority(self.priority)
        if self.max_runtime:
            spec["maxRuntime"] = self.max_runtime
        metadata: Json = {"name": self.name or _invented(self.image, self.command)}
        if self.labels:
            metadata["labels"] = self.labels
        return {"apiVersion": "muster.dev/v1", "kind": "Workload", "metadata": metadata, "spec": spec}


def priority(text: str) -> Json:
    """The field of a number, or of a class as in `production`."""
    return {"priority": int(text)} if text.isdecimal() and len(text) < 10 else {"priorityClass": text}


def _topology(text: str) -> Json:
    mode, colon, level = text.partition(":")
    if not colon:
        mode, level = "required", text
    if mode not in _MODES or not level:
        words = f"--topology {text}: it is written required:LEVEL or preferred:LEVEL, as in required:rack"
        raise CommandError(words, Exit.WRONG_INPUT)
    return {mode: level}


def _variable(text: str) -> Json:
    """`K=V`, or `K` alone for the value that it has here: a secret need not stand on the command line."""
    name, equals, value = text.partition("=")
    if not name:
        words = f"--env {text}: it is written NAME=VALUE, or NAME for the value that it has here"
        raise CommandError(words, Exit.WRONG_INPUT)
    if equals:
        return {"name": name, "value": value}
    if name not in os.environ:
        raise CommandError(f"--env {name}: there is no such variable here; give NAME=VALUE", Exit.WRONG_INPUT)
    return {"name": name, "value": os.environ[name]}


def _invented(image: str, command: Sequence[str]) -> str:
    """After the script that runs, else after the image, with a few letters that make it the only one."""
    scripts = [PurePosixPath(word).stem for word in command if word.endswith((".py", ".sh"))]
    plain = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    stem = _ODD.sub("-", (scripts or [plain])[0].lower()).strip("-")[:NAME_MAX].strip("-") or "run"
    return f"{stem}-{secrets.token_hex(2)}"
