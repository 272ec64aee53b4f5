"""Every statement on tokens and role bindings as people manage them; who calls is `TenancyStore.principal_of_token`.

Fulfils `services.ports.people`.
"""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.orm import Session

from controlplane.contract.rest.people import BindingView, TokenSummary
from controlplane.core.facts.people import BindingFact, PeopleFilter, PeopleScope, TokenOwner
from controlplane.core.facts.queries import PageOf
from controlplane.core.facts.tenancy import Binding, Role

Line = Row[Any]


def _inside(path: str) -> str:
    """Whether a path is one of the scope's subtrees."""
    return (
        f"EXISTS (SELECT FROM unnest(CAST(:paths AS text[])) AS seen (path)"
        f" WHERE {path} = seen.path OR starts_with({path}, seen.path || '/'))"
    )


_EVERYBODY = "CAST(:paths AS text[]) IS NULL"
_LIVE_BINDINGS = """role_binding LEFT JOIN queue ON queue.id = role_binding.queue_id
    WHERE role_binding.principal_id = principal.id
        AND (role_binding.queue_id IS NULL OR queue.deleted_at IS NULL)"""

_TOKENS = text(f"""
    SELECT api_token.*, principal.kind, principal.name AS principal_name, bound.path AS within
    FROM api_token JOIN principal ON principal.id = api_token.principal_id
    LEFT JOIN queue AS bound ON bound.id = api_token.within_queue_id
    WHERE api_token.id > :after
        AND ({_EVERYBODY} OR principal.id = :me OR {_inside("bound.path")}
             OR (EXISTS (SELECT FROM {_LIVE_BINDINGS})
                 AND NOT EXISTS (SELECT FROM {_LIVE_BINDINGS} AND (queue.path IS NULL OR NOT {_inside("queue.path")}))))
        AND (CAST(:principal AS text) IS NULL OR principal.name = :principal)
        AND (CAST(:kind AS text) IS NULL OR principal.kind = :kind)
        AND (:ended OR (api_token.revoked_at IS NULL
                        AND (api_token.expires_at IS NULL OR api_token.expires_at > :now)))
    ORDER BY api_token.id LIMIT :limit""")

_TOKEN = text(f"""
    SELECT api_token.id, api_token.name, api_token.principal_id, principal.kind, principal.name AS principal_name,
           bound.path AS within,
           api_token.revoked_at IS NOT NULL OR coalesce(api_token.expires_at <= :now, false) AS is_ended,
           ARRAY(SELECT role_binding.role || ' ' || coalesce(queue.path, '') FROM {_LIVE_BINDINGS}) AS bindings
    FROM api_token JOIN principal ON principal.id = api_token.principal_id
    LEFT JOIN queue AS bound ON bound.id = api_token.within_queue_id
    WHERE api_token.id = :number""")

_BINDINGS = text(f"""
    SELECT role_binding.id, role_binding.role, role_binding.created_at, principal.kind,
           principal.name AS principal_name, queue.path
    FROM role_binding JOIN principal ON principal.id = role_binding.principal_id
    LEFT JOIN queue ON queue.id = role_binding.queue_id
    WHERE role_binding.id > :after AND queue.deleted_at IS NULL
        AND ({_EVERYBODY} OR principal.id = :me OR {_inside("queue.path")})
        AND (CAST(:principal AS text) IS NULL OR principal.name = :principal)
        AND (CAST(:kind AS text) IS NULL OR principal.kind = :kind)
        AND (CAST(:role AS text) IS NULL OR role_binding.role = :role)
        AND (CAST(:queue AS text) IS NULL OR queue.path = :queue OR starts_with(queue.path, :queue || '/'))
    ORDER BY role_binding.id LIMIT :limit""")

_BINDING = text("""
    SELECT role_binding.id, role_binding.role, role_binding.principal_id, principal.kind,
           principal.name AS principal_name, queue.path
    FROM role_binding JOIN principal ON principal.id = role_binding.principal_id
    LEFT JOIN queue ON queue.id = role_binding.queue_id
    WHERE role_binding.id = :number AND queue.deleted_at IS NULL""")

_ADD_BINDING = text("""
    INSERT INTO role_binding (principal_id, role, queue_id, created_at)
    SELECT :principal, :role, queue.id, :now FROM (SELECT 1) AS one
    LEFT JOIN queue ON queue.path = CAST(:path AS text) AND queue.deleted_at IS NULL
    WHERE CAST(:path AS text) IS NULL OR queue.id IS NOT NULL  -- never the whole plane by mistake
    ON CONFLICT DO NOTHING RETURNING id""")

_SAME_BINDING = text("""
    SELECT role_binding.id FROM role_binding LEFT JOIN queue ON queue.id = role_binding.queue_id
    WHERE role_binding.principal_id = :principal AND role_binding.role = :role
        AND queue.path IS NOT DISTINCT FROM CAST(:path AS text)""")

