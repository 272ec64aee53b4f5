"""What commands share: options, names that a shell can complete, a client made when it is first needed, questions."""

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from controlplane.cli.completing import names
from controlplane.cli.errors import CommandError, Exit
from controlplane.cli.render import Output

if TYPE_CHECKING:
    from controlplane.cli.client import Client

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How the answer is written.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
LabelOption = Annotated[list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="Again for more.")]
ReasonOption = Annotated[str, typer.Option("--reason", "-r", help="Why; everybody sees it.")]
ForOption = Annotated[str, typer.Option("--for", help="For how long, as in 2h; none: until it is taken back.")]
TokenFileOption = Annotated[
    str, typer.Option("--token-file", help="Write the token to this new file (0600) instead of showing it.")
]
LimitOption = Annotated[int, typer.Option(min=1, help="At most so many.")]

Reference = Annotated[str, typer.Argument(metavar="WORKLOAD", help="Its name or id.", autocompletion=names("workload"))]
QueuePath = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Its path, as in research/nlp.", autocompletion=names("queue"))
]
ClusterName = Annotated[str, typer.Argument(metavar="CLUSTER", help="Its name.", autocompletion=names("cluster"))]
QueueOption = Annotated[
    str | None,
    typer.Option("--queue", "-q", help="This queue and all below it.", autocompletion=names("queue")),
]
ClusterOption = Annotated[str | None, typer.Option(help="Only this cluster.", autocompletion=names("cluster"))]
FlavorOption = Annotated[str | None, typer.Option(help="Only this Flavor.", autocompletion=names("flavor"))]

_AGO = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_clients: list["Client"] = []


def client() -> "Client":
    """A client of the current context's plane; the same one as long as the command runs."""
    if not _clients:
        # Late, so that `muster --help` does not wait for an HTTP library.
        from controlplane.cli.client import Client
        from controlplane.cli.config import current_context

        _clients.append(Client(current_context()))
    return _clients[0]


def hang_up() -> None:
    """Close the client, if there is one."""
    while _clients:
        _clients.pop().close()


def confirm(question: str, told: Callable[[], None], *, yes: bool) -> None:
    """Say what would happen and ask, unless `yes`; raises CommandError where nobody can be asked, or says no."""
    if yes:
        return
    told()
    if not sys.stdin.isatty():
        raise CommandError("nobody can be asked here; --yes does it without asking", Exit.WRONG_INPUT)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError("nothing was done", Exit.FAILED)


def pairs_of(given: list[str] | None, option: str) -> dict[str, str]:
    """`key=value`, several times, as a mapping; raises CommandError for what is none."""
    found: dict[str, str] = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise CommandError(f"{option} {text}: it is written key=value", Exit.WRONG_INPUT)
        found[key] = value
    return found


def moment_of(text: str | None) -> str | None:
    """A moment as the plane reads it; "2h" is two hours ago."""
    ago = _AGO.fullmatch(text or "")
    if not ago:
        return text
    return (datetime.now(UTC) - timedelta(seconds=int(ago[1]) * _SECONDS[ago[2]])).isoformat()


def number_of(text: str, what: str) -> int:
    """A number that names something; raises CommandError for what is none."""
    if not text.isdecimal() or len(text) > 18:
        raise CommandError(f"{text} is no number of a {what}; `muster {what} list` shows them", Exit.WRONG_INPUT)
    return int(text)
