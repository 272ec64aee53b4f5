"""context, completion: which plane the commands ask, and how a shell completes them."""

from enum import StrEnum
from typing import Annotated

import typer

from controlplane.cli import render
from controlplane.cli.asking import OutputOption
from controlplane.cli.completing import contexts as known_contexts
from controlplane.cli.config import Context, config_file, current_context, read_config, token_source, write_config
from controlplane.cli.errors import CommandError, Exit
from controlplane.cli.render import Json, Output
from controlplane.cli.table import command, group

app = typer.Typer(rich_markup_mode=None)
contexts = group("context", app)


class Shell(StrEnum):
    """For whom the script is."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


ContextName = Annotated[
    str, typer.Argument(metavar="CONTEXT", help="A name of your own for a plane.", autocompletion=known_contexts)
]


@command(contexts, "list", "muster context list")
def list_contexts(output: OutputOption = Output.TABLE) -> None:
    """List the planes that you know; * marks the one that is asked."""
    current, known = read_config()
    found = [_view(each, is_current=name == current) for name, each in known.items()]
    render.listed(found, output, _COLUMNS, "no plane is known; `muster up` starts one")


@command(contexts, "show", "muster context show")
def show_context(
    name: Annotated[
        str,
        typer.Argument(metavar="[CONTEXT]", help="Which; none: the one that is asked.", autocompletion=known_contexts),
    ] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show where commands go, and where the token comes from; never the token."""
    found = _known(name) if name else current_context()
    view = _view(found, is_current=not name) | {"config": str(config_file()), "tokenFrom": token_source(found)}

    token = view["tokenFrom"] or "none"
    lines = [("Name", found.name), ("URL", found.url), ("Token", token), ("Config", view["config"])]
    render.show(view, output, lambda: render.pairs(lines))


@command(contexts, "use", "muster context use production")
def use_context(name: ContextName, output: OutputOption = Output.TABLE) -> None:
    """Ask this plane from now on."""
    chosen = _known(name)
    write_config(name, read_config()[1])
    told = f"commands ask {chosen.url} from now on"
    render.show(_view(chosen, is_current=True), output, lambda: print(told))


@command(contexts, "set", "muster context set production --url https://muster.example.com --token-file prod.token")
def set_context(
    name: ContextName,
    url: Annotated[str, typer.Option(help="Where the plane listens for people.")],
    token_file: Annotated[str, typer.Option(help="A file that holds your token and nothing else.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Know a plane by this name; the token stays in its file."""
    from controlplane.cli.client import check_url

    check_url(url)
    current, known = read_config()
    made = Context(name, url, token_file)
    write_config(current or name, {**known, name: made})
    render.show(_view(made, is_current=(current or name) == name), output, lambda: print(f"{name} is {url}"))


@command(contexts, "delete", "muster context delete production")
def delete_context(name: ContextName, output: OutputOption = Output.TABLE) -> None:
    """Forget a plane; its token's file stays."""
    gone = _known(name)
    current, known = read_config()
    write_config("" if current == name else current, {each: known[each] for each in known if each != name})
    render.show(_view(gone, is_current=False), output, lambda: print(f"{name} is forgotten"))


@command(app, "completion", "muster completion bash", "muster completion zsh", "muster completion fish")
def completion(shell: Annotated[Shell, typer.Argument(help="Your shell.")]) -> None:
    """Print the script that completes commands and names in a shell.

    bash: `source <(muster completion bash)` in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit; fish:
    `muster completion fish | source` in its config.
    """
    from typer._completion_shared import get_completion_script

    print(get_completion_script(prog_name="muster", complete_var="_MUSTER_COMPLETE", shell=shell.value))


def _known(name: str) -> Context:
    known = read_config()[1]
    if name not in known:
        words = f"there is no context {name}; there are: {', '.join(known) or 'none'}"
        raise CommandError(words, Exit.NOT_FOUND)
    return known[name]


def _view(each: Context, *, is_current: bool) -> Json:
    return {"name": each.name, "url": each.url, "tokenFile": each.token_file, "current": is_current}


_COLUMNS: list[render.Column] = [
    ("", lambda each: "*" if each["current"] else ""),
    ("NAME", lambda each: each["name"]),
    ("URL", lambda each: each["url"]),
]
