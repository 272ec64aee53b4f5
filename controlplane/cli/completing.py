"""Names for a shell's completion, asked from the plane: within a second or not at all, and never a word on stderr."""

import contextlib
import queue
import threading
from collections.abc import Callable

SECONDS_MAX = 1.0
NAMES_MAX = 500
LIVE = "pending,reserved,running,stopping,cancelling"
_SOURCES: dict[str, tuple[str, dict[str, str | int], str]] = {
    "workload": ("/workloads", {"state": LIVE, "limit": NAMES_MAX}, "name"),
    "queue": ("/queues", {}, "path"),
    "cluster": ("/clusters", {}, "name"),
    "node": ("/nodes", {"limit": NAMES_MAX}, "node"),
    "flavor": ("/clusters", {}, "flavor"),
    "token": ("/tokens", {"limit": NAMES_MAX}, "id"),
    "binding": ("/bindings", {"limit": NAMES_MAX}, "id"),
}


def names(kind: str) -> Callable[[str], list[str]]:
    """A completion of names of this kind, as typer asks for them."""

    def complete(incomplete: str) -> list[str]:
        found: queue.Queue[list[str]] = queue.Queue()
        # A daemon: a plane that does not answer must not keep the shell waiting.
        threading.Thread(target=lambda: found.put(_asked(kind)), daemon=True).start()
        try:
            known = found.get(timeout=SECONDS_MAX)
        except queue.Empty:
            known = []
        return [each for each in dict.fromkeys(known) if each.startswith(incomplete)]

    return complete


def contexts(incomplete: str) -> list[str]:
    """Names of planes in the config file."""
    from controlplane.cli.config import read_config
    from controlplane.cli.errors import CommandError

    with contextlib.suppress(CommandError):
        return [name for name in read_config(warn=False)[1] if name.startswith(incomplete)]
    return []


def _asked(kind: str) -> list[str]:
    from controlplane.cli.client import Client
    from controlplane.cli.config import current_context

    path, query, key = _SOURCES[kind]
    with contextlib.suppress(Exception):  # whatever it is, a shell's line is no place to tell
        client = Client(current_context(warn=False), SECONDS_MAX, tries=1)
        with contextlib.closing(client):
            items = client.get(path, query)["items"]
        if key == "flavor":
            return [count["flavor"] for each in items for count in each["flavors"]]
        if key == "node":
            return [f"{each['cluster']}/{each['name']}" for each in items]
        return [str(each[key]) for each in items]
    return []
