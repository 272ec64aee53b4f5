"""`muster demo`: the demonstration. Like `local` it sees the embedded plane directly."""

from pathlib import Path
from typing import Annotated

import typer

from controlplane.cli.errors import Exit
from controlplane.cli.table import command
from controlplane.embedded.errors import AlreadyRunning, Refusal, StartFailed
from controlplane.embedded.home import default_folder

FOLDER = "demo"


app = typer.Typer(rich_markup_mode=None)


@command(app, "demo", "muster demo --seconds 12 --json")
def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one last JSON line.")] = False,
    seconds: Annotated[int, typer.Option(min=8, max=600, help="How long gangs arrive.")] = 40,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the plane and its clusters running afterwards.")] = False,
) -> None:
    """Watch it work: simulated clusters, three teams, failures on the way; about a minute."""
    # Late: it brings an HTTP client, for which `muster --help` should not wait.
    from controlplane.embedded.demo.cast import DemoFailed
    from controlplane.embedded.demo.run import run_demo

    folder: Path = default_folder().with_name(f"{default_folder().name}-{FOLDER}")
    try:
        code = run_demo(folder, seconds=seconds, as_json=as_json, keep=keep)
    except AlreadyRunning as error:
        typer.echo(f"muster: {error}", err=True)
        code = Exit.REFUSED
    except (Refusal, StartFailed, DemoFailed) as error:
        typer.echo(f"muster: {error}", err=True)
        code = Exit.FAILED
    raise typer.Exit(code)
