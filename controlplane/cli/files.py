"""Files that somebody names: read with a bound, written for their owner alone."""

import os
import stat
import sys

from controlplane.cli.errors import CommandError, Exit

FILE_BYTES_MAX = 1_048_576


def read_input(path: str) -> bytes:
    """A file that somebody names, or "-" for stdin: regular, and not larger than the plane takes."""
    if path == "-":
        raw = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    else:
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - a Path has nothing that says it shorter
                raise CommandError(f"{path} is no regular file", Exit.WRONG_INPUT)
            with open(path, "rb") as file:
                raw = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}", Exit.WRONG_INPUT) from None
    if len(raw) > FILE_BYTES_MAX:
        raise CommandError(f"{path} is larger than {FILE_BYTES_MAX // 1024} KiB", Exit.WRONG_INPUT)
    return raw


def write_private(path: str, text: str) -> None:
    """One line into a file of mode 0600."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            os.fchmod(out.fileno(), 0o600)  # it may have been there, open to others
            out.write(text + "\n")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}", Exit.WRONG_INPUT) from None
