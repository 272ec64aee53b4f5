"""The names that dashboards and alerts are built on: a change here breaks them, so it must be meant."""

import pytest
from prometheus_client import Counter, Gauge, Histogram

from controlplane.telemetry import METRICS

NAMES = {
    "muster_workloads_submitted_total": ("counter", ("kind",)),
    "muster_cycles_total": ("counter", ("pool",)),
    "muster_cycle_seconds": ("histogram", ("pool",)),
    "muster_decisions_total": ("counter", ("kind",)),
    "muster_decisions_dropped_total": ("counter", ("kind",)),
    "muster_agent_syncs_total": ("counter", ("outcome",)),
    "muster_agent_long_polls": ("gauge", ()),
    "muster_event_streams": ("gauge", ()),
    "muster_due_rows_swept_total": ("counter", ("kind",)),
    "muster_http_requests_total": ("counter", ("route", "status")),
    "muster_http_seconds": ("histogram", ("route",)),
}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: next(iter(metric.describe())).name)
def test_a_metric_keeps_its_name_kind_and_labels(metric: Counter | Gauge | Histogram) -> None:
    family = next(iter(metric.describe()))
    kind, labels = NAMES[family.name + ("_total" if family.type == "counter" else "")]
    assert family.type == kind
    assert family.documentation.endswith("."), "say in a sentence what it counts"
    if labels:
        metric.labels(**dict.fromkeys(labels, "x"))  # raises where the names are others
        metric.clear()


def test_no_metric_comes_or_goes_unnoticed() -> None:
    assert len(METRICS) == len(NAMES)
