"""What services ask of the rows that say what is out of planning, which cluster is emptied, and what lives in one.

Every method is one statement or a fixed number of them. Whoever writes has locked the Cluster.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from controlplane.core.facts.fleet import (
    Card,
    ClusterFact,
    Cordon,
    DeviceFact,
    Drain,
    FlavorCount,
    NodeFact,
    QueueLoad,
    ToldResource,
)
from controlplane.core.facts.ledger import AttemptKey
from controlplane.core.ids import ClusterId, NodeId, PoolId
from controlplane.core.lifecycle import AttemptState


class CordonStore(Protocol):
    """`uow.cordons`."""

    def hold_planning(self, pool: PoolId) -> None:
        """Wait for a commit of the Pool that is under way; the next one sees what this transaction writes."""

    def cordon_cluster(self, cluster: ClusterId, cordon: Cordon | None) -> None:
        """Write it, or that there is none, and raise the version."""

    def drain_cluster(self, cluster: ClusterId, drain: Drain | None) -> None:
        """Write it, or that there is none, and raise the version."""

    def node(self, node: NodeId) -> NodeFact | None:
        """A Node that is there, of a Cluster that is there."""

    def node_named(self, cluster: ClusterId, name: str) -> NodeFact | None: ...

    def cordon_node(self, node: NodeId, cordon: Cordon | None) -> NodeFact | None:
        """Write it and raise `cordon_version`; returns the row as it is now, None if it is gone."""

    def device(self, device: int) -> DeviceFact | None:
        """A Device that is there, of a Cluster that is there."""

    def cordon_device(self, device: int, cordon: Cordon | None) -> None:
        """Write it and raise `cordon_version`; what it means for its node's counters is written apart."""

    def cordoned_devices(self, cluster: ClusterId) -> frozenset[str]:
        """Keys of the Cluster's cordoned devices, those that are away now among them."""

    def cards(self, node: NodeId) -> tuple[Sequence[ToldResource], Sequence[Card]]:
        """What a node's counters are made from, its counters locked; where it is not told, as they add up now."""

    def write_counts(self, cluster: ClusterId, node: NodeId, counts: Sequence[FlavorCount]) -> None:
        """Write a node's counters; what is held beyond them becomes overdraft in the same statement."""

    def ended_clusters(self, limit: int) -> list[ClusterId]:
        """Those whose cordon's time is over."""

    def ended_nodes(self, limit: int) -> list[NodeFact]: ...

    def ended_devices(self, limit: int) -> list[DeviceFact]: ...

    def draining(self, limit: int) -> list[ClusterId]: ...

    def lock_if_free(self, cluster: ClusterId) -> ClusterFact | None:
        """The Cluster's row, locked; None if it is gone or somebody else has it."""

    def live_in(
        self, cluster: ClusterId, states: Collection[AttemptState], limit: int | None = None
    ) -> list[AttemptKey]:
        """Attempts in these states that have a part in the Cluster which is not proven gone; at most `limit`."""

    def load(self, cluster: ClusterId) -> list[QueueLoad]:
        """Live Attempts and held devices there, by Queue, in order of paths; empty where nothing lives."""

    def end_earmarks(self, cluster: ClusterId) -> None:
        """Keep no room there for anybody: nobody can use it."""

    def nodes_of(self, cluster: ClusterId) -> list[NodeId]:
        """Nodes of the Cluster that have live holds, removed ones too."""

    def has_agent(self, cluster: ClusterId) -> bool:
        """Whether any key may still speak for the Cluster."""

    def remove(self, cluster: ClusterId) -> None:
        """Note that the Cluster is not there any more; its name is free again."""
