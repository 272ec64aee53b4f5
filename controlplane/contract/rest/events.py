"""What happens, as the stream of events tells it: one line of the audit log that the caller may see."""

from pydantic import Field

from controlplane.contract.rest.common import Json, Moment, RestModel

EVENT_KINDS = frozenset(
    {
        "workload", "attempt", "queue", "pool", "policy", "flavor", "cluster", "node", "device", "principal", "token",
        "route", "plane",
    }
)  # fmt: skip


class EventView(RestModel):
    """One event, the `data` of a message. `position` is also the message's id: send it as `Last-Event-ID` to go on.

    `kind` is workload, attempt, queue, cluster, node …; `object` its id or name. Of a Workload's and an Attempt's
    events `workload` is the Workload's id, `name` its name and `queue` its Queue.
    """

    position: int
    at: Moment
    kind: str
    object: str
    action: str
    actor: str = ""
    state_from: str | None = None
    state_to: str | None = None
    workload: str | None = None
    name: str = ""
    queue: str | None = None
    attempt: int | None = None
    facts: dict[str, Json] = Field(default_factory=dict)
