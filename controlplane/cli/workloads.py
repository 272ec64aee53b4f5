"""submit, list, describe, explain, priority, cancel: what an ML engineer asks for."""

import json
from collections.abc import Iterator
from typing import Annotated

import typer

from controlplane.cli import render, story
from controlplane.cli.asking import (
    ClusterOption,
    LabelOption,
    OutputOption,
    QueueOption,
    Reference,
    client,
    moment_of,
    pairs_of,
)
from controlplane.cli.building import Asked, priority
from controlplane.cli.completing import names
from controlplane.cli.errors import CommandError, Exit
from controlplane.cli.files import read_input
from controlplane.cli.render import Json, Output, age, ago
from controlplane.cli.running import warn
from controlplane.cli.table import command

PRIORITY_TRIES = 3

app = typer.Typer(rich_markup_mode=None)

COLUMNS: list[render.Column] = [
    ("NAME", lambda each: each["name"]),
    ("QUEUE", lambda each: each["queue"]),
    ("STATE", lambda each: each["state"]),
    ("PRIORITY", lambda each: each["priority"]),
    ("PODS", lambda each: each["pods"]),
    ("DEVICES", lambda each: each["devices"]),
    ("CLUSTER", lambda each: ",".join(each["clusters"]) or "-"),
    ("AGE", lambda each: age(each["submittedAt"])),
    ("REASON", lambda each: each["reason"]),
]


