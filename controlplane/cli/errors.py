"""How a command ends when it does not end well: one line for people, one exit code for scripts."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command."""

    FINE = 0
    FAILED = 1  # the plane's own fault, or what was asked about is not well
    WRONG_INPUT = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNREACHABLE = 5


LEFT = 130
"""Exit code after Ctrl-C, as shells have it: never 0, or `muster run … && next` would go on."""

ENDINGS = (
    (Exit.FINE, "fine; of run and watch: the workload succeeded"),
    (Exit.FAILED, "failed: the workload did, or the plane did"),
    (Exit.WRONG_INPUT, "wrong input"),
    (Exit.NOT_FOUND, "not found"),
    (Exit.REFUSED, "refused"),
    (Exit.UNREACHABLE, "the plane does not answer"),
)


class CommandError(Exception):
    """Ends the command with this text on stderr. `slug` is the plane's word for it; "" where it is our own."""

    def __init__(self, text: str, code: Exit, slug: str = "", hint: str = "") -> None:
        super().__init__(f"{text}\n{hint}" if hint else text)
        self.code = code
        self.slug = slug
