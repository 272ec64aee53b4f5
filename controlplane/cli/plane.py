"""cycle, ledger, audit, doctor, rebalance: what the plane tells of itself."""

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from controlplane.cli import render
from controlplane.cli.asking import FlavorOption, LimitOption, OutputOption, QueueOption, client, moment_of, number_of
from controlplane.cli.completing import names
from controlplane.cli.errors import Exit
from controlplane.cli.render import Json, Output, age, ago, counted
from controlplane.cli.table import command, group

PERMILLE = 1_000

app = typer.Typer(rich_markup_mode=None)
cycles = group("cycle", app)
ledger = group("ledger", app)
audits = group("audit", app)

PoolOption = Annotated[str, typer.Option(help="Which pool.")]
CycleNumber = Annotated[str, typer.Argument(metavar="CYCLE", help="Its number, as listed.")]


@command(cycles, "list", "muster cycle list --limit 5", "muster cycle list -o name")
def list_cycles(
    pool: Annotated[str | None, typer.Option(help="Which pool; none: all.")] = None,
    limit: LimitOption = 20,
    output: OutputOption = Output.TABLE,
) -> None:
    """List planning cycles that changed something, youngest first."""
    found = list(client().items("/cycles", {"pool": pool}, limit))
    render.listed(found, output, _CYCLE_COLUMNS, "no cycle has changed anything yet", _number)


@command(cycles, "show", "muster cycle show 1")
def show_cycle(number: CycleNumber, output: OutputOption = Output.TABLE) -> None:
    """Show what one cycle decided, and whom it left waiting and why."""
    cycle = number_of(number, "cycle")
    head, plan = client().get(f"/cycles/{cycle}"), client().get(f"/cycles/{cycle}/plan")
    render.show({**head, "plan": plan}, output, lambda: _show_cycle(head, plan), _number)


@command(ledger, "accounts", "muster ledger accounts --queue lab")
def list_accounts(queue: QueueOption = None, flavor: FlavorOption = None, output: OutputOption = Output.TABLE) -> None:
    """List what each queue owns and uses of each Flavor, as it is stored."""
    found = list(client().items("/ledger/accounts", {"queue": queue, "flavor": flavor}))
    render.listed(found, output, _ACCOUNT_COLUMNS, "no account is like that", _account)


@command(
    ledger, "transfers", "muster ledger transfers --queue lab --limit 5", "muster ledger transfers --workload sweep"
)
def list_transfers(
    queue: QueueOption = None,
    workload: Annotated[
        str | None, typer.Option(help="Only this workload's.", autocompletion=names("workload"))
    ] = None,
    flavor: FlavorOption = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many; each has a line for every account.")] = 50,
    output: OutputOption = Output.TABLE,
) -> None:
    """List changes of accounts, youngest first; nothing here is ever changed."""
    query = {"queue": queue, "workload": workload, "flavor": flavor}
    found = list(client().items("/ledger/transfers", query, limit))
    if output is Output.TABLE and found:
        render.rows(_TRANSFER_COLUMNS, [line for each in found for line in _legs(each)])
    else:
        render.listed(found, output, [], "no transfer is like that", _number)


@command(audits, "list", "muster audit list --limit 5", "muster audit list --kind cluster --since 1d -o json")
def list_audit(
    kind: Annotated[str | None, typer.Option(help="workload, attempt, cluster, queue …")] = None,
    object_id: Annotated[str | None, typer.Option("--object", help="Its id.")] = None,
    actor: Annotated[str | None, typer.Option(help="Who, as in person:ada.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Since 2h ago, or since 2026-11-30T12:00:00Z.")
    ] = None,
    limit: LimitOption = 50,
    output: OutputOption = Output.TABLE,
) -> None:
    """List who did what, youngest first."""
    query = {"kind": kind, "object": object_id, "actor": actor, "since": moment_of(since)}
    found = list(client().items("/audit", query, limit))
    render.listed(found, output, _AUDIT_COLUMNS, "nothing like that was done", _number)


