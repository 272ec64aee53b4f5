"""The plane's signing key is changed in three steps, so that at each moment agents trust whichever key signs.

`make_next` offers a second key that the first has signed for, `promote` signs with it and goes on offering the first,
`retire` drops the first. Every API process must have read the folder, and every agent have said hello, before the
next step. Each step is one file put into its place, so that a crash leaves the step undone or done.
"""

import json
import os
import secrets
from pathlib import Path

from joserfc import jws
from joserfc.jwk import ECKey

from controlplane.contract.agent.enrolment import ALGORITHMS
from controlplane.services.errors import Conflict

KEY_FILE, NEXT_FILE, OLD_FILE = "directives.jwk", "directives.next.jwk", "directives.old.jwk"
CURVE = "P-256"
ENDORSEMENT = "endorsement"
ENDORSEMENT_TYPE = "key-endorsement+jws"
PUBLIC = ("kty", "crv", "x", "y")


def make_key(file: Path) -> None:
    """A new private key in its file; of many who make one at once, one is kept."""
    draft = _draft(file, _private(ECKey.generate_key(CURVE)))
    try:
        os.link(draft, file)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def read_key(file: Path) -> tuple[ECKey, dict[str, str]]:
    """A key of the folder, and what agents are shown of it: its public words, and who has signed for it."""
    words = json.loads(file.read_text(encoding="ascii"))
    endorsement = words.pop(ENDORSEMENT, None)
    key = ECKey.import_key(words)
    return key, shown_part(key) | ({ENDORSEMENT: str(endorsement)} if endorsement else {})


def shown_part(key: ECKey) -> dict[str, str]:
    """What everybody may know of a key."""
    public = key.as_dict(private=False)
    return {name: str(public[name]) for name in PUBLIC} | {"kid": key.thumbprint(), "alg": ALGORITHMS[0]}


def make_next(folder: Path) -> str:
    """Make the key that comes next, signed for by the one that signs now; returns its thumbprint. Twice is once."""
    if (folder / OLD_FILE).exists():
        raise Conflict("the key before this one is still offered: `retire` comes first", slug="key-rotation")
    file = folder / NEXT_FILE
    if not file.exists():
        current, _ = read_key(folder / KEY_FILE)
        fresh = ECKey.generate_key(CURVE)
        header = {"alg": ALGORITHMS[0], "typ": ENDORSEMENT_TYPE, "kid": current.thumbprint()}
        signed = jws.serialize_compact(header, fresh.thumbprint(), current, algorithms=list(ALGORITHMS))
        _draft(file, {**_private(fresh), ENDORSEMENT: signed}).replace(file)
    return read_key(file)[0].thumbprint()


def promote(folder: Path) -> str:
    """Sign with the next key from now on, and offer the one before it, too; returns the thumbprint that signs."""
    upcoming = folder / NEXT_FILE
    if not upcoming.exists():
        raise Conflict("there is no next key: `next` comes first", slug="key-rotation")
    _, shown = read_key(folder / KEY_FILE)
    if shown["kid"] != read_key(upcoming)[1]["kid"]:
        old = folder / OLD_FILE  # its public half: the private one is gone with this step
        _draft(old, {name: shown[name] for name in PUBLIC}).replace(old)
    upcoming.replace(folder / KEY_FILE)
    return read_key(folder / KEY_FILE)[0].thumbprint()


def retire(folder: Path) -> None:
    """Offer the key before this one no longer. Twice is once."""
    if (folder / NEXT_FILE).exists():
        raise Conflict("the next key does not sign yet: `promote` comes first", slug="key-rotation")
    (folder / OLD_FILE).unlink(missing_ok=True)


def offered(folder: Path) -> list[dict[str, str]]:
    """The keys beside the one that signs: by whichever of them orders come, agents shall believe them."""
    return [read_key(folder / name)[1] for name in (NEXT_FILE, OLD_FILE) if (folder / name).exists()]


def _private(key: ECKey) -> dict[str, str]:
    return {name: str(value) for name, value in key.as_dict(private=True).items()}


def _draft(file: Path, words: dict[str, str]) -> Path:
    """The words in a file beside it, for its owner only, on the disk."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        json.dump(words, out)
        out.flush()
        os.fsync(out.fileno())
    return draft
