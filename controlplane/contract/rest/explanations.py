"""What the API says of why a Workload stands where it stands, and of what would change that."""

from typing import Annotated

from pydantic import Field

from controlplane.contract.rest.common import Moment, ReasonView, RestModel


class SupposedStart(RestModel):
    """One cluster's part of a start that was asked about."""

    cluster: str
    pods: int


class WhatIf(RestModel):
    """What the next planning cycle would make of a waiting Workload that asked otherwise.

    `resubmitted`: it takes another submit; a live Workload can be given no more than another priority.
    """

    asked: list[str]
    starts: bool
    resubmitted: bool
    text: str
    placements: list[SupposedStart] = Field(default_factory=list)
    charges: dict[str, int] = Field(default_factory=dict)  # units by Flavor
    reasons: list[ReasonView] = Field(default_factory=list)


class StepView(RestModel):
    """One thing to change, with its numbers."""

    kind: str
    numbers: dict[str, int | str]


class AdviceView(RestModel):
    """Steps that start it together in the next planning cycle: each was tried on the world of this moment.

    `if` says the same as the question of that name, where it is the Workload that changes; `resubmitted`: it takes
    another submit.
    """

    sentence: str
    steps: list[StepView]
    suppositions: Annotated[list[str], Field(alias="if")] = Field(default_factory=list)
    resubmitted: bool = False


class HolderView(RestModel):
    """A live Workload and what it holds; "other work" of "another queue" where the caller does not see it."""

    workload: str
    queue: str
    units: int
    since: Moment


class LevelView(RestModel):
    """One Queue between a waiting Workload and the root, for one Flavor: what is used of which limit, and by whom.

    `limit` is null where the Queue sets none. `holders` (those who hold most) and `kept` (for others, by earmarks) are
    there where it `stops` the Workload.
    """

    queue: str
    flavor: str
    wanted: int
    used: int
    limit: int | None = None
    available: int
    stops: bool
    holders: list[HolderView] = Field(default_factory=list)
    kept: int = 0


class Explanation(RestModel):
    """Why a Workload stands where it stands, in words first; `whatIf` where something was supposed.

    `advice` says what would start one that waits; `isAllTried` is false where more would have to be tried than a
    question may cost.
    """

    id: str
    name: str
    state: str
    text: str
    reasons: list[ReasonView] = Field(default_factory=list)
    live: bool  # whether a planner's view of this moment was asked
    what_if: WhatIf | None = None
    levels: list[LevelView] = Field(default_factory=list)  # the leaf's first; of one that waits
    advice: list[AdviceView] = Field(default_factory=list)
    is_all_tried: bool = True
