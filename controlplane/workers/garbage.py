"""How often a process that keeps a large world looks for garbage.

Nearly all that a cycle leaves behind goes with its last reference. By Python's own measure the world's hundred thousand
objects would be looked through again and again for the rest: a third of a planner's time.
"""

import gc

YOUNG_MAX = 50_000  # new objects between two looks at the young ones
OLDER, OLDEST = 20, 100  # so many of those between two looks at those that stayed, and then at all


def collect_rarely() -> None:
    """For the rest of this process."""
    gc.set_threshold(YOUNG_MAX, OLDER, OLDEST)
