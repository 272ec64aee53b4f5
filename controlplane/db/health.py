"""Whether the database has the schema that this code was written for."""

from functools import cache

from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

from controlplane.db.migrate import REVISIONS


@cache
def newest_revision() -> str:
    """The last revision of this code; read once per process."""
    return ScriptDirectory(str(REVISIONS)).get_current_head() or ""


def schema_trouble(engine: Engine) -> str:
    """What is wrong with the schema, in words; "" if nothing is. Raises what the driver raises."""
    with engine.connect() as connection:
        if connection.execute(text("SELECT to_regclass('alembic_version')")).scalar_one() is None:
            return "no migration has run"
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    return "" if found == newest_revision() else f"the schema is at {found}, this code wants {newest_revision()}"
