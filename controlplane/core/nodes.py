"""Which nodes a pod's template allows: its selector, its required node affinity, the taints it puts up with.

As Kubernetes defines them, save what the plane decides itself (a host's name). `Eligibility` remembers the answer for
all nodes of a fleet: worked out once for each set of rules by way of the labels that they name, and kept true node by
node. What is free on a node is not asked here.
"""

from collections.abc import Collection, Iterable, Sequence

from controlplane.core.capacity import Node, Taint
from controlplane.core.demand import LabelRule, NodeRules, Toleration

NO_RULES = NodeRules()
_KEEPS_OUT = frozenset({"NoSchedule", "NoExecute"})  # PreferNoSchedule is a wish


def is_eligible(node: Node, rules: NodeRules, *, asks_devices: bool) -> bool:
    """Whether one node's labels and taints let such a pod in."""
    labels = node.labels
    if any(labels.get(key) != value for key, value in rules.selector):
        return False
    if rules.terms and not any(_holds_all(term, node) for term in rules.terms):
        return False
    return _puts_up_with(rules.tolerations, node.taints, asks_devices=asks_devices)


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether one of these tolerations matches the taint."""
    return any(
        (not each.key or each.key == taint.key)
        and (not each.effect or each.effect == taint.effect)
        and (each.operator == "Exists" or each.value == taint.value)
        for each in tolerations
    )


class Eligibility:
    """For each set of rules that was asked for, the positions of the nodes that it allows."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = list(nodes)
        self._bearing: dict[str, dict[str, set[int]]] = {}  # label -> value -> nodes; made when a rule names the label
        self._tainted: dict[tuple[Taint, ...], set[int]] = {}
        self._known: dict[tuple[NodeRules, bool], set[int]] = {}
        for index, node in enumerate(self._nodes):
            if node.taints:
                self._tainted.setdefault(node.taints, set()).add(index)

    def of(self, rules: NodeRules | None, *, asks_devices: bool) -> set[int] | None:
        """The nodes that these rules allow; None where that is every one."""
        if rules is None and not self._tainted:
            return None
        key = rules or NO_RULES, asks_devices
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._worked_out(*key)
        return None if len(found) == len(self._nodes) else found

    def update(self, index: int, node: Node) -> bool:
        """A node as it is now; whether its labels or taints are others than before."""
        before, self._nodes[index] = self._nodes[index], node
        is_labelled_otherwise = before.labels is not node.labels and before.labels != node.labels
        if before.taints == node.taints and not is_labelled_otherwise:
            return False
        for key, values in self._bearing.items() if is_labelled_otherwise else ():
            if key in before.labels:
                values[before.labels[key]].discard(index)
            if key in node.labels:
                values.setdefault(node.labels[key], set()).add(index)
        if before.taints:
            self._tainted[before.taints].discard(index)
            if not self._tainted[before.taints]:
                del self._tainted[before.taints]
        if node.taints:
            self._tainted.setdefault(node.taints, set()).add(index)
        for (rules, asks_devices), allowed in self._known.items():
            if is_eligible(node, rules, asks_devices=asks_devices):
                allowed.add(index)
            else:
                allowed.discard(index)
        return True

    def forget(self, but: Collection[tuple[NodeRules, bool]]) -> None:
        """Drop what is known of rules that nobody asks about any more."""
        self._known = {key: allowed for key, allowed in self._known.items() if key in but}

    def _worked_out(self, rules: NodeRules, asks_devices: bool) -> set[int]:  # noqa: FBT001 - a part of the key
        allowed: set[int] | None = None
        for key, value in rules.selector:
            bearing = self._with(key).get(value, set())
            allowed = set(bearing) if allowed is None else allowed & bearing
        if rules.terms:
            terms = set[int]().union(*(self._matching(term) for term in rules.terms))
            allowed = terms if allowed is None else allowed & terms
        if allowed is None:
            allowed = set(range(len(self._nodes)))
        for taints, nodes in self._tainted.items():
            if not _puts_up_with(rules.tolerations, taints, asks_devices=asks_devices):
                allowed -= nodes
        return allowed

    def _matching(self, term: Sequence[LabelRule]) -> set[int]:
        """The nodes for which every rule holds; a term without rules matches nothing, as in Kubernetes."""
        found: set[int] | None = None
        for rule in term:
            matching = set[int]().union(
                *(nodes for value, nodes in self._with(rule.key).items() if _holds(rule, value))
            )
            if _holds(rule, None):
                bearing = set[int]().union(*self._with(rule.key).values())
                matching |= set(range(len(self._nodes))) - bearing
            found = matching if found is None else found & matching
        return found or set()

    def _with(self, key: str) -> dict[str, set[int]]:
        """The nodes that bear a label, by its value."""
        values = self._bearing.get(key)
        if values is None:
            values = self._bearing[key] = {}
            for index, node in enumerate(self._nodes):
                if key in node.labels:
                    values.setdefault(node.labels[key], set()).add(index)
        return values


def words(rules: NodeRules) -> str:
    """The rules in one line, as in "zone=b, age < 5 or spare, tolerating team=ml"; "" if there are none."""
    told = [f"{key}={value}" for key, value in rules.selector]
    if rules.terms:
        told.append(" or ".join(" and ".join(map(_rule_words, term)) or "nothing" for term in rules.terms))
    if rules.tolerations:
        told.append(f"tolerating {' and '.join(map(_toleration_words, rules.tolerations))}")
    return ", ".join(told)


def _rule_words(rule: LabelRule) -> str:
    match rule.operator:
        case "Exists":
            return rule.key
        case "DoesNotExist":
            return f"no {rule.key}"
        case "Gt" | "Lt":
            return f"{rule.key} {'>' if rule.operator == 'Gt' else '<'} {rule.values[0]}"
    return f"{rule.key} {'in' if rule.operator == 'In' else 'not in'} ({', '.join(rule.values)})"


def _toleration_words(one: Toleration) -> str:
    value = f"={one.value}" if one.operator != "Exists" and one.value else ""
    return f"{one.key}{value}{f':{one.effect}' if one.effect else ''}"


def _holds_all(term: Sequence[LabelRule], node: Node) -> bool:
    return bool(term) and all(_holds(rule, node.labels.get(rule.key)) for rule in term)


def _holds(rule: LabelRule, value: str | None) -> bool:
    """Whether a label's value satisfies a rule; None: the node does not bear the label."""
    if value is None:
        return rule.operator in {"NotIn", "DoesNotExist"}
    if rule.operator in {"In", "NotIn"}:
        return (value in rule.values) == (rule.operator == "In")
    if rule.operator in {"Gt", "Lt"}:
        here, bound = _whole(value), _whole(rule.values[0] if len(rule.values) == 1 else "")
        if here is None or bound is None:
            return False
        return here > bound if rule.operator == "Gt" else here < bound
    return rule.operator == "Exists"


def _whole(text: str) -> int | None:
    """A label's value as Kubernetes' own comparison reads it: decimal digits with a sign, within 64 bits."""
    digits = text[1:] if text[:1] in {"-", "+"} else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _puts_up_with(tolerations: Sequence[Toleration], taints: Iterable[Taint], *, asks_devices: bool) -> bool:
    return all(
        taint.effect not in _KEEPS_OUT or (asks_devices and taint.is_for_devices) or is_tolerated(taint, tolerations)
        for taint in taints
    )