@command(app, "doctor", "muster doctor")
def doctor(output: OutputOption = Output.TABLE) -> None:
    """Check every invariant that stored rows can show; exit code 1 if one is broken."""
    found = client().get("/doctor")

    def told() -> None:
        for each in found["violations"]:
            print(f"{each['invariant']}: {render.clean(each['detail'])}")
        print("healthy: no invariant is broken" if found["healthy"] else f"{len(found['violations'])} broken")

    render.show(found, output, told, lambda each: "healthy" if each["healthy"] else "broken")
    if not found["healthy"]:
        raise typer.Exit(Exit.FAILED)


@command(app, "rebalance", "muster rebalance --pool default")
def rebalance(pool: PoolOption = "default", output: OutputOption = Output.TABLE) -> None:
    """Show how broken up the free capacity is, by the latest report; nothing is moved."""
    found = client().get("/rebalance", {"pool": pool})

    def told() -> None:
        print(f"Pool {found['pool']}, {ago(found['at'])}")
        _tell_report(found["report"])

    render.show(found, output, told, lambda each: each["pool"])


def _tell_report(report: Json) -> None:
    _section("How full each cluster is", report.get("utilisation", []), _FULL_COLUMNS)
    spread = [{"flavor": flavor, "permille": permille} for flavor, permille in report.get("spread", {}).items()]
    _section("Fullest less emptiest cluster", spread, _SPREAD_COLUMNS)
    _section("The largest gang of whole nodes that starts now", report.get("largest", []), _LARGEST_COLUMNS)
    stranded = [each for each in report.get("stranded", []) if each["stranded"]]
    _section("Free, and of no use to gangs of this size", stranded, _STRANDED_COLUMNS)


def _section(heading: str, lines: Sequence[Json], columns: Sequence[render.Column]) -> None:
    if lines:
        print(f"\n{heading}")
        render.rows(columns, lines)


def _show_cycle(head: Json, plan: Json) -> None:
    render.pairs(
        [
            ("Cycle", head["id"]), ("Pool", head["pool"]), ("Began", ago(head["startedAt"])),
            ("Policy", f"version {head['policyVersion']}"), ("Decisions", head["decisions"]),
            ("Dropped", head["dropped"]), ("Work", f"{head['workUnits']} units"), ("Left over", head["leftOver"]),
        ]
    )  # fmt: skip
    for each in plan["decisions"]:
        print(f"  {render.clean(_decision(each))}")
    if plan["waiting"]:
        more = plan["waitingTotal"] - len(plan["waiting"])
        print(f"\nLeft waiting: {plan['waitingTotal']}" + (f" (the first {len(plan['waiting'])})" if more > 0 else ""))
    for each in plan["waiting"]:
        why = " ".join(reason["sentence"] for reason in each["reasons"])
        print(f"  {render.clean(f'{_called(each)}: {why}')}")


def _decision(each: Json) -> str:
    where = "; ".join(
        f"{placed['cluster']}: {counted(placed['pods'], 'pod')} on {counted(placed['nodes'], 'node')}"
        for placed in each["placements"]
    )
    parts = [f"{each['kind']} {_called(each)}"]
    if each.get("attempt"):
        parts.append(f"attempt {each['attempt']}")
    if each.get("askerName") or each.get("asker"):
        parts.append(f"for {each['askerName'] or each['asker']}")
    if where:
        parts.append(where)
    if each.get("reason"):
        parts.append(each["reason"]["sentence"])
    return ", ".join(parts)


def _called(each: Json) -> str:
    return f"{each['name'] or each['workload']}" + (f" of {each['queue']}" if each.get("queue") else "")


def _legs(transfer: Json) -> list[Json]:
    """A line for each account that it changes; what all of them share is said on the first."""
    return [{**transfer, **leg, "is_first": leg is transfer["legs"][0]} for leg in transfer["legs"]]


