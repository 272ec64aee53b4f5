"""Workload, Job and Running documents as what waits and what runs; checked as a submit checks, but for who may ask.

A world need not say what only a cluster would run: a PodSet without a template asks for its `devices` and no more, and
a Queue without a namespace places everywhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from controlplane.contract.rest.workloads import WorkloadDocument
from controlplane.contract.rest.worlds import RunningDocument, RunningPlace, WorldWorkload
from controlplane.core import entitlement
from controlplane.core.capacity import Node
from controlplane.core.demand import NodeShare, PodSet, RunningAttempt, Workload
from controlplane.core.ids import AttemptNumber, ClusterId, FlavorName, NodeId, QueueId, WorkloadId
from controlplane.core.lifecycle import AttemptState
from controlplane.core.quota import QuotaTree
from controlplane.services.core_values import Asked, workload_of
from controlplane.services.errors import Invalid
from controlplane.services.pod_sets import flavors_among, pod_sets_of, templates_of
from controlplane.worlds.fleet import Fleet
from controlplane.worlds.reading import Member, Mistakes
from controlplane.worlds.sources import unknown
from controlplane.worlds.tree import Tree

Asking = WorldWorkload | WorkloadDocument | RunningDocument


@dataclass(slots=True)
class Work:
    """What waits and what runs, by Pool."""

    waiting: dict[str, dict[WorkloadId, Workload]] = field(default_factory=dict)
    running: dict[str, dict[WorkloadId, RunningAttempt]] = field(default_factory=dict)

    def usage(self) -> dict[tuple[QueueId, FlavorName], int]:
        """Units that Running documents hold, by leaf Queue and Flavor."""
        used: dict[tuple[QueueId, FlavorName], int] = {}
        for attempt in (each for pool in self.running.values() for each in pool.values()):
            for flavor, amount in attempt.charges:
                used[attempt.queue, flavor] = used.get((attempt.queue, flavor), 0) + amount
        return used


class WorkReader:
    """Reads what asks for devices, on a fleet and a tree that are read already; mistakes are gathered."""

    def __init__(self, fleet: Fleet, tree: Tree, now: datetime, mistakes: Mistakes) -> None:
        self._fleet, self._tree, self._now, self._mistakes = fleet, tree, now, mistakes
        self._totals = fleet.owned()
        self.work = Work()

    def read(self, members: Sequence[Member], pools: Iterable[str]) -> Work:
        """Everything; `pools` are those that there are."""
        known, asking = set(pools), [each for each in members if isinstance(each.document, Asking)]
        seen: set[tuple[str, str]] = set()
        waits: list[tuple[Member, Workload]] = []
        for place, member in enumerate(asking):
            document = member.document
            assert isinstance(document, Asking)
            queue = self._tree.leaf(member, document.spec.queue, self._mistakes)
            key = document.spec.queue, document.metadata.name
            if key in seen:
                words = f"{key[0]} has two workloads {key[1]} here; a queue's live workloads have names of their own"
                self._mistakes.add(member, "/metadata/name", words)
            seen.add(key)
            if document.spec.pool not in known:
                self._mistakes.add(member, "/spec/pool", unknown("pool", document.spec.pool, known))
            pod_sets = self._pod_sets(member, document)
            if queue is None or pod_sets is None:
                continue
            asked = self._asked(document, queue.id, timedelta(seconds=len(asking) - place))
            workload = workload_of(_as_workload(document), pod_sets, asked)
            if isinstance(document, RunningDocument):
                self._run(member, document, workload)
            else:
                waits.append((member, workload))
                self.work.waiting.setdefault(document.spec.pool, {})[workload.id] = workload
        self._mistakes.refuse()
        self._refuse_never_satisfiable(waits)
        return self.work

    def _asked(self, document: Asking, queue: QueueId, before: timedelta) -> Asked:
        number = WorkloadId(f"{document.spec.queue}/{document.metadata.name}")
        if isinstance(document, WorldWorkload | RunningDocument):
            spec = document.spec
            at = spec.submitted_at or self._now - before
            return Asked(number, queue, spec.owner, at, spec.not_before, spec.attempts)
        return Asked(number, queue, "somebody", self._now - before)

    def _pod_sets(self, member: Member, document: Asking) -> tuple[PodSet, ...] | None:
        try:
            as_workload, is_manifest = _as_workload(document), member.manifest is not None
            facts = templates_of(as_workload, is_manifest=is_manifest, is_needed=is_manifest)
            listed = self._flavors_known(document.spec.queue)
            return pod_sets_of(as_workload, facts, lambda read: flavors_among(listed, read))
        except Invalid as error:
            self._mistakes.add_of(member.source, member.position, member.value, error)
            return None

    def _flavors_known(self, path: str) -> set[str]:
        """Every Flavor that a cluster carries or the Queue's way to the root lists."""
        listed = set(self._totals)
        while path:
            queue = self._tree.queues.get(path)
            listed.update(quota.flavor for quota in (queue.quotas if queue is not None else ()))
            path = path.rpartition("/")[0]
        return listed

    def _refuse_never_satisfiable(self, waits: Sequence[tuple[Member, Workload]]) -> None:
        """By the rule of a submit, on the tree with all that runs."""
        owned = {FlavorName(flavor): sum(of.values()) for flavor, of in self._totals.items()}
        tree = QuotaTree(self._tree.queues.values(), self.work.usage(), owned, is_as_given=True)
        for member, workload in waits:
            refused = entitlement.never_satisfiable(
                tree, workload.queue, workload.pod_sets, self._totals, workload.clusters_max
            )
            if refused is not None:
                pointer = "/spec/podSets" if member.manifest is None else "/spec"
                self._mistakes.add(member, pointer, f"it could never start. {refused.sentence()}")
        self._mistakes.refuse()

    def _run(self, member: Member, document: RunningDocument, workload: Workload) -> None:
        """Put it where its document says, on the counters of its nodes too."""
        spec, pods = document.spec, dict.fromkeys((each.name for each in workload.pod_sets), 0)
        shares: dict[tuple[NodeId, FlavorName], list[NodeShare]] = {}
        charges: dict[FlavorName, int] = {}
        clusters: set[ClusterId] = set()
        for number, place in enumerate(spec.placement):
            pointer = f"/spec/placement/{number}"
            pod_set = self._pod_set_of(member, pointer, place, workload.pod_sets)
            if pod_set is None:
                continue
            for name, count in place.nodes.items():
                at = f"{pointer}/nodes/{name.replace('~', '~0').replace('/', '~1')}"
                share = self._share(member, at, (place.cluster, name), pod_set, count)
                if share is None:
                    continue
                pods[pod_set.name] += count
                clusters.add(self._fleet.clusters[place.cluster].id)
                shares.setdefault((share.node, share.flavor), []).append(share)
                if share.amount:
                    charges[share.flavor] = charges.get(share.flavor, 0) + share.amount
        for index, pod_set in enumerate(workload.pod_sets):
            least = pod_set.replicas if pod_set.min_replicas is None else pod_set.min_replicas
            if not self._mistakes.found and not least <= pods[pod_set.name] <= pod_set.replicas:
                words = f"{pods[pod_set.name]} pods of {pod_set.name} are placed, and it has {pod_set.replicas}"
                self._mistakes.add(member, f"/spec/podSets/{index}/replicas", words)
        self.work.running.setdefault(spec.pool, {})[workload.id] = RunningAttempt(
            workload=workload.id,
            name=workload.name,
            attempt=AttemptNumber(max(1, spec.attempts)),
            queue=workload.queue,
            priority=workload.priority,
            state=AttemptState(spec.state),
            placed_at=spec.started_at,
            clusters=tuple(sorted(clusters)),
            charges=tuple(sorted(charges.items())),
            shares=tuple(_together(each) for _, each in sorted(shares.items())),
            owner=workload.owner,
        )

    def _pod_set_of(
        self, member: Member, pointer: str, place: RunningPlace, pod_sets: Sequence[PodSet]
    ) -> PodSet | None:
        if place.cluster not in self._fleet.clusters:
            words = unknown("cluster", place.cluster, self._fleet.clusters)
            self._mistakes.add(member, f"{pointer}/cluster", words)
            return None
        if place.pod_set is None and len(pod_sets) == 1:
            return pod_sets[0]
        found = next((each for each in pod_sets if each.name == place.pod_set), None)
        if found is None:
            names = ", ".join(each.name for each in pod_sets)
            self._mistakes.add(member, f"{pointer}/podSet", f"say whose pods these are: podSet is one of {names}")
        return found

    def _share(
        self, member: Member, pointer: str, key: tuple[str, str], pod_set: PodSet, count: int
    ) -> NodeShare | None:
        """What these pods hold of a node; the node holds it from now on."""
        node = self._fleet.nodes.get(key)
        if node is None:
            self._mistakes.add(member, pointer, f"cluster {key[0]} has no node {key[1]}")
            return None
        flavor = next((each for each in pod_set.flavors if node.owned.get(each)), None)
        if pod_set.devices and flavor is None:
            wanted, has = " or ".join(pod_set.flavors), ", ".join(sorted(node.owned)) or "no devices"
            self._mistakes.add(member, pointer, f"node {key[1]} has {has}, and {wanted} is asked for")
            return None
        needs = pod_set.needs
        share = NodeShare(
            node=node.id,
            flavor=flavor or FlavorName(""),
            amount=pod_set.devices * count,
            cpu_milli=needs.cpu_milli * count,
            memory_bytes=needs.memory_bytes * count,
            pods=count,
            rdma=needs.rdma * count,
            hugepages_bytes=needs.hugepages_bytes * count,
            local_storage_bytes=needs.local_storage_bytes * count,
        )
        over = _over(node, share)
        if over:
            self._mistakes.add(member, pointer, f"node {key[1]} {over}")
            return None
        self._fleet.nodes[key] = _holding(node, share)
        return share


