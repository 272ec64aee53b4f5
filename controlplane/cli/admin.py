"""queue, cluster, node, device: the quota tree and the fleet, for platform teams."""

from typing import Annotated

import typer

from controlplane.cli import render
from controlplane.cli.asking import FileOption, OutputOption, apply_file, client
from controlplane.cli.files import write_private
from controlplane.cli.render import Json, Output, ago

Path = Annotated[str, typer.Argument(help="A queue's path, as in research/nlp.")]
ClusterName = Annotated[str, typer.Argument(help="A cluster's name.")]
NodeNumber = Annotated[int, typer.Argument(help="A node's id, as `muster node list` shows it.")]
ClusterOption = Annotated[str | None, typer.Option(help="Only this cluster.")]
FlavorFilter = Annotated[str | None, typer.Option(help="Only this Flavor.")]

queues = typer.Typer(help="The quota tree.", no_args_is_help=True)
clusters = typer.Typer(help="Kubernetes clusters and who speaks for them.", no_args_is_help=True)
nodes = typer.Typer(help="Machines.", no_args_is_help=True)
devices = typer.Typer(help="Accelerators.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add these commands to the command table."""
    app.add_typer(queues, name="queue")
    app.add_typer(clusters, name="cluster")
    app.add_typer(nodes, name="node")
    app.add_typer(devices, name="device")


@queues.command("list")
def list_queues(output: OutputOption = Output.TABLE) -> None:
    """List queues with what is in use, parents first."""
    found = client().whole("/queues")
    lines = [{**queue, **quota} for queue in found for quota in queue["quotas"] or [_NO_QUOTA]]
    render.show(found, output, lambda: render.rows(_QUEUE_COLUMNS, lines, "no queue"))


@queues.command("show")
def show_queue(path: Path, output: OutputOption = Output.TABLE) -> None:
    """Show one queue."""
    found = client().get(f"/queues/{path}")
    lines = [{**found, **quota} for quota in found["quotas"] or [_NO_QUOTA]]
    render.show(found, output, lambda: render.rows(_QUEUE_COLUMNS, lines))


@queues.command("apply")
def apply_queues(file: FileOption) -> None:
    """Apply queues with their quotas from a file."""
    apply_file(file, Output.TABLE)


@queues.command("move")
def move_queue(path: Path, target: Annotated[str, typer.Argument(help="Its new whole path.")]) -> None:
    """Give a queue, and all below it, another place in the tree."""
    found = client().post(f"/queues/{path}/move", {"path": target})
    print(f"{path} is now {found['path']}")


@queues.command("delete")
def delete_queue(path: Path) -> None:
    """Take a queue without live work out of the tree."""
    client().delete(f"/queues/{path}")
    print(f"{path} is gone")


@clusters.command("create")
def create_cluster(
    name: ClusterName,
    pool: Annotated[str, typer.Option(help="The pool that its nodes are planned in.")] = "default",
    label: Annotated[list[str] | None, typer.Option("--label", "-l", help="key=value; again for more.")] = None,
    valid: Annotated[str, typer.Option(help="How long its enrolment token can be used.")] = "1h",
    auto_accept: Annotated[bool, typer.Option(help="Take work without an admin's further word.")] = False,
    token_file: Annotated[str, typer.Option(help="Write the token there (0600) instead of showing it.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a cluster, and the one-time token with which its agent enrols."""
    labels = dict(each.partition("=")[::2] for each in label or [])
    body = {"name": name, "labels": labels, "spec": {"pool": pool}, "tokenValid": valid, "autoAccept": auto_accept}
    _show_token(client().post("/clusters", body), token_file, output)


@clusters.command("token")
def issue_token(
    name: ClusterName,
    valid: Annotated[str, typer.Option(help="How long it can be used.")] = "1h",
    auto_accept: Annotated[bool, typer.Option(help="Take work without an admin's further word.")] = False,
    token_file: Annotated[str, typer.Option(help="Write the token there (0600) instead of showing it.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Make another enrolment token for a cluster."""
    body = {"tokenValid": valid, "autoAccept": auto_accept}
    _show_token(client().post(f"/clusters/{name}/enrolment-tokens", body), token_file, output)


@clusters.command("accept")
def accept_cluster(name: ClusterName, output: OutputOption = Output.TABLE) -> None:
    """Let an enrolled cluster take work."""
    found = client().post(f"/clusters/{name}/accept")
    render.show(found, output, lambda: print(f"{name} is {found['state']}"))


@clusters.command("revoke")
def revoke_cluster(name: ClusterName, output: OutputOption = Output.TABLE) -> None:
    """Ban a cluster's agent; what runs there runs on."""
    found = client().post(f"/clusters/{name}/revoke")
    render.show(found, output, lambda: print(f"the agent of {name} is banned"))


@clusters.command("list")
def list_clusters(output: OutputOption = Output.TABLE) -> None:
    """List clusters with what they own."""
    found = client().whole("/clusters")
    lines = [{**cluster, **count} for cluster in found for count in cluster["flavors"] or [_NOTHING_OWNED]]
    render.show(found, output, lambda: render.rows(_CLUSTER_COLUMNS, lines, "no cluster"))


@clusters.command("show")
def show_cluster(name: ClusterName, output: OutputOption = Output.TABLE) -> None:
    """Show one cluster."""
    found = client().get(f"/clusters/{name}")
    render.show(found, output, lambda: _show_cluster(found))


@nodes.command("list")
def list_nodes(cluster: ClusterOption = None, flavor: FlavorFilter = None, output: OutputOption = Output.TABLE) -> None:
    """List machines with what is free on each."""
    found = list(client().items("/nodes", {"cluster": cluster, "flavor": flavor}))
    lines = [
        {**node, **count} for node in sorted(found, key=_by_place) for count in node["flavors"] or [_NOTHING_OWNED]
    ]
    render.show(found, output, lambda: render.rows(_NODE_COLUMNS, lines, "no node"))


@nodes.command("cordon")
def cordon_node(
    node: NodeNumber, reason: Annotated[str, typer.Option("--reason", "-r", help="Why; everybody sees it.")]
) -> None:
    """Take a machine out of planning; what runs there runs on."""
    client().post(f"/nodes/{node}/cordon", {"reason": reason})
    print(f"node {node} takes no new work")


@nodes.command("uncordon")
def uncordon_node(node: NodeNumber) -> None:
    """Put a machine back into planning."""
    client().post(f"/nodes/{node}/cordon", {"reason": ""})
    print(f"node {node} takes work again")


@devices.command("list")
def list_devices(
    cluster: ClusterOption = None,
    node: Annotated[str | None, typer.Option(help="Only this node.")] = None,
    flavor: FlavorFilter = None,
    health: Annotated[str | None, typer.Option(help="ok, warn, unhealthy, lost or unknown.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List accelerators with their health."""
    query = {"cluster": cluster, "node": node, "flavor": flavor, "health": health}
    found = list(client().items("/devices", query))
    render.show(found, output, lambda: render.rows(_DEVICE_COLUMNS, sorted(found, key=_by_place), "no device"))


def _show_token(made: Json, token_file: str, output: Output) -> None:
    if token_file:
        write_private(token_file, made.pop("token"))

    def told() -> None:
        print(f"{made['cluster']} can be enrolled at {made['agentUrl']} until {made['expiresAt']}")
        print(f"its token is in {token_file}" if token_file else f"its token, shown this once: {made['token']}")

    render.show(made, output, told)


def _show_cluster(found: Json) -> None:
    render.pairs(
        [
            ("Name", found["name"]), ("Pool", found["pool"]), ("State", found["state"]),
            ("Labels", ", ".join(f"{key}={value}" for key, value in found["labels"].items())),
            ("Nodes", f"{found['nodesReady']} of {found['nodes']} ready"), ("Levels", ", ".join(found["levels"])),
            ("Namespaces", ", ".join(found["namespaces"])), ("Kubernetes", found["kubernetesVersion"]),
            ("Agent", found["agentVersion"]), ("Heard", f"{ago(found['lastHeardAt'])} ago"),
            ("Silent since", found["lostAt"]),
        ]
    )  # fmt: skip
    print()
    render.rows(_CLUSTER_COLUMNS[3:], found["flavors"], "no device")


def _node_state(node: Json) -> str:
    if node["lostAt"]:
        return "lost"
    if not node["ready"]:
        return "not ready"
    return "cordoned" if node["cordoned"] or node["cordonedByUs"] else "ready"


def _by_place(each: Json) -> tuple[str, str]:
    return each["cluster"], each.get("name") or each["node"]


_NO_QUOTA: Json = dict.fromkeys(("flavor", "nominal", "borrow", "lend", "used", "borrowed", "available"), "-")
_NOTHING_OWNED: Json = dict.fromkeys(("flavor", "owned", "usable", "held", "free"), "-")
_COUNTS: list[render.Column] = [
    ("FLAVOR", lambda each: each["flavor"]),
    ("OWNED", lambda each: each["owned"]),
    ("USABLE", lambda each: each["usable"]),
    ("HELD", lambda each: each["held"]),
    ("FREE", lambda each: each["free"]),
]


def _or_dash(value: object) -> object:
    return "-" if value is None else value


_QUEUE_COLUMNS: list[render.Column] = [
    ("QUEUE", lambda each: each["path"]),
    ("FLAVOR", lambda each: each["flavor"]),
    ("NOMINAL", lambda each: _or_dash(each["nominal"])),
    ("BORROW", lambda each: _or_dash(each["borrow"])),
    ("LEND", lambda each: _or_dash(each["lend"])),
    ("USED", lambda each: each["used"]),
    ("BORROWED", lambda each: each["borrowed"]),
    ("AVAILABLE", lambda each: each["available"]),
    ("WAITING", lambda each: each["waiting"]),
    ("WEIGHT", lambda each: each["weight"]),
]
_CLUSTER_COLUMNS: list[render.Column] = [
    ("CLUSTER", lambda each: each["name"]),
    ("STATE", lambda each: each["state"]),
    ("NODES", lambda each: f"{each['nodesReady']}/{each['nodes']}"),
    *_COUNTS,
]
_NODE_COLUMNS: list[render.Column] = [
    ("ID", lambda each: each["id"]),
    ("CLUSTER", lambda each: each["cluster"]),
    ("NODE", lambda each: each["name"]),
    ("STATE", _node_state),
    *_COUNTS,
]
_DEVICE_COLUMNS: list[render.Column] = [
    ("CLUSTER", lambda each: each["cluster"]),
    ("NODE", lambda each: each["node"]),
    ("DEVICE", lambda each: each["deviceKey"]),
    ("FLAVOR", lambda each: each["flavor"]),
    ("SLOTS", lambda each: each["slotsTotal"]),
    ("HEALTH", lambda each: each["health"]),
    ("STATE", lambda each: each["state"]),
]
