"""node, device: machines and accelerators, and taking them out of planning by hand."""

from typing import Annotated

import typer

from controlplane.cli import render
from controlplane.cli.asking import (
    ClusterOption,
    FlavorOption,
    ForOption,
    OutputOption,
    ReasonOption,
    client,
    number_of,
)
from controlplane.cli.clusters import COUNTS, NOTHING_OWNED, cordoned
from controlplane.cli.completing import names
from controlplane.cli.errors import CommandError, Exit
from controlplane.cli.render import Json, Output, ago
from controlplane.cli.table import command, group

app = typer.Typer(rich_markup_mode=None)
nodes = group("node", app)
devices = group("device", app)

NodeName = Annotated[
    str, typer.Argument(metavar="CLUSTER/NODE", help="As `muster node list` shows it.", autocompletion=names("node"))
]
DeviceNumber = Annotated[str, typer.Argument(metavar="DEVICE", help="Its number, as `muster device list` shows it.")]


@command(nodes, "list", "muster node list --cluster home", "muster node list -o name")
def list_nodes(cluster: ClusterOption = None, flavor: FlavorOption = None, output: OutputOption = Output.TABLE) -> None:
    """List machines with what is free on each."""
    found = sorted(client().items("/nodes", {"cluster": cluster, "flavor": flavor}), key=_by_place)
    lines = [{**node, **count} for node in found for count in node["flavors"] or [NOTHING_OWNED]]
    if output is Output.TABLE and found:
        render.rows(_NODE_COLUMNS, lines)
    else:
        render.listed(found, output, [], "no node is like that", _node_name)


@command(nodes, "show", "muster node show home/home-0")
def show_node(node: NodeName, output: OutputOption = Output.TABLE) -> None:
    """Show one machine."""
    found = client().get(_path(node))
    render.show(found, output, lambda: _show_node(found), _node_name)


