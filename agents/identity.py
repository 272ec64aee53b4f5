"""Who this agent is: its own P-256 key, kept before it is first used, and what enrolment told it.

One small document (`Identity`) holds it all: the current key, perhaps the next one, the cluster, the plane's keys. It
lies in a Secret, or in a file of mode 0600. The plane stores public keys only; rotation takes two slots, so that a
crash at any point leaves one key that works.
"""

import asyncio
import base64
import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from controlplane.contract.agent.enrolment import ALGORITHMS

ALGORITHM = ALGORITHMS[0]
FILE_NAME = "identity.json"
ROTATE_AFTER_SECONDS = 23 * 86_400  # of a life of 30 days: a week is left to try again
PROOF_TYPE = "agent-key+jws"
ENDORSEMENT = "endorsement"

Jwk = dict[str, str]


class IdentityUnreadable(Exception):
    """What is kept under our name is not ours."""


class Identity(BaseModel):
    """What is kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: Jwk
    made_at: int
    next_key: Jwk | None = None
    cluster: str = ""  # as the plane calls it; empty until enrolled
    audience: str = ""
    plane_keys: list[Jwk] = Field(default_factory=list)
    plane_epoch: int = 0
    token_sha256: str = ""  # of the token that was last used

    @property
    def is_enrolled(self) -> bool:
        return bool(self.cluster)


class KeyStore(Protocol):
    """Where the document lies."""

    async def load(self) -> str | None: ...

    async def save(self, text: str) -> None: ...


class FileStore:
    """A file of mode 0600, replaced in one step."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME

    async def load(self) -> str | None:
        return self._path.read_text(encoding="utf-8") if self._path.exists() else None

    async def save(self, text: str) -> None:
        await asyncio.to_thread(self._replace, text)

    def _replace(self, text: str) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._path.with_suffix(".new")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)


class Keeper:
    """Holds the identity and writes each change down before it is used."""

    def __init__(self, store: KeyStore) -> None:
        self._store = store
        self._identity: Identity | None = None

    @property
    def identity(self) -> Identity:
        assert self._identity is not None, "open() comes first"
        return self._identity

    @property
    def key(self) -> ECKey:
        return ECKey.import_key({**self.identity.key})

    @property
    def is_key_old(self) -> bool:
        """Whether its successor is due, or offered already."""
        return self.identity.next_key is not None or time.time() - self.identity.made_at >= ROTATE_AFTER_SECONDS

    async def open(self) -> None:
        """Read the kept identity, or make a key and keep it. Raise IdentityUnreadable rather than overwrite."""
        text = await self._store.load()
        if text:
            try:
                self._identity = Identity.model_validate_json(text)
            except ValidationError as error:
                raise IdentityUnreadable("the kept identity cannot be read; remove it to enrol anew") from error
        else:
            await self._keep(Identity(key=new_key(), made_at=int(time.time())))

    async def update(self, **changes: object) -> None:
        fresh = Identity.model_validate({**self.identity.model_dump(), **changes})
        if fresh != self.identity:
            await self._keep(fresh)

    async def renew(self) -> None:
        """Start over with a fresh key: the old one was banned or forgotten by the plane."""
        await self._keep(Identity(key=new_key(), made_at=int(time.time())))

    async def next_key(self) -> ECKey | None:
        """The key to rotate to, kept before it is offered; None while ours is young."""
        if not self.is_key_old:
            return None
        if self.identity.next_key is None:
            await self.update(next_key=new_key())
        assert self.identity.next_key is not None
        return ECKey.import_key({**self.identity.next_key})

    async def promote(self) -> None:
        """The plane has taken the next key: use it from now on."""
        if self.identity.next_key is not None:
            await self.update(key=self.identity.next_key, next_key=None, made_at=int(time.time()))

    async def trust(self, keys: list[Jwk]) -> None:
        """Learn the plane's keys: a new one only if a trusted one vouches for it."""
        trusted = trusted_keys(self.identity.plane_keys, keys)
        await self.update(plane_keys=trusted)

    async def _keep(self, identity: Identity) -> None:
        await self._store.save(identity.model_dump_json())
        self._identity = identity


def new_key() -> Jwk:
    return {name: str(value) for name, value in ECKey.generate_key("P-256").as_dict(private=True).items()}


def public(key: ECKey) -> Jwk:
    return {name: str(value) for name, value in key.as_dict(private=False).items() if name in ("kty", "crv", "x", "y")}


def proof_of(key: ECKey) -> str:
    """A JWS by a key over its own thumbprint: whoever offers it has it."""
    return jws.serialize_compact({"alg": ALGORITHM, "typ": PROOF_TYPE}, key.thumbprint(), key, algorithms=[ALGORITHM])


def trusted_keys(pinned: list[Jwk], offered: list[Jwk]) -> list[Jwk]:
    """Those offered keys that are pinned, or carry a pinned key's signature over their thumbprint as `endorsement`.

    Where nothing is pinned yet (at enrolment) all are taken. Where none of the pinned ones is offered, the pinned stay.
    """
    if not pinned:
        return [_bare(key) for key in offered]
    known = [thumbprint(key) for key in pinned]
    kept = [_bare(key) for key in offered if thumbprint(key) in known or _is_endorsed(key, pinned)]
    return kept or pinned


def thumbprint(key: Mapping[str, str]) -> str:
    """RFC 7638, for the keys that the contract allows."""
    text = f'{{"crv":"{key.get("crv")}","kty":"{key.get("kty")}","x":"{key.get("x")}","y":"{key.get("y")}"}}'
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def _bare(key: Jwk) -> Jwk:
    return {name: value for name, value in key.items() if name != ENDORSEMENT}


def _is_endorsed(key: Jwk, pinned: list[Jwk]) -> bool:
    for trusted in pinned:
        try:
            signed = jws.deserialize_compact(
                key.get(ENDORSEMENT, ""), ECKey.import_key({**trusted}), algorithms=[ALGORITHM]
            )
        except (JoseError, ValueError):
            continue
        if (signed.payload or b"").decode(errors="replace") == thumbprint(key):
            return True
    return False
