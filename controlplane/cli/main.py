"""The `muster` command: how it begins, and how every command ends.

Importing this module costs little: an HTTP client, YAML and the embedded plane are loaded by commands that use them.
"""

import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from controlplane.cli.asking import hang_up
from controlplane.cli.errors import LEFT, CommandError, Exit
from controlplane.cli.table import Table

COMPLETE = "_MUSTER_COMPLETE"
_TOKEN = re.compile(r"mst_[A-Za-z0-9._-]{20,}")
_TOKEN_OPTIONS = ("--token", "--password", "--secret", "--bearer")
_REFUSED = (
    "a token on the command line is for everybody on this machine to see, so none is taken there; "
    "put it into a file that only you can read and name that file with `muster context set NAME --token-file FILE` "
    "or in MUSTER_TOKEN_FILE"
)

app = typer.Typer(
    name="muster",
    cls=Table,
    help="One queue for every GPU a company owns.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        print(f"muster {version('muster')}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[bool, typer.Option("--version", help="Say which version this is.", callback=_version)] = False,
) -> None:
    """One queue for every GPU a company owns."""


def main() -> None:
    """Run one command; end with its exit code, and with a line instead of a traceback where it was refused."""
    try:
        _refuse_secrets(sys.argv[1:])
        if COMPLETE in os.environ:
            from typer._completion_classes import completion_init

            completion_init()
        app()
    except CommandError as error:
        print(f"muster: {error}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(LEFT)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        sys.stderr.close()
        sys.exit(Exit.FAILED)
    finally:
        hang_up()


def _refuse_secrets(words: Sequence[str]) -> None:
    """Not echoed, of course. What follows `--` is somebody else's command line."""
    ours = words[: words.index("--")] if "--" in words else words
    for word in ours:
        if word.partition("=")[0] in _TOKEN_OPTIONS or _TOKEN.fullmatch(word.rpartition("=")[2]):
            raise CommandError(_REFUSED, Exit.WRONG_INPUT)


if __name__ == "__main__":
    main()
