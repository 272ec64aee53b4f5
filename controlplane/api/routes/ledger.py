"""/api/v1/ledger: accounts and transfers, as they are stored, of one's own subtree."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from controlplane.api.auth import Calling, container_of
from controlplane.api.parameters import LedgerQuery, TransferQuery
from controlplane.contract.rest.common import Page
from controlplane.contract.rest.ledger import AccountView, TransferView
from controlplane.core.facts.queries import LedgerFilter
from controlplane.services import queries

router = APIRouter(prefix="/api/v1/ledger", tags=["ledger"])


@router.get("/accounts")
def list_accounts(request: Request, caller: Calling, asked: Annotated[LedgerQuery, Query()]) -> Page[AccountView]:
    """Accounts (Queue, Flavor) with what they own, keep and use; `queue` means its whole subtree."""
    wanted = LedgerFilter(queue=asked.queue, flavor=asked.flavor)
    with container_of(request).uow_factory() as uow:
        return queries.accounts(uow, caller.principal, wanted, asked.paging)


@router.get("/transfers")
def list_transfers(request: Request, caller: Calling, asked: Annotated[TransferQuery, Query()]) -> Page[TransferView]:
    """Changes of the ledger, youngest first, with their legs on the accounts that are asked for and in sight."""
    wanted = LedgerFilter(queue=asked.queue, flavor=asked.flavor, workload=asked.workload)
    with container_of(request).uow_factory() as uow:
        return queries.transfers(uow, caller.principal, wanted, asked.paging)
