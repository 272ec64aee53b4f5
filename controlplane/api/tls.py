"""The certificate of both listeners: read at the start, and taken up again when its files are renewed.

TLS ends in this process, not before it: what agents sign and what they are told stays private up to the program that
checks it, a plain TCP balancer is enough before many replicas, and a cluster needs no ingress controller.
"""

import asyncio
import hashlib
import ssl
from pathlib import Path

import structlog

LOOK_SECONDS = 2

log = structlog.get_logger(__name__)


class CertificateUnusable(Exception):
    """Chain and key cannot be read, or do not belong together; the message says which files."""


class Certificate:
    """A chain and its key (PEM). `context` is one object for as long as the process lives: sockets hold it."""

    def __init__(self, chain: Path, key: Path) -> None:
        """Read both; raises CertificateUnusable."""
        self._chain = chain
        self._key = key
        self._digest = self._read()
        self.context = self._loaded()

    def refresh(self) -> bool:
        """Take up what the files hold now, for new connections; False where nothing has changed or it is unusable."""
        try:
            digest = self._read()
            if digest == self._digest:
                return False
            self._loaded()  # into a throw-away: half of a pair would break the one in use
            self.context.load_cert_chain(self._chain, self._key)
        except (CertificateUnusable, OSError) as error:  # an SSLError is an OSError
            log.warning("the renewed certificate cannot be used, the old one stays", text=str(error)[:200])
            return False
        self._digest = digest
        log.info("the certificate was renewed")
        return True

    async def follow(self) -> None:
        """Refresh until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.refresh()

    def _read(self) -> bytes:
        try:
            return hashlib.sha256(self._chain.read_bytes() + b"\0" + self._key.read_bytes()).digest()
        except OSError as error:
            raise CertificateUnusable(f"cannot read {error.filename}: {error.strerror}") from error

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._chain, self._key, password=lambda: "")  # never ask on a terminal
        except (ssl.SSLError, ValueError) as error:
            raise CertificateUnusable(
                f"{self._chain} and {self._key} are no certificate and its key: {error}"
            ) from error
        return context
