"""Whether the database has the schema that this code was written for."""

from functools import cache

from sqlalchemy import Engine, text


@cache
def newest_revision() -> str:
    """The last revision of this code; read once per process."""
    # Late: only who is asked for readiness needs alembic, and it costs every process time and memory.
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see above

    from controlplane.db.migrate import REVISIONS  # noqa: PLC0415 - brings alembic too

    return ScriptDirectory(str(REVISIONS)).get_current_head() or ""


def schema_trouble(engine: Engine) -> str:
    """What is wrong with the schema, in words; "" if nothing is. Raises what the driver raises."""
    with engine.connect() as connection:
        if connection.execute(text("SELECT to_regclass('alembic_version')")).scalar_one() is None:
            return "no migration has run"
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    return "" if found == newest_revision() else f"the schema is at {found}, this code wants {newest_revision()}"
