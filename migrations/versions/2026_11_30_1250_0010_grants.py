"""The role of the plane's processes: it owns nothing and cannot change history.

Made here where the migrating role may make roles; elsewhere an administrator makes it beforehand, or nothing is
granted and processes run as the owner (a notice says so). Tables of later revisions are granted by default.
"""

from alembic import op

revision: str = "0010"
down_revision: str | None = "0009"

ROLE = "muster_app"
HISTORY = "transfer, leg, audit, audit_seal, directive, state_transition"


def upgrade() -> None:
    op.execute(f"""
        DO $$
        BEGIN
          IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{ROLE}') THEN
            BEGIN
              CREATE ROLE {ROLE} NOLOGIN;
              EXECUTE format('GRANT {ROLE} TO %I', current_user);
            EXCEPTION WHEN insufficient_privilege THEN
              RAISE NOTICE 'role {ROLE} is missing and may not be made here: no grants; processes run as the owner';
              RETURN;
            END;
          END IF;
          GRANT USAGE ON SCHEMA public TO {ROLE};
          GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {ROLE};
          GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {ROLE};
          ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {ROLE};
          ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO {ROLE};
          REVOKE UPDATE, DELETE ON {HISTORY} FROM {ROLE};
          REVOKE INSERT ON state_transition FROM {ROLE};
          REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM {ROLE};
        END $$
    """)


def downgrade() -> None:
    op.execute(f"""
        DO $$
        BEGIN
          IF EXISTS (SELECT FROM pg_roles WHERE rolname = '{ROLE}') THEN
            ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON TABLES FROM {ROLE};
            ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON SEQUENCES FROM {ROLE};
            REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {ROLE};
            REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {ROLE};
          END IF;
        END $$
    """)
