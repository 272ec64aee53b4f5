"""submit, list, describe, explain, cancel, watch: what an ML engineer asks for."""

import json
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from controlplane.cli import render
from controlplane.cli.asking import OutputOption, client
from controlplane.cli.errors import CommandError, Exit
from controlplane.cli.files import read_input
from controlplane.cli.render import Json, Output, ago

FINAL = frozenset({"succeeded", "failed", "cancelled"})
LIVE = "pending,reserved,running,stopping,cancelling"
WATCH_SECONDS = 1.0
Reference = Annotated[str, typer.Argument(help="A workload's name or id.")]

COLUMNS: list[render.Column] = [
    ("NAME", lambda each: each["name"]),
    ("QUEUE", lambda each: each["queue"]),
    ("STATE", lambda each: each["state"]),
    ("PODS", lambda each: each["pods"]),
    ("DEVICES", lambda each: each["devices"]),
    ("CLUSTER", lambda each: ",".join(each["clusters"]) or "-"),
    ("AGE", lambda each: ago(each["submittedAt"])),
    ("REASON", lambda each: each["reason"]),
]


def register(app: typer.Typer) -> None:
    """Add these commands to the command table."""
    app.command("submit")(submit)
    app.command("list")(list_workloads)
    for command in (describe, explain, cancel, watch):
        app.command()(command)


