"""What a lead may do to Queues below the own one: divide what is there, and nothing that reaches beyond.

A lead makes, changes, moves and deletes Queues strictly below the root of its subtree. What they own together (the sum
of their nominals, by Flavor) stays within what they owned; whose namespace they run in is an administrator's to say.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from controlplane.core.facts.tenancy import Principal
from controlplane.services.authz import Action, led_from, may
from controlplane.services.edits import Edit
from controlplane.services.errors import Forbidden
from controlplane.services.forms import Form


def require_division(principal: Principal, edits: Sequence[Edit], stored: Mapping[str, Form]) -> None:
    """Raise Forbidden or Invalid where a lead's edits do more than divide; administrators may do more."""
    if may(principal, Action.QUEUE_WRITE):
        return
    changed = [each for each in edits if each.is_change]
    for each in changed:
        if each.after is not None and _namespace(each.after) != _namespace(each.before):
            words = "the namespace that a queue runs in is given by an administrator"
            raise each.refused("/spec/namespace", "namespace-not-granted", words)
    will_be = dict(stored)
    for each in changed:
        will_be.pop(each.name, None)
        if each.after is not None:
            will_be[each.name] = each.after
    for root in sorted({led_from(principal, each.name) for each in changed}):
        before, after = (_owned_below(root, forms.values()) for forms in (stored, will_be))
        for flavor in sorted(after):
            if after[flavor] > before[flavor]:
                words = (
                    f"queues below {root} own {before[flavor]} {flavor} together, and {after[flavor]} are asked for;"
                    " more is given by an administrator"
                )
                raise Forbidden(words, slug="quota-not-granted")


def require_move(principal: Principal, path: str, target: str) -> None:
    """Raise Forbidden where a lead would move a Queue out of the subtree that it is divided in."""
    if not may(principal, Action.QUEUE_WRITE) and led_from(principal, path) != led_from(principal, target):
        raise Forbidden(f"{principal.name} may not move {path} out of {led_from(principal, path)}")


def _owned_below(root: str, forms: Iterable[Form]) -> Counter[str]:
    owned: Counter[str] = Counter()
    for form in forms:
        quotas = form.spec.get("quotas") if form.name.startswith(f"{root}/") else None
        for quota in quotas if isinstance(quotas, list) else []:
            if isinstance(quota, dict) and isinstance(nominal := quota.get("nominal"), int):
                owned[str(quota["flavor"])] += nominal
    return owned


def _namespace(form: Form | None) -> object:
    return None if form is None else form.spec.get("namespace")
