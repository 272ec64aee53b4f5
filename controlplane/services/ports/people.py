"""What services ask of the store of tokens and role bindings, as people manage them."""

from datetime import date
from typing import Protocol

from controlplane.contract.rest.people import BindingView, TokenSummary
from controlplane.core.facts.people import BindingFact, PeopleFilter, PeopleScope, TokenOwner
from controlplane.core.facts.queries import PageOf
from controlplane.core.facts.tenancy import Binding


class PeopleStore(Protocol):
    """`uow.people`."""

    def tokens(self, scope: PeopleScope, wanted: PeopleFilter, after: int, limit: int) -> PageOf[TokenSummary]:
        """By id; of leads' subtrees those whose bearer has no role elsewhere, and those made within."""

    def token(self, number: int) -> TokenOwner | None:
        """One, ended or not."""

    def touch_token(self, number: int, day: date) -> None:
        """Note the day of its last use; a second time on one day writes nothing."""

    def bindings(self, scope: PeopleScope, wanted: PeopleFilter, after: int, limit: int) -> PageOf[BindingView]:
        """By id; those of deleted Queues are not there any more."""

    def binding(self, number: int) -> BindingFact | None:
        """One."""

    def bindings_of(self, principal: int) -> tuple[Binding, ...]:
        """All that a Principal has."""

    def add_binding(self, principal: int, binding: Binding) -> tuple[int, bool]:
        """Give a role; return its number, and whether it is new."""

    def remove_binding(self, number: int) -> None:
        """Take it away."""

    def other_admins(self, number: int) -> int:
        """How many others hold the role of platform-admin everywhere; keeps them from changing until the end."""
