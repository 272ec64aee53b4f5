"""Where the logs of a Workload's live pods are: the command that reads them, for whoever may reach the cluster."""

import shlex

from sqlalchemy import text
from sqlalchemy.orm import Session

from controlplane.contract.agent.attempts import LABEL_ATTEMPT, LABEL_POD_SET, LABEL_WORKLOAD
from controlplane.contract.rest.workloads import LogsView
from controlplane.core.ids import WorkloadId

_LIVE = text("""
    SELECT cluster.name AS cluster, pod.pod_set, count(*) AS pods
    FROM pod JOIN cluster ON cluster.id = pod.cluster_id
    WHERE pod.workload_id = CAST(:id AS uuid) AND pod.attempt = :attempt AND pod.uid <> ''
        AND pod.state IN ('running', 'succeeded', 'failed')
    GROUP BY cluster.name, pod.pod_set ORDER BY cluster.name, pod.pod_set LIMIT 64""")


def logs(session: Session, workload: WorkloadId, attempt: int, namespace: str) -> list[LogsView]:
    """One per cluster and PodSet of pods that have started and are still there."""
    rows = session.execute(_LIVE, {"id": workload, "attempt": attempt})
    return [
        LogsView(
            cluster=row.cluster,
            namespace=namespace,
            pod_set=row.pod_set,
            pods=row.pods,
            command=_command(row.cluster, namespace, f"{LABEL_WORKLOAD}={workload}", attempt, row.pod_set),
        )
        for row in rows
    ]


def _command(cluster: str, namespace: str, workload: str, attempt: int, pod_set: str) -> str:
    selector = f"{workload},{LABEL_ATTEMPT}={attempt},{LABEL_POD_SET}={pod_set}"
    words = ["kubectl", "--context", cluster, "-n", namespace, "logs", "-l", selector, "--all-containers", "--prefix"]
    return shlex.join([*words, "--tail=-1"])
