"""What the agent knows of one Attempt: what is wanted, what exists, and what of its pods is settled for good.

Values only. `desired` comes from directives and from the memory in the cluster, `owned` from the view; `reconcile`
decides on both, `report` tells the plane.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

from agents import memory
from agents.cluster import View
from agents.facts import ObjectFacts, PodFacts
from controlplane.contract.agent.attempts import ApplyBody, Directive, Pin, PodObservation, PodSetOrder, Rejection

PodKey = tuple[str, int]
DAWN = datetime(1970, 1, 1, tzinfo=UTC)

# The kubelet or the node ended the pod, not the program.
INFRASTRUCTURE_REASONS = frozenset(
    {"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "UnexpectedAdmissionError"}
    | {"NodeAffinity", "TopologyAffinityError"}
)
OUT_OF = "OutOf"


class Order(StrEnum):
    PREPARE = "prepare"
    START = "start"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Desired:
    """One object of the plane's: an Attempt's part in this cluster. `since`: when the order came to us."""

    object_id: str
    workload: str
    attempt: int
    gen: int
    order: Order
    since: datetime
    apply: Directive | None = None
    rejection: Rejection | None = None
    has_run: bool = False
    was_started: bool = False
    settled: Mapping[PodKey, PodObservation] = field(default_factory=dict)

    @property
    def body(self) -> ApplyBody | None:
        return self.apply.apply if self.apply else None

    @property
    def is_live(self) -> bool:
        return self.order is not Order.DELETE and self.apply is not None and self.rejection is None

    def pins(self) -> list[Pin]:
        return self.body.pins if self.body else []

    def pod_set(self, name: str) -> PodSetOrder | None:
        return next((each for each in self.body.pod_sets if each.name == name), None) if self.body else None


@dataclass(frozen=True, slots=True)
class Owned:
    """What exists of an Attempt."""

    anchor: ObjectFacts | None
    jobs: Mapping[str, ObjectFacts]
    pods: Mapping[PodKey, list[PodFacts]]

    def all_pods(self) -> Iterable[PodFacts]:
        return (pod for pods in self.pods.values() for pod in pods)

    @property
    def is_nothing(self) -> bool:
        return self.anchor is None and not self.jobs and not self.pods

    def current(self, key: PodKey) -> PodFacts | None:
        """The pod that stands for this rank now: alive before ending, ending before ended, newest first."""
        pods = self.pods.get(key)
        return max(pods, key=_liveliness) if pods else None


def owned(view: View, object_id: str) -> Owned:
    """Everything with this Attempt's labels."""
    anchor, jobs = None, {}
    for each in view.objects_of(object_id):
        if each.kind == "Job":
            jobs[each.pod_set] = each
        else:
            anchor = each
    pods: dict[PodKey, list[PodFacts]] = {}
    for pod in view.pods_of(object_id):
        pods.setdefault(pod.key, []).append(pod)
    return Owned(anchor, jobs, pods)


def take(desired: Desired | None, directive: Directive, now: datetime) -> Desired:
    """The wish after this directive; an older generation changes nothing."""
    if desired is not None and directive.gen <= desired.gen:
        return desired
    base = desired or Desired(
        directive.object_id, directive.workload, directive.attempt, directive.gen, Order.PREPARE, now
    )
    if base.order is Order.DELETE:  # nothing comes back to life
        return replace(base, gen=directive.gen)
    if directive.kind == "tombstone":
        return replace(base, gen=directive.gen, order=Order.DELETE, since=now)
    if directive.kind == "start":
        return replace(base, gen=directive.gen, order=Order.START, since=now)
    return replace(base, gen=directive.gen, apply=base.apply or directive)


def recall(anchor: ObjectFacts, now: datetime) -> Desired | None:
    """The wish that an anchor remembers; its budgets start again."""
    directive = memory.decode(anchor.directive)
    if directive is None or directive.apply is None:
        return None
    known = {order.value for order in Order}
    return Desired(
        object_id=directive.object_id,
        workload=directive.workload,
        attempt=directive.attempt,
        gen=max(directive.gen, anchor.generation),
        order=Order(anchor.order) if anchor.order in known else Order.PREPARE,
        since=now,
        apply=directive,
        was_started=anchor.order == Order.START,
        has_run=bool(anchor.ran),
        rejection=memory.decode_rejection(anchor.rejection),
    )


def ended_by_others(pod: PodFacts) -> bool:
    """Disrupted, or deleted by somebody: we delete nothing of a live Attempt."""
    return pod.deleting or pod.disrupted


def is_infrastructure(pod: PodFacts) -> bool:
    return ended_by_others(pod) or pod.reason in INFRASTRUCTURE_REASONS or pod.reason.startswith(OUT_OF)


def succeeded_keys(desired: Desired, owned_now: Owned) -> set[PodKey]:
    """Pods that have done their work, whoever remembers it: we, the Job, or the anchor."""
    done = {key for key, seen in desired.settled.items() if seen.phase == "succeeded"}
    done |= {(name, index) for name, job in owned_now.jobs.items() for index in job.completed}
    if owned_now.anchor is not None and owned_now.anchor.done:
        noted = memory.decode_done(owned_now.anchor.done)
        done |= {(name, index) for name, numbers in noted.items() for index in numbers}
    return done


def _liveliness(pod: PodFacts) -> tuple[bool, bool, datetime, str]:
    return not pod.is_finished, not pod.deleting, pod.created_at or DAWN, pod.name
