"""Logging set-up and the names of all metrics, so that nobody invents a second name for one thing.

Nothing here measures; the edges import the objects and use them.
"""

import logging
import sys

import structlog
from prometheus_client import Counter, Gauge, Histogram

WORKLOADS_SUBMITTED = Counter("muster_workloads_submitted_total", "Workloads accepted.", ["kind"])
CYCLES = Counter("muster_cycles_total", "Planning cycles that ran to their end.", ["pool"])
CYCLE_SECONDS = Histogram("muster_cycle_seconds", "Duration of a planning cycle, commit included.", ["pool"])
DECISIONS = Counter("muster_decisions_total", "Decisions committed.", ["kind"])
DECISIONS_DROPPED = Counter("muster_decisions_dropped_total", "Decisions that the recheck refused.", ["kind"])
AGENT_SYNCS = Counter("muster_agent_syncs_total", "Sync requests of agents answered.", ["outcome"])
AGENT_WAITS = Gauge("muster_agent_long_polls", "Long polls of agents that wait now.")
EVENT_STREAMS = Gauge("muster_event_streams", "Streams of events that are open now.")
SWEPT = Counter("muster_due_rows_swept_total", "Due rows worked by a sweep.", ["kind"])
HTTP_REQUESTS = Counter("muster_http_requests_total", "Requests answered.", ["route", "status"])
HTTP_SECONDS = Histogram("muster_http_seconds", "Time to answer a request.", ["route"])

METRICS = (
    WORKLOADS_SUBMITTED, CYCLES, CYCLE_SECONDS, DECISIONS, DECISIONS_DROPPED,
    AGENT_SYNCS, AGENT_WAITS, EVENT_STREAMS, SWEPT, HTTP_REQUESTS, HTTP_SECONDS,
)  # fmt: skip


def configure_logging(level: str = "INFO") -> None:
    """Send one JSON object per line to stderr, with the bound context (workload, cluster, cycle)."""
    logging.basicConfig(level=level.upper(), format="%(message)s", stream=sys.stderr, force=True)
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)  # it lists its own parts, a line for each
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
