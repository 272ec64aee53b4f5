"""Tokens and bindings as stored, as plain values: what decides who may see and end them."""

from dataclasses import dataclass

from controlplane.core.facts.tenancy import Binding


@dataclass(frozen=True, slots=True)
class PeopleScope:
    """Whose tokens and bindings a caller may see: its own, and those of these subtrees; None: everybody's."""

    principal: int
    paths: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True)
class PeopleFilter:
    """Which tokens or bindings; what is None does not matter. `ended`: tokens that are revoked or over, too."""

    principal: str | None = None
    kind: str | None = None
    queue: str | None = None
    role: str | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """A token, and all that its bearer is."""

    id: int
    name: str
    principal: int
    principal_kind: str
    principal_name: str
    bindings: tuple[Binding, ...]
    within: str | None
    is_ended: bool


@dataclass(frozen=True, slots=True)
class BindingFact:
    """Who has which role where."""

    id: int
    principal: int
    principal_kind: str
    principal_name: str
    binding: Binding