@command(
    app,
    "submit",
    "muster submit -f train.yaml",
    "muster submit --name probe -q lab/vision --image registry.example.com/train:1 --devices 1 -- nvidia-smi",
)
def submit(  # noqa: PLR0917 - options of a command are its arguments
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="What it runs, after --.")] = None,
    file: Annotated[str, typer.Option("--file", "-f", help="A Workload or Job; - for stdin.")] = "",
    name: Annotated[str, typer.Option(help="Without a file: the workload's name.")] = "",
    queue: Annotated[
        str,
        typer.Option("--queue", "-q", help="Without a file: path of a leaf queue.", autocompletion=names("queue")),
    ] = "",
    image: Annotated[str, typer.Option(help="Without a file: the container's image.")] = "",
    replicas: Annotated[int, typer.Option("--replicas", "-n", min=1, help="Without a file: pods.")] = 1,
    devices: Annotated[int, typer.Option(min=0, help="Without a file: devices of each pod.")] = 0,
    flavor: Annotated[list[str] | None, typer.Option(help="Without a file: a Flavor; again for more.")] = None,
    topology: Annotated[str, typer.Option(help="Without a file: a level that all pods must share, as in rack.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit a workload from a file, or described by options.

    A file holds one Workload document or one `batch/v1` Job with the label `muster.dev/queue`.
    """
    if bool(file) == bool(name):
        raise CommandError("give either a file (-f) or --name, --queue and --image", Exit.WRONG_INPUT)
    if file:
        raw = read_input(file)
    else:
        if not queue or not image:
            raise CommandError("--name wants --queue and --image beside it", Exit.WRONG_INPUT)
        asked = Asked(
            queue=queue, image=image, name=name, replicas=replicas, devices=devices, command=words or (),
            flavors=flavor or (), topology=topology,
        )  # fmt: skip
        raw = json.dumps(asked.document()).encode()
    made = client().send("/workloads", raw)
    warn(made)
    told = f"{made['name']} waits in {made['queue']} ({made['id']}); `muster explain {made['name']}` says why"
    render.show(made, output, lambda: print(told))


@command(
    app,
    "list",
    "muster list",
    "muster list --queue lab --state pending,running -o name",
    "muster list --all --submitted-after 2h",
)
def list_workloads(  # noqa: PLR0917 - filters of a list are its options
    queue: QueueOption = None,
    state: Annotated[str | None, typer.Option(help="One or more states, with commas.")] = None,
    owner: Annotated[str | None, typer.Option(help="Whose.")] = None,
    name: Annotated[str | None, typer.Option(help="What it is called.")] = None,
    cluster: ClusterOption = None,
    label: LabelOption = None,
    submitted_after: Annotated[
        str | None, typer.Option(metavar="TIME", help="Submitted since 2h ago, or since 2026-11-30T12:00:00Z.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", "-a", help="Also what has ended.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0: all.")] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """List workloads, youngest first; without --all and --state only what lives."""
    pairs_of(label, "--label")
    states = state or (None if every else story.LIVE)
    query = {
        "queue": queue, "state": states, "owner": owner, "name": name, "cluster": cluster, "label": label,
        "submittedAfter": moment_of(submitted_after),
    }  # fmt: skip
    found = list(client().items("/workloads", query, limit))
    ended = "" if every or state else "; --all shows also what has ended"
    render.listed(found, output, COLUMNS, f"no workload is like that{ended}")


@command(app, "describe", "muster describe sweep")
def describe(reference: Reference, output: OutputOption = Output.TABLE) -> None:
    """Show one workload with all its attempts, and how to read its pods' logs."""
    found = client().get(f"/workloads/{reference}")
    render.show(found, output, lambda: _describe(found))


@command(
    app,
    "explain",
    "muster explain sweep",
    "muster explain sweep --if priority=600",
    "muster explain sweep --if flavor=nvidia-a100-80gb --if replicas=4",
)
def explain(
    reference: Reference,
    otherwise: Annotated[
        list[str] | None,
        typer.Option(
            "--if",
            metavar="WHAT=VALUE",
            help="Would it start if it asked for that? priority, flavor, replicas, topology (preferred:rack), queue or"
            " clusters.max; again for more.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say why a workload stands where it stands, and what would start it; with --if, whether it would start then."""
    found = client().get(f"/workloads/{reference}/explain", {"if": otherwise})
    render.show(found, output, lambda: _explain(found))


@command(app, "priority", "muster priority sweep 600", "muster priority sweep low")
def change_priority(
    reference: Reference,
    value: Annotated[str, typer.Argument(metavar="PRIORITY", help="A number or a class, as in high.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Give a workload another priority: the higher comes first in its queue."""
    path = f"/workloads/{reference}"
    for left in reversed(range(PRIORITY_TRIES)):
        seen, tag = client().tagged(path)
        try:
            found = client().patch(path, priority(value), tag)
        except CommandError as error:
            # Whatever changed in between, this number is what is wanted.
            if error.slug != "precondition-failed" or not left:
                raise
            continue
        told = f"{found['name']} has priority {found['priority']} (it had {seen['priority']})"
        render.show(found, output, lambda: print(told))  # noqa: B023 - called before the loop goes on
        return


@command(app, "cancel", "muster cancel train-2")
def cancel(reference: Reference, output: OutputOption = Output.TABLE) -> None:
    """Order a workload's end."""
    found = client().post(f"/workloads/{reference}/cancel")
    render.show(found, output, lambda: print(f"{found['name']} is {found['state']}"))


def _explain(found: Json) -> None:
    print(render.clean((found["whatIf"] or found)["text"]))
    for each in [level for level in found["levels"] if level["stops"] and level["holders"]]:
        held = ", ".join(f"{at['workload']} ({at['queue']}) {at['units']}" for at in each["holders"])
        print(render.clean(f"  Most {each['flavor']} of {each['queue']} is held by {held}."))
    for each in () if found["whatIf"] else found["advice"]:
        print(f"  {render.clean(each['sentence'])}")
    if not found["whatIf"] and not found["isAllTried"]:
        print("  More might, and was not tried, for too many wait; --if tries what you want to know.")


def _describe(found: Json) -> None:
    waits = found["state"] == "pending"
    render.pairs(
        [
            ("Name", found["name"]), ("Id", found["id"]), ("Queue", found["queue"]), ("State", found["state"]),
            ("Owner", found["owner"]), ("Priority", found["priority"]),
            ("Asks for", "; ".join(pod_set_line(each) for each in found["podSets"])),
            ("Labels", render.labels(found["labels"])), ("Submitted", ago(found["submittedAt"])),
            ("Since", ago(found["stateChangedAt"])), ("Ended", ago(found["finishedAt"])),
            ("Tried again", render.until(found["notBefore"]) if waits else ""),
        ]
    )  # fmt: skip
    if waits:
        for each in found["reasons"]:
            print(f"  {render.clean(each['sentence'])}")
    for attempt in found["attempts"]:
        print()
        for line in story.history(attempt):
            print(line)
    if found.get("logs"):
        print("\nLogs of its pods:")
        for each in found["logs"]:
            print(f"  {render.clean(each['command'])}")


def pod_set_line(each: Json) -> str:
    """What a PodSet asks for."""
    speeds = each.get("speeds") or [None] * len(each["flavors"])
    flavors = " or ".join(
        name if speed is None else f"{name} (speed {speed / 1000:g})"
        for name, speed in zip(each["flavors"], speeds, strict=True)
    )
    devices = f" of {each['devices']} {flavors}" if each["devices"] else ""
    topology = f", {each['topology']}" if each["topology"] else ""
    least = each.get("minReplicas")
    at_least = f"{least} to " if least is not None and least < each["replicas"] else ""
    needs = ", ".join(_needs(each.get("needs") or {}))
    nodes = f", on nodes with {each['nodes']}" if each.get("nodes") else ""
    return (
        f"{each['name']}: {at_least}{render.counted(each['replicas'], 'pod')}{devices}"
        f"{f' and {needs}' if needs else ''}{topology}{nodes}"
    )


def _needs(told: Json) -> Iterator[str]:
    """What one pod needs beside devices; not CPU and memory, which almost every one has."""
    if told.get("rdma"):
        yield f"{told['rdma']} RDMA"
    for name, words in (("hugepagesBytes", "huge pages"), ("localStorageBytes", "local disk")):
        if told.get(name):
            yield f"{told[name] / 2**30:g} GiB of {words}"
