"""What services ask of the rows of clusters, nodes, agents' keys, sessions and directive numbers.

Every method is one statement or a fixed number of them, whatever the length of its arguments.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from controlplane.core.facts.fleet import (
    ClusterChange,
    ClusterFact,
    Document,
    KeyFact,
    NodeFact,
    NodeSignals,
    NodeWrite,
    NumberedDirective,
    PlaneFact,
    SessionFact,
    TokenFact,
)
from controlplane.core.facts.ledger import AttemptKey
from controlplane.core.ids import ClusterId, FlavorName, NodeId, PoolId


class FleetStore(Protocol):
    """Clusters, nodes, flavors on nodes, devices."""

    def ensure_pool(self, name: str) -> PoolId:
        """The Pool of this name, made if it is missing."""

    def add_cluster(self, name: str, pool: PoolId, labels: Document, spec: Document) -> ClusterId | None:
        """Store a Cluster in state `created`; None if a live one has this name."""

    def cluster(self, cluster: ClusterId) -> ClusterFact | None: ...

    def cluster_named(self, name: str) -> ClusterFact | None: ...

    def lock_cluster(self, cluster: ClusterId) -> ClusterFact | None:
        """The row, locked until the transaction ends."""

    def fingerprint_taken(self, fingerprint: str, cluster: ClusterId) -> bool:
        """Whether another live Cluster has this fingerprint."""

    def set_identity(
        self, cluster: ClusterId, fingerprint: str, agent_version: str, kubernetes_version: str
    ) -> None: ...

    def set_hello(self, cluster: ClusterId, features: Sequence[str], namespaces: Sequence[str]) -> None: ...

    def set_spec(self, cluster: ClusterId, labels: Document, spec: Document) -> None: ...

    def write_clusters(self, changes: Sequence[ClusterChange]) -> int:
        """Write those whose version is still the one read, raise it, and say how many they were."""

    def mark_accepted(self, cluster: ClusterId) -> None: ...

    def heard(self, cluster: ClusterId, next_check_at: datetime) -> None: ...

    def due_clusters(self, limit: int) -> list[ClusterFact]:
        """Those whose check is due, locked, others' locks skipped."""

    def owned_by(self, cluster: ClusterId, uids: Collection[str]) -> Mapping[FlavorName, int]:
        """Units that these nodes own, by Flavor, as stored."""

    def resources(self, nodes: Collection[NodeId]) -> Mapping[tuple[NodeId, FlavorName], str]:
        """The Kubernetes resource by which a pod asks for a Flavor on a node."""

    def budgets(self, clusters: Collection[ClusterId]) -> Mapping[ClusterId, Document]:
        """What each Cluster's document says of budgets; those that say nothing are left out."""

    def write_nodes(self, cluster: ClusterId, nodes: Sequence[NodeWrite]) -> NodeSignals:
        """Insert or update nodes with their counters and devices; what they no longer report falls to zero."""

    def remove_nodes(self, cluster: ClusterId, uids: Collection[str], *, keep: bool) -> NodeSignals:
        """Mark nodes removed: those of `uids`, or with `keep` all others. Capacity falls to zero."""

    def digests(self, cluster: ClusterId) -> list[tuple[str, str]]:
        """(uid, digest of the last report) of every node that is not removed."""

    def set_inventory(self, cluster: ClusterId, revision: int, digest: str, levels: Sequence[str]) -> None: ...

    def due_nodes(self, limit: int) -> list[NodeFact]: ...

    def check_nodes_at(self, moments: Mapping[NodeId, datetime]) -> None: ...

    def mark_lost(self, nodes: Collection[NodeId]) -> None: ...


class AgentStore(Protocol):
    """Enrolment tokens, keys, sessions; the numbering and reading of directives; the plane's own row."""

    def add_token(
        self, cluster: ClusterId, digest: bytes, created_by: str, expires_at: datetime, *, auto_accept: bool
    ) -> int: ...

    def token(self, digest: bytes) -> TokenFact | None: ...

    def use_token(self, token: int, thumbprint: str) -> bool:
        """One conditional UPDATE: True for exactly one caller per use."""

    def revoke_tokens(self, cluster: ClusterId) -> int: ...

    def key(self, thumbprint: str) -> KeyFact | None: ...

    def add_key(self, thumbprint: str, cluster: ClusterId, algorithm: str, jwk: Mapping[str, str], slot: str) -> bool:
        """Store a key, retiring the one that had this slot; False if the thumbprint is another cluster's."""

    def promote(self, thumbprint: str) -> bool:
        """Make a `next` key the current one and retire the old; False if it is not `next` any more."""

    def take_hello(self, thumbprint: str, iat: int) -> bool:
        """Note when this key signed a hello; False if it has signed one then or later."""

    def ban_keys(self, cluster: ClusterId) -> int: ...

    def open_session(
        self, cluster: ClusterId, instance_id: str, thumbprint: str, acked_number: int, lease_until: datetime
    ) -> int:
        """End the active Session, open the next one, and return its epoch."""

    def end_sessions(self, cluster: ClusterId) -> None: ...

    def lock_session(self, cluster: ClusterId) -> SessionFact | None:
        """The active Session, locked until the transaction ends."""

    def session(self, cluster: ClusterId) -> SessionFact | None: ...

    def take_seq(self, cluster: ClusterId, epoch: int, seq: int, acked_number: int, lease_until: datetime) -> bool:
        """Move an active Session on to `seq`, its answer not given yet; False if it is superseded or past it."""

    def store_answer(self, cluster: ClusterId, epoch: int, seq: int, answer: Document) -> Document | None:
        """Keep the answer to `seq` if there is none, and return the kept one; None if the Session moved on."""

    def full_asked(self, cluster: ClusterId, epoch: int) -> None: ...

    def number_directives(self, cluster_ids: Collection[ClusterId]) -> set[ClusterId]:
        """Number what has no number yet, under each counter's lock; the clusters that got any."""

    def unnumbered(self, limit: int) -> list[ClusterId]:
        """Clusters with directives that a crash left without a number."""

    def last_number(self, cluster: ClusterId) -> int: ...

    def directives_after(self, cluster: ClusterId, after: int, upto: int, limit: int) -> list[NumberedDirective]:
        """What is still to be made true, by number; nothing of gone objects, of dead ones the tombstone."""

    def known_objects(self, cluster: ClusterId, upto: int) -> list[tuple[str, int]]:
        """(object, generation) that an agent which received all up to `upto` must know."""

    def plane(self) -> PlaneFact:
        """The plane's row, made when it is first asked for."""

    def begin_recovery(self) -> int:
        """A new incarnation and epoch (returned); every cluster has to be heard, every Session is over."""

    def end_recovery(self) -> None: ...

    def recovered(self, cluster: ClusterId) -> None:
        """It has told everything."""

    def recovering(self) -> list[str]:
        """Names of accepted clusters that have not told everything since recovery began."""

    def note_unknown(self, pool: PoolId, keys: Collection[AttemptKey], until: datetime) -> None:
        """An agent of this Pool knows these Attempts: live Workloads wait until then, and number theirs higher.

        Of another Pool's Workloads, and of numbers that no plane can have given, nothing is believed.
        """

    def end_all_sessions(self) -> list[ClusterId]:
        """Every agent has to say hello again; returns whose Sessions were open."""

    def without_session_since(self, since: datetime) -> list[str]:
        """Names of accepted clusters whose agents have not said hello since."""

    def note_listening(self, gap_seconds: int) -> None:
        """That agents can reach us now; after a longer gap than this all grace clocks start again."""
