"""The one reading of the clock that a transaction has: when it began, by the database's clock.

Postgres says the same however late in the transaction it is asked, so a statement that reads something anyway may bring
the moment along and spare a round trip.
"""

from datetime import datetime

from sqlalchemy import DateTime, column, text
from sqlalchemy.orm import Session

_NOW = text("SELECT now() AS now").columns(column("now", DateTime(timezone=True)))


class Moment:
    """Belongs to one transaction."""

    def __init__(self, session: Session) -> None:
        """Nothing is read yet."""
        self._session = session
        self._known: datetime | None = None

    def get(self) -> datetime:
        """The moment; read now if nobody told it yet."""
        if self._known is None:
            moment = self._session.execute(_NOW).scalar_one()
            assert isinstance(moment, datetime)
            self._known = moment
        return self._known

    def told(self, moment: datetime) -> None:
        """Somebody knows it, from `now()` in this transaction; what is known already stays."""
        if self._known is None:
            self._known = moment
