"""Keys and signatures between the plane and its agents: ES256 on P-256, and nothing else.

The plane's own key signs batches of directives; it is made once, in a file that only the plane reads. Of agents the
plane knows public keys alone. Which key may sign what is decided by `enrolment` and by the agents' listener.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey

from controlplane.contract.agent.enrolment import ALGORITHMS
from controlplane.services import signing_keys
from controlplane.services.errors import Invalid, Unauthenticated
from controlplane.services.signing_keys import CURVE, PUBLIC, make_key, offered, read_key, shown_part

KEY_FILE = signing_keys.KEY_FILE
_HEADER_BYTES_MAX = 2_048


@dataclass(frozen=True, slots=True)
class Verified:
    """A signature that holds: the header's words and the payload."""

    thumbprint: str
    payload: bytes


class Signer:
    """The plane's own key, and how agents are told of it and of those that came before or come next."""

    def __init__(
        self, key: ECKey, shown: Mapping[str, str] | None = None, others: Sequence[Mapping[str, str]] = ()
    ) -> None:
        """`shown`: how agents are told of this key, perhaps with who signed for it; `others`: further keys of ours."""
        self._key = key
        self._offered = [dict(each) for each in (shown or shown_part(key), *others)]
        self.thumbprint = key.thumbprint()

    def derived(self, purpose: str) -> bytes:
        """A secret of 32 bytes for something else, the same in every process that has this key."""
        private = str(self._key.as_dict(private=True)["d"])
        return hmac.digest(private.encode(), f"muster {purpose}".encode(), hashlib.sha256)

    def public_keys(self) -> list[dict[str, str]]:
        """The JWKs by which agents know our directives."""
        return self._offered

    def sign(self, type_: str, payload: bytes) -> str:
        """A compact JWS of this type."""
        header = {"alg": ALGORITHMS[0], "typ": type_, "kid": self.thumbprint}
        return jws.serialize_compact(header, payload, self._key, algorithms=list(ALGORITHMS))


def load_signer(folder: Path) -> Signer:
    """The plane's key from its folder, made there if it is missing; of many who make one at once, one is kept."""
    file = folder / KEY_FILE
    if not file.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_key(file)
    return Signer(*read_key(file), offered(folder))


def public_key(jwk: Mapping[str, object]) -> ECKey:
    """An agent's public key; raises Invalid where it is none, weak, of another curve, or comes with its secret."""
    if jwk.get("kty") != "EC" or jwk.get("crv") != CURVE:
        raise Invalid(f"the key must be an EC key on {CURVE}", slug="invalid-key")
    if jwk.keys() & {"d", "k", "p", "q"}:
        raise Invalid("only the public part of a key may be sent; make a new key", slug="invalid-key")
    parts = {name: jwk.get(name) for name in PUBLIC}
    if not all(isinstance(part, str) and len(part) <= 64 for part in parts.values()):
        raise Invalid("the key is malformed", slug="invalid-key")
    try:
        return ECKey.import_key({name: str(part) for name, part in parts.items()})
    except (JoseError, ValueError) as error:
        raise Invalid("the key is malformed", slug="invalid-key") from error


def public_part(key: ECKey) -> dict[str, str]:
    """The four words of a public EC key."""
    words = key.as_dict(private=False)
    return {name: str(words[name]) for name in PUBLIC}


def header_of(token: str) -> dict[str, object]:
    """The header of a compact JWS, not verified; raises Unauthenticated where there is none."""
    if len(token.partition(".")[0]) > _HEADER_BYTES_MAX:
        raise Unauthenticated("the signature cannot be read", slug="invalid-token")
    try:
        return dict(jws.extract_compact(token.encode()).headers())
    except (JoseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Unauthenticated("the signature cannot be read", slug="invalid-token") from error


def verified(token: str, key: ECKey, type_: str | None, algorithm: str) -> Verified:
    """What is signed, once the signature holds (`type_` None: of any type); raises Unauthenticated."""
    header = header_of(token)
    is_typed = type_ is None or header.get("typ") == type_
    if header.get("alg") != algorithm or algorithm not in ALGORITHMS or not is_typed:
        raise Unauthenticated("another algorithm or type of signature is expected", slug="invalid-token")
    try:
        found = jws.extract_compact(token.encode())
        holds = jws.validate_compact(found, key, algorithms=list(ALGORITHMS))
    except (JoseError, ValueError) as error:
        raise Unauthenticated("the signature does not hold", slug="invalid-token") from error
    if not holds:
        raise Unauthenticated("the signature does not hold", slug="invalid-token")
    return Verified(key.thumbprint(), found.payload)
