"""Taking clusters, nodes and devices out of planning, emptying a cluster, and what its removal would do."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from controlplane.contract.rest.common import Moment, PlainText, RestModel, refusal
from controlplane.contract.rest.quantities import Duration, seconds

REASON_BYTES_MAX = 1_024
DEADLINE_SECONDS_MAX = 30 * 86_400

WorkChoice = Literal["refuse", "stop", "lost"]


def _said(text: str) -> str:
    said = text.strip()
    if not said:
        raise refusal("too-few", "reason: say in a few words why, for those who ask later")
    if len(said.encode()) > REASON_BYTES_MAX:
        raise refusal("too-long", f"reason: at most {REASON_BYTES_MAX} bytes")
    return said


def _deadline(value: object) -> int:
    total = 0 if not isinstance(value, bool) and value in (0, "0", "0s") else seconds(value)
    if total > DEADLINE_SECONDS_MAX:
        raise refusal("invalid-quantity", "deadline: at most 30 days; 0s stops at once what runs")
    return total


Why = Annotated[PlainText, AfterValidator(_said)]
Deadline = Annotated[int, BeforeValidator(_deadline)]


class CordonAsked(RestModel):
    """Take something out of planning; what runs there runs on. Without `for` until somebody puts it back."""

    reason: Why
    for_: Annotated[Duration | None, Field(alias="for")] = None


class DrainAsked(RestModel):
    """Empty a cluster: nothing new from now on; what still runs after `deadline` is stopped and goes elsewhere."""

    reason: Why
    deadline: Deadline


class CordonView(RestModel):
    """Why something is out of planning; `until` is None where only somebody's word ends it."""

    reason: str
    until: Moment | None = None
    by: str = ""


class DrainView(RestModel):
    """A drain that goes on. `attempts_left`: live Attempts there; `then_remove`: the cluster goes once it is empty."""

    reason: str
    deadline_at: Moment
    by: str = ""
    attempts_left: int = 0
    then_remove: bool = False


class QueueThere(RestModel):
    """What of one Queue lives in a cluster: Attempts that have not ended, and the devices that are held."""

    queue: str
    attempts: int
    devices: int


class RemovalChoice(RestModel):
    """What one value of `work` would do now; `allowed`: whether it may be chosen as things stand."""

    work: WorkChoice
    allowed: bool
    sentence: str


class RemovalView(RestModel):
    """What removing a cluster would do."""

    cluster: str
    state: str
    attempts: int
    devices: int
    queues: list[QueueThere] = Field(default_factory=list)
    choices: list[RemovalChoice] = Field(default_factory=list)