_OTHER_ADMINS = text("""
    SELECT role_binding.id FROM role_binding JOIN principal ON principal.id = role_binding.principal_id
    WHERE role_binding.role = 'platform-admin' AND role_binding.queue_id IS NULL AND principal.disabled_at IS NULL
    ORDER BY role_binding.id FOR UPDATE OF role_binding""")


class PeopleStore:
    """`uow.people`."""

    def __init__(self, session: Session, now: datetime) -> None:
        """Take the transaction's session and its reading of the clock."""
        self._session = session
        self._now = now

    def tokens(self, scope: PeopleScope, wanted: PeopleFilter, after: int, limit: int) -> PageOf[TokenSummary]:
        """By id; of leads' subtrees those whose bearer has no role elsewhere, and those made within."""
        given = {**_asked(scope, wanted, after, limit), "ended": wanted.ended, "now": self._now}
        rows = self._session.execute(_TOKENS, given).all()
        items = [_summary(row) for row in rows[:limit]]
        return PageOf(items, (str(items[-1].id),) if len(rows) > limit else None)

    def token(self, number: int) -> TokenOwner | None:
        """One, ended or not."""
        row = self._session.execute(_TOKEN, {"number": number, "now": self._now}).one_or_none()
        if row is None:
            return None
        bindings = _bindings(row.bindings)
        return TokenOwner(
            row.id, row.name, row.principal_id, row.kind, row.principal_name, bindings, row.within, row.is_ended
        )

    def touch_token(self, number: int, day: date) -> None:
        """Note the day of its last use; a second time on one day writes nothing."""
        statement = "UPDATE api_token SET last_used_on = :day WHERE id = :id AND last_used_on IS DISTINCT FROM :day"
        self._session.execute(text(statement), {"id": number, "day": day})

    def bindings(self, scope: PeopleScope, wanted: PeopleFilter, after: int, limit: int) -> PageOf[BindingView]:
        """By id; those of deleted Queues are not there any more."""
        given = {**_asked(scope, wanted, after, limit), "role": wanted.role, "queue": wanted.queue}
        rows = self._session.execute(_BINDINGS, given).all()
        items = [
            BindingView(
                id=row.id,
                principal=row.principal_name,
                kind=row.kind,
                role=row.role,
                queue=row.path,
                created_at=row.created_at,
            )
            for row in rows[:limit]
        ]
        return PageOf(items, (str(items[-1].id),) if len(rows) > limit else None)

    def binding(self, number: int) -> BindingFact | None:
        """One."""
        row = self._session.execute(_BINDING, {"number": number}).one_or_none()
        if row is None:
            return None
        return BindingFact(row.id, row.principal_id, row.kind, row.principal_name, Binding(Role(row.role), row.path))

    def bindings_of(self, principal: int) -> tuple[Binding, ...]:
        """All that a Principal has."""
        statement = text(
            f"SELECT ARRAY(SELECT role_binding.role || ' ' || coalesce(queue.path, '') FROM {_LIVE_BINDINGS})"
            " FROM principal WHERE id = :principal"
        )
        return _bindings(self._session.execute(statement, {"principal": principal}).scalar_one())

    def add_binding(self, principal: int, binding: Binding) -> tuple[int, bool]:
        """Give a role; return its number, and whether it is new."""
        given = {"principal": principal, "role": binding.role, "path": binding.queue_path, "now": self._now}
        made = self._session.execute(_ADD_BINDING, given).scalar_one_or_none()
        if made is not None:
            return int(made), True
        return int(self._session.execute(_SAME_BINDING, given).scalar_one()), False

    def remove_binding(self, number: int) -> None:
        """Take it away."""
        self._session.execute(text("DELETE FROM role_binding WHERE id = :number"), {"number": number})

    def other_admins(self, number: int) -> int:
        """How many others hold the role of platform-admin everywhere; keeps them from changing until the end."""
        return sum(row.id != number for row in self._session.execute(_OTHER_ADMINS))


def _asked(scope: PeopleScope, wanted: PeopleFilter, after: int, limit: int) -> dict[str, object]:
    return {
        "me": scope.principal, "paths": None if scope.paths is None else list(scope.paths),
        "principal": wanted.principal, "kind": wanted.kind, "after": after, "limit": limit + 1,
    }  # fmt: skip


def _bindings(stored: Sequence[str]) -> tuple[Binding, ...]:
    parts = [each.partition(" ") for each in stored]
    return tuple(Binding(Role(role), path or None) for role, _, path in parts)


def _summary(row: Line) -> TokenSummary:
    return TokenSummary(
        id=row.id,
        name=row.name,
        principal=row.principal_name,
        kind=row.kind,
        scopes=list(row.scopes) or ["admin"],
        within=row.within,
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_on=None if row.last_used_on is None else row.last_used_on.isoformat(),
    )
