"""What a measurement cost, and how near to one another gangs were placed."""

import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from controlplane.embedded.postgres import Postgres
from tests.services.planes import Plane

LEVELS = ("host", "rack", "spine", "cluster")


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds, user and system, of this process and of a Postgres server's processes that still run."""

    planner: float
    postgres: float

    @classmethod
    def now(cls, postgres: Postgres) -> "Cpu":
        return cls(time.process_time(), _of_server(postgres))

    def since(self, before: "Cpu") -> "Cpu":
        return Cpu(self.planner - before.planner, self.postgres - before.postgres)


def peak_rss_mib() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def levels_reached(plane: Plane, since: datetime) -> Mapping[str, float]:
    """Of the gangs placed since then, the share inside one host, one rack, one spine, one cluster; in percent."""
    [row] = plane.rows(
        """SELECT count(*) AS gangs, count(*) FILTER (WHERE hosts = 1) AS host,
                  count(*) FILTER (WHERE racks = 1) AS rack, count(*) FILTER (WHERE spines = 1) AS spine,
                  count(*) FILTER (WHERE clusters = 1) AS cluster
           FROM (SELECT count(DISTINCT node.id) AS hosts,
                        count(DISTINCT (node.cluster_id, domains ->> 'rack')) AS racks,
                        count(DISTINCT (node.cluster_id, domains ->> 'spine')) AS spines,
                        count(DISTINCT node.cluster_id) AS clusters
                 FROM attempt JOIN pod USING (workload_id, attempt) JOIN node ON node.id = pod.node_id
                 WHERE attempt.placed_at >= :since GROUP BY attempt.workload_id) AS placed""",
        since=since,
    )
    return {level: round(100 * getattr(row, level) / max(1, row.gangs), 1) for level in LEVELS}


def _of_server(postgres: Postgres) -> float:
    """Of its children too, as far as they have not ended: a server has a process for each connection."""
    server = (postgres.data / "postmaster.pid").read_text(encoding="ascii").split()[0]
    total = 0
    for folder in Path("/proc").iterdir():
        try:
            parent = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
            if server in {folder.name, parent}:
                total += int((folder / "schedstat").read_text(encoding="ascii").split()[0])
        except (OSError, IndexError):
            continue  # no process, or no longer
    return total / 1e9
