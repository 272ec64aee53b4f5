"""The proxy cuts what it says it cuts: a story about a lost cluster is only as true as this."""

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.kube.proxy import TcpProxy

SOON = 5.0
NOTHING_COMES = 0.3


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(1024):
            self.request.sendall(data)


class EchoServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A reset connection is what these tests are about."""


@pytest.fixture
def proxy(kube_proxy: Callable[[int], TcpProxy]) -> Iterator[TcpProxy]:
    """A proxy in front of a server that says everything again."""
    with EchoServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield kube_proxy(server.server_address[1])
        server.shutdown()
        thread.join()


def connected(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=SOON)


def echo(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    return connection.recv(1024)


def connect_and_hear(proxy: TcpProxy) -> bytes:
    with connected(proxy) as connection:
        return connection.recv(1024)


def test_bytes_pass_while_the_link_is_whole(proxy: TcpProxy) -> None:
    with connected(proxy) as connection:
        assert echo(connection, b"hello") == b"hello"


def test_a_cut_ends_connections_and_refuses_new_ones_until_it_heals(proxy: TcpProxy) -> None:
    with connected(proxy) as connection:
        assert echo(connection, b"hello") == b"hello"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            connection.recv(1024)
    with pytest.raises(ConnectionRefusedError):
        connected(proxy)

    proxy.heal()

    with connected(proxy) as connection:
        assert echo(connection, b"again") == b"again"


def test_a_deaf_link_accepts_and_holds_back_everything(proxy: TcpProxy) -> None:
    with connected(proxy) as old:
        assert echo(old, b"hello") == b"hello"
        proxy.go_deaf()
        with connected(proxy) as new:
            for connection in (old, new):
                connection.sendall(b"is anybody there")
                connection.settimeout(NOTHING_COMES)
                with pytest.raises(TimeoutError):
                    connection.recv(1024)
                connection.settimeout(SOON)

            proxy.heal()

            assert old.recv(1024) == b"is anybody there"
            assert new.recv(1024) == b"is anybody there"


def test_a_reset_link_resets_old_and_new_connections(proxy: TcpProxy) -> None:
    with connected(proxy) as old:
        assert echo(old, b"hello") == b"hello"
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            old.recv(1024)
    with pytest.raises(ConnectionResetError):
        connect_and_hear(proxy)