@command(nodes, "cordon", "muster node cordon home/home-0 --reason 'fan is loud' --for 2h")
def cordon_node(
    node: NodeName, reason: ReasonOption, limit: ForOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Take a machine out of planning; what runs there runs on."""
    found = client().post(f"{_path(node)}/cordon", {"reason": reason, **({"for": limit} if limit else {})})
    render.show(found, output, lambda: print(f"{node} takes no new work: {cordoned(found.get('cordon'))}"), _node_name)


@command(nodes, "uncordon", "muster node uncordon home/home-0")
def uncordon_node(node: NodeName, output: OutputOption = Output.TABLE) -> None:
    """Put a machine back into planning."""
    found = client().post(f"{_path(node)}/uncordon")
    render.show(found, output, lambda: print(f"{node} takes work again"), _node_name)


@command(devices, "list", "muster device list --cluster home", "muster device list --health unhealthy")
def list_devices(
    cluster: ClusterOption = None,
    node: Annotated[str | None, typer.Option(help="Only this node.")] = None,
    flavor: FlavorOption = None,
    health: Annotated[str | None, typer.Option(help="ok, warn, unhealthy, lost or unknown.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List accelerators with their health."""
    query = {"cluster": cluster, "node": node, "flavor": flavor, "health": health}
    found = sorted(client().items("/devices", query), key=_by_place)
    render.listed(found, output, _DEVICE_COLUMNS, "no device is like that")


@command(devices, "show", "muster device show 1")
def show_device(device: DeviceNumber, output: OutputOption = Output.TABLE) -> None:
    """Show one accelerator."""
    found = client().get(f"/devices/{number_of(device, 'device')}")
    render.show(found, output, lambda: _show_device(found))


@command(devices, "cordon", "muster device cordon 1 --reason 'errors of its memory'")
def cordon_device(
    device: DeviceNumber, reason: ReasonOption, limit: ForOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Take an accelerator out of planning; what runs on it runs on."""
    path = f"/devices/{number_of(device, 'device')}/cordon"
    found = client().post(path, {"reason": reason, **({"for": limit} if limit else {})})
    render.show(found, output, lambda: print(f"device {device} is out of planning: {cordoned(found.get('cordon'))}"))


@command(devices, "uncordon", "muster device uncordon 1")
def uncordon_device(device: DeviceNumber, output: OutputOption = Output.TABLE) -> None:
    """Put an accelerator back into planning."""
    found = client().post(f"/devices/{number_of(device, 'device')}/uncordon")
    render.show(found, output, lambda: print(f"device {device} is planned again"))


def _path(node: str) -> str:
    from controlplane.cli.client import at

    cluster, slash, name = node.partition("/")
    if not slash or not name:
        raise CommandError(f"{node}: a node is written CLUSTER/NODE; `muster node list` shows them", Exit.WRONG_INPUT)
    return at("clusters", cluster, "nodes", name)


def _node_name(node: Json) -> str:
    return f"{node['cluster']}/{node['name']}"


def _node_state(node: Json) -> str:
    if node["lostAt"]:
        return "lost"
    if not node["ready"]:
        return "not ready"
    return "cordoned" if node["cordoned"] or node["cordonedByUs"] else "ready"


def _held(found: Json, name: str, shift: int = 0) -> str:
    """How much of it is held; nothing where the node's agent does not tell."""
    if found[name] is None:
        return ""
    return f"{found[f'{name}Held'] >> shift} of {found[name] >> shift}{' GiB' if shift else ''}"


def _taint(told: Json) -> str:
    value = f"={told['value']}" if told.get("value") else ""
    return f"{told.get('key')}{value}:{told.get('effect')}"


def _show_node(found: Json) -> None:
    render.pairs(
        [
            ("Name", found["name"]), ("Cluster", found["cluster"]), ("State", _node_state(found)),
            ("Cordoned", cordoned(found.get("cordon"))),
            ("Place", ", ".join(f"{level} {domain}" for level, domain in found["domains"].items())),
            ("CPU held", f"{found['cpuMilliHeld'] / 1000:g} of {found['cpuMilli'] / 1000:g}"),
            ("Memory held", f"{found['memoryBytesHeld'] >> 30} of {found['memoryBytes'] >> 30} GiB"),
            ("Pods of ours", f"{found['podsHeld']} of {found['pods']}"),
            ("RDMA held", _held(found, "rdma")),
            ("Huge pages held", _held(found, "hugepagesBytes", shift=30)),
            ("Local disk held", _held(found, "localStorageBytes", shift=30)),
            ("Taints", ", ".join(map(_taint, found["taints"]))),
            ("Seen", ago(found["observedAt"])), ("Lost", ago(found["lostAt"])),
        ]
    )  # fmt: skip
    if found["flavors"]:
        print()
        render.rows(COUNTS, found["flavors"])


def _show_device(found: Json) -> None:
    render.pairs(
        [
            ("Number", found["id"]), ("Node", f"{found['cluster']}/{found['node']}"), ("Device", found["deviceKey"]),
            ("Flavor", found["flavor"]), ("Model", found["model"]), ("Memory", _mib(found["memoryMib"])),
            ("Slots", found["slotsTotal"]), ("Health", found["health"]), ("State", found["state"]),
            ("Cordoned", cordoned(found.get("cordon"))), ("Seen", ago(found["observedAt"])),
        ]
    )  # fmt: skip


def _mib(amount: int | None) -> str:
    return f"{amount} MiB" if amount else ""


def _by_place(each: Json) -> tuple[str, str, int]:
    return each["cluster"], each.get("name") or each["node"], each["id"]


_NODE_COLUMNS: list[render.Column] = [
    ("NODE", _node_name),
    ("STATE", _node_state),
    *COUNTS,
    ("WHY", lambda each: cordoned(each.get("cordon"))),
]
_DEVICE_COLUMNS: list[render.Column] = [
    ("ID", lambda each: each["id"]),
    ("CLUSTER", lambda each: each["cluster"]),
    ("NODE", lambda each: each["node"]),
    ("DEVICE", lambda each: each["deviceKey"]),
    ("FLAVOR", lambda each: each["flavor"]),
    ("SLOTS", lambda each: each["slotsTotal"]),
    ("HEALTH", lambda each: each["health"]),
    ("STATE", lambda each: "cordoned" if each.get("cordon") else each["state"]),
]
