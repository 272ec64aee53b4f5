"""Is it documented, and is it tested? Asked of everything that a person can set, call, read or be told.

Each name must stand in a Markdown file (a README beside the code, usually) and in a test. Lists are taken from the
product itself, so that a new row is asked about from the day it is written.
"""

import ast
import pkgutil
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

from fastapi import APIRouter
from pydantic import AliasChoices
from pydantic_settings import BaseSettings

from tests.architecture.sources import ROOT, python_files, source_files, text_of, tree_of

HERE = ROOT / "tests" / "architecture"
METHODS = frozenset({"get", "post", "put", "patch", "delete"})
PARAMETER = re.compile(r"\\\{[^}]*\\\}")


def test_every_setting_is_documented_and_tested() -> None:
    complaints = [_complaint(variable, (variable,), (variable, field)) for variable, field in _settings()]
    assert complaints
    assert not any(complaints), "".join(complaints)


def test_every_metric_is_documented_and_tested() -> None:
    complaints = [_complaint(metric, (metric,), (metric, constant)) for metric, constant in _metrics()]
    assert complaints
    assert not any(complaints), "".join(complaints)


def test_every_reason_is_documented_and_tested() -> None:
    complaints = [_complaint(value, (value,), (value, f"ReasonCode.{name}")) for value, name in _reasons()]
    assert complaints
    assert not any(complaints), "".join(complaints)


def test_every_periodic_job_is_documented_and_tested() -> None:
    complaints = [_complaint(name, (name,), (name, "PERIODIC")) for name in _periodic_jobs()]
    assert complaints
    assert not any(complaints), "".join(complaints)


def test_every_route_is_documented_and_tested() -> None:
    complaints = [_complaint_about(path, _as_pattern(path), _as_pattern(path)) for path in sorted(set(_routes()))]
    assert complaints
    assert not any(complaints), "".join(complaints)


def test_every_command_is_documented_and_tested() -> None:
    complaints = []
    for words in _commands():
        typed = re.compile(rf"\bmuster {re.escape(' '.join(words))}(?![\w-])")
        quoted = r"""["'],\s*["']""".join(map(re.escape, words))
        tested = re.compile(rf"""["']{quoted}["']|["'\s]{re.escape(" ".join(words))}["'\s]""")
        complaints.append(_complaint_about("muster " + " ".join(words), typed, tested))
    assert complaints
    assert not any(complaints), "".join(complaints)


def test_a_route_is_found_with_any_value_in_the_place_of_a_parameter() -> None:
    pattern = _as_pattern("/api/v1/workloads/{uid}/explain")
    assert pattern.search("GET /api/v1/workloads/{id}/explain")
    assert pattern.search("""client.get(f"/api/v1/workloads/{workload["uid"]}/explain")""")
    assert pattern.search("curl localhost/api/v1/workloads/llama/explain?full=1")
    assert not pattern.search("/api/v1/workloads/{id}/explained")
    assert not pattern.search("/api/v1/workloads//explain")


def test_a_route_with_a_path_in_it_is_found_with_any_path() -> None:
    pattern = _as_pattern("/api/v1/queues/{path:path}/move")
    assert pattern.search("POST /api/v1/queues/{path}/move")
    assert pattern.search("""client.post("/api/v1/queues/research/nlp/move")""")
    assert not pattern.search("/api/v1/queues/research/nlp")


def _complaint(name: str, documented: Iterable[str], tested: Iterable[str]) -> str:
    return _complaint_about(name, _any_word(documented), _any_word(tested))


def _complaint_about(name: str, documented: re.Pattern[str], tested: re.Pattern[str]) -> str:
    """One line, or nothing; all complaints of one kind are shown together."""
    places = (("Markdown file", documented.search(_documents())), ("test", tested.search(_tests())))
    lacks = [place for place, found in places if not found]
    return f"{name}: in no {' and in no '.join(lacks)}\n" if lacks else ""


def _any_word(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(rf"(?<![\w-]){re.escape(word)}(?![\w-])" for word in words))


def _as_pattern(path: str) -> re.Pattern[str]:
    """Matches `path` with a name in braces, or any value, in the place of each parameter."""
    return re.compile(PARAMETER.sub(_parameter, re.escape(path)) + r"(?![\w/-])")


def _parameter(match: re.Match[str]) -> str:
    value = r"[^\s\"'`?]+?" if match[0].endswith(r":path\}") else r"[^/\s\"'`?]+"
    return rf"(?:\{{[^/]+?\}}|{value})"


@cache
def _documents() -> str:
    """Every Markdown file save the changelog, which tells what was, not what is."""
    paths = [path for path in source_files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


@cache
def _tests() -> str:
    return "\n".join(text_of(path) for path in python_files("tests") if HERE not in path.parents)


def _settings() -> Iterator[tuple[str, str]]:
    for name, settings in (("controlplane.settings", "Settings"), ("agents.settings", "AgentSettings")):
        yield from _variables(getattr(import_module(name), settings))


def _variables(settings: type[BaseSettings]) -> Iterator[tuple[str, str]]:
    for field, info in settings.model_fields.items():
        choices = info.validation_alias.choices if isinstance(info.validation_alias, AliasChoices) else ()
        yield (str(choices[0]) if choices else f"{settings.model_config['env_prefix']}{field}".upper(), field)


def _metrics() -> Iterator[tuple[str, str]]:
    module = import_module("controlplane.telemetry")
    constants = {id(value): name for name, value in vars(module).items()}
    for metric in module.METRICS:
        family = metric.describe()[0]
        yield family.name + ("_total" if family.type == "counter" else ""), constants[id(metric)]


def _reasons() -> Iterator[tuple[str, str]]:
    module = import_module("controlplane.core.reasons")
    yield from ((code.value, code.name) for code in module.ReasonCode)


def _routes() -> Iterator[str]:
    package = import_module("controlplane.api.routes")
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = import_module(found.name)
        routers = [value for value in vars(module).values() if isinstance(value, APIRouter)]
        yield from (str(getattr(route, "path", "")) for router in routers for route in router.routes)
        if not routers:
            yield from _routes_in_source(Path(str(module.__file__)))


def _routes_in_source(path: Path) -> Iterator[str]:
    """Of a router that a function makes, which cannot be asked without what the function is given."""
    calls = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
    (prefix,) = (_text(keyword.value) for call in calls for keyword in call.keywords if keyword.arg == "prefix")
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in METHODS and _text(call.args[0]).startswith("/"):
            yield prefix + _text(call.args[0])


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _periodic_jobs() -> Iterator[str]:
    module = import_module("controlplane.workers.periodic")
    yield from (row.name for row in module.PERIODIC)


def _commands() -> Iterator[tuple[str, ...]]:
    typer_main = import_module("typer.main")
    yield from _leaves(typer_main.get_command(import_module("controlplane.cli.main").app), ())


def _leaves(command: object, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield words
        return
    for name, child in children.items():
        if not child.hidden:
            yield from _leaves(child, (*words, name))
