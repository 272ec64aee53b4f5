"""Whether the database has the schema that this code was written for, or a newer one, which it can work on too."""

from functools import cache

from sqlalchemy import Engine, text


@cache
def known_revisions() -> tuple[str, ...]:
    """The revisions of this code, newest first; read once per process."""
    # Late: only who is asked for readiness needs alembic, and it costs every process time and memory.
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see above

    from controlplane.db.migrate import REVISIONS  # noqa: PLC0415 - brings alembic too

    return tuple(script.revision for script in ScriptDirectory(str(REVISIONS)).walk_revisions())


def schema_trouble(engine: Engine) -> str:
    """What is wrong with the schema, in words; "" if nothing is. Raises what the driver raises.

    A revision that this code does not know is a newer one: a migration only expands, so that during an upgrade the
    old processes go on until the new ones have come.
    """
    with engine.connect() as connection:
        if connection.execute(text("SELECT to_regclass('alembic_version')")).scalar_one() is None:
            return "no migration has run"
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    if found is None:
        return "no migration has run"
    newest, *older = known_revisions()
    return f"the schema is at {found}, this code wants {newest}" if found in older else ""
