"""plan, replay, schema: what a planner would decide, worked out in this process by the planner's own code.

Loaded late: nobody but these commands pays for the core and for what reads documents.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from controlplane.cli import files, planned, render
from controlplane.cli.asking import OutputOption, client, number_of
from controlplane.cli.errors import CommandError, Exit
from controlplane.cli.render import Json, Output
from controlplane.cli.table import command

if TYPE_CHECKING:
    from controlplane.worlds.building import World

WORLD_BYTES_MAX = 256 * 1_048_576

app = typer.Typer(rich_markup_mode=None)


@command(
    app,
    "plan",
    "muster plan -f plan.yaml",
    "muster plan -f plan.yaml --now 2026-03-01T12:00:00Z -o json",
    "muster plan --from-server --save live.json",
)
def plan(
    paths: Annotated[
        list[str] | None, typer.Option("--file", "-f", help="A file or a folder; - for stdin; again for more.")
    ] = None,
    now: Annotated[
        str, typer.Option(metavar="TIME", help="As in 2026-03-01T12:00:00Z; none: as the files say, else the present.")
    ] = "",
    from_server: Annotated[bool, typer.Option("--from-server", help="Plan the live world of a plane's pool.")] = False,
    pool: Annotated[str, typer.Option(help="Which pool of the plane.")] = "default",
    save: Annotated[str, typer.Option(metavar="FILE", help="Keep that world in a new file, to plan it again.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Plan a world described in files, or a plane's live one, without doing anything.

    Shows who would start where, who would have to leave, who would wait and why, and every queue's share. The same
    files and the same time give the same bytes. Documents are those that `apply` takes; a Cluster names its nodes, and
    Running says what runs where.
    """
    if paths and from_server:
        raise CommandError("-f plans files and --from-server a plane's world: one of them, not both", Exit.WRONG_INPUT)
    if not paths and not from_server:
        raise CommandError("plan what: name files with -f, or ask a plane with --from-server", Exit.WRONG_INPUT)
    if save and not from_server:
        raise CommandError("--save keeps what --from-server brings, and there is none", Exit.WRONG_INPUT)
    moment = _moment(now)
    world = _live(pool, save, moment) if from_server else _described(paths or (), moment)
    from controlplane.worlds.planning import plan as planned_by

    found: Json = planned_by(world).model_dump(mode="json", by_alias=True)
    render.show(found, output, lambda: planned.tell(found), lambda each: "\n".join(planned.started(each)))


@command(app, "replay", "muster replay 1", "muster replay 1 --local")
def replay(
    number: Annotated[str, typer.Argument(metavar="CYCLE", help="Its number, as `muster cycle list` shows it.")],
    local: Annotated[bool, typer.Option("--local", help="Bring its record here and run it in this process.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a stored cycle again: is the plan the same, bit for bit? Exit code 1 if it is not."""
    cycle = number_of(number, "cycle")
    found = _rerun(client().get(f"/cycles/{cycle}/record")) if local else client().get(f"/cycles/{cycle}/replay")

    def told() -> None:
        render.pairs(
            [
                ("Cycle", found["cycle"]), ("Run by", "this process" if local else "the plane"),
                ("Decisions", found["decisions"]), ("Waiting", found["waiting"]),
                ("Work", f"{found['workUnits']} units"), ("Stored", found["storedSha256"]),
                ("Run again", found["replayedSha256"]),
            ]
        )  # fmt: skip
        print("identical: the same world gave the same plan" if found["identical"] else "they differ")

    render.show(found, output, told, lambda each: "identical" if each["identical"] else "different")
    if not found["identical"]:
        raise typer.Exit(Exit.FAILED)


@command(app, "schema", "muster schema Queue", "muster schema Cluster --world")
def schema(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Workload, Queue, Cluster, Running …")],
    world: Annotated[bool, typer.Option("--world", help="As `muster plan` reads it, which may say more.")] = False,
    output: OutputOption = Output.JSON,
) -> None:
    """Print the JSON Schema of a kind of document, each field with its meaning; no plane is asked."""
    from controlplane.contract.rest.schemas import SCHEMA_KINDS, schema_of

    name = kind[:1].upper() + kind[1:]
    if name not in SCHEMA_KINDS:
        words = f"there is no kind {render.clean(name)}; there are {', '.join(SCHEMA_KINDS)}"
        raise CommandError(words, Exit.NOT_FOUND)
    found = schema_of(name, in_world=world)
    render.show(found, output, lambda: print(json.dumps(found, indent=2)), lambda _: name)


def _described(paths: Sequence[str], now: datetime | None) -> "World":
    """The world of these files; raises CommandError with every mistake and its place."""
    from controlplane.worlds.building import world_from
    from controlplane.worlds.reading import read
    from controlplane.worlds.sources import Source, WrongWorld

    sources = []
    for each in files.read_all(paths, WORLD_BYTES_MAX):
        try:
            sources.append(Source(each.path, each.raw.decode("utf-8-sig")))
        except UnicodeDecodeError as error:
            words = f"{each.path}: this is no UTF-8 text: byte {error.start} is 0x{each.raw[error.start]:02x}"
            raise CommandError(words, Exit.WRONG_INPUT) from None
    try:
        return world_from(read(sources), now, datetime.now(UTC))
    except WrongWorld as wrong:
        raise _mistaken(wrong.lines()) from None


def _live(pool: str, save: str, now: datetime | None) -> "World":
    from controlplane.worlds.building import world_from
    from controlplane.worlds.reading import read
    from controlplane.worlds.sources import Source, WrongWorld

    text = json.dumps(client().get(f"/pools/{pool}/snapshot"), ensure_ascii=False)
    if save:
        with files.PrivateFile(save) as file:
            file.write(text)
    try:
        return world_from(read([Source("the plane's snapshot", text)]), now, datetime.now(UTC))
    except WrongWorld as wrong:
        raise CommandError(f"this command and the plane differ: {wrong}", Exit.FAILED) from None


def _rerun(record: Json) -> Json:
    """What the plane would answer, worked out here from a cycle's record."""
    from controlplane.contract.rest.planning import CycleRecordView
    from controlplane.services.replay import chain_of, rerun, view

    return view(rerun(chain_of(CycleRecordView.model_validate(record)))).model_dump(mode="json", by_alias=True)


def _moment(text: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"--now {text}: it is written like 2026-03-01T12:00:00Z", Exit.WRONG_INPUT) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _mistaken(lines: Sequence[str]) -> CommandError:
    if len(lines) == 1:
        return CommandError(render.clean(lines[0]), Exit.WRONG_INPUT)
    words = "\n".join([f"{len(lines)} mistakes", *(f"  {line}" for line in lines)])
    return CommandError(render.clean(words), Exit.WRONG_INPUT)
