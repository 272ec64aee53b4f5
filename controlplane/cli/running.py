"""run, watch, events: what stays until something has ended."""

import json
import sys
import time
from typing import Annotated

import typer

from controlplane.cli import render, story
from controlplane.cli.asking import LabelOption, OutputOption, QueueOption, client, pairs_of
from controlplane.cli.building import Asked
from controlplane.cli.completing import names
from controlplane.cli.errors import LEFT, CommandError, Exit
from controlplane.cli.render import Json, Output
from controlplane.cli.table import command

DAY_SECONDS = 86_400
YEAR_SECONDS = 366 * DAY_SECONDS

app = typer.Typer(rich_markup_mode=None)

QueueOf = Annotated[str, typer.Option("--queue", "-q", help="Path of a leaf queue.", autocompletion=names("queue"))]
Flavors = Annotated[
    list[str] | None,
    typer.Option(metavar="FLAVOR", help="One that would do; again for more.", autocompletion=names("flavor")),
]
TimeoutOption = Annotated[int, typer.Option(min=1, help="Give up after so many seconds.")]


@command(
    app,
    "run",
    "muster run -n 2 --devices 8 -q lab/vision --image registry.example.com/train:1 -- torchrun train.py",
    "muster run --name sweep -q lab/vision --image registry.example.com/train:1 --priority low --detach -- ./sweep.sh",
)
def run(  # noqa: PLR0917 - options of a command are its arguments
    queue: QueueOf,
    image: Annotated[str, typer.Option(help="The container's image.")],
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="What it runs, after --.")] = None,
    replicas: Annotated[int, typer.Option("--replicas", "-n", min=1, help="Pods; all start or none does.")] = 1,
    devices: Annotated[int, typer.Option(min=0, help="Devices of each pod.")] = 0,
    flavor: Flavors = None,
    name: Annotated[str, typer.Option(help="What it is called; none: after its script.")] = "",
    priority: Annotated[str, typer.Option(help="A number or a class, as in high.")] = "",
    topology: Annotated[str, typer.Option(help="A level to share, as in required:rack or preferred:block.")] = "",
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="Or NAME, for its value here; again for more."),
    ] = None,
    label: LabelOption = None,
    max_runtime: Annotated[str, typer.Option(help="Its longest time of running, as in 12h.")] = "",
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return at once; it goes on.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a command on devices, without YAML, and follow it to its end.

    While it waits, why is said; when it was disturbed, for whom and what was lost. Ctrl-C leaves it running.
    """
    asked = Asked(
        queue=queue, image=image, name=name, replicas=replicas, devices=devices, command=words or (),
        flavors=flavor or (), topology=topology, priority=priority, max_runtime=max_runtime, env=env or (),
        labels=pairs_of(label, "--label"),
    )  # fmt: skip
    made = client().send("/workloads", json.dumps(asked.document()).encode())
    warn(made)
    if detach:
        told = f"{made['name']} waits in {made['queue']}; `muster watch {made['name']}` follows it"
        render.show(made, output, lambda: print(told))
        return
    _follow(made["name"], output, YEAR_SECONDS)


@command(app, "watch", "muster watch sweep --timeout 120", "muster watch --timeout 1")
def watch(
    reference: Annotated[
        str,
        typer.Argument(metavar="[WORKLOAD]", help="Its name or id; none: all.", autocompletion=names("workload")),
    ] = "",
    timeout: TimeoutOption = DAY_SECONDS,
    output: OutputOption = Output.TABLE,
) -> None:
    """Follow a workload until it has ended, or all that live."""
    if reference:
        _follow(reference, output, timeout)
    _watch_all(output, timeout)


@command(app, "events", "muster events --after 0 --limit 3", "muster events --kind cluster --after 0 --limit 1 -o json")
def events(
    workload: Annotated[
        str | None, typer.Option(help="Only this workload's.", autocompletion=names("workload"))
    ] = None,
    queue: QueueOption = None,
    kind: Annotated[str | None, typer.Option(help="workload, attempt, cluster, node, queue …")] = None,
    after: Annotated[int | None, typer.Option(min=0, help="Begin after this event; 0: with the first.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="End after so many; 0: never.")] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Follow what happens, as it happens, until Ctrl-C."""
    from controlplane.cli.following import events as stream
    from controlplane.cli.following import tell

    query = {"workload": workload, "queue": queue, "kind": kind, "after": after}
    try:
        for count, event in enumerate(stream(client(), query, told=tell), 1):
            told = {"id": event["position"], **event}
            # Of an event that is no workload's, what it is about stands in `object`.
            named = {"name": event["name"] or event["object"]} if output is Output.NAME else told
            render.each_line(named, output, _event_line(event))
            if count == limit:
                return
    except KeyboardInterrupt:
        raise typer.Exit(LEFT) from None


