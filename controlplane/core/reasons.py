"""Why not: a code, the numbers, and one sentence that a researcher understands.

A Reason is a value, not an error. Every code has one template here; nothing else words a refusal.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

Fact = int | str


class ReasonCode(StrEnum):
    """Everything that can stand between a Workload and its start, or end it."""

    QUOTA_EXCEEDED = "quota-exceeded"
    QUOTA_KEPT = "quota-kept"
    QUOTA_BEYOND_POTENTIAL = "quota-beyond-potential"
    BUDGET_SPENT = "budget-spent"
    MOST_RUNNING = "most-running"
    QUEUE_UNKNOWN = "queue-unknown"
    NO_CLUSTER = "no-cluster"
    CLUSTER_NOT_READY = "cluster-not-ready"
    CLUSTER_CORDONED = "cluster-cordoned"
    CLUSTER_DRAINED = "cluster-drained"
    CLUSTER_INVENTORY_STALE = "cluster-inventory-stale"
    CLUSTER_WITHOUT_FLAVOR = "cluster-without-flavor"
    CLUSTER_NOT_SELECTED = "cluster-not-selected"
    CLUSTER_WITHOUT_NAMESPACE = "cluster-without-namespace"
    CLUSTER_WITHOUT_FACT = "cluster-without-fact"
    CLUSTERS_NOT_TOGETHER = "clusters-not-together"
    CLUSTER_TOO_SMALL = "cluster-too-small"
    NOT_ENOUGH_FREE = "not-enough-free"
    CAPACITY_CORDONED = "capacity-cordoned"
    TOPOLOGY_TOO_FRAGMENTED = "topology-too-fragmented"
    TOPOLOGY_TOO_SMALL = "topology-too-small"
    TOPOLOGY_LEVEL_UNKNOWN = "topology-level-unknown"
    SLICES_TOO_FRAGMENTED = "slices-too-fragmented"
    TOGETHER_TOO_FRAGMENTED = "together-too-fragmented"
    NODES_NOT_ELIGIBLE = "nodes-not-eligible"
    ELIGIBLE_NODES_FULL = "eligible-nodes-full"
    NODES_EXCLUDED = "nodes-excluded"
    UNMODELLED_CONSTRAINT = "unmodelled-constraint"
    EARMARKED_FOR_ANOTHER = "earmarked-for-another"
    WAITS_FOR_RECLAIM = "waits-for-reclaim"
    BEHIND_OTHERS = "behind-others"
    BACKING_OFF = "backing-off"
    STALE_DECISION = "stale-decision"
    FOREIGN_PODS = "foreign-pods"
    NAME_CONFLICT = "name-conflict"
    LOCAL_POLICY = "local-policy"
    REFUSED_BY_CLUSTER = "refused-by-cluster"
    CLUSTER_LOST = "cluster-lost"
    NODE_LOST = "node-lost"
    PLANE_RESTORED = "plane-restored"
    DEVICE_FAILED = "device-failed"
    DISRUPTED = "disrupted"
    PROGRAM_FAILED = "program-failed"
    RECLAIMED = "reclaimed"
    BUDGET_PASSED = "budget-passed"
    NEVER_SATISFIABLE = "never-satisfiable"


_SENTENCES: Mapping[ReasonCode, str] = {
    ReasonCode.QUOTA_EXCEEDED: "{queue} may use {available} more {flavor} now, and {wanted} are asked for"
    " ({used} of {limit} in use at {at}).",
    ReasonCode.QUOTA_KEPT: "{queue} may use {available} more {flavor} now, and {wanted} are asked for"
    " ({used} of {limit} in use and {kept} kept for others at {at}).",
    ReasonCode.QUOTA_BEYOND_POTENTIAL: "{queue} can never use more than {potential} {flavor},"
    " and {wanted} are asked for.",
    ReasonCode.BUDGET_SPENT: "{queue} has used {used} of {limit} device-hours of {flavor} this {period};"
    " it begins anew at {until}.",
    ReasonCode.MOST_RUNNING: "{queue} may have {limit} workloads under way at once, and {running} are.",
    ReasonCode.QUEUE_UNKNOWN: "There is no queue {queue}.",
    ReasonCode.NO_CLUSTER: "No cluster of pool {pool} is there yet.",
    ReasonCode.CLUSTER_NOT_READY: "{cluster} is {state}.",
    ReasonCode.CLUSTER_CORDONED: "{cluster} is cordoned until {until}: {words}",
    ReasonCode.CLUSTER_DRAINED: "{cluster} is drained: {words}",
    ReasonCode.CLUSTER_INVENTORY_STALE: "{cluster} last told its inventory {age} s ago;"
    " after {limit} s it counts as full.",
    ReasonCode.CLUSTER_WITHOUT_FLAVOR: "{cluster} has no {flavor}.",
    ReasonCode.CLUSTER_NOT_SELECTED: "{cluster} is not among the clusters that the workload selects.",
    ReasonCode.CLUSTER_WITHOUT_NAMESPACE: "{cluster} has no namespace {namespace} for this queue.",
    ReasonCode.CLUSTER_WITHOUT_FACT: "{cluster} does not have {missing}, which the workload requires.",
    ReasonCode.CLUSTERS_NOT_TOGETHER: "No {most} clusters of one network domain have room for all of it together:"
    " of {clusters} that could hold a part, {joined} share one.",
    ReasonCode.CLUSTER_TOO_SMALL: "{cluster} owns {total} {flavor} in all, and {wanted} are asked for.",
    ReasonCode.NOT_ENOUGH_FREE: "{cluster} has room for {fits} of {pods} pods of {devices} {flavor} each"
    " ({free} free).",
    ReasonCode.CAPACITY_CORDONED: "{cluster} has room for {fits} of {pods} pods of {devices} {flavor} each"
    " ({free} free, {cordoned} more cordoned: {words}).",
    ReasonCode.TOPOLOGY_TOO_FRAGMENTED: "{cluster} has room for {fits} of {pods} pods of {devices} {flavor} each in its"
    " best {level} ({domain}).",
    ReasonCode.TOPOLOGY_TOO_SMALL: "{cluster}'s largest {level} holds {fits} of {pods} pods of {devices} {flavor} each,"
    " were it empty.",
    ReasonCode.TOPOLOGY_LEVEL_UNKNOWN: "{cluster} has no topology level {level}.",
    ReasonCode.SLICES_TOO_FRAGMENTED: "{cluster} has room for {fits} of {slices} slices of {size} pods of {devices}"
    " {flavor} each, every slice in one {level} of {domain} ({free} free).",
    ReasonCode.TOGETHER_TOO_FRAGMENTED: "{cluster} has no {level} with room for {pods} pods of {pod_sets} together.",
    ReasonCode.NODES_NOT_ELIGIBLE: "{cluster} has {count} nodes that its selector and taints allow, and empty they"
    " would hold {fits} of {pods} pods of {devices} {flavor} each.",
    ReasonCode.ELIGIBLE_NODES_FULL: "{cluster} has {count} nodes that its selector and taints allow, and they have room"
    " for {fits} of {pods} pods of {devices} {flavor} each.",
    ReasonCode.NODES_EXCLUDED: "{cluster} leaves out {count} of its nodes for this workload until {until}.",
    ReasonCode.UNMODELLED_CONSTRAINT: "{cluster}'s scheduler refused {node}: {words}",
    ReasonCode.EARMARKED_FOR_ANOTHER: "{amount} free {flavor} in {cluster} are kept for {workload}.",
    ReasonCode.WAITS_FOR_RECLAIM: "{amount} {flavor} in {cluster} are being given back for this workload.",
    ReasonCode.BEHIND_OTHERS: "{ahead} workloads of {queue} come first.",
    ReasonCode.BACKING_OFF: "It was disturbed {times} times and is tried again after {until}.",
    ReasonCode.STALE_DECISION: "The decision rested on {what}, which had changed; it is planned again.",
    ReasonCode.FOREIGN_PODS: "Pods that are not ours took {amount} {flavor} on {node} first.",
    ReasonCode.NAME_CONFLICT: "{cluster} already has a {kind} {name} that is not ours.",
    ReasonCode.LOCAL_POLICY: "{cluster}'s own policy refuses it: {words}",
    ReasonCode.REFUSED_BY_CLUSTER: "{cluster} refused it: {words}",
    ReasonCode.CLUSTER_LOST: "{cluster} was declared lost.",
    ReasonCode.PLANE_RESTORED: "{cluster} knew nothing of it when the plane had come from a backup.",
    ReasonCode.NODE_LOST: "Node {node} of {cluster} was lost.",
    ReasonCode.DEVICE_FAILED: "A device of node {node} failed: {words}.",
    ReasonCode.DISRUPTED: "Its cluster took rank {rank} away: {words}.",
    ReasonCode.PROGRAM_FAILED: "Rank {rank} ended with exit code {exit_code}.",
    ReasonCode.RECLAIMED: "Its borrowed {amount} {flavor} went back to {queue} for {workload}.",
    ReasonCode.BUDGET_PASSED: "It was not {goal} within {limit} s.",
    ReasonCode.NEVER_SATISFIABLE: "No cluster could ever hold it: the largest owns {total} {flavor},"
    " and {wanted} are asked for.",
}


# Their facts may hold a cluster's own words, which no sentence of ours foresees.
_QUOTING = frozenset({ReasonCode.BUDGET_PASSED})


@dataclass(frozen=True, slots=True)
class Reason:
    """One "no" with its numbers; `facts` fill the code's sentence."""

    code: ReasonCode
    facts: Mapping[str, Fact] = field(default_factory=lambda: MappingProxyType({}))

    def sentence(self) -> str:
        """Say it in one sentence, and quote the cluster where it said more; raises KeyError if a fact is missing."""
        said = _SENTENCES[self.code].format(**self.facts)
        words = self.facts.get("words")
        return f"{said} The cluster says: {words}" if words and self.code in _QUOTING else said


def reason(code: ReasonCode, **facts: Fact) -> Reason:
    """Make a Reason; facts in alphabetical order, so that equal Reasons print and hash alike."""
    return Reason(code, MappingProxyType(dict(sorted(facts.items()))))


def told_within(why: Reason, paths: Collection[str] | None) -> Reason:
    """The same for whoever sees these subtrees (None: all): what belongs to others is there, but has no name."""
    if paths is None:
        return why
    if why.code is ReasonCode.EARMARKED_FOR_ANOTHER:  # whose it is stands nowhere
        return reason(why.code, **{**why.facts, "workload": "other work"})
    if why.code is ReasonCode.RECLAIMED and not any(f"{why.facts['queue']}/".startswith(f"{path}/") for path in paths):
        return reason(why.code, **{**why.facts, "queue": "another queue", "workload": "its work"})
    return why
