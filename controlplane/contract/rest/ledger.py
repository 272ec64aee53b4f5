"""The ledger as the API shows it: accounts and transfers, as they are stored."""

from pydantic import Field

from controlplane.contract.rest.common import Moment, RestModel


class AccountView(RestModel):
    """(Queue, Flavor), in units. In use are `pending` (placed, not all running yet) and `posted`.

    `subtree` is what the Queue and those below it own, `kept` what it does not lend, `overdraft` what a cut left in
    use. An account above others holds the one sum of what passes their kept part, as `posted`.
    """

    queue: str
    flavor: str
    is_root: bool
    subtree: int
    kept: int
    borrow_limit: int | None = None
    overdraft: int = 0
    pending: int = 0
    posted: int = 0


class LegView(RestModel):
    """What a Transfer does to one account: `amount` units go from one side to another (free, pending, posted)."""

    queue: str
    flavor: str
    amount: int
    source: str
    target: str


class TransferView(RestModel):
    """One append-only change. `resolves` names the Transfer that it posts, voids, expires or reverses."""

    id: int
    kind: str
    at: Moment
    workload: str | None = None
    name: str = ""
    attempt: int | None = None
    resolves: int | None = None
    legs: list[LegView] = Field(default_factory=list)
