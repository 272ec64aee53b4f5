"""queue: the tree of departments and teams, with what each owns, uses and borrows."""

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from controlplane.cli import render
from controlplane.cli.asking import OutputOption, QueuePath, client
from controlplane.cli.documents import apply_files
from controlplane.cli.render import Json, Output
from controlplane.cli.table import command, group

BAR_CELLS = 20

app = typer.Typer(rich_markup_mode=None)
queues = group("queue", app)


@command(queues, "list", "muster queue list", "muster queue list -o name")
def list_queues(output: OutputOption = Output.TABLE) -> None:
    """List queues as a tree, with what is used and borrowed of each quota."""
    found = client().whole("/queues")
    if output is Output.TABLE and found:
        render.rows(_TREE_COLUMNS, _tree(found))
    else:
        render.listed(found, output, [], "no queue is there for you; `muster apply -f queues.yaml` makes some")


@command(queues, "show", "muster queue show lab/vision")
def show_queue(path: QueuePath, output: OutputOption = Output.TABLE) -> None:
    """Show one queue with all its quotas."""
    found = client().get(f"/queues/{path}")
    render.show(found, output, lambda: tell(found))


@command(queues, "apply", "muster queue apply -f queues.yaml")
def apply_queues(
    paths: Annotated[list[str], typer.Option("--file", "-f", help="A file or a folder; - for stdin; again for more.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Apply queues with their quotas from files; `muster apply` can do more."""
    apply_files(paths, output)


@command(queues, "move", "muster queue move lab/speech lab/audio")
def move_queue(
    path: QueuePath,
    target: Annotated[str, typer.Argument(metavar="NEW-PATH", help="Its new whole path.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Give a queue, and all below it, another place in the tree."""
    _, tag = client().tagged(f"/queues/{path}")
    found = client().post(f"/queues/{path}/move", {"path": target}, tag)
    render.show(found, output, lambda: print(f"{path} is now {found['path']}"))


@command(queues, "delete", "muster queue delete lab/audio")
def delete_queue(path: QueuePath, output: OutputOption = Output.TABLE) -> None:
    """Take a queue without live work out of the tree."""
    _, tag = client().tagged(f"/queues/{path}")
    client().delete(f"/queues/{path}", tag or "*")
    render.show({"path": path, "result": "deleted"}, output, lambda: print(f"{path} is gone"))


def _tree(found: Sequence[Json]) -> Iterator[Json]:
    """A line for each quota; a queue is named on its first, below its parent."""
    paths = {queue["path"] for queue in found}
    below: dict[str, list[Json]] = {}
    for queue in found:
        parent = queue["path"].rpartition("/")[0]
        below.setdefault(parent if parent in paths else "", []).append(queue)
    yield from _branch(below, "", "")


def _branch(below: dict[str, list[Json]], parent: str, indent: str) -> Iterator[Json]:
    children = below.get(parent, [])
    lines = ("├─ ", "└─ ", "│  ") if _is_graphic() else ("|- ", "`- ", "|  ")
    for queue in children:
        is_last = queue is children[-1]
        name = queue["path"].rpartition("/")[2] if parent else queue["path"]
        shown = f"{indent}{lines[is_last] if parent else ''}{name}"
        for quota in queue["quotas"] or [_NO_QUOTA]:
            yield {**queue, **quota, "shown": shown}
            shown = ""
        deeper = indent + (("   " if is_last else lines[2]) if parent else "")
        yield from _branch(below, queue["path"], deeper)


def bar(quota: Json) -> str:
    """Its own in use, borrowed in use, and free of its own: # + . where there is no terminal."""
    if quota is _NO_QUOTA or quota["flavor"] == "-":
        return "-"
    own, borrowed = quota["used"] - quota["borrowed"], quota["borrowed"]
    total = max(_owned(quota), own) + borrowed
    if not total:
        return ""
    full = "█▒░" if _is_graphic() else "#+."
    cells = [_cells(own, total), _cells(borrowed, total)]
    return full[0] * cells[0] + full[1] * cells[1] + full[2] * max(0, BAR_CELLS - sum(cells))


def _cells(part: int, total: int) -> int:
    """Something in use is never drawn as nothing."""
    return max(int(part > 0), part * BAR_CELLS // total)


def _is_graphic() -> bool:
    return render.is_coloured() and (sys.stdout.encoding or "").lower().startswith("utf")


def _owned(quota: Json) -> int:
    return int(quota["subtree"] if quota["nominal"] is None else quota["nominal"])


def tell(found: Json) -> None:
    """One queue, with all its quotas."""
    render.pairs(
        [
            ("Path", found["path"]), ("Weight", _weight(found)), ("Namespace", found["namespace"]),
            ("Labels", render.labels(found["labels"])), ("Takes workloads", "yes" if found["isLeaf"] else "no"),
            ("Waiting", found["waiting"]), ("Running", found["running"]),
            ("Most running", found["mostRunning"] or "no limit"),
        ]
    )  # fmt: skip
    if found["quotas"]:
        print()
        render.rows(_QUOTA_COLUMNS, found["quotas"])
    if found["budgets"]:
        print()
        render.rows(_BUDGET_COLUMNS, found["budgets"])


def budget_bar(budget: Json) -> str:
    """What is used of it, what it was passed by, and what is left: # + . where there is no terminal."""
    return bar(
        {
            "flavor": budget["flavor"], "used": budget["used"], "nominal": budget["limit"],
            "borrowed": max(0, budget["used"] - budget["limit"]),
        }
    )  # fmt: skip


def _number(value: object) -> object:
    """Whole ones without a point."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _hours(value: object) -> object:
    """Device-hours of burst credit."""
    return f"{value:+.0f} h" if isinstance(value, int | float) else "-"


def _weight(found: Json) -> object:
    plain, now = found["weight"], found["weightNow"]
    return plain if now == plain else f"{plain} ({now:.2f} now, by what it used lately)"


def _or_dash(value: object) -> object:
    return "-" if value is None else value


_NO_QUOTA: Json = dict.fromkeys(
    (
        "flavor",
        "nominal",
        "borrow",
        "lend",
        "subtree",
        "potential",
        "used",
        "pending",
        "borrowed",
        "available",
        "entitled",
        "burstCredit",
    ),
    "-",
)
_QUOTA_COLUMNS: list[render.Column] = [
    ("FLAVOR", lambda each: each["flavor"]),
    ("IN USE", bar),
    ("USED", lambda each: each["used"]),
    ("NOMINAL", lambda each: _or_dash(each["nominal"])),
    ("ENTITLED", lambda each: _number(each["entitled"])),
    ("BORROWED", lambda each: each["borrowed"]),
    ("AVAILABLE", lambda each: each["available"]),
    ("BORROW", lambda each: _or_dash(each["borrow"])),
    ("LEND", lambda each: _or_dash(each["lend"])),
    ("CREDIT", lambda each: _hours(each["burstCredit"])),
]
_BUDGET_COLUMNS: list[render.Column] = [
    ("BUDGET", lambda each: "all flavors" if each["flavor"] == "*" else each["flavor"]),
    ("SPENT", budget_bar),
    ("DEVICE-HOURS", lambda each: f"{each['used']} of {each['limit']}"),
    ("PER", lambda each: each["per"]),
    ("KIND", lambda each: "hard" if each["hard"] else "soft"),
    ("BEGINS ANEW", lambda each: render.until(each["endsAt"])),
]
_TREE_COLUMNS: list[render.Column] = [
    ("QUEUE", lambda each: each["shown"]),
    *_QUOTA_COLUMNS[:7],
    ("WAITING", lambda each: each["waiting"] if each["shown"] else ""),
    ("WEIGHT", lambda each: each["weight"] if each["shown"] else ""),
]
