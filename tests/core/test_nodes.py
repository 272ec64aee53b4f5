"""Which nodes a template allows, operator by operator, as Kubernetes defines them."""

import pytest

from controlplane.core.capacity import Node, Taint
from controlplane.core.demand import LabelRule, NodeRules, Toleration
from controlplane.core.nodes import Eligibility, is_eligible, words
from tests.builders.core import a_world


def a_node(*taints: Taint, **labels: str) -> Node:
    (node,) = a_world().cluster("east").node("n", labels=labels, taints=taints).build().nodes.values()
    return node


def allows(node: Node, rules: NodeRules, *, asks_devices: bool = False) -> bool:
    """Told of one node, and the same of a fleet."""
    told = is_eligible(node, rules, asks_devices=asks_devices)
    allowed = Eligibility([node]).of(rules, asks_devices=asks_devices)
    assert told == (allowed is None or 0 in allowed)
    return told


@pytest.mark.parametrize(
    ("rule", "fitting", "others"),
    [
        (LabelRule("zone", "In", ("a", "b")), ["a", "b"], ["c", None]),
        (LabelRule("zone", "NotIn", ("a", "b")), ["c", None], ["a", "b"]),
        (LabelRule("zone", "Exists"), ["a", ""], [None]),
        (LabelRule("zone", "DoesNotExist"), [None], ["a", ""]),
        (LabelRule("zone", "Gt", ("10",)), ["11", "+11", "9223372036854775807"], ["10", "9", "a", "", None, "1e2"]),
        (LabelRule("zone", "Lt", ("10",)), ["9", "-3", "007"], ["10", "11", "", None, "9223372036854775808", "9.5"]),
        (LabelRule("zone", "Gt", ("many",)), [], ["11", None]),
        (LabelRule("zone", "Gt", ("1", "2")), [], ["11"]),
        (LabelRule("zone", "Unheard"), [], ["a", None]),
    ],
)
def test_a_rule_holds_for_these_values_and_no_others(
    rule: LabelRule, fitting: list[str | None], others: list[str | None]
) -> None:
    def told(value: str | None) -> bool:
        return allows(a_node() if value is None else a_node(zone=value), NodeRules(terms=((rule,),)))

    assert [value for value in (*fitting, *others) if told(value)] == fitting


def test_all_rules_of_one_term_must_hold_and_one_term_is_enough() -> None:
    both = (LabelRule("zone", "In", ("a",)), LabelRule("disk", "Exists"))
    rules = NodeRules(terms=(both, (LabelRule("spare", "Exists"),)))
    assert allows(a_node(zone="a", disk=""), rules)
    assert allows(a_node(spare="yes"), rules)
    assert not allows(a_node(zone="a"), rules)


def test_a_term_without_rules_matches_nothing() -> None:
    assert not allows(a_node(zone="a"), NodeRules(terms=((),)))


def test_selector_and_affinity_must_both_hold() -> None:
    rules = NodeRules((("zone", "a"), ("disk", "nvme")), ((LabelRule("spare", "DoesNotExist"),),))
    assert allows(a_node(zone="a", disk="nvme"), rules)
    assert not allows(a_node(zone="a", disk="nvme", spare=""), rules)
    assert not allows(a_node(zone="a"), rules)


@pytest.mark.parametrize(
    ("toleration", "is_enough"),
    [
        (Toleration("team", "Equal", "ml", "NoSchedule"), True),
        (Toleration("team", "Equal", "ml"), True),
        (Toleration("team", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("team", "Equal", "web"), False),
        (Toleration("team", "Equal", "ml", "NoExecute"), False),
        (Toleration("group", "Exists"), False),
    ],
)
def test_a_toleration_matches_by_key_value_and_effect(toleration: Toleration, is_enough: bool) -> None:
    assert allows(a_node(Taint("team", "ml")), NodeRules(tolerations=(toleration,))) is is_enough


def test_every_taint_must_be_put_up_with_save_those_that_are_wishes() -> None:
    rules = NodeRules(tolerations=(Toleration("team", "Exists"),))
    assert not allows(a_node(Taint("team"), Taint("failing", "", "NoExecute")), rules)
    assert allows(a_node(Taint("team"), Taint("spot", "", "PreferNoSchedule")), rules)


def test_a_taint_for_devices_keeps_out_those_who_ask_for_none() -> None:
    node = a_node(Taint("nvidia.com/gpu", "present", is_for_devices=True))
    assert allows(node, NodeRules(), asks_devices=True)
    assert not allows(node, NodeRules())


def test_rules_are_said_in_a_line() -> None:
    age, spare = LabelRule("age", "Lt", ("5",)), LabelRule("spare", "Exists")
    zone, old = LabelRule("zone", "NotIn", ("a", "b")), LabelRule("old", "DoesNotExist")
    rules = NodeRules(
        (("gpu", "h100"),), ((age, zone), (spare, old)), (Toleration("team", "Equal", "ml", "NoSchedule"),)
    )
    told = "gpu=h100, age < 5 and zone not in (a, b) or spare and no old, tolerating team=ml:NoSchedule"
    assert words(rules) == told
    assert words(NodeRules(tolerations=(Toleration("team", "Exists", "x"),))) == "tolerating team"
    assert words(NodeRules()) == ""


def test_a_fleet_follows_labels_and_taints_that_change() -> None:
    nodes = [a_node(zone="a"), a_node(zone="b"), a_node()]
    fleet = Eligibility(nodes)
    in_a, elsewhere = (NodeRules(terms=((LabelRule("zone", at, ("a",)),),)) for at in ("In", "NotIn"))
    assert fleet.of(None, asks_devices=False) is None
    assert fleet.of(in_a, asks_devices=False) == {0}
    assert fleet.of(elsewhere, asks_devices=False) == {1, 2}
    assert fleet.update(1, a_node(zone="a"))
    assert fleet.update(2, a_node(Taint("team")))
    assert not fleet.update(0, a_node(zone="a"))
    assert fleet.of(in_a, asks_devices=False) == {0, 1}
    assert fleet.of(elsewhere, asks_devices=False) == set()
    assert fleet.of(None, asks_devices=False) == {0, 1}
    fleet.forget(())
    assert fleet.of(in_a, asks_devices=False) == {0, 1}
