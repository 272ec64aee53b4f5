"""One exchange: observations and inventory up, directives down, resumed by cursor.

`POST /agent/v1/sync` answers at once if directives wait after `cursor` or observations were sent that need
an answer, else after at most `poll_seconds`. Absence never means delete, in either direction.
"""

from pydantic import Field

from controlplane.contract.agent.attempts import AttemptObservation, Directive, PodObservation
from controlplane.contract.agent.base import Amount, Key, Text, WireModel
from controlplane.contract.agent.inventory import InventoryDelta

WAIT_SECONDS_MAX = 60


class PodPlace(WireModel):
    """Where a pod stands in a complete list, which is in order of these three, by code points."""

    object_id: Key
    pod_set: Text = ""
    index: Amount = 0


class ListPart(WireModel):
    """The part of a complete list from `since` to before `until`; None: from its beginning, to its end."""

    since: PodPlace | None = None
    until: PodPlace | None = None

    def has(self, object_id: str, pod_set: str, index: int) -> bool:
        """Whether a pod, if it existed, would be named in this part."""
        place = object_id, pod_set, index
        return (self.since is None or _key(self.since) <= place) and (self.until is None or place < _key(self.until))

    def may_have(self, object_id: str) -> bool:
        """Whether pods of an object, if it had any, could be named in this part."""
        is_after = self.since is None or self.since.object_id <= object_id
        return is_after and (self.until is None or object_id <= self.until.object_id)


class SyncRequest(WireModel):
    """`seq` rises by one with each request of a Session; the same `seq` gets the same stored answer."""

    session_epoch: Amount
    seq: Amount
    cursor: Amount  # number of the last directive received and kept
    wait_seconds: int = Field(default=25, ge=0, le=WAIT_SECONDS_MAX)
    attempts: list[AttemptObservation] = Field(default_factory=list, max_length=2_000)
    pods: list[PodObservation] = Field(default_factory=list, max_length=5_000)
    inventory: InventoryDelta | None = None
    desired_digest: Text = ""  # sha256 hex over sorted "object_id gen" of all objects the agent knows
    whole: bool = False  # `attempts` and `pods` are all there is, right after a full list: what is missing is gone
    part: ListPart | None = None  # instead of `whole`, where one request cannot carry it: the same within these bounds
    kube_reachable: bool = True  # false: observations are stale, not gone


def _key(place: PodPlace) -> tuple[str, str, int]:
    return place.object_id, place.pod_set, place.index


class ItemAnswer(WireModel):
    """An observation that was not taken: `stale-attempt`, `unknown-object`, `invalid`."""

    object_id: Key
    code: Text


class SyncReply(WireModel):
    """`directives_jws`: compact JWS (typ directives+jws) by a plane key over the JSON of a DirectiveBatch."""

    seq: int
    directives_jws: str | None = None
    cursor: int  # where the next request goes on; with `want_full_list` it may go back: everything is said again
    more: bool = False  # further directives wait: ask again at once
    lease_seconds: int
    poll_seconds: int
    want_whole_inventory: bool = False
    want_full_list: bool = False  # the agent should send all observations again
    rejected: list[ItemAnswer] = Field(default_factory=list)


class DirectiveBatch(WireModel):
    """What is signed: directives in order of number, for this cluster and plane epoch only."""

    cluster: str
    plane_epoch: int
    after: int
    upto: int
    directives: list[Directive] = Field(max_length=1_000)
