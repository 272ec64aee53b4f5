"""What every command shares: its options, and a client made when it is first needed."""

from typing import TYPE_CHECKING, Annotated

import typer

from controlplane.cli import render
from controlplane.cli.render import Output

if TYPE_CHECKING:
    from controlplane.cli.client import Client

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="table, json or yaml.")]
FileOption = Annotated[str, typer.Option("--file", "-f", help="A file of documents; - for stdin.")]


_clients: list["Client"] = []


def client() -> "Client":
    """A client of the current context's plane; the same one as long as the command runs."""
    if not _clients:
        # Late, so that `muster --help` does not wait for an HTTP library.
        from controlplane.cli.client import Client, current_context

        _clients.append(Client(current_context()))
    return _clients[0]


def hang_up() -> None:
    """Close the client, if there is one."""
    while _clients:
        _clients.pop().close()


def apply_file(file: str, output: Output) -> None:
    """Apply the documents of a file, all or none, and say what came of each."""
    from controlplane.cli.files import read_input

    answer = client().send("/apply", read_input(file))

    def told() -> None:
        for each in answer["applied"]:
            print(f"{each['kind']} {each['name']} {each['result']}")
            for warning in each["warnings"]:
                print(f"  {render.clean(warning['detail'])} [{warning['code']}]")

    render.show(answer, output, told)
