"""A device plugin with eight cards that do not exist, over the kubelet's real socket.

A program of its own inside the node: `python -m tests.kube.node.deviceplugin`. It takes orders on stdin, one a line:
`healthy N` makes the first N cards healthy and the others not. Like real plugins it registers again whenever the
kubelet has made its socket anew. Fields are numbered as in the kubelet's device-plugin API v1beta1.
"""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from tests.kube.node.places import CARDS, RESOURCE, VISIBLE_DEVICES
from tests.kube.node.wire import decode, encode

FOLDER = Path("/var/lib/kubelet/device-plugins")
KUBELET, OURS = FOLDER / "kubelet.sock", FOLDER / "fake.sock"
VERSION = "v1beta1"
LOOK_SECONDS = 0.2
CALL_SECONDS_MAX = 5
STREAMS_MAX = 8


class Cards:
    """The cards and their health; whoever streams them is woken when it changes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._healthy = len(CARDS)
        self._version = 0

    def set_healthy(self, count: int) -> None:
        with self._changed:
            self._healthy, self._version = count, self._version + 1
            self._changed.notify_all()

    def states(self, context: grpc.ServicerContext) -> Iterator[bytes]:
        """The whole list now, and again after each change, as long as somebody listens."""
        seen = -1
        while context.is_active():
            with self._changed:
                if self._version == seen:
                    self._changed.wait(LOOK_SECONDS)
                    continue
                seen, healthy = self._version, self._healthy
            yield encode(*((1, _card(name, is_healthy=place < healthy)) for place, name in enumerate(CARDS)))


def main() -> None:
    cards = Cards()
    threading.Thread(target=_keep_registered, args=[cards], daemon=True).start()
    for line in sys.stdin:
        order, _, count = line.strip().partition(" ")
        assert order == "healthy", line
        cards.set_healthy(int(count))


def _keep_registered(cards: Cards) -> None:
    """A kubelet that starts empties the folder, our socket included: serve and register anew each time."""
    server, known, pause = None, -1, threading.Event()
    while True:
        found = KUBELET.stat().st_ino if KUBELET.exists() else -1
        if found not in (known, -1) or (server is not None and not OURS.exists()):
            if server is not None:
                server.stop(None)
            OURS.unlink(missing_ok=True)
            server = _serve(cards)
            known = found if _register() else -1
        pause.wait(LOOK_SECONDS)


def _serve(cards: Cards) -> grpc.Server:
    handlers = {
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(lambda *_: b""),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(lambda _, context: cards.states(context)),
        "Allocate": grpc.unary_unary_rpc_method_handler(lambda request, _: _allocate(request)),
        "GetPreferredAllocation": grpc.unary_unary_rpc_method_handler(lambda *_: b""),
        "PreStartContainer": grpc.unary_unary_rpc_method_handler(lambda *_: b""),
    }
    server = grpc.server(ThreadPoolExecutor(STREAMS_MAX))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers)])
    server.add_insecure_port(f"unix://{OURS}")
    server.start()
    return server


def _register() -> bool:
    """Tell the kubelet where we are; False if it was not there after all."""
    request = encode((1, VERSION), (2, OURS.name), (3, RESOURCE))
    with grpc.insecure_channel(f"unix://{KUBELET}") as channel:
        try:
            channel.unary_unary("/v1beta1.Registration/Register")(request, timeout=CALL_SECONDS_MAX)
        except grpc.RpcError as error:
            print(f"not registered: {error}", file=sys.stderr, flush=True)
            return False
    print("registered", file=sys.stderr, flush=True)
    return True


def _allocate(request: bytes) -> bytes:
    """For each container the variable that names its cards."""
    answers = []
    for _, container in decode(request):
        assert isinstance(container, bytes)
        names = [name.decode() for _, name in decode(container) if isinstance(name, bytes)]
        variable = encode((1, VISIBLE_DEVICES), (2, ",".join(sorted(names))))
        answers.append((1, encode((1, variable))))
    return encode(*answers)


def _card(name: str, *, is_healthy: bool) -> bytes:
    return encode((1, name), (2, "Healthy" if is_healthy else "Unhealthy"))


if __name__ == "__main__":
    main()
