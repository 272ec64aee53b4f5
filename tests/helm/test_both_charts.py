"""What holds for both charts: valid by Kubernetes' own schemas, nothing for helm to say, every value explained."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from helm.values_table import Untold, charts, table, with_table
from tests.helm.render import AGENT_CHART, AGENT_VALUES, PLANE_CHART, PLANE_VALUES, Refused, helm, render
from tests.helm.values import AGENT_EVERYTHING, PLANE_BARE, PLANE_EVERYTHING

CASES = {
    "agent, least": (AGENT_CHART, AGENT_VALUES),
    "agent, no tenants": (AGENT_CHART, {**AGENT_VALUES, "tenants": []}),
    "agent, everything": (AGENT_CHART, AGENT_EVERYTHING),
    "plane, least": (PLANE_CHART, PLANE_VALUES),
    "plane, bare": (PLANE_CHART, PLANE_BARE),
    "plane, everything": (PLANE_CHART, PLANE_EVERYTHING),
}
FOREIGN = {"Certificate"}
"""Kinds of others' definitions, whose schemas Kubernetes does not have."""


def validated(manifests: list[dict[str, object]]) -> subprocess.CompletedProcess[str]:
    """What `kubernetes-validate --strict -` says about them."""
    program = Path(sys.executable).with_name("kubernetes-validate")
    text = yaml.safe_dump_all(manifests)
    return subprocess.run([program, "--strict", "-"], input=text, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("chart", "values"), CASES.values(), ids=CASES)
def test_every_object_is_valid_for_kubernetes(chart: Path, values: Mapping[str, object]) -> None:
    manifests = [each for each in render(values, chart=chart) if each["kind"] not in FOREIGN]
    done = validated(manifests)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("passed for resource") == len(manifests)


def test_a_planted_error_is_found() -> None:
    manifests = render(PLANE_VALUES, chart=PLANE_CHART)
    (api,) = (each for each in manifests if each["metadata"]["name"] == "muster-api" and each["kind"] == "Deployment")
    api["spec"]["template"]["spec"]["containers"][0]["imagePullPolicies"] = "Always"
    done = validated(manifests)
    assert done.returncode != 0
    assert "imagePullPolicies" in done.stdout + done.stderr


@pytest.mark.parametrize(("chart", "values"), CASES.values(), ids=CASES)
def test_helm_finds_nothing_to_say(chart: Path, values: Mapping[str, object], tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    done = helm("lint", "--strict", str(chart), "--values", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("chart", charts(), ids=lambda chart: chart.name)
def test_the_readme_has_the_table_of_values(chart: Path) -> None:
    readme = (chart / "README.md").read_text()
    assert readme == with_table(readme, (chart / "values.yaml").read_text()), "`make chart-docs` writes it anew"


@pytest.mark.parametrize("chart", charts(), ids=lambda chart: chart.name)
def test_every_value_of_the_schema_has_a_default_to_be_read(chart: Path) -> None:
    schema = yaml.safe_load((chart / "values.schema.json").read_text())
    values = yaml.safe_load((chart / "values.yaml").read_text())
    assert schema["properties"].keys() - {"global"} == values.keys()


def objects_without_bounds(schema: object, at: str = "") -> list[str]:
    """Where a schema describes an object's fields and lets others through."""
    found: list[str] = []
    if isinstance(schema, dict):
        if (
            "properties" in schema
            and schema.get("type") == "object"
            and schema.get("additionalProperties") is not False
        ):
            found.append(at)
        for name, inner in schema.items():
            found += objects_without_bounds(inner, f"{at}/{name}")
    return found


@pytest.mark.parametrize("chart", charts(), ids=lambda chart: chart.name)
def test_no_unknown_value_gets_through(chart: Path) -> None:
    assert objects_without_bounds(yaml.safe_load((chart / "values.schema.json").read_text())) == []


VALUES = """\
# Says nothing of a value.

# How many.
# At most ten.
count: 3
group:
  # Its name; a|b.
  name: ""
# As in a pod.
resources:
  limits: {memory: 1Gi}
"""


def test_the_table_takes_its_words_from_the_comments() -> None:
    assert table(VALUES).splitlines()[2:] == [
        "| `count` | `3` | How many. At most ten. |",
        "| `group.name` | none | Its name; a\\|b. |",
        "| `resources` | `{limits: {memory: 1Gi}}` | As in a pod. |",
    ]


@pytest.mark.parametrize(("bare", "path"), [("bare: 1\n", "bare"), ("group:\n  # Told.\n  a: 1\n  b: 2\n", "group.b")])
def test_a_value_that_nobody_explains_is_named(bare: str, path: str) -> None:
    with pytest.raises(Untold, match=re.escape(path)):
        table(bare)


@pytest.mark.parametrize("chart", charts(), ids=lambda chart: chart.name)
def test_without_what_it_must_be_told_a_chart_is_not_rendered(chart: Path) -> None:
    with pytest.raises(Refused, match="/url"):
        render({}, chart=chart)
