"""What `muster queue show` says of a Queue's past, from an answer of the plane."""

import pytest

from controlplane.cli import queues
from controlplane.cli.render import Json


def shown(capsys: pytest.CaptureFixture[str], quota: Json | None = None, **changes: object) -> str:
    listed = {
        "flavor": "nvidia-h100-80gb", "nominal": 8, "borrow": None, "lend": None, "subtree": 8, "potential": 16,
        "available": 4, "used": 4, "pending": 0, "running": 4, "borrowed": 0, "entitled": 8.5, "burstCredit": 1250.4,
    }  # fmt: skip
    found = {
        "path": "lab/vision", "weight": 2, "weightNow": 2, "namespace": "vision", "labels": {}, "isLeaf": True,
        "waiting": 1, "running": 2, "mostRunning": None, "budgets": [], "quotas": [listed | (quota or {})],
    }  # fmt: skip
    queues.tell(found | changes)
    return capsys.readouterr().out


def test_burst_credit_is_told_in_device_hours_with_its_sign(capsys: pytest.CaptureFixture[str]) -> None:
    assert "+1250 h" in shown(capsys)
    assert "-40 h" in shown(capsys, quota={"burstCredit": -40})
    assert shown(capsys, quota={"burstCredit": None}).splitlines()[-1].split()[-1] == "-"


def test_a_weight_that_history_lessened_is_told_beside_the_plain_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "2 (0.75 now, by what it used lately)" in shown(capsys, weightNow=0.75)
    assert "now" not in shown(capsys)


def test_a_fair_share_is_told_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert " 8.5 " in shown(capsys)
    assert "8.0" not in shown(capsys, quota={"entitled": 8.0})
