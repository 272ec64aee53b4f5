"""The `muster` command: its table of commands, and how they end.

Importing this module costs little; an HTTP client, tables and the embedded plane are loaded by the commands that use
them.
"""

import sys

import typer

from controlplane.cli import admin, demo, local, plane, workloads
from controlplane.cli.asking import hang_up
from controlplane.cli.errors import CommandError, Exit

app = typer.Typer(
    name="muster",
    help="One queue for every GPU a company owns.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _module in (workloads, admin, plane, local, demo):
    _module.register(app)


def main() -> None:
    """Run one command; end with its exit code, and with one line instead of a traceback where it was refused."""
    try:
        app()
    except CommandError as error:
        print(f"muster: {error}", file=sys.stderr)
        sys.exit(error.code)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        sys.stderr.close()
        sys.exit(Exit.FAILED)
    finally:
        hang_up()


if __name__ == "__main__":
    main()
