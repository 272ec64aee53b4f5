"""cluster: Kubernetes clusters from their making to their removal."""

from enum import StrEnum
from typing import Annotated

import typer

from controlplane.cli import render
from controlplane.cli.asking import (
    ClusterName,
    ForOption,
    LabelOption,
    OutputOption,
    ReasonOption,
    TokenFileOption,
    YesOption,
    client,
    confirm,
    pairs_of,
)
from controlplane.cli.errors import CommandError, Exit
from controlplane.cli.render import Json, Output, ago, counted, until
from controlplane.cli.secret import tell_secret
from controlplane.cli.table import command, group

app = typer.Typer(rich_markup_mode=None)
clusters = group("cluster", app)

ValidOption = Annotated[str, typer.Option(help="How long its enrolment token can be used.")]
AutoAcceptOption = Annotated[bool, typer.Option(help="Take work without an admin's further word.")]


class Work(StrEnum):
    """What happens to running work when its cluster is removed."""

    REFUSE = "refuse"
    STOP = "stop"
    LOST = "lost"


@command(clusters, "create", "muster cluster create eu-west --label region=eu --token-file eu-west.token")
def create_cluster(
    name: ClusterName,
    pool: Annotated[str, typer.Option(help="The pool that its nodes are planned in.")] = "default",
    label: LabelOption = None,
    valid: ValidOption = "1h",
    auto_accept: AutoAcceptOption = False,
    token_file: TokenFileOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a cluster, and the one-time token with which its agent enrols."""
    labels = pairs_of(label, "--label")
    body = {"name": name, "labels": labels, "spec": {"pool": pool}, "tokenValid": valid, "autoAccept": auto_accept}
    _show_token("/clusters", body, token_file, output)


@command(clusters, "token", "muster cluster token eu-west --valid 30m --token-file again.token")
def issue_token(
    name: ClusterName,
    valid: ValidOption = "1h",
    auto_accept: AutoAcceptOption = False,
    token_file: TokenFileOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Make another enrolment token for a cluster."""
    body = {"tokenValid": valid, "autoAccept": auto_accept}
    _show_token(f"/clusters/{name}/enrolment-tokens", body, token_file, output)


@command(clusters, "accept", "muster cluster accept home")
def accept_cluster(name: ClusterName, output: OutputOption = Output.TABLE) -> None:
    """Let an enrolled cluster take work."""
    found = client().post(f"/clusters/{name}/accept")
    told = f"{name} is {found['state']}"
    if found.get("agent") == "banned":
        told += f", and its agent is banned; `muster cluster token {name}` lets another one enrol"
    render.show(found, output, lambda: print(told))


@command(clusters, "revoke", "muster cluster revoke eu-west")
def revoke_cluster(name: ClusterName, output: OutputOption = Output.TABLE) -> None:
    """Ban a cluster's agent; what runs there runs on."""
    found = client().post(f"/clusters/{name}/revoke")
    told = f"the agent of {name} is banned; `muster cluster token {name}` lets another one enrol"
    render.show(found, output, lambda: print(told))


@command(clusters, "list", "muster cluster list", "muster cluster list -o name")
def list_clusters(output: OutputOption = Output.TABLE) -> None:
    """List clusters with what they own."""
    found = client().whole("/clusters")
    lines = [{**cluster, **count} for cluster in found for count in cluster["flavors"] or [NOTHING_OWNED]]
    if output is Output.TABLE and found:
        render.rows(_COLUMNS, lines)
    else:
        render.listed(found, output, [], "no cluster is there; `muster cluster create` makes one")


@command(clusters, "show", "muster cluster show home")
def show_cluster(name: ClusterName, output: OutputOption = Output.TABLE) -> None:
    """Show one cluster."""
    found = client().get(f"/clusters/{name}")
    render.show(found, output, lambda: _show(found))


@command(clusters, "cordon", "muster cluster cordon home --reason 'network work' --for 2h")
def cordon_cluster(
    name: ClusterName, reason: ReasonOption, limit: ForOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Place nothing new in a cluster; what runs there runs on."""
    found = client().post(f"/clusters/{name}/cordon", {"reason": reason, **({"for": limit} if limit else {})})
    render.show(found, output, lambda: print(f"{name} takes no new work{_lasting(found.get('cordon'))}"))


@command(clusters, "uncordon", "muster cluster uncordon home")
def uncordon_cluster(name: ClusterName, output: OutputOption = Output.TABLE) -> None:
    """Let a cordoned cluster take new work again."""
    found = client().post(f"/clusters/{name}/uncordon")
    render.show(found, output, lambda: print(f"{name} takes work again"))


@command(clusters, "drain", "muster cluster drain home --reason 'new kernels' --deadline 1h")
def drain_cluster(
    name: ClusterName,
    reason: ReasonOption,
    deadline: Annotated[str, typer.Option(help="What still runs then is stopped and goes elsewhere; 0s: at once.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Empty a cluster: nothing new, and by the deadline everything goes elsewhere. Again: another deadline."""
    found = client().post(f"/clusters/{name}/drain", {"reason": reason, "deadline": deadline})
    drain = found.get("drain") or {}
    left = drain.get("attemptsLeft", 0)
    told = f"{name} takes no new work; what still runs is stopped {_due(drain)} ({left} live)"
    render.show(found, output, lambda: print(told))


@command(clusters, "undrain", "muster cluster undrain home")
def undrain_cluster(name: ClusterName, output: OutputOption = Output.TABLE) -> None:
    """End a drain before it has ended by itself."""
    found = client().post(f"/clusters/{name}/undrain")
    render.show(found, output, lambda: print(f"{name} is drained no more"))


@command(clusters, "remove", "muster cluster remove eu-west --yes")
def remove_cluster(
    name: ClusterName,
    work: Annotated[Work, typer.Option(help="What happens to work that lives there.")] = Work.REFUSE,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a cluster out of the plane. What happens to work that lives there is said, and asked."""
    _, tag = client().tagged(f"/clusters/{name}")
    seen = client().get(f"/clusters/{name}/removal")
    chosen = next((each for each in seen["choices"] if each["work"] == work), None)
    if chosen is not None and not chosen["allowed"]:
        raise CommandError("\n".join(_removal(seen)), Exit.REFUSED)
    confirm(f"Remove {name} with --work {work}?", lambda: print("\n".join(_removal(seen))), yes=yes)
    answer = client().delete(f"/clusters/{name}", tag or "*", {"work": work.value})
    told = f"{name} goes once it is empty; `muster cluster show {name}`" if answer else f"{name} is gone"
    done = answer or {"name": name, "result": "deleted"}
    render.show(done, output, lambda: print(told), lambda _: name)


def _removal(seen: Json) -> list[str]:
    """What lives there, and what each choice would do."""
    lives = f"{seen['cluster']} is {seen['state']}: {counted(seen['attempts'], 'live attempt')}, "
    lives += f"{counted(seen['devices'], 'device')} in use"
    queues = [
        f"  {each['queue']}: {counted(each['attempts'], 'attempt')}, {counted(each['devices'], 'device')}"
        for each in seen["queues"]
    ]
    choices = [
        f"  --work {each['work']}: {render.clean(each['sentence'])}{'' if each['allowed'] else ' (not now)'}"
        for each in seen["choices"]
    ]
    return [lives, *queues, *choices]


def _show_token(path: str, body: Json, token_file: str, output: Output) -> None:
    def words(made: Json) -> str:
        return f"{made['cluster']} can be enrolled at {made['agentUrl']}, which ends {until(made['expiresAt'])}"

    tell_secret(lambda: client().make(path, body), words, token_file, output, lambda made: made["cluster"])


def _lasting(cordon: Json | None) -> str:
    return f"; that ends {until(cordon['until'])}" if cordon and cordon.get("until") else ""


def _due(drain: Json) -> str:
    """When what still runs is stopped."""
    moment = drain.get("deadlineAt")
    return until(moment) if moment and render.seconds_since(moment) < 0 else "now"


def cordoned(cordon: Json | None) -> str:
    """Why, by whom and for how long something is out of planning; "" where it is not."""
    if not cordon:
        return ""
    by = f" by {cordon['by']}" if cordon.get("by") else ""
    return f"{cordon['reason']}{by}{_lasting(cordon)}"


def _state(each: Json) -> str:
    if each.get("agent") == "banned":
        return "banned"
    if each.get("drain"):
        return "draining"
    return "cordoned" if each.get("cordon") and each["state"] == "ready" else str(each["state"])


def _show(found: Json) -> None:
    drain = found.get("drain")
    ending = drain and f"what still runs is stopped {_due(drain)}, {counted(drain['attemptsLeft'], 'attempt')} left"
    render.pairs(
        [
            ("Name", found["name"]), ("Pool", found["pool"]), ("State", found["state"]),
            ("Cordoned", cordoned(found.get("cordon"))), ("Draining", drain and f"{drain['reason']}; {ending}"),
            ("Labels", render.labels(found["labels"])),
            ("Nodes", f"{found['nodesReady']} of {found['nodes']} ready"), ("Levels", ", ".join(found["levels"])),
            ("Namespaces", ", ".join(found["namespaces"])), ("Kubernetes", found["kubernetesVersion"]),
            ("Agent", _agent(found)), ("Heard", ago(found["lastHeardAt"])), ("Silent for", _silent(found)),
        ]
    )  # fmt: skip
    if found["flavors"]:
        print()
        render.rows(COUNTS, found["flavors"])


def _agent(found: Json) -> str:
    if found.get("agent") != "banned":
        return str(found["agentVersion"])
    return f"banned; `muster cluster token {found['name']}` lets another one enrol"


def _silent(found: Json) -> str:
    return render.age(found["lostAt"]) if found["lostAt"] else ""


NOTHING_OWNED: Json = dict.fromkeys(("flavor", "owned", "usable", "held", "free"), "-")
COUNTS: list[render.Column] = [
    ("FLAVOR", lambda each: each["flavor"]),
    ("OWNED", lambda each: each["owned"]),
    ("USABLE", lambda each: each["usable"]),
    ("HELD", lambda each: each["held"]),
    ("FREE", lambda each: each["free"]),
]
_COLUMNS: list[render.Column] = [
    ("CLUSTER", lambda each: each["name"]),
    ("STATE", _state),
    ("NODES", lambda each: f"{each['nodesReady']}/{each['nodes']}"),
    *COUNTS,
]
