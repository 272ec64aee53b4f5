"""The declarative base: constraint names, column kinds and the mixin of every row that planners read.

`changed_xid` is set by a trigger (see the first migration) to the writing transaction; a warm reader asks
for rows whose writer was not yet finished at its last reading. So no row is ever skipped, in whatever
order transactions commit.
"""

from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import BigInteger, DateTime, FetchedValue, Identity, MetaData, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import UserDefinedType

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Xid8(UserDefinedType[int]):
    """A 64-bit transaction id."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """The type's name in SQL."""
        return "xid8"


BigKey = Annotated[int, mapped_column(BigInteger, Identity(always=False), primary_key=True)]
Big = Annotated[int, mapped_column(BigInteger)]
Moment = Annotated[datetime, mapped_column(DateTime(timezone=True))]
Document = Annotated[dict[str, Any], mapped_column(JSONB)]


class Base(DeclarativeBase):
    """All tables of the plane."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it from the class
        str: Text,
        int: BigInteger,
        datetime: DateTime(timezone=True),
    }


class Tracked:
    """A row that planners read warm; the trigger `touch` keeps `changed_xid`."""

    changed_xid: Mapped[int] = mapped_column(Xid8, FetchedValue(), FetchedValue(for_update=True), index=True)


class Told:
    """A row of which planners take what is held alone, where nothing else changed; the trigger `tell` keeps it.

    A counter of what is held that is added to `node` belongs into `tell_node`, or each of its moves reads it whole.
    """

    told_xid: Mapped[int] = mapped_column(Xid8, server_default=text("pg_current_xact_id()"))
