"""Files that somebody names: read with a bound, written for their owner alone; folders read whole, in order."""

import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from controlplane.cli.errors import CommandError, Exit

BYTES_MAX = 1_048_576
FILES_MAX = 10_000
DEPTH_MAX = 32
ENDINGS = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Read:
    """One file's bytes, as they stand."""

    path: str
    raw: bytes


def read_input(path: str, most: int = BYTES_MAX) -> bytes:
    """A file that somebody names, or "-" for stdin: regular, and not larger than the plane takes, or than `most`."""
    if path == "-":
        raw = sys.stdin.buffer.read(most + 1)
    else:
        try:
            # Without waiting: a FIFO that nobody writes to would hold us for ever.
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise CommandError(f"{path} is no regular file", Exit.WRONG_INPUT)
                raw = file.read(most + 1)
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}", Exit.WRONG_INPUT) from None
    if len(raw) > most:
        who = "the plane takes" if most == BYTES_MAX else "is read"
        raise CommandError(f"{path} is larger than {most // 1024} KiB, which {who}", Exit.WRONG_INPUT)
    return raw


def read_all(paths: Sequence[str], most: int = BYTES_MAX) -> list[Read]:
    """Every file that is named, and every document's file in each folder that is, in order.

    Raises CommandError for what cannot be read, for a folder without documents, and for more than the plane takes, or
    than `most`.
    """
    found: list[Read] = []
    total = 0
    for path in paths:
        names = list(_documents_in(path)) if path != "-" and Path(path).is_dir() else [path]
        if not names:
            raise CommandError(f"there is no {', '.join(ENDINGS)} in {path}", Exit.WRONG_INPUT)
        for name in names:
            found.append(Read(name, read_input(name, most)))
            total += len(found[-1].raw)
            if total > most:
                who = "the plane takes at once; apply them in parts" if most == BYTES_MAX else "is read at once"
                words = f"all files together are larger than {most // 1024} KiB, which {who}"
                raise CommandError(words, Exit.WRONG_INPUT)
    return found


def joined(files: Sequence[Read]) -> bytes:
    """One stream of documents; a JSON list among several files becomes documents of its own."""
    if len(files) == 1:
        return files[0].raw
    return b"\n---\n".join(part for file in files for part in _parts(file))


class PrivateFile:
    """A new file of mode 0600 for one line, open while its block runs: that none can be written is known at once.

    Gone again where nothing was written. Raises CommandError for a path that cannot be written, and for a file that is
    there: what it holds is somebody's. What is no regular file, as a pipe or /dev/null, loses nothing and is taken.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._is_new = False
        self._is_written = False

    def __enter__(self) -> Self:
        try:
            self._file = open(self._opened(), "w", encoding="utf-8")
        except OSError as error:
            raise self._failed(error) from None
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
            if self._is_new and not self._is_written:
                Path(self.path).unlink()

    def write(self, line: str) -> None:
        """The line; raises CommandError where the disk takes no more."""
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            raise self._failed(error) from None
        self._is_written = True

    def _opened(self) -> int:
        try:
            number = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if not Path(self.path).exists() or Path(self.path).is_file():
                words = f"{self.path} is there already and is not overwritten; name another file, or remove it"
                raise CommandError(words, Exit.WRONG_INPUT) from None
            return os.open(self.path, os.O_WRONLY)
        self._is_new = True
        return number

    def _failed(self, error: OSError) -> CommandError:
        return CommandError(f"cannot write {self.path}: {error.strerror}", Exit.WRONG_INPUT)


def _documents_in(folder: str) -> Iterator[str]:
    """Depth first, by name. Links are followed; what is hidden is left out, as version control keeps its own there."""
    for count, path in enumerate(_walk(Path(folder), ())):
        if count >= FILES_MAX:
            raise CommandError(f"{folder} holds more than {FILES_MAX} documents' files", Exit.WRONG_INPUT)
        yield str(path)


def _walk(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    try:
        about = folder.stat()
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise CommandError(f"cannot read {folder}: {error.strerror}", Exit.WRONG_INPUT) from None
    here = (about.st_dev, about.st_ino)
    if here in above:
        raise CommandError(f"{folder} is a link to a folder that it lies in", Exit.WRONG_INPUT)
    if len(above) >= DEPTH_MAX:
        raise CommandError(f"{folder} lies more than {DEPTH_MAX} folders deep", Exit.WRONG_INPUT)
    for path in inside:
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _walk(path, (*above, here))
        elif path.name.endswith(ENDINGS):
            yield path


def _parts(file: Read) -> list[bytes]:
    if file.path.endswith(".json"):
        try:
            found = json.loads(file.raw)
        except ValueError:
            return [file.raw]  # the plane says what is wrong with it
        if isinstance(found, list):
            return [json.dumps(each).encode() for each in found]
    return [file.raw]
