"""Passes connections on: what a socket of the node's own network accepts goes to a port of this machine."""

import contextlib
import socket
import threading

CHUNK_BYTES = 65_536


def serve(listener: socket.socket, port: int) -> None:
    """Until `listener` is shut down; in threads of its own, which end with their connections."""

    def run() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:  # shut down
                return
            try:
                far = socket.create_connection(("127.0.0.1", port))
            except OSError:  # nobody listens: the other side sees its connection end
                near.close()
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=[source, sink], name="relay-pump", daemon=True).start()

    threading.Thread(target=run, name="relay", daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """One direction; its end ends both, and whoever comes second finds the sockets closed."""
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            sink.sendall(data)
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
