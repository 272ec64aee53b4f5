"""How a secret that is shown once is shown: to a file, or alone on stdout, so that it can be piped."""

import contextlib
import sys
from collections.abc import Callable

from controlplane.cli import render
from controlplane.cli.files import PrivateFile
from controlplane.cli.render import Json, Output


def tell_secret(
    make: Callable[[], Json],
    words: Callable[[Json], str],
    token_file: str,
    output: Output,
    name: Callable[[Json], object],
) -> None:
    """Words go to stderr where the token goes to stdout; with a file the token is nowhere else.

    The file is opened before the plane is asked: a token that nobody can keep is not made. Raises CommandError.
    """
    with PrivateFile(token_file) if token_file else contextlib.nullcontext() as file:
        made = make()
        if file is not None:
            file.write(made.pop("token"))
    if token_file:
        render.show(made, output, lambda: print(f"{words(made)}; its token is in {token_file}"), name)
        return

    def told() -> None:
        print(f"{words(made)}; its token, shown this once:", file=sys.stderr)
        print(made["token"])

    render.show(made, output, told, name)
