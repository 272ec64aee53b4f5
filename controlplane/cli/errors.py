"""How a command ends when it does not end well: one line for people, one exit code for scripts."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command that asks the plane."""

    FINE = 0
    FAILED = 1  # the plane's own fault, or what was asked about is not well
    WRONG_INPUT = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNREACHABLE = 5


class CommandError(Exception):
    """Ends the command with this line on stderr."""

    def __init__(self, text: str, code: Exit) -> None:
        super().__init__(text)
        self.code = code