def _once(read: Callable[[Json], object]) -> Callable[[Json], object]:
    return lambda each: read(each) if each["is_first"] else ""


def _number(each: Json) -> object:
    return each["id"]


def _account(each: Json) -> str:
    return f"{each['queue']}:{each['flavor']}"


def _percent(permille: int) -> str:
    return f"{permille / (PERMILLE / 100):.1f} %"


def _step(each: Json) -> str:
    if not each["stateTo"]:
        return "-"
    return f"{each['stateFrom']} → {each['stateTo']}" if each["stateFrom"] else str(each["stateTo"])


def _get(key: str) -> Callable[[Json], object]:
    return lambda each: each.get(key, "-")


_CYCLE_COLUMNS: list[render.Column] = [
    ("CYCLE", _get("id")), ("POOL", _get("pool")), ("AGE", lambda each: age(each["startedAt"])),
    ("DECISIONS", _get("decisions")), ("DROPPED", _get("dropped")), ("WORK", _get("workUnits")),
    ("LEFT OVER", _get("leftOver")), ("POLICY", _get("policyVersion")),
]  # fmt: skip
_ACCOUNT_COLUMNS: list[render.Column] = [
    ("QUEUE", _get("queue")), ("FLAVOR", _get("flavor")), ("OWNS", _get("subtree")), ("KEPT", _get("kept")),
    ("BORROWS UP TO", lambda each: "-" if each["borrowLimit"] is None else each["borrowLimit"]),
    ("PENDING", _get("pending")), ("POSTED", _get("posted")), ("OVERDRAFT", _get("overdraft")),
]  # fmt: skip
_TRANSFER_COLUMNS: list[render.Column] = [
    ("TRANSFER", _once(_get("id"))), ("AGE", _once(lambda each: age(each["at"]))), ("KIND", _once(_get("kind"))),
    ("WORKLOAD", _once(lambda each: each["name"] or each["workload"] or "-")),
    ("ATTEMPT", _once(lambda each: each["attempt"] or "-")), ("QUEUE", _get("queue")), ("FLAVOR", _get("flavor")),
    ("AMOUNT", _get("amount")), ("STEP", lambda each: f"{each['source']} → {each['target']}"),
    ("RESOLVES", _once(lambda each: each["resolves"] or "-")),
]  # fmt: skip
_AUDIT_COLUMNS: list[render.Column] = [
    ("AGE", lambda each: age(each["at"])), ("WHO", _get("actor")), ("DID", _get("action")),
    ("TO", lambda each: f"{each['objectKind']} {each.get('objectName') or each['objectId']}"), ("STATE", _step),
]  # fmt: skip
_FULL_COLUMNS: list[render.Column] = [
    ("CLUSTER", _get("cluster")), ("FLAVOR", _get("flavor")), ("USABLE", _get("usable")), ("FREE", _get("free")),
    ("FULL", lambda each: _percent(each.get("permille", 0))),
]  # fmt: skip
_SPREAD_COLUMNS: list[render.Column] = [
    ("FLAVOR", _get("flavor")), ("DIFFERENCE", lambda each: _percent(each.get("permille", 0))),
]  # fmt: skip
_LARGEST_COLUMNS: list[render.Column] = [
    ("FLAVOR", _get("flavor")), ("WITHIN ONE", _get("level")), ("PODS", _get("pods")), ("DEVICES", _get("devices")),
    ("CLUSTER", _get("cluster")), ("WHERE", lambda each: each.get("domain") or "-"),
]  # fmt: skip
_STRANDED_COLUMNS: list[render.Column] = [
    ("FLAVOR", _get("flavor")), ("GANG OF", _get("size")), ("FREE", _get("free")), ("USABLE", _get("usable")),
    ("STRANDED", _get("stranded")),
]  # fmt: skip
