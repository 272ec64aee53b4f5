"""Which nodes a pod template allows, read out of it: selector, required node affinity, tolerations.

The words are Kubernetes'; what they mean is `core.nodes`. A host's name is the plane's to choose, and labels that
agents do not tell would match nothing here, so that templates with either are refused.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Sized

from controlplane.contract.agent.inventory import LABELS_NOT_TOLD
from controlplane.core.demand import LabelRule, NodeRules, Toleration

HOSTNAME = "kubernetes.io/hostname"
TERMS_MAX = 64
RULES_MAX = 256
TEXT_MAX = 316
EFFECTS = frozenset({"", "NoSchedule", "PreferNoSchedule", "NoExecute"})
OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WHOLE = re.compile(r"[-+]?[0-9]{1,19}")
_NO_HOSTS = "the plane chooses nodes; affinity to a host's name is not taken"
_WISH = "nodeAffinity's preferred… is not obeyed: where it goes is the strategy's and topology's to say"


class RulesReader:
    """Reads one pod's spec. What is wrong gathers in `wrong` as (pointer below the spec, slug, words)."""

    def __init__(self, spec: Mapping[str, object]) -> None:
        self._spec = spec
        self.wrong: list[tuple[str, str, str]] = []
        self.warnings: list[str] = []

    def read(self) -> NodeRules:
        """The rules; meaningless if something is `wrong` afterwards."""
        return NodeRules(tuple(sorted(self._selector())), tuple(self._terms()), tuple(self._tolerations()))

    def _selector(self) -> Iterator[tuple[str, str]]:
        where = "/nodeSelector"
        selector = self._object(self._spec.get("nodeSelector"), where)
        for key, value in selector.items() if self._is_short(selector, where) else ():
            if self._is_known(key, where) and self._is_text(value, where):
                yield key, str(value)

    def _terms(self) -> Iterator[tuple[LabelRule, ...]]:
        where = "/affinity/nodeAffinity"
        affinity = self._object(self._object(self._spec.get("affinity"), "/affinity").get("nodeAffinity"), where)
        if affinity.get(_PREFERRED):
            self.warnings.append(_WISH)
            if _names_hosts(affinity[_PREFERRED]):
                self._say(where, "pod-policy", _NO_HOSTS)
        if affinity.get(_REQUIRED) is None:
            return
        terms = self._list(self._object(affinity[_REQUIRED], where).get("nodeSelectorTerms"), where)
        expressions = [self._list(self._object(term, where).get("matchExpressions"), where) for term in terms]
        if not terms:
            self._say(where, "invalid-value", "required node affinity has at least one term")
        if len(terms) > TERMS_MAX or sum(map(len, expressions)) > RULES_MAX:
            self._say(where, "too-long", f"node affinity has at most {TERMS_MAX} terms and {RULES_MAX} expressions")
            return
        if any("matchFields" in self._object(term, where) for term in terms):
            self._say(where, "pod-policy", _NO_HOSTS)
        for each in expressions:
            yield tuple(rule for one in each if (rule := self._rule(self._object(one, where), where)) is not None)

    def _rule(self, expression: Mapping[str, object], where: str) -> LabelRule | None:
        key, operator = expression.get("key"), expression.get("operator")
        values = self._list(expression.get("values"), where)
        if not (isinstance(key, str) and operator in OPERATORS and all(self._is_text(each, where) for each in values)):
            self._say(
                where, "invalid-value", f"an expression has a key, values, and one of {', '.join(sorted(OPERATORS))}"
            )
            return None
        counts = {"In": range(1, 257), "NotIn": range(1, 257), "Gt": range(1, 2), "Lt": range(1, 2)}
        if len(values) not in counts.get(str(operator), range(1)):
            self._say(where, "invalid-value", f"{operator} of {key[:TEXT_MAX]} has the wrong number of values")
            return None
        if operator in {"Gt", "Lt"} and not _WHOLE.fullmatch(str(values[0])):
            self._say(where, "invalid-value", f"{operator} of {key[:TEXT_MAX]} compares with a whole number")
            return None
        return LabelRule(key, str(operator), tuple(map(str, values))) if self._is_known(key, where) else None

    def _tolerations(self) -> Iterator[Toleration]:
        tolerations = self._list(self._spec.get("tolerations"), "/tolerations")
        for index, each in enumerate(tolerations if self._is_short(tolerations, "/tolerations") else ()):
            where = f"/tolerations/{index}"
            told = self._object(each, where)
            texts = {name: told.get(name) or "" for name in ("key", "value", "effect")}
            operator = told.get("operator") or "Equal"
            if operator not in {"Equal", "Exists"} or not all(self._is_text(text, where) for text in texts.values()):
                self._say(where, "invalid-value", "a toleration has key, operator (Equal or Exists), value and effect")
                continue
            if texts["effect"] not in EFFECTS or (operator == "Exists" and texts["value"]):
                words = "a toleration's effect is one of Kubernetes' own or none, and Exists goes without a value"
                self._say(where, "invalid-value", words)
                continue
            key = str(texts["key"])
            if not key or key.startswith("node-role.kubernetes.io/"):
                words = "tolerations of everything or of the control plane are not taken"
                self._say(where, "pod-policy", words)
                continue
            yield Toleration(key, str(operator), str(texts["value"]), str(texts["effect"]))

    def _is_short(self, listed: Sized, where: str) -> bool:
        if len(listed) > RULES_MAX:
            self._say(where, "too-long", f"there are at most {RULES_MAX} of these")
        return len(listed) <= RULES_MAX

    def _is_known(self, key: str, where: str) -> bool:
        if key == HOSTNAME:
            self._say(where, "pod-policy", "the plane chooses nodes; a host name may not be selected")
        elif key.startswith(LABELS_NOT_TOLD):
            self._say(where, "pod-policy", f"agents do not tell of the label {key[:TEXT_MAX]}; select by another")
        else:
            return True
        return False

    def _is_text(self, value: object, where: str) -> bool:
        if isinstance(value, str) and len(value) <= TEXT_MAX:
            return True
        self._say(where, "invalid-value", f"a label's value is a text of at most {TEXT_MAX} characters")
        return False

    def _object(self, value: object, where: str) -> Mapping[str, object]:
        if value is None or isinstance(value, Mapping):
            return value or {}
        self._say(where, "invalid-value", "this is an object")
        return {}

    def _list(self, value: object, where: str) -> Sequence[object]:
        if value is None or (isinstance(value, Sequence) and not isinstance(value, str)):
            return value or ()
        self._say(where, "invalid-value", "this is a list")
        return ()

    def _say(self, where: str, slug: str, words: str) -> None:
        self.wrong.append((where, slug, words))


def _names_hosts(part: object) -> bool:
    """Whether hosts are named anywhere in it; `matchFields` knows no other field than a node's name."""
    if isinstance(part, Mapping):
        return part.get("key") == HOSTNAME or bool(part.get("matchFields")) or any(map(_names_hosts, part.values()))
    return isinstance(part, list) and any(map(_names_hosts, part))
