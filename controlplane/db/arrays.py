"""Columns of a batch as Postgres's own array texts, one parameter each: a driver quotes a list item by item.

Bind the text where a statement says `CAST(:name AS bigint[])`, or another array's type.
"""

from collections.abc import Iterable

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"'})


def plain(values: Iterable[object]) -> str:
    """Numbers and uuids: whatever its text is, it needs no quotes. None is not among them."""
    return f"{{{','.join(map(str, values))}}}"


def sparse(values: Iterable[object]) -> str:
    """Numbers and uuids of which some may be missing: None is NULL."""
    return f"{{{','.join(['NULL' if value is None else str(value) for value in values])}}}"


def texts(values: Iterable[str | None]) -> str:
    """Any texts, quoted; None is NULL."""
    listed = ["NULL" if value is None else f'"{value.translate(_ESCAPES)}"' for value in values]
    return f"{{{','.join(listed)}}}"
