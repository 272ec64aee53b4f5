"""What a caller says must stand before anything is changed: entity tags, as HTTP's If-Match and If-None-Match say it.

A tag is any text that changes whenever the thing does. It is compared inside the transaction that changes the thing,
behind its lock, so that of two callers who saw the same one wins.
"""

from dataclasses import dataclass

from controlplane.services.errors import PreconditionFailed


@dataclass(frozen=True, slots=True)
class Expected:
    """Nothing set: the caller does not care.

    `tags`: one of these must stand. `anything`: whatever stands, but it must be there. `nothing`: it must not be there.
    """

    tags: frozenset[str] = frozenset()
    anything: bool = False
    nothing: bool = False

    def __bool__(self) -> bool:
        """Whether the caller said anything."""
        return bool(self.tags) or self.anything or self.nothing

    def check(self, current: str | None, what: str) -> None:
        """Raise PreconditionFailed unless `current` (None: there is no such thing) is what was expected."""
        if current is None and (self.tags or self.anything):
            raise PreconditionFailed(f"there is no {what} (any more)")
        if current is None:
            return
        if self.nothing:
            raise PreconditionFailed(f"there is {what} already", etag=current)
        if self.tags and current not in self.tags:
            raise PreconditionFailed(f"{what} has changed since it was read; its ETag is {current}", etag=current)


UNCONDITIONAL = Expected()
