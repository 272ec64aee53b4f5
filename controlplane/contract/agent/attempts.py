"""Directives down, Observations up: what an agent must make true, and what it sees.

Every object in the cluster carries workload uid, attempt and generation, and so does every message here. An
observation of an older attempt is answered `stale-attempt` and changes nothing.
"""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from controlplane.contract.agent.base import Code, Key, Moment, Name, Text, WireModel, Words

LABEL_WORKLOAD = "muster.dev/workload-uid"
LABEL_ATTEMPT = "muster.dev/attempt"
LABEL_POD_SET = "muster.dev/pod-set"
LABEL_NAME = "muster.dev/workload"
ANNOTATION_GENERATION = "muster.dev/generation"
ANNOTATION_SPEC_HASH = "muster.dev/spec-hash"
ANNOTATION_DIRECTIVE = "muster.dev/directive"  # on the Job or anchor: the directive itself, the agent's only memory
ANNOTATION_RANK = "muster.dev/rank"
GATE = "muster.dev/placement"
FIELD_MANAGER = "muster-agent"


class Pin(WireModel):
    """Where one pod goes; `rank` over the whole Attempt, `index` within its PodSet."""

    pod_set: Name
    index: int
    rank: int
    node: Text
    resource: Key
    amount: int


class PodSetOrder(WireModel):
    """One PodSet of an Attempt in this cluster: a template and how many of it."""

    name: Name
    kind: Literal["Job", "Pods"] = "Job"  # an Indexed batch/v1 Job, or plain pods
    replicas: int
    template: dict[str, JsonValue]
    job: dict[str, JsonValue] = Field(default_factory=dict)  # user's Job spec fields that are kept (ttl is not)


class Budgets(WireModel):
    """Seconds after which the agent reports a stage as failed."""

    prepare_seconds: int = 120
    bind_seconds: int = 600
    pull_seconds: int = 1_800
    ready_seconds: int = 600


class ApplyBody(WireModel):
    """Create every object of the Attempt, gated and pinned; report `prepared` or `rejected`."""

    name: Name  # base name of the objects
    namespace: Name
    world_size: int
    pod_sets: list[PodSetOrder] = Field(max_length=64)
    pins: list[Pin] = Field(max_length=100_000)
    environment: dict[str, str] = Field(default_factory=dict)
    budgets: Budgets = Budgets()
    on_cluster_loss: Literal["hold", "replace"] = "hold"
    grace_seconds: int | None = None


class Directive(WireModel):
    """One generation of what must be true for one object; only a tombstone deletes."""

    number: int  # place in the cluster's stream: the agent's cursor
    object_id: Key  # "<workload uid>.<attempt>"
    gen: int
    kind: Literal["apply", "start", "tombstone"]
    workload: Annotated[str, Field(max_length=64)]
    attempt: int
    apply: ApplyBody | None = None  # with kind apply
    required_features: list[Text] = Field(default_factory=list, max_length=16)


PodPhase = Literal["gated", "pending", "running", "succeeded", "failed", "gone"]


class PodObservation(WireModel):
    """One pod as last seen."""

    workload: Annotated[str, Field(max_length=64)]
    attempt: int
    pod_set: Name
    index: int
    uid: Text
    phase: PodPhase
    node: Text = ""
    ready: bool = False
    exit_code: Code | None = None
    disrupted: bool = False  # condition DisruptionTarget, or deleted by somebody else
    reason: Words = ""
    message: Words = ""
    unschedulable: Words = ""  # the scheduler's own words, if it refuses the pinned pod
    waiting: Words = ""  # why containers wait (image pull …)
    device_keys: list[Key] = Field(default_factory=list, max_length=64)
    started_at: Moment | None = None
    finished_at: Moment | None = None


class Rejection(WireModel):
    """Why an Attempt cannot be prepared here; `code` is a ReasonCode's text."""

    code: Literal["foreign-pods", "name-conflict", "local-policy", "refused-by-cluster",
                  "cluster-without-namespace", "unmodelled-constraint", "budget-passed"]  # fmt: skip
    facts: dict[Key, Words | int] = Field(default_factory=dict, max_length=64)
    nodes: list[Text] = Field(default_factory=list, max_length=1_000)  # to leave out next time


class AttemptObservation(WireModel):
    """How far the agent is with one object. `applied_gen` only rises.

    state: prepared (all there and admitted, devices still free) | rejected | started (gates are off) |
    stopping (delete asked) | gone (no object of it exists any more: the proof of a stop) | unknown (objects that
    no directive names; reported, never deleted).
    """

    object_id: Key
    workload: Annotated[str, Field(max_length=64)]
    attempt: int
    applied_gen: int
    state: Literal["applying", "prepared", "rejected", "started", "stopping", "gone", "unknown"]
    rejection: Rejection | None = None
    message: Words = ""
