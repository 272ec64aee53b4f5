"""Queues as they are applied, moved and deleted: any number at once, and the ledger's accounts with them.

A Quota cut below what is in use kills nothing: it is taken, with a warning, and stops admission until usage has fallen.
What is asked of the tree is asked of the tree as it will be, so the order of documents says nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from controlplane.contract.rest.common import Json, Warned
from controlplane.contract.rest.tenancy import QueueDocument
from controlplane.core.facts.tenancy import NewQueue, Use
from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.quota import DEPTH_MAX, ImpossibleTree, QuotaTree
from controlplane.core.tenancy import Queue, Quota
from controlplane.services import accounting, doubts
from controlplane.services.authz import Action, Caller, require
from controlplane.services.divisions import require_move
from controlplane.services.edits import Edit, record
from controlplane.services.errors import Conflict, Invalid, NotFound
from controlplane.services.forms import Form, form_of_stored
from controlplane.services.ports.unit_of_work import UnitOfWork
from controlplane.services.preconditions import UNCONDITIONAL, Expected

Forms = Mapping[str, Form]
_NAMED_MAX = 5


def edit(uow: UnitOfWork, caller: Caller, edits: Sequence[Edit], stored: Forms, *, dry_run: bool, writes: bool) -> None:
    """Write what changes of Queues, `stored` being all that there are; raises Invalid, Conflict.

    A dry run takes no lock that others wait for and leaves the accounts alone; it `writes` only where Workloads of the
    same request have to find the Queues.
    """
    changed = [each for each in edits if each.is_change]
    gone = sorted((each for each in changed if each.after is None), key=lambda each: each.name, reverse=True)
    kept = [each for each in changed if each.after is not None]
    _check_tree(kept, gone, stored)
    made_below = {each.name.rpartition("/")[0] for each in kept if each.is_new}
    parents = [stored[path] for path in sorted(made_below & stored.keys())]
    leaving = [each.before for each in gone if each.before is not None]
    uses = _uses(uow, [*parents, *leaving], hold=not dry_run)
    for parent in parents:
        _refuse_if(parent.name, uses[_id(parent)], ", so it must stay a leaf")
    for form in leaving:
        _refuse_if(form.name, uses[_id(form)], "; they end first")
    _warn(uow, edits, stored)
    if not writes or not changed:
        return
    if kept:
        uow.documents.put_queues([_row(each) for each in kept])
    ended = uow.documents.delete_queues([_id(form) for form in leaving]) if leaving else 0
    record(uow, caller, [*kept, *gone], {gone[0].name: {"roles ended": ended}} if ended else None)
    if not dry_run:
        _sync(uow)


def move(uow: UnitOfWork, caller: Caller, path: str, target: str, expected: Expected = UNCONDITIONAL) -> QueueId:
    """Give a Queue another place in the tree; refuses cycles, depth, and what has live work. Returns its id."""
    for each in (path, target):
        require(caller.principal, Action.QUEUE_WRITE, each)
    require_move(caller.principal, path, target)
    uow.documents.lock()
    stored = {each.name: form_of_stored(each) for each in uow.documents.stored("Queue")}
    if path not in stored:
        raise NotFound(f"there is no queue {path}")
    expected.check(stored[path].etag(), f"queue {path}")
    queue = stored[path]
    if target == path:
        return _id(queue)
    if target.startswith(path + "/"):
        raise Invalid(f"{path} cannot go below itself", slug="queue-cycle")
    if target in stored:
        raise Conflict(f"there is a queue {target} already", slug="name-conflict")
    above = target.rpartition("/")[0]
    if above and above not in stored:
        raise Invalid(f"{target} needs its parent {above} first", slug="queue-unknown")
    below = [form for name, form in stored.items() if name == path or name.startswith(path + "/")]
    deepest = max(form.name.count("/") for form in below) - path.count("/")
    if target.count("/") + 1 + deepest > DEPTH_MAX:
        raise Invalid(f"{target} is deeper than {DEPTH_MAX} levels", slug="queue-too-deep")
    parent = stored[above] if above else None
    uses = _uses(uow, [*below, *([] if parent is None else [parent])], hold=True)
    for form in below:
        _refuse_if(form.name, uses[_id(form)], "; they end first")
    if parent is not None:
        _refuse_if(parent.name, uses[_id(parent)], ", so it must stay a leaf")
    uow.documents.move_queue(_id(queue), None if parent is None else _id(parent), target)
    _sync(uow)
    uow.audit.record(
        actor=caller.principal.actor, action="queue.move", object_kind="queue", object_id=target,
        facts={"from": path}, request_id=caller.request_id,
    )  # fmt: skip
    for pool in uow.tenancy.pools():
        uow.wake_pool(pool.id)
    return _id(queue)


def _check_tree(kept: Sequence[Edit], gone: Sequence[Edit], stored: Forms) -> None:
    leaving = {each.name for each in gone}
    will_be = (stored.keys() - leaving) | {each.name for each in kept}
    for each in kept:
        above = each.name.rpartition("/")[0]
        if each.name.count("/") + 1 > DEPTH_MAX:
            raise each.refused("/metadata/name", "queue-too-deep", f"{each.name} is deeper than {DEPTH_MAX} levels")
        if above and above not in will_be:
            raise each.refused("/metadata/name", "queue-unknown", f"{each.name} needs its parent {above} first")
    for each in gone:
        below = sorted(name for name in will_be if name.startswith(each.name + "/"))
        if below:
            named = ", ".join(below[:_NAMED_MAX]) + (" and others" if len(below) > _NAMED_MAX else "")
            raise Conflict(f"{each.name} has queues below it: {named}", slug="queue-in-use")


def _uses(uow: UnitOfWork, forms: Collection[Form], *, hold: bool) -> Mapping[QueueId, Use]:
    """What lives in these Queues; `hold`: with new work kept out until the end of the transaction."""
    if not forms:
        return {}
    numbers = [_id(form) for form in forms]
    if hold:
        uow.ledger.lock_all_accounts()  # whoever places holds accounts when it comes to the Queue's row
        uow.documents.hold_queues(numbers)
    return uow.documents.queue_uses(numbers)


def _refuse_if(path: str, use: Use, consequence: str) -> None:
    said = [f"{use.workloads} live workload{'s' if use.workloads > 1 else ''}"] if use.workloads else []
    if use.held:
        said.append(f"{use.held} reserved device{'s' if use.held > 1 else ''}")
    if said:
        raise Conflict(f"{path} has {' and '.join(said)}{consequence}", slug="queue-in-use")


def _row(each: Edit) -> NewQueue:
    assert isinstance(each.document, QueueDocument)
    assert each.after is not None
    spec = each.document.spec
    return NewQueue(
        path=each.name, weight=spec.weight, namespace=spec.namespace or "", labels=each.after.labels,
        spec=each.after.spec, quotas=_quotas(each.after),
    )  # fmt: skip


def _quotas(form: Form) -> tuple[Quota, ...]:
    """Only a root may leave its nominal open: it counts what clusters own."""
    least = None if "/" not in form.name else 0
    return tuple(
        Quota(flavor, _number(said, "nominal", least), _number(said, "borrow"), _number(said, "lend"))
        for flavor, said in _listed(form).items()
    )


def _listed(form: Form | None) -> dict[FlavorName, Mapping[str, Json]]:
    listed = None if form is None else form.spec.get("quotas")
    quotas = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return {FlavorName(str(each["flavor"])): each for each in quotas}


def _number(said: Mapping[str, Json], name: str, otherwise: int | None = None) -> int | None:
    value = said.get(name)
    return value if isinstance(value, int) else otherwise


def _warn(uow: UnitOfWork, edits: Sequence[Edit], stored: Forms) -> None:
    """Say where more is in use now than the limits will allow; raises Invalid where they are those of no tree."""
    forms = dict(stored)
    for each in edits:
        forms.pop(each.name, None)
        if each.after is not None:
            forms[each.name] = each.after if each.before is None else replace(each.after, id=each.before.id)
    ids = {path: QueueId(-at if form.id is None else form.id) for at, (path, form) in enumerate(forms.items(), start=1)}
    queues = [
        Queue(ids[path], path, ids.get(path.rpartition("/")[0]), 1, _quotas(form)) for path, form in forms.items()
    ]
    there = set(ids.values())
    usage = {(key.queue, key.flavor): amount for key, amount in uow.ledger.leaf_usage().items() if key.queue in there}
    owned = uow.ledger.owned()
    try:
        tree = QuotaTree(queues, usage, owned)
    except ImpossibleTree as error:
        raise _impossible(error) from None
    widest = uow.workloads.fleet_shape().widest
    for each in edits:
        if each.after is not None:
            each.warnings.extend(_overdrafts(tree, ids[each.name], each))
            each.warnings.extend(doubts.of_flavors(widest, _listed(each.after)))
            if "/" in each.name:
                given = {quota.flavor: quota.nominal for quota in _quotas(each.after) if quota.nominal is not None}
                each.warnings.extend(doubts.of_nominals(owned, given))


def _overdrafts(tree: QuotaTree, queue: QueueId, each: Edit) -> list[Warned]:
    warnings: list[Warned] = []
    for flavor in sorted({*_listed(each.before), *_listed(each.after)}):
        account = tree.account(queue, flavor)
        limit = account.s + (account.b or 0)
        if account.u and (account.available() < 0 or (account.b is not None and account.u > limit)):
            words = f"{account.u} {flavor} are in use and {limit} are allowed; nothing starts until that falls"
            warnings.append(Warned(code="overdraft", detail=words))
    return warnings


def _sync(uow: UnitOfWork) -> None:
    try:
        accounting.sync_accounts(uow)
    except ImpossibleTree as error:
        raise _impossible(error) from None


def _impossible(error: ImpossibleTree) -> Invalid:
    return Invalid(str(error), slug="queue-cycle" if "cycle" in str(error) else "quota-conflict")


def _id(form: Form) -> QueueId:
    assert form.id is not None
    return QueueId(form.id)