def _as_workload(document: Asking) -> WorkloadDocument:
    """Read by the same code as what is submitted, which looks at no more than a Workload's own fields."""
    if isinstance(document, WorkloadDocument):
        return document
    return WorkloadDocument.model_construct(
        api_version=document.api_version, kind="Workload", metadata=document.metadata, spec=document.spec
    )


def _over(node: Node, share: NodeShare) -> str:
    """What more is held there than there is, in words; "" if nothing."""
    held = node.held.get(share.flavor, 0) + share.amount
    if share.amount and held > node.owned[share.flavor]:
        return f"has {node.owned[share.flavor]} {share.flavor}, and {held} of them are held"
    if node.pods_held + share.pods > node.pods:
        return f"takes {node.pods} pods, and {node.pods_held + share.pods} are there"
    return ""


def _holding(node: Node, share: NodeShare) -> Node:
    held: Mapping[FlavorName, int] = node.held
    if share.amount:
        held = {**held, share.flavor: held.get(share.flavor, 0) + share.amount}
    return replace(
        node,
        held=held,
        cpu_milli_held=node.cpu_milli_held + share.cpu_milli,
        memory_bytes_held=node.memory_bytes_held + share.memory_bytes,
        pods_held=node.pods_held + share.pods,
        rdma_held=node.rdma_held + share.rdma,
        hugepages_bytes_held=node.hugepages_bytes_held + share.hugepages_bytes,
        local_storage_bytes_held=node.local_storage_bytes_held + share.local_storage_bytes,
    )


def _together(shares: Sequence[NodeShare]) -> NodeShare:
    """Those of one node and Flavor as one."""
    first, *others = shares
    for each in others:
        first = replace(
            first,
            amount=first.amount + each.amount,
            cpu_milli=first.cpu_milli + each.cpu_milli,
            memory_bytes=first.memory_bytes + each.memory_bytes,
            pods=first.pods + each.pods,
            rdma=first.rdma + each.rdma,
            hugepages_bytes=first.hugepages_bytes + each.hugepages_bytes,
            local_storage_bytes=first.local_storage_bytes + each.local_storage_bytes,
        )
    return first
