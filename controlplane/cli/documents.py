"""apply, document: what stands on the plane as documents, from files and back into them."""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TextIO

import typer

from controlplane.cli import files, planned, render
from controlplane.cli.asking import LabelOption, OutputOption, YesOption, client, confirm, pairs_of
from controlplane.cli.errors import CommandError, Exit
from controlplane.cli.files import Read
from controlplane.cli.render import Json, Output
from controlplane.cli.table import command, group

MARKS = {"created": "+", "submitted": "+", "changed": "~", "unchanged": "=", "deleted": "-"}
COLOURS = {"+": "green", "~": "yellow", "-": "red"}
LISTED_KINDS = ("Queue", "Pool", "Policy", "Cluster")
_POINTED = re.compile(r"(?m)^( {2}/|.*\(/)(\d+)(?=[/:)])")

app = typer.Typer(rich_markup_mode=None)
documents = group("document", app)

Kind = Annotated[str, typer.Argument(metavar="KIND", help=", ".join(LISTED_KINDS) + " …")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A queue's is its path, a policy's its pool; or KIND/NAME.")]


@command(
    app,
    "apply",
    "muster apply -f queues.yaml",
    "muster apply -f org --dry-run",
    "muster apply -f org --dry-run --plan",
    "muster apply -f org --prune --label managed-by=git --yes",
)
def apply(
    paths: Annotated[list[str], typer.Option("--file", "-f", help="A file or a folder; - for stdin; again for more.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="With --dry-run: also who would start, wait or have to leave.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete what bears the label and is in no file; wants --label.")
    ] = False,
    label: LabelOption = None,
    basis: Annotated[
        str, typer.Option(help="Only if neither plane nor files have changed since the dry run that printed this.")
    ] = "",
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Apply documents from files and folders: all of them, or none.

    Of a folder every *.yaml, *.yml and *.json is read, and what lies deeper too. Queues, Pools, Policies and Clusters
    are made or changed; Workloads and Jobs are submitted.
    """
    labels = [f"{key}={value}" for key, value in pairs_of(label, "--label").items()]
    if prune and not labels:
        raise CommandError("--prune wants --label, which says what these files own", Exit.WRONG_INPUT)
    if labels and not prune:
        raise CommandError("--label says what --prune may delete, and there is no --prune", Exit.WRONG_INPUT)
    if plan and not dry_run:
        raise CommandError("--plan says what a dry run would lead to, and there is no --dry-run", Exit.WRONG_INPUT)
    apply_files(paths, output, labels=labels, dry_run=dry_run, plan=plan, basis=basis, yes=yes)


def apply_files(
    paths: Sequence[str],
    output: Output,
    *,
    labels: Sequence[str] = (),
    dry_run: bool = False,
    plan: bool = False,
    basis: str = "",
    yes: bool = True,
) -> None:
    """Send them, and show what came of it. What would be deleted is shown and asked about first."""
    read = files.read_all(paths)
    basis = _of_these(basis, read, labels)
    query: dict[str, str | int | list[str] | None] = {"prune": "true", "label": list(labels)} if labels else {}
    if labels and not dry_run:
        seen = _sent(read, {**query, "dryRun": "true"}, basis)
        basis = basis or seen["basis"]
        if any(each["result"] == "deleted" for each in seen["applied"]):
            confirm("Go on?", lambda: _tell(seen, sys.stderr), yes=yes)
    dry = {"dryRun": "true", **({"plan": "true"} if plan else {})}
    answer = _sent(read, {**query, **dry} if dry_run else query, basis)
    if dry_run:
        answer["basis"] += f".{_digest(read, labels)}"
    render.show(answer, output, lambda: _tell(answer, sys.stdout), lambda each: "\n".join(_names(each)))


@command(documents, "list", "muster document list", "muster document list --kind Queue -o name")
def list_documents(
    kind: Annotated[str | None, typer.Option(help=", ".join(LISTED_KINDS))] = None,
    label: LabelOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List what stands on the plane."""
    pairs_of(label, "--label")
    found = list(client().items("/documents", {"kind": _kind(kind) if kind else None, "label": label}))
    render.listed(found, output, _COLUMNS, "no document is like that", lambda each: f"{each['kind']}/{each['name']}")


@command(documents, "get", "muster document get Queue lab/vision", "muster document get Policy default -o json")
def get_document(kind: Kind, name: Name = "", output: OutputOption = Output.YAML) -> None:
    """Print a document as people write it; applied again it changes nothing."""
    kind, name = _named(kind, name)
    found = client().get(_path(kind, name))
    document = found.get("document", found)
    render.show(document, output, lambda: print(render.as_yaml(document), end=""), lambda _: f"{_kind(kind)}/{name}")


@command(documents, "edit", "EDITOR=true muster document edit Queue lab/vision")
def edit_document(kind: Kind, name: Name = "", output: OutputOption = Output.TABLE) -> None:
    """Open a document in $EDITOR and put it back, unless somebody changed it meanwhile."""
    kind, name = _named(kind, name)
    found, tag = client().tagged(_path(kind, name))
    before = render.as_yaml(found.get("document", found))
    after = _edited(before)
    if after == before:
        print("muster: nothing was changed", file=sys.stderr)
        return
    answer = client().put(_path(kind, name), after.encode(), tag)
    one = {"applied": answer.get("applied", [answer])}
    render.show(answer, output, lambda: _tell(one, sys.stdout), lambda _: f"{_kind(kind)}/{name}")


@command(documents, "delete", "muster document delete Policy default")
def delete_document(kind: Kind, name: Name = "", output: OutputOption = Output.TABLE) -> None:
    """Take a document out; a Policy falls back to its defaults, and what is in use is refused."""
    kind, name = _named(kind, name)
    _, tag = client().tagged(_path(kind, name))
    client().delete(_path(kind, name), tag or "*")
    gone = {"kind": _kind(kind), "name": name, "result": "deleted"}
    render.show(gone, output, lambda: print(f"{_kind(kind)} {name} deleted"), lambda _: f"{_kind(kind)}/{name}")


def _of_these(basis: str, read: Sequence[Read], labels: Sequence[str]) -> str:
    """The plane's own basis stands for what is stored; behind a dot stands what the files said in the dry run."""
    stored, dot, digest = basis.partition(".")
    if dot and digest != _digest(read, labels):
        words = "the files or --label say something else than in the dry run; look again with --dry-run"
        raise CommandError(words, Exit.REFUSED, "precondition-failed")
    return stored


def _digest(read: Sequence[Read], labels: Sequence[str]) -> str:
    said = json.dumps([sorted(labels), hashlib.sha256(files.joined(read)).hexdigest()])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _sent(read: Sequence[Read], query: dict[str, str | int | list[str] | None], basis: str) -> Json:
    try:
        return client().send("/apply", files.joined(read), query, f'"{basis}"' if basis else "")
    except CommandError as error:
        if len(read) == 1:
            raise
        raise CommandError(_with_files(str(error), read), error.code, error.slug) from None


def _with_files(words: str, read: Sequence[Read]) -> str:
    """A fault's place in the whole stream means nothing to somebody who wrote many files: name the file."""
    import yaml

    owners: list[str] = []
    for file in read:
        try:
            found = [each for each in yaml.safe_load_all(file.raw) if each is not None]
        except (yaml.YAMLError, UnicodeDecodeError, ValueError):
            return f"{file.path}: {words}"
        flat = found[0] if len(found) == 1 and isinstance(found[0], list) else found
        owners += [file.path] * len(flat)
    named = [owners[int(index)] for _, index in _POINTED.findall(words) if int(index) < len(owners)]
    return f"{words}\n  in {', '.join(dict.fromkeys(named))}" if named else words


def _tell(answer: Json, out: TextIO) -> None:
    """What is new, what differs and what goes, each with its mark; what stays is only counted."""
    is_dry = answer.get("dryRun", False)
    unchanged = 0
    for each in answer["applied"]:
        mark = MARKS[each["result"]]
        unchanged += mark == "="
        if mark != "=":
            verb = f"would be {each['result']}" if is_dry else each["result"]
            print(render.paint(f"{mark} {each['kind']} {each['name']} {verb}", COLOURS[mark]), file=out)
        if mark == "~":
            for change in each.get("changes", []):
                print(f"    {_difference(change)}", file=out)
        for warning in each.get("warnings", []):
            print(f"    {render.clean(warning['detail'])} [{warning['code']}]", file=out)
    if unchanged:
        print(f"= {unchanged} unchanged", file=out)
    for each in answer.get("plan") or []:
        planned.tell_foreseen(each, out)
    if is_dry:
        print(f"nothing was done; --basis {answer['basis']} applies exactly this", file=out)


def _difference(change: Json) -> str:
    before, after = (
        render.clean(json.dumps(change[side], ensure_ascii=False, sort_keys=True)) if side in change else "(none)"
        for side in ("before", "after")
    )
    return f"{change['path']}: {before} → {after}"


def _names(answer: Json) -> list[str]:
    return [f"{each['kind']}/{each['name']}" for each in answer["applied"]]


def _named(kind: str, name: str) -> tuple[str, str]:
    """Kind and name, given as two words or as the one that `document list -o name` prints."""
    if not name:
        kind, _, name = kind.partition("/")
    if not kind or not name:
        raise CommandError("which document: KIND NAME, or KIND/NAME as in Queue/lab/vision", Exit.WRONG_INPUT)
    return kind, name


def _kind(text: str) -> str:
    """Kinds are written with a capital; nobody need remember that."""
    return text[:1].upper() + text[1:]


def _path(kind: str, name: str) -> str:
    from controlplane.cli.client import at

    return at("documents", _kind(kind), name)


def _edited(text: str) -> str:
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        file = Path(folder) / "document.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run([*editor, str(file)], check=False)
        except OSError as error:
            words = f"cannot start {editor[0]} ({error.strerror}); EDITOR names another"
            raise CommandError(words, Exit.WRONG_INPUT) from None
        if done.returncode:
            raise CommandError(f"{editor[0]} ended with {done.returncode}; nothing was done", Exit.FAILED)
        return file.read_text(encoding="utf-8")


_COLUMNS: list[render.Column] = [
    ("KIND", lambda each: each["kind"]),
    ("NAME", lambda each: each["name"]),
    ("VERSION", lambda each: each["version"] or "-"),
    ("LABELS", lambda each: render.labels(each["labels"]) or "-"),
]
