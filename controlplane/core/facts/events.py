"""Events as the log has them, and which of them somebody may see and asks for."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from controlplane.core.facts.tenancy import Binding, Role


@dataclass(frozen=True, slots=True)
class EventFact:
    """One row of the audit log in its place; `path` is the Queue that it belongs to, None: the plane's own."""

    position: int
    at: datetime
    kind: str
    object_id: str
    action: str
    actor: str
    state_from: str | None
    state_to: str | None
    workload: str | None
    name: str
    path: str | None
    attempt: int | None
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class EventFilter:
    """What of the log goes to one stream.

    `paths`: the subtrees that the caller may see (None: all). `sees_plane`: also what belongs to no Queue. The rest is
    what was asked for; `workload` is an id, `queue` means its whole subtree.
    """

    paths: tuple[str, ...] | None = ()
    sees_plane: bool = False
    workload: str | None = None
    queue: str | None = None
    kinds: tuple[str, ...] = ()

    def takes(self, event: EventFact) -> bool:
        """Whether this event is for it."""
        if event.path is None:
            is_seen = self.sees_plane
        else:
            is_seen = self.paths is None or any(_is_in(event.path, path) for path in self.paths)
        return (
            is_seen
            and (self.workload is None or event.workload == self.workload)
            and (self.queue is None or (event.path is not None and _is_in(event.path, self.queue)))
            and (not self.kinds or event.kind in self.kinds)
        )


def _is_in(path: str, subtree: str) -> bool:
    return Binding(Role.MEMBER, subtree).covers(path)