def submit(  # noqa: PLR0917 - options of a command are its arguments
    command: Annotated[list[str] | None, typer.Argument(help="What the container runs, after --.")] = None,
    file: Annotated[str, typer.Option("--file", "-f", help="A Workload or Job; - for stdin.")] = "",
    name: Annotated[str, typer.Option(help="Without a file: the workload's name.")] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", help="Without a file: path of a leaf queue.")] = "",
    image: Annotated[str, typer.Option(help="Without a file: the container's image.")] = "",
    replicas: Annotated[int, typer.Option(min=1, help="Without a file: pods.")] = 1,
    devices: Annotated[int, typer.Option(min=0, help="Without a file: devices per pod.")] = 0,
    flavor: Annotated[list[str] | None, typer.Option(help="Without a file: a Flavor; again for more.")] = None,
    topology: Annotated[str, typer.Option(help="Without a file: a level that all pods must share, as in rack.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit a workload: from a file, or described by options."""
    if bool(file) == bool(name):
        raise CommandError("give either a file (-f) or --name, --queue and --image", Exit.WRONG_INPUT)
    if file:
        raw = read_input(file)
    else:
        if not queue or not image:
            raise CommandError("--name wants --queue and --image beside it", Exit.WRONG_INPUT)
        pods: Json = {"name": "main", "replicas": replicas, "devices": devices, "template": _template(image, command)}
        if flavor:
            pods["flavors"] = [{"name": each} for each in flavor]
        if topology:
            pods["topology"] = {"required": topology}
        head = {"apiVersion": "muster.dev/v1", "kind": "Workload", "metadata": {"name": name}}
        raw = json.dumps({**head, "spec": {"queue": queue, "podSets": [pods]}}).encode()
    made = client().send("/workloads", raw)
    for warning in made.get("warnings", []):
        typer.echo(f"muster: {render.clean(warning['detail'])}", err=True)
    told = f"{made['name']} waits in {made['queue']} ({made['id']}); `muster explain {made['name']}` says why"
    render.show(made, output, lambda: print(told))


def list_workloads(  # noqa: PLR0917 - filters of a list are its options
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="This queue and all below it.")] = None,
    state: Annotated[str | None, typer.Option(help="One or more states, with commas.")] = None,
    owner: Annotated[str | None, typer.Option(help="Whose.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Where.")] = None,
    label: Annotated[list[str] | None, typer.Option("--label", "-l", help="key=value; again for more.")] = None,
    every: Annotated[bool, typer.Option("--all", "-a", help="Also what has ended.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0: all.")] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """List workloads, youngest first."""
    states = state or (None if every else LIVE)
    query = {"queue": queue, "state": states, "owner": owner, "cluster": cluster, "label": label}
    found = list(client().items("/workloads", query, limit))
    render.show(found, output, lambda: render.rows(COLUMNS, found, "no workload"))


def describe(reference: Reference, output: OutputOption = Output.TABLE) -> None:
    """Show one workload with all its attempts."""
    found = client().get(f"/workloads/{reference}")
    render.show(found, output, lambda: _describe(found))


def explain(reference: Reference, output: OutputOption = Output.TABLE) -> None:
    """Say why a workload stands where it stands."""
    found = client().get(f"/workloads/{reference}/explain")
    render.show(found, output, lambda: print(render.clean(found["text"])))


def cancel(reference: Reference, output: OutputOption = Output.TABLE) -> None:
    """Order a workload's end."""
    found = client().post(f"/workloads/{reference}/cancel")
    render.show(found, output, lambda: print(f"{found['name']} is {found['state']}"))


def watch(
    reference: Annotated[str, typer.Argument(help="A workload; none: every live one.")] = "",
    timeout: Annotated[int, typer.Option(min=1, help="Give up after so many seconds.")] = 86_400,
    output: OutputOption = Output.TABLE,
) -> None:
    """Follow a workload until it has ended, or all that live until Ctrl-C; a line for each change."""
    said: dict[str, tuple[str, int, str]] = {}
    until = time.monotonic() + timeout
    state = ""
    while time.monotonic() < until:
        for each in _seen(reference):
            news = (each["state"], each["attempt"], each["reason"])
            if said.get(each["id"]) != news:
                said[each["id"]] = news
                line = f"{each['name']}  {each['state']}  attempt {each['attempt']}  {each['reason']}".rstrip()
                print(json.dumps(each) if output is Output.JSON else render.clean(line), flush=True)
            state = each["state"]
        if reference and state in FINAL:
            raise typer.Exit(Exit.FINE if state == "succeeded" else Exit.FAILED)
        time.sleep(WATCH_SECONDS)
    raise CommandError(f"it is not over after {timeout} s", Exit.FAILED)


def _seen(reference: str) -> Iterator[Json]:
    if not reference:
        yield from client().items("/workloads", {"state": LIVE})
        return
    found = client().get(f"/workloads/{reference}")
    reasons = found["reasons"] if found["state"] == "pending" else []
    last = found["attempts"][0]["attempt"] if found["attempts"] else 0
    yield {**found, "attempt": last, "reason": reasons[0]["sentence"] if reasons else ""}


def _template(image: str, command: list[str] | None) -> Json:
    container: Json = {"name": "main", "image": image}
    if command:
        container["command"] = command
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def _describe(found: Json) -> None:
    asked = "; ".join(_pod_set(each) for each in found["podSets"])
    render.pairs(
        [
            ("Name", found["name"]), ("Id", found["id"]), ("Queue", found["queue"]), ("State", found["state"]),
            ("Owner", found["owner"]), ("Priority", found["priority"]), ("Asks for", asked),
            ("Labels", ", ".join(f"{key}={value}" for key, value in found["labels"].items())),
            ("Submitted", f"{ago(found['submittedAt'])} ago"), ("Since", f"{ago(found['stateChangedAt'])} ago"),
        ]
    )  # fmt: skip
    if found["state"] == "pending":
        for each in found["reasons"]:
            print(f"  {render.clean(each['sentence'])}")
    for attempt in found["attempts"]:
        print()
        _describe_attempt(attempt)


def _pod_set(each: Json) -> str:
    flavors = " or ".join(each["flavors"])
    devices = f" of {each['devices']} {flavors}" if each["devices"] else ""
    topology = f", {each['topology']}" if each["topology"] else ""
    return f"{each['name']}: {each['replicas']} pods{devices}{topology}"


def _describe_attempt(attempt: Json) -> None:
    end = f", {attempt['outcome']}" if attempt["outcome"] else ""
    blame = f" ({attempt['verdict']})" if attempt["verdict"] else ""
    print(f"Attempt {attempt['attempt']}: {attempt['state']}{end}{blame}, placed {ago(attempt['placedAt'])} ago")
    if attempt["reason"]:
        print(f"  {render.clean(attempt['reason']['sentence'])}")
    for placement in attempt["placements"]:
        message = f": {render.clean(placement['message'])}" if placement["message"] else ""
        print(f"  {placement['cluster']} {placement['state']}{message}")
        for node in placement["nodes"]:
            states = ", ".join(f"{count} {state}" for state, count in node["states"].items())
            print(f"    {node['node']}: {node['pods']} pods, {node['devices']} {node['flavor']} ({states})")
    for each in attempt["words"]:
        code = "" if each["exitCode"] is None else f", exit code {each['exitCode']}"
        print(f"  Rank {each['rank']} on {each['node'] or '?'} ({each['state']}{code}) said last:")
        for line in render.clean(each["text"]).splitlines():
            print(f"    | {line}")
