"""up, down, status, logs: the whole plane on this machine. Unlike its siblings it sees the embedded plane directly.

`up` without `--detach` becomes the supervisor, so that nothing of the CLI stays in memory.
"""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from controlplane.cli import render
from controlplane.cli.asking import OutputOption
from controlplane.cli.errors import LEFT, Exit
from controlplane.cli.render import Output
from controlplane.cli.table import command
from controlplane.embedded import control
from controlplane.embedded.errors import AlreadyRunning, Refusal, StartFailed
from controlplane.embedded.home import Home, default_folder
from controlplane.embedded.state import Phase, PlaneState, read_state

NOT_RUNNING = 3
"""Exit code of `status` when no plane runs, as service managers have it."""
FOLLOW_SECONDS = 0.2
LAST_LINES = 200


app = typer.Typer(rich_markup_mode=None)


@command(app, "up", "muster up --detach")
def up(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when the plane is ready; it runs on.")] = False,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Worker processes.")] = 1,
    planners: Annotated[int, typer.Option(min=1, max=64, help="Planner processes.")] = 1,
) -> None:
    """Run the whole plane on this machine: servers, API, workers, planner, beat."""
    sizes = control.Sizes(workers, planners)
    try:
        home = Home.open(default_folder())
        if not detach:
            control.refuse_second(home)
            supervisor = [*control.SUPERVISOR, *sizes.options()]
            os.execv(supervisor[0], supervisor)  # noqa: S606  # no shell is the point
        state = control.start_detached(home, sizes, _Progress())
    except AlreadyRunning as error:
        _fail(str(error), Exit.REFUSED)
    except (Refusal, StartFailed) as error:
        _fail(str(error))
    print(f"ready: {state.api_url}  (agents: {state.agent_url}; data: {default_folder()})")


@command(app, "down", "muster down")
def down() -> None:
    """Stop the plane of this machine; its data stays."""
    try:
        was_running = control.stop(Home.open(default_folder()))
    except (Refusal, StartFailed) as error:
        _fail(str(error))
    print("stopped" if was_running else f"no plane runs in {default_folder()}")


@command(app, "status", "muster status", "muster status -o json")
def status(output: OutputOption = Output.TABLE) -> None:
    """Show the processes of the plane of this machine; exit code 3 where none runs."""
    folder = default_folder()
    state = read_state(Home(folder))
    told = {"home": str(folder), "running": state is not None, **(asdict(state) if state else {})}

    def table() -> None:
        print("\n".join(_lines(state)) if state else f"no plane runs in {folder}; `muster up` starts one")

    render.show(told, output, table, lambda _: "\n".join(each.name for each in state.processes) if state else "")
    if state is None:
        raise typer.Exit(NOT_RUNNING)


@command(app, "logs", "muster logs api")
def logs(
    name: Annotated[str, typer.Argument(help="A process, as `muster status` names it; none: all.")] = "",
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as lines come, until Ctrl-C.")] = False,
) -> None:
    """Show what the plane's processes wrote."""
    home = Home(default_folder())
    files = [home.log(name)] if name else sorted(home.logs.glob("*.log"))
    if not files or not all(file.exists() for file in files):
        known = ", ".join(sorted(file.stem for file in home.logs.glob("*.log"))) or "none yet"
        _fail(f"no log of {name or 'any process'} in {home.logs}; there are: {known}", Exit.NOT_FOUND)
    try:
        for line in _tail(files, follow=follow):
            print(line)
    except KeyboardInterrupt:
        raise typer.Exit(LEFT) from None
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # the reader is gone; nobody to tell


def _lines(state: PlaneState) -> Iterator[str]:
    yield f"{'ready' if state.ready else 'starting'}: {state.api_url}  (agents: {state.agent_url})"
    yield f"{'NAME':<14}{'STATE':<10}{'PID':>8}  RESTARTS"
    for each in state.processes:
        why = "" if each.last_exit is None else f"  (last ended with {each.last_exit})"
        yield f"{each.name:<14}{each.phase:<10}{each.pid or '-':>8}  {each.restarts}{why}"


def _tail(files: list[Path], *, follow: bool) -> Iterator[str]:
    """The last lines of each file, then new ones; a line tells its file when there are several."""
    read_to: dict[Path, int] = {}
    for file in files:
        text = file.read_bytes()
        read_to[file] = len(text)
        for line in text.decode(errors="replace").splitlines()[-LAST_LINES:]:
            yield _marked(file, line, files)
    while follow:
        for file in files:
            size = file.stat().st_size
            if size < read_to[file]:  # it was cut or begun anew
                read_to[file] = 0
            with file.open("rb") as log:
                log.seek(read_to[file])
                whole = log.read().rpartition(b"\n")[0]
            if whole:
                read_to[file] += len(whole) + 1
                for line in whole.decode(errors="replace").splitlines():
                    yield _marked(file, line, files)
        sys.stdout.flush()
        time.sleep(FOLLOW_SECONDS)


def _marked(file: Path, line: str, files: list[Path]) -> str:
    return line if len(files) == 1 else f"{file.stem:<12} {line}"


class _Progress:
    """Says each process once, when it is ready."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, state: PlaneState) -> None:
        for each in state.processes:
            if each.phase is Phase.READY and each.name not in self._said:
                self._said.add(each.name)
                print(f"  {each.name} runs")


def _fail(why: str, code: Exit = Exit.FAILED) -> NoReturn:
    typer.echo(f"muster: {why}", err=True)
    raise typer.Exit(code)
