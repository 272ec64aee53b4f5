"""apply, doctor, rebalance, schema, whoami; token, cycle, audit, context: the plane itself, and who may ask it."""

import json
from typing import Annotated

import typer

from controlplane.cli import render
from controlplane.cli.asking import FileOption, OutputOption, apply_file, client
from controlplane.cli.errors import CommandError, Exit
from controlplane.cli.files import write_private
from controlplane.cli.render import Json, Output, ago

tokens = typer.Typer(help="Bearer tokens of people and services.", no_args_is_help=True)
cycles = typer.Typer(help="Planning cycles.", no_args_is_help=True)
audits = typer.Typer(help="Who did what.", no_args_is_help=True)
contexts = typer.Typer(help="Which plane the commands ask.", no_args_is_help=True)

PoolOption = Annotated[str, typer.Option(help="Which pool.")]
LimitOption = Annotated[int, typer.Option(min=1, help="At most so many.")]
ContextName = Annotated[str, typer.Argument(help="A name of your own for a plane.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the command table."""
    for command in (apply, doctor, rebalance, schema, whoami):
        app.command()(command)
    app.add_typer(tokens, name="token")
    app.add_typer(cycles, name="cycle")
    app.add_typer(audits, name="audit")
    app.add_typer(contexts, name="context")


def apply(file: FileOption, output: OutputOption = Output.TABLE) -> None:
    """Apply documents (Queue, Pool, Policy, Cluster, Workload, Job): all of a file, or none."""
    apply_file(file, output)


def doctor(output: OutputOption = Output.TABLE) -> None:
    """Check every invariant that stored rows can show; exit code 1 if one is broken."""
    found = client().get("/doctor")

    def told() -> None:
        for each in found["violations"]:
            print(f"{each['invariant']}: {render.clean(each['detail'])}")
        print("healthy: no invariant is broken" if found["healthy"] else f"{len(found['violations'])} broken")

    render.show(found, output, told)
    if not found["healthy"]:
        raise typer.Exit(Exit.FAILED)


def rebalance(pool: PoolOption = "default", output: OutputOption = Output.TABLE) -> None:
    """Show the latest report on how broken up the free capacity is; nothing is moved."""
    found = client().get("/rebalance", {"pool": pool})

    def told() -> None:
        print(f"pool {found['pool']}, {ago(found['at'])} ago")
        _print_report(found["report"])

    render.show(found, output, told)


def schema(
    kind: Annotated[str, typer.Argument(help="Workload, Queue, Cluster, Pool, Policy …")],
) -> None:
    """Print the JSON Schema of a kind of document."""
    print(json.dumps(client().get(f"/schema/{kind}"), indent=2))


def whoami(output: OutputOption = Output.TABLE) -> None:
    """Say who you are to the plane."""
    found = client().get("/whoami")
    render.show(found, output, lambda: print(f"{found['principal']}: {', '.join(found['roles']) or 'no role'}"))


@tokens.command("create")
def create_token(
    principal: Annotated[str, typer.Argument(help="Whose.")],
    role: Annotated[str, typer.Option(help="platform-admin, team-lead, member or auditor.")] = "member",
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="There and below; none: everywhere.")] = None,
    service: Annotated[bool, typer.Option(help="A service's, not a person's.")] = False,
    valid: Annotated[str | None, typer.Option(help="How long, as in 90d; none: until it is revoked.")] = None,
    token_file: Annotated[str, typer.Option(help="Write it there (0600) instead of showing it.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a token for a person or service, who gets the role."""
    kind = "service" if service else "person"
    body = {"principal": principal, "kind": kind, "role": role, "queue": queue, "expiresIn": valid}
    made = client().post("/tokens", {name: value for name, value in body.items() if value is not None})
    if token_file:
        write_private(token_file, made.pop("token"))
    where = f"in {token_file}" if token_file else f"shown this once: {made.get('token')}"
    render.show(made, output, lambda: print(f"token {made['id']} of {principal} ({role}), {where}"))


@tokens.command("revoke")
def revoke_token(number: Annotated[int, typer.Argument(help="Its number, as shown when it was made.")]) -> None:
    """End a token at once."""
    client().delete(f"/tokens/{number}")
    print(f"token {number} is revoked")


@cycles.command("list")
def list_cycles(
    pool: Annotated[str | None, typer.Option(help="Which pool; none: all.")] = None,
    limit: LimitOption = 20,
    output: OutputOption = Output.TABLE,
) -> None:
    """List planning cycles that changed something, youngest first."""
    found = list(client().items("/cycles", {"pool": pool}, limit))
    render.show(found, output, lambda: render.rows(_CYCLE_COLUMNS, found, "no cycle"))


@audits.command("list")
def list_audit(
    kind: Annotated[str | None, typer.Option(help="workload, attempt, cluster, queue …")] = None,
    object_id: Annotated[str | None, typer.Option("--object", help="Its id.")] = None,
    actor: Annotated[str | None, typer.Option(help="Who, as in person:ada.")] = None,
    limit: LimitOption = 50,
    output: OutputOption = Output.TABLE,
) -> None:
    """List who did what, youngest first."""
    found = list(client().items("/audit", {"kind": kind, "object": object_id, "actor": actor}, limit))
    render.show(found, output, lambda: render.rows(_AUDIT_COLUMNS, found, "nothing was done"))


@contexts.command("list")
def list_contexts() -> None:
    """List the planes that you know; * marks the one that is asked."""
    from controlplane.cli.client import read_config

    current, known = read_config()
    lines = [{"mark": "*" if name == current else "", "name": name, "url": each.url} for name, each in known.items()]
    render.rows(_CONTEXT_COLUMNS, lines, "no plane is known; `muster up` starts one")


@contexts.command("use")
def use_context(name: ContextName) -> None:
    """Ask this plane from now on."""
    from controlplane.cli.client import read_config, write_config

    _, known = read_config()
    if name not in known:
        raise CommandError(f"there is no context {name}", Exit.NOT_FOUND)
    write_config(name, known)
    print(f"commands ask {known[name].url} from now on")


@contexts.command("set")
def set_context(
    name: ContextName,
    url: Annotated[str, typer.Option(help="Where the plane listens for people.")],
    token_file: Annotated[str, typer.Option(help="A file that holds your token and nothing else.")] = "",
) -> None:
    """Know a plane by this name; the token stays in its file."""
    from controlplane.cli.client import Context, read_config, write_config

    current, known = read_config()
    write_config(current or name, {**known, name: Context(name, url, token_file)})
    print(f"{name} is {url}")


def _print_report(report: Json) -> None:
    """Whatever the report measures: lists as tables, numbers by name."""
    for heading, value in report.items():
        print(f"\n{render.clean(heading)}")
        if isinstance(value, list) and all(isinstance(each, dict) for each in value):
            heads = list(dict.fromkeys(name for each in value for name in each))
            # A default argument, because a lambda would see the last name only.
            columns = [(name.upper(), lambda each, name=name: each.get(name, "-")) for name in heads]
            render.rows(columns, value)
        elif isinstance(value, dict):
            render.pairs((name, json.dumps(each)) for name, each in value.items())
        else:
            print(render.clean(json.dumps(value, ensure_ascii=False)))


def _step(each: Json) -> str:
    if not each["stateTo"]:
        return "-"
    return f"{each['stateFrom']} → {each['stateTo']}" if each["stateFrom"] else str(each["stateTo"])


_CYCLE_COLUMNS: list[render.Column] = [
    ("CYCLE", lambda each: each["id"]),
    ("POOL", lambda each: each["pool"]),
    ("AGE", lambda each: ago(each["startedAt"])),
    ("DECISIONS", lambda each: each["decisions"]),
    ("DROPPED", lambda each: each["dropped"]),
    ("WORK", lambda each: each["workUnits"]),
    ("LEFT OVER", lambda each: each["leftOver"]),
    ("POLICY", lambda each: each["policyVersion"]),
]
_AUDIT_COLUMNS: list[render.Column] = [
    ("AGE", lambda each: ago(each["at"])),
    ("WHO", lambda each: each["actor"]),
    ("DID", lambda each: each["action"]),
    ("TO", lambda each: f"{each['objectKind']} {each['objectId']}"),
    ("STATE", _step),
]
_CONTEXT_COLUMNS: list[render.Column] = [
    ("", lambda each: each["mark"]),
    ("NAME", lambda each: each["name"]),
    ("URL", lambda each: each["url"]),
]
