"""What a placement strategy decides: which domain of a level to take, and how to split pods below it.

A strategy sees counters only. Whether a Workload may be here at all was asked before (`filters`), and
that all of its PodSets fit or none is kept by `workload`.
"""

from collections.abc import Iterable
from typing import Protocol

from controlplane.core.index import SizeClass

Part = tuple[int, int]  # (domain, pods)


class Strategy(Protocol):
    """How free room is chosen among domains that all fit."""

    wants_few_domains: bool

    def search_order(self, asked: int, is_required: bool, finest: int) -> Iterable[int]:  # noqa: FBT001 - a fact, no switch
        """Level indices to try, in order; WHOLE_CLUSTER = -1 may be the last. `asked` is one of them."""
        ...

    def choose(self, size_class: SizeClass, group: int, pods: int) -> int | None:
        """The domain of a group that shall hold `pods`; None if none can."""
        ...

    def split(self, size_class: SizeClass, domain: int, pods: int) -> list[Part]:
        """Pods for each child of `domain`, which holds them all."""
        ...

    def harm(self, room: int, pods: int) -> int:
        """How much it hurts to take `pods` out of a domain with that much room; less is better."""
        ...
