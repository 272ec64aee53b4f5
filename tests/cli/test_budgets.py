"""Budgets as people see them: applied from a file, shown with what is left, and printed again as they were written."""

import re

import yaml

from tests.cli.running import Muster
from tests.services.planes import Plane
from tests.support.databases import ROOT, Database

QUEUE = """
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: lab}
spec:
  quotas: [{flavor: nvidia-h100-80gb, nominal: 8}]
  budgets:
    - {flavor: "*", deviceHours: 200, per: year}
    - {flavor: nvidia-h100-80gb, deviceHours: 80, per: month, hard: true}
  mostRunning: 5
"""


def test_a_queue_is_shown_with_what_is_spent_of_its_budgets(muster: Muster, database: Database) -> None:
    muster.fine("apply -f -", stdin=QUEUE)
    plane = Plane(database)
    plane.do(
        """INSERT INTO usage_hour (queue_id, flavor, hour, device_seconds)
           SELECT id, 'nvidia-h100-80gb', date_trunc('hour', now(), 'UTC'), 100 * 3600 FROM queue"""
    )
    plane.close()
    said = muster.fine("queue show lab")
    assert re.search(r"Most running: +5", said)
    assert re.search(r"all flavors +#{10}\.{10} +100 of 200 +year +soft +in ", said)
    assert re.search(r"nvidia-h100-80gb +#{16}\+{4} +100 of 80 +month +hard +in ", said)
    yearly, monthly = muster("queue show lab -o json").json["budgets"]
    assert (yearly["isSpent"], monthly["isSpent"], monthly["used"], monthly["limit"]) == (False, True, 100, 80)


def test_a_document_prints_budgets_as_they_were_written(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=QUEUE)
    printed = yaml.safe_load(muster.fine("document get queue lab"))
    wanted = yaml.safe_load(QUEUE)["spec"]
    assert printed["spec"]["mostRunning"] == 5
    assert [{**each, "hard": each.get("hard", False)} for each in printed["spec"]["budgets"]] == [
        {**each, "hard": each.get("hard", False)} for each in wanted["budgets"]
    ]
    assert "= 1 unchanged" in muster.fine("apply -f - --dry-run", stdin=QUEUE)


def test_the_readmes_queue_with_a_budget_is_taken_as_it_stands_there(muster: Muster) -> None:
    (shown,) = re.findall(r"(?ms)^```yaml\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"))
    root = (
        "apiVersion: muster.dev/v1\nkind: Queue\nmetadata: {name: acme}\nspec: {quotas: [{flavor: nvidia-h100-80gb}]}\n"
    )
    muster.fine("apply -f -", stdin=f"{root}---\n{shown}")
    said = muster.fine("queue show acme/vision")
    assert re.search(r"Most running: +20", said)
    assert re.search(r"nvidia-h100-80gb +\.{20} +0 of 8000 +month +hard +in ", said)
