"""Cursors of lists: the key of the last item, signed, so that nobody makes one up.

A signature covers the list, its filter and what the caller may see; a cursor of another list, another tenant, or of a
role that is gone is refused as one that was never made here.
"""

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import TypeVar

from controlplane.contract.rest.common import Page
from controlplane.core.facts.queries import PageOf
from controlplane.core.facts.tenancy import Principal
from controlplane.services import authz
from controlplane.services.errors import Malformed

LIMIT_MAX = 500
TEXT_MAX = 1_000  # of a cursor: the longest key is a Queue's path with a Flavor's name
_MAC_BYTES = 16
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Paging:
    """How many items, and after which."""

    limit: int = 100
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """One list as one caller asks for it: whose cursors its pages take and give."""

    principal: Principal
    kind: str
    wanted: object
    paging: Paging

    def page(self, found: PageOf[Item]) -> Page[Item]:
        """The page, with the cursor of what follows."""
        return Page(items=found.items, next=None if found.last is None else self._cursor(found.last))

    def key(self, length: int) -> list[str] | None:
        """The parts of the last key, None at the beginning; raises Malformed."""
        text = self.paging.cursor
        if text is None:
            return None
        try:
            raw = base64.b64decode((text + "=" * (-len(text) % 4)).encode("ascii"), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise bad_cursor() from None
        mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if len(text) > TEXT_MAX or not hmac.compare_digest(mac, self._mac(body)):
            raise bad_cursor()
        parts = json.loads(body)  # signed, so it is as we wrote it
        if len(parts) != length:
            raise bad_cursor()
        return [str(part) for part in parts]

    def number(self) -> int | None:
        """The last key where it is one number; raises Malformed."""
        key = self.key(1)
        return None if key is None else int(key[0])

    def _cursor(self, key: tuple[str, ...]) -> str:
        body = json.dumps(key, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._mac(body) + body).decode().rstrip("=")

    def _mac(self, body: bytes) -> bytes:
        about = f"{self.kind} {self.wanted!r} {authz.visible_paths(self.principal)!r} ".encode()
        return hmac.digest(self.principal.page_key, about + body, hashlib.sha256)[:_MAC_BYTES]


def bad_cursor() -> Malformed:
    """What each of the many wrong cursors is refused with."""
    return Malformed("this cursor is not from this list, filter and caller; begin without one", slug="invalid-cursor")
