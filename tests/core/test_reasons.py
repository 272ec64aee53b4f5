"""Every code has one sentence, and something makes it."""

import string

import pytest

from controlplane.core.reasons import _SENTENCES, Reason, ReasonCode, reason

# Where each code is made in a test of the core; the others are made by services and agents, and tested there.
MADE_IN_CORE = {
    ReasonCode.QUOTA_EXCEEDED: "test_cycle",
    ReasonCode.QUOTA_KEPT: "test_reclaim",
    ReasonCode.QUOTA_BEYOND_POTENTIAL: "test_cycle",
    ReasonCode.QUEUE_UNKNOWN: "test_cycle",
    ReasonCode.NO_CLUSTER: "test_cycle",
    ReasonCode.CLUSTER_NOT_READY: "test_cycle",
    ReasonCode.CLUSTER_INVENTORY_STALE: "test_cycle",
    ReasonCode.CLUSTER_CORDONED: "test_cordons",
    ReasonCode.CLUSTER_DRAINED: "test_cordons",
    ReasonCode.CAPACITY_CORDONED: "test_cordons",
    ReasonCode.CLUSTER_WITHOUT_FLAVOR: "test_cycle",
    ReasonCode.CLUSTER_NOT_SELECTED: "test_cycle",
    ReasonCode.CLUSTER_WITHOUT_NAMESPACE: "test_cycle",
    ReasonCode.CLUSTER_WITHOUT_FACT: "test_pieces",
    ReasonCode.CLUSTERS_NOT_TOGETHER: "test_pieces",
    ReasonCode.CLUSTER_TOO_SMALL: "test_cycle",
    ReasonCode.NOT_ENOUGH_FREE: "test_cycle",
    ReasonCode.TOPOLOGY_TOO_FRAGMENTED: "test_cycle",
    ReasonCode.TOPOLOGY_TOO_SMALL: "test_cycle",
    ReasonCode.TOPOLOGY_LEVEL_UNKNOWN: "test_cycle",
    ReasonCode.SLICES_TOO_FRAGMENTED: "test_slices",
    ReasonCode.TOGETHER_TOO_FRAGMENTED: "test_beside",
    ReasonCode.NODES_NOT_ELIGIBLE: "test_eligibility",
    ReasonCode.ELIGIBLE_NODES_FULL: "test_eligibility",
    ReasonCode.NODES_EXCLUDED: "test_cycle",
    ReasonCode.UNMODELLED_CONSTRAINT: "test_cycle",
    ReasonCode.EARMARKED_FOR_ANOTHER: "test_cycle",
    ReasonCode.WAITS_FOR_RECLAIM: "test_reclaim",
    ReasonCode.BEHIND_OTHERS: "test_cycle",
    ReasonCode.BACKING_OFF: "test_cycle",
    ReasonCode.BUDGET_SPENT: "test_budgets",
    ReasonCode.MOST_RUNNING: "test_budgets",
    ReasonCode.STALE_DECISION: "test_recheck",
    ReasonCode.NODE_LOST: "test_verdict",
    ReasonCode.DEVICE_FAILED: "test_verdict",
    ReasonCode.DISRUPTED: "test_verdict",
    ReasonCode.PROGRAM_FAILED: "test_verdict",
    ReasonCode.RECLAIMED: "test_reclaim",
    ReasonCode.NEVER_SATISFIABLE: "test_quota",
}
MADE_ELSEWHERE = {
    ReasonCode.CLUSTER_LOST,
    ReasonCode.PLANE_RESTORED,
    ReasonCode.FOREIGN_PODS,
    ReasonCode.NAME_CONFLICT,
    ReasonCode.LOCAL_POLICY,
    ReasonCode.REFUSED_BY_CLUSTER,
    ReasonCode.BUDGET_PASSED,
}


def test_every_code_is_made_somewhere() -> None:
    assert set(MADE_IN_CORE) | MADE_ELSEWHERE == set(ReasonCode)
    assert not set(MADE_IN_CORE) & MADE_ELSEWHERE


@pytest.mark.parametrize("code", ReasonCode)
def test_every_code_has_a_sentence_that_its_facts_fill(code: ReasonCode) -> None:
    names = [name for _, name, _, _ in string.Formatter().parse(_SENTENCES[code]) if name]
    sentence = Reason(code, dict.fromkeys(names, 7)).sentence()
    assert "{" not in sentence
    assert names, "a Reason has numbers"


def test_equal_reasons_are_equal_whatever_the_order_of_their_facts() -> None:
    left = reason(ReasonCode.QUEUE_UNKNOWN, queue="a", extra=1)
    right = reason(ReasonCode.QUEUE_UNKNOWN, extra=1, queue="a")
    assert list(left.facts) == list(right.facts)
    assert left == right


def test_a_budget_that_passed_quotes_what_was_waited_for_where_that_is_known() -> None:
    passed: dict[str, int | str] = {"goal": "pulled and started", "limit": 60}
    assert reason(ReasonCode.BUDGET_PASSED, **passed).sentence() == "It was not pulled and started within 60 s."
    told = reason(ReasonCode.BUDGET_PASSED, **passed, words="ErrImagePull: no such image").sentence()
    assert told == "It was not pulled and started within 60 s. The cluster says: ErrImagePull: no such image"


def test_a_missing_fact_is_an_error() -> None:
    with pytest.raises(KeyError):
        reason(ReasonCode.QUEUE_UNKNOWN).sentence()
