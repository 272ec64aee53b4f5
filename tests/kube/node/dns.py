"""A DNS for the pods of a real node: names of headless Services and their members, as Kubernetes' DNS names them.

Every Kubernetes cluster has a DNS, and gangs find their rank 0 by it; this is the tests' own in place of CoreDNS, which
is many times the size of what is needed here. It answers A over UDP from EndpointSlices, asked anew for each question,
and knows no name outside of the cluster.
"""

import socket
import struct
import threading
from collections.abc import Callable

from tests.kube.client import Json
from tests.kube.node.places import CLUSTER_DOMAIN

QUESTION_BYTES_MAX = 512
A, IN = 1, 1
ANSWERED, NO_SUCH_NAME, FAILED = 0x8580, 0x8583, 0x8582  # answer, authoritative, recursion said and available; code
SECONDS_TO_LIVE = 0
LABEL_POINTER = 0xC00C  # the name of the question, which starts behind the head of twelve bytes
PARTS_OF_A_MEMBER = 4

Slices = Callable[[str, str], list[Json]]
"""The EndpointSlices of a Service, by namespace and name."""


def serve(handle: socket.socket, slices: Slices) -> None:
    """Answer until the socket is closed; runs in a thread of its own."""

    def run() -> None:
        while True:
            try:
                question, asker = handle.recvfrom(QUESTION_BYTES_MAX)
                handle.sendto(answer(question, slices), asker)
            except OSError:  # closed
                return
            except (ValueError, IndexError, struct.error):  # no question of ours
                continue

    threading.Thread(target=run, name="dns", daemon=True).start()


def answer(question: bytes, slices: Slices) -> bytes:
    """The reply to one query. Raises ValueError, IndexError or struct.error for what is none."""
    (number,) = struct.unpack_from("!H", question)
    name, end = _name(question, 12)
    kind, _ = struct.unpack_from("!HH", question, end)
    asked = question[12 : end + 4]
    try:
        found = addresses(name, slices)
    except Exception:  # noqa: BLE001 - the cluster does not answer: say so to the asker, who tries again
        return struct.pack("!HHHHHH", number, FAILED, 1, 0, 0, 0) + asked
    if found is None:
        return struct.pack("!HHHHHH", number, NO_SUCH_NAME, 1, 0, 0, 0) + asked
    told = found if kind == A else []
    head = struct.pack("!HHHHHH", number, ANSWERED, 1, len(told), 0, 0)
    records = (
        struct.pack("!HHHIH", LABEL_POINTER, A, IN, SECONDS_TO_LIVE, 4) + socket.inet_aton(address) for address in told
    )
    return head + asked + b"".join(records)


def addresses(name: str, slices: Slices) -> list[str] | None:
    """Of `[host.]service.namespace.svc.<domain>`; None where there is no such name."""
    stem = name.lower().removesuffix(".").removesuffix(f".svc.{CLUSTER_DOMAIN}")
    parts = stem.split(".")
    if stem == name.lower().removesuffix(".") or not 2 <= len(parts) < PARTS_OF_A_MEMBER:
        return None
    *host, service, namespace = parts
    found = [
        each["addresses"][0]
        for part in slices(namespace, service)
        for each in part["endpoints"] or []
        if each["conditions"].get("ready", True) and (not host or each.get("hostname") == host[0])
    ]
    return found or None


def _name(message: bytes, place: int) -> tuple[str, int]:
    """A name written out, and where it ends; questions hold no pointers."""
    labels = []
    while length := message[place]:
        if length > 63:
            raise ValueError("a pointer in a question")
        labels.append(message[place + 1 : place + 1 + length].decode("ascii"))
        place += 1 + length
    return ".".join(labels), place + 1
