"""`python -m controlplane.install first-admin | signing-key`: what an installation needs once, safe to run twice.

Exit codes: 0 done, or there already; 1 failed; 2 wrong input; 4 refused.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from controlplane.bootstrap import first_admin_token
from controlplane.core.facts.collisions import Unavailable
from controlplane.install import kubernetes, upkeep
from controlplane.services.errors import Conflict, NotFound
from controlplane.services.signing import load_signer
from controlplane.settings import SettingsUnusable, settings_of_environment

EXIT_FAILED = 1
EXIT_WRONG = 2
EXIT_REFUSED = 4
STDOUT = "-"


class Wrong(Exception):
    """It cannot be done as it was asked."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; what it returns is the exit code."""
    asked = _parser().parse_args(arguments)
    try:
        if "upkeep" in asked:
            asked.upkeep(asked)
        elif asked.command == "first-admin":
            _first_admin(asked.file, again=asked.again)
        else:
            _signing_key(asked.folder, asked.secret, asked.account)
    except Conflict as refused:
        return _said(refused, EXIT_REFUSED)
    except (Wrong, NotFound, SettingsUnusable) as error:
        return _said(error, EXIT_WRONG)
    except (kubernetes.Unreachable, Unavailable, OSError) as error:
        return _said(error, EXIT_FAILED)
    return 0


def _first_admin(file: str, *, again: bool) -> None:
    if file == STDOUT:
        if sys.stdout.isatty():
            raise Wrong("stdout is a terminal, which is no place for a token: name a file, or send stdout into one")
        sys.stdout.write(first_admin_token(settings_of_environment(), only_first=not again) + "\n")
        return
    # The file first: a token that could not be written down would be one that nobody has.
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Wrong(f"cannot make {file}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as out:
            out.write(first_admin_token(settings_of_environment(), only_first=not again) + "\n")
    except BaseException:
        Path(file).unlink(missing_ok=True)
        raise
    sys.stderr.write(f"muster: the administrator's token is in {file}\n")


def _signing_key(folder: Path | None, secret: str | None, account: Path) -> None:
    if folder is not None:
        there = folder.is_dir() and any(folder.iterdir())
        load_signer(folder)
        sys.stderr.write(f"muster: the signing key {'was already' if there else 'is now'} in {folder}\n")
        return
    assert secret is not None
    made = kubernetes.make_secret(secret, account, kubernetes.new_signing_key())
    sys.stderr.write(
        f"muster: Secret {secret} with the signing key {'is made' if made else 'was there, and is kept'}\n"
    )


def _said(error: Exception, code: int) -> int:
    sys.stderr.write(f"muster: {error}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m controlplane.install", description="What is done once.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    admin = commands.add_parser("first-admin", help="a token for the first administrator; refused while one lives")
    admin.add_argument("--file", required=True, help="where it is written (0600, must not be there); - is stdout")
    admin.add_argument("--again", action="store_true", help="all administrators' tokens are lost: make another")
    key = commands.add_parser("signing-key", help="the key that signs what agents are told; one that is there is kept")
    where = key.add_mutually_exclusive_group(required=True)
    where.add_argument("--folder", type=upkeep.folder, help="make it in this folder")
    where.add_argument("--secret", help="make it in a Secret of the namespace that this pod runs in")
    key.add_argument(
        "--account", type=upkeep.folder, default=kubernetes.ACCOUNT, help="where the pod's ServiceAccount is mounted"
    )
    upkeep.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
