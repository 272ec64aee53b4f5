"""Runs `muster` against a plane's API, through its own entry point: in this process, with streams and environment
of its own, because starting an interpreter a hundred times would take longer than what is tried; and as a process.
"""

import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controlplane.cli.main import main
from tests.support.databases import ROOT

SECONDS = 60


@dataclass(frozen=True, slots=True)
class Ran:
    """How it ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON as it comes
        """What `-o json` printed."""
        assert self.code == 0, self.err
        return json.loads(self.out)


@dataclass(frozen=True, slots=True)
class Muster:
    """The command, with an environment of its own: nothing of the caller's config is read."""

    home: Path
    told: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, line: str, stdin: str = "", **told: str) -> Ran:
        """Run `muster <line>`, words split as a shell does."""
        out, err = io.StringIO(), io.StringIO()
        code = 0
        with (
            _surroundings(self.environment(told), ["muster", *shlex.split(line)], stdin),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
        return Ran(code, out.getvalue(), err.getvalue())

    def process(self, line: str, stdin: str = "", **told: str) -> Ran:
        """The same as a process of its own."""
        command = [sys.executable, "-m", "controlplane.cli.main", *shlex.split(line)]
        environment = self.environment(told)
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
            timeout=SECONDS,
            cwd=ROOT,
            env=environment,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def fine(self, line: str, stdin: str = "") -> str:
        """Run it; it must end well. Returns what it printed."""
        ran = self(line, stdin)
        assert ran.code == 0, f"muster {line}\n{ran.out}\n{ran.err}"
        return ran.out

    def environment(self, told: Mapping[str, str]) -> dict[str, str]:
        """What the command is told: of the caller only what is no setting of ours."""
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("MUSTER_")}
        return {**inherited, "HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home), **self.told, **told}


@contextlib.contextmanager
def _surroundings(environment: Mapping[str, str], argv: list[str], stdin: str) -> Iterator[None]:
    """What a process has to itself; put back afterwards."""
    before = dict(os.environ), sys.argv, sys.stdin
    os.environ.clear()
    os.environ.update(environment)
    sys.argv, sys.stdin = argv, io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before[0])
        _, sys.argv, sys.stdin = before
