"""The table of commands: for each its module, one line of help and a heading. A module is loaded when it is needed.

So `muster --help` costs no more than this table, and a command no more than its own module.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from controlplane.cli.errors import ENDINGS, LEFT

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

Function = TypeVar("Function", bound=Callable[..., Any])

WORK, FLEET, PLANE, HERE = "Work", "Queues, fleet and people", "The plane", "A plane on this machine"
COMMANDS: tuple[tuple[str, str, str, str], ...] = (
    (WORK, "run", "running", "Run a command on devices, without YAML, and follow it to its end."),
    (WORK, "submit", "workloads", "Submit a workload from a file, or described by options."),
    (WORK, "list", "workloads", "List workloads, youngest first."),
    (WORK, "describe", "workloads", "Show one workload with all its attempts."),
    (WORK, "explain", "workloads", "Say why a workload stands where it stands."),
    (WORK, "watch", "running", "Follow a workload until it has ended, or all that live."),
    (WORK, "priority", "workloads", "Give a workload another priority."),
    (WORK, "cancel", "workloads", "Order a workload's end."),
    (WORK, "events", "running", "Follow what happens, as it happens."),
    (FLEET, "apply", "documents", "Apply documents from files and folders: all of them, or none."),
    (FLEET, "document", "documents", "What stands on the plane, in the form that people write."),
    (FLEET, "schema", "offline", "Print the JSON Schema of a kind of document."),
    (FLEET, "queue", "queues", "The quota tree."),
    (FLEET, "cluster", "clusters", "Kubernetes clusters, and who speaks for them."),
    (FLEET, "node", "machines", "Machines."),
    (FLEET, "device", "machines", "Accelerators."),
    (FLEET, "token", "people", "Bearer tokens of people and services."),
    (FLEET, "binding", "people", "Who has which role where."),
    (FLEET, "whoami", "people", "Say who you are to the plane."),
    (PLANE, "plan", "offline", "Plan a world described in files, or a plane's live one, without doing anything."),
    (PLANE, "replay", "offline", "Run a stored cycle again: is the plan the same, bit for bit?"),
    (PLANE, "cycle", "plane", "What planners decided."),
    (PLANE, "ledger", "plane", "Quota as it is kept: accounts and transfers."),
    (PLANE, "audit", "plane", "Who did what."),
    (PLANE, "doctor", "plane", "Check every invariant that stored rows can show."),
    (PLANE, "rebalance", "plane", "Show how broken up the free capacity is."),
    (PLANE, "context", "contexts", "Which plane the commands ask."),
    (PLANE, "completion", "contexts", "Print the script that completes commands and names in a shell."),
    (HERE, "up", "local", "Run the whole plane on this machine."),
    (HERE, "down", "local", "Stop the plane of this machine; its data stays."),
    (HERE, "status", "local", "Show the processes of the plane of this machine."),
    (HERE, "logs", "local", "Show what the plane's processes wrote."),
    (HERE, "demo", "demo", "Watch it work: simulated clusters, three teams, failures on the way."),
)
_MODULES: Mapping[str, str] = {name: module for _, name, module, _ in COMMANDS}
_EXAMPLES = "Examples:"


class WithExamples(TyperCommand):
    """A command whose help ends with lines to copy; its `epilog` holds them, one a line."""

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:  # noqa: ARG002 - as click calls it
        """As they stand: a wrapped line cannot be copied."""
        lines = "".join(f"  {line}\n" for line in (self.epilog or "").splitlines())
        formatter.write(f"\n{_EXAMPLES}\n{lines}")


def command(app: typer.Typer, name: str, *examples: str) -> Callable[[Function], Function]:
    """Put a function into the table of a module, with examples; each of them runs in a test."""
    return app.command(name, cls=WithExamples, epilog="\n".join(examples))


def group(name: str, parent: typer.Typer) -> typer.Typer:
    """A noun: verbs go below it."""
    text = next(words for _, known, _, words in COMMANDS if known == name)
    made = typer.Typer(cls=Noun, help=text, no_args_is_help=True, rich_markup_mode=None)
    parent.add_typer(made, name=name)
    return made


class Noun(TyperGroup):
    """A noun with its verbs, each with its whole first sentence."""

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:  # noqa: ARG002 - as click calls it
        with formatter.section("Commands"):
            formatter.write_dl([(name, (each.help or "").partition("\n\n")[0]) for name, each in self.commands.items()])


class _Commands(dict[str, "Command"]):
    """Every command of the table by name; made from its module when somebody asks for it."""

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as a dict has it
        return self[name] if name in _MODULES else default

    def __missing__(self, name: str) -> "Command":
        module = import_module(f"controlplane.cli.{_MODULES[name]}")
        self.update(get_group(module.app).commands)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in _MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)

    def keys(self) -> Any:  # noqa: ANN401 - as a dict has it
        return _MODULES.keys()

    def values(self) -> Any:  # noqa: ANN401 - as a dict has it
        return [self[name] for name in _MODULES]

    def items(self) -> Any:  # noqa: ANN401 - as a dict has it
        return [(name, self[name]) for name in _MODULES]


class Table(TyperGroup):
    """`muster` itself: the table under its headings, then exit codes."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - typer's own
        super().__init__(**{**attributes, "commands": _Commands()})

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:  # noqa: ARG002 - as click calls it
        """Without loading any of them."""
        for heading in dict.fromkeys(row[0] for row in COMMANDS):
            with formatter.section(heading):
                formatter.write_dl([(name, words) for section, name, _, words in COMMANDS if section == heading])

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:  # noqa: ARG002 - as click calls it
        """What scripts need to know."""
        with formatter.section("Exit codes"):
            formatter.write_dl([*((str(int(code)), words) for code, words in ENDINGS), (str(LEFT), "left by Ctrl-C")])
        formatter.write("\n`muster COMMAND --help` ends with examples.\n")

    def shell_complete(self, ctx: "Context", incomplete: str) -> Any:  # noqa: ANN401, ARG002 - typer's own
        """Names of the table, without loading what is behind them."""
        from typer._click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in _MODULES if name.startswith(incomplete)]
