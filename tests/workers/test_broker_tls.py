"""A broker behind TLS is spoken to only when its certificate holds: the address alone says so, for whoever uses it."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from celery import Celery

from controlplane.settings import Settings
from controlplane.wakeups import make_celery
from controlplane.workers.app import make_app
from tests.kube import pki

SECONDS_MAX = 10
PASSWORD = "open-sesame"
MAKERS = {"a worker": make_app, "who pokes": make_celery}


class Broker:
    """Takes connections over TLS, notes what is said first, and hangs up."""

    def __init__(self, folder: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "server.crt", folder / "server.key")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.heard = b""
        self._thread = threading.Thread(target=self._serve, name="broker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(SECONDS_MAX)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # shut down
                return
            connection.settimeout(SECONDS_MAX)
            with (
                connection,
                contextlib.suppress(OSError),
                self._context.wrap_socket(connection, server_side=True) as line,
            ):
                self.heard += line.recv(4_096)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pki.write(tmp_path)
    return tmp_path


@pytest.fixture
def broker(folder: Path) -> Iterator[Broker]:
    broker = Broker(folder)
    yield broker
    broker.close()


def address(broker: Broker, words: str = "") -> str:
    """As a process of the plane has it from its environment."""
    given = f"rediss://:{PASSWORD}@127.0.0.1:{broker.port}/0{words}"
    settings = Settings.model_validate({"DATABASE_URL": "postgresql://db.example/muster", "REDIS_URL": given})
    return settings.redis_url.get_secret_value()


def speak(app: Celery) -> None:
    """Connect once; this broker never answers, so that fails in any case."""
    with app.connection_for_write() as connection, pytest.raises(redis.ConnectionError):
        connection.ensure_connection(
            max_retries=1, interval_start=0, timeout=SECONDS_MAX, reraise_as_library_errors=False
        )


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_one_whose_certificate_nobody_vouches_for_is_told_nothing(
    make: Callable[[str], Celery], broker: Broker
) -> None:
    speak(make(address(broker)))
    assert broker.heard == b""


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_address_names_an_authority_of_ones_own(
    make: Callable[[str], Celery], broker: Broker, folder: Path
) -> None:
    speak(make(address(broker, f"?ssl_ca_certs={folder / 'ca.crt'}")))
    assert PASSWORD.encode() in broker.heard


def test_who_wants_no_check_must_say_so(broker: Broker) -> None:
    speak(make_app(address(broker, "?ssl_cert_reqs=none")))
    assert PASSWORD.encode() in broker.heard


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("redis://cache:6379/0", "redis://cache:6379/0"),
        ("rediss://cache:6379/0", "rediss://cache:6379/0?ssl_cert_reqs=required"),
        ("rediss://cache/0?a=b", "rediss://cache/0?a=b&ssl_cert_reqs=required"),
        ("rediss://cache/0?ssl_cert_reqs=none", "rediss://cache/0?ssl_cert_reqs=none"),
    ],
)
def test_only_what_an_address_leaves_open_is_added(given: str, read: str) -> None:
    settings = Settings.model_validate({"DATABASE_URL": "postgresql://db.example/muster", "REDIS_URL": given})
    assert settings.redis_url.get_secret_value() == read
