"""The shape of an invariant's query: it returns the rows that break it, so no rows is good news.

`:now` is the database's clock and `:partial_seconds` how long a Workload may be partly running.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One query of one invariant. `sentence` says what must hold, for whoever reads the doctor's report."""

    invariant: str
    sentence: str
    query: str
