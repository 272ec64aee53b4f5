"""How a secret that is shown once is shown: to a file, or alone on stdout, so that it can be piped."""

import sys

from controlplane.cli import render
from controlplane.cli.files import write_private
from controlplane.cli.render import Json, Output


def tell_secret(made: Json, words: str, token_file: str, output: Output, name: object) -> None:
    """Words go to stderr where the token goes to stdout; with a file the token is nowhere else."""
    if token_file:
        write_private(token_file, made.pop("token"))
        render.show(made, output, lambda: print(f"{words}; its token is in {token_file}"), lambda _: name)
        return

    def told() -> None:
        print(f"{words}; its token, shown this once:", file=sys.stderr)
        print(made["token"])

    render.show(made, output, told, lambda _: name)
