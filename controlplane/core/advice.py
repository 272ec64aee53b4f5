"""What would have to change, so that a waiting Workload starts in the next cycle: steps with numbers, and sentences.

Values only; what is advised here was tried (`advising`): doing all of its steps starts the Workload.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controlplane.core.reasons import Fact


class StepKind(StrEnum):
    """What can be changed: of the Workload, or (from CAPACITY on) of the world around it."""

    PRIORITY = "priority"
    FLAVOR = "flavor"
    TOPOLOGY = "topology"
    REPLICAS = "replicas"
    CLUSTERS = "clusters"
    CAPACITY = "capacity"
    NOMINAL = "nominal"
    BORROW = "borrow"
    MOST_RUNNING = "most-running"
    BUDGET = "budget"


_WORDS: Mapping[StepKind, str] = {
    StepKind.PRIORITY: "priority {priority} instead of {instead}",
    StepKind.FLAVOR: "flavor {flavor} instead of {instead}",
    StepKind.TOPOLOGY: "{level} preferred instead of required",
    StepKind.REPLICAS: "{replicas} instead of {instead} replicas of {pod_set}",
    StepKind.CLUSTERS: "at most {most} clusters instead of {instead}",
    StepKind.CAPACITY: "{units} more {flavor} {place} {cluster}, {on_a_node} free on a node like {like}",
    StepKind.NOMINAL: "a nominal of {nominal} {flavor} instead of {instead} for {queue}",
    StepKind.BORROW: "a borrowing limit of {borrow} {flavor} instead of {instead} for {queue}",
    StepKind.MOST_RUNNING: "{most} workloads under way at once instead of {instead} in {queue}",
    StepKind.BUDGET: "a budget of {hours} device-hours of {flavor} per {period} instead of {instead} for {queue}",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to change.

    CAPACITY: `nodes` nodes with `on_a_node` free units each, in the domain that `path` names (labels from coarse to
    fine, with "/"), or in each of `domains` new ones of that level where it is ""; otherwise each is as the node `like`
    would be, were it empty, and has whatever pods of `pod_set` need there besides.
    """

    kind: StepKind
    numbers: Mapping[str, Fact]

    def words(self) -> str:
        """As a part of a sentence; raises KeyError where a number is missing."""
        return _WORDS[self.kind].format(**self.numbers)


@dataclass(frozen=True, slots=True)
class Advice:
    """Steps that start it together. `suppositions` say the same as `--if` would, where it is the Workload that changes;
    `is_resubmitted`: it takes another submit.
    """

    steps: tuple[Step, ...]
    suppositions: tuple[str, ...] = ()
    is_resubmitted: bool = False

    def sentence(self) -> str:
        """Say it."""
        how = "if it were submitted again with" if self.is_resubmitted else "with"
        return f"It would start {how} {' and '.join(step.words() for step in self.steps)}."


def step(kind: StepKind, **numbers: Fact) -> Step:
    """Make a Step, its numbers in alphabetical order."""
    return Step(kind, dict(sorted(numbers.items())))
