"""What the embedded plane says when it cannot run here; each text names the ways out."""

ALTERNATIVES = (
    "Use servers of your own instead: set DATABASE_URL (PostgreSQL 15 or newer) and REDIS_URL (Redis or Valkey); "
    "or let an installed Postgres run here: set MUSTER_POSTGRES_BIN to the folder that holds its initdb and postgres "
    "(and MUSTER_VALKEY_SERVER to a valkey-server or redis-server); or set MUSTER_HOME to another folder."
)


class Refusal(Exception):
    """The embedded servers cannot be started here; the message names the alternatives."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}.\n{ALTERNATIVES}")


class AlreadyRunning(Exception):
    """Another process holds this folder."""


class StartFailed(Exception):
    """A process did not become ready; the message ends with the last lines of its log."""