def warn(made: Json) -> None:
    """What the plane wants to be known of what it took."""
    for warning in made.get("warnings", []):
        print(f"muster: {render.clean(warning['detail'])}", file=sys.stderr)


def _follow(reference: str, output: Output, seconds: int) -> None:
    """To its end, and ours with it."""
    from controlplane.cli.following import Teller, looks

    teller = Teller()
    state = ""
    try:
        for found in looks(client(), reference, seconds):
            state, reference = found["state"], found["name"]
            for line in teller.news(found):
                words = f"{time.strftime('%H:%M:%S')}  {line}" if output is Output.TABLE else line
                render.each_line(found, output, words)
    except KeyboardInterrupt:
        ways = f"`muster watch {reference}` follows it, `muster cancel {reference}` ends it"
        print(f"\nmuster: {reference} goes on; {ways}", file=sys.stderr)
        raise typer.Exit(LEFT) from None
    if state not in story.FINAL:
        raise CommandError(f"{reference} is {state}, and not over after {seconds} s", Exit.FAILED)
    raise typer.Exit(Exit.FINE if state == "succeeded" else Exit.FAILED)


def _watch_all(output: Output, seconds: int) -> None:
    """A line for each change of any that lives."""
    from controlplane.cli.following import Bell, borne

    said: dict[str, tuple[str, int, str]] = {}
    deadline = time.monotonic() + seconds
    bell = Bell(client(), {})
    changed = _changed(said)
    try:
        while True:
            for each in changed:
                words = f"{each['name']}  {each['state']}  attempt {each['attempt']}  {each['reason']}".rstrip()
                render.each_line(each, output, words)
            left = deadline - time.monotonic()
            if left <= 0:
                return
            bell.wait(left)
            changed = borne(client(), lambda: _changed(said), left)
    except KeyboardInterrupt:
        raise typer.Exit(LEFT) from None


def _changed(said: dict[str, tuple[str, int, str]]) -> list[Json]:
    """What is not as it was said last; where the plane does not answer, nothing counts as said."""
    live = list(client().items("/workloads", {"state": story.LIVE}))
    gone = set(said) - {each["id"] for each in live}
    ended = [client().get(f"/workloads/{number}") for number in sorted(gone)]
    changed: list[Json] = []
    for each in ended:
        del said[each["id"]]
        last = each["attempts"][0]["attempt"] if each["attempts"] else 0
        changed.append({**each, "attempt": last, "reason": ""})
    for each in live:
        news = (each["state"], each["attempt"], each["reason"])
        if said.get(each["id"]) != news:
            said[each["id"]] = news
            changed.append(each)
    return changed


def _event_line(event: Json) -> str:
    what = event["name"] or event["object"]
    attempt = f" attempt {event['attempt']}" if event.get("attempt") else ""
    change = f": {event['stateFrom'] or 'new'} → {event['stateTo']}" if event.get("stateTo") else ""
    by = f" by {event['actor']}" if event["actor"] else ""
    head = f"{event['position']}  {render.moment(event['at'])}"
    return f"{head}  {event['kind']} {what}{attempt} {event['action']}{change}{by}"
