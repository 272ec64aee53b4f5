"""Mistakes of the core, each as a text and what takes its place, with the tests that must find it.

Each is a fault that somebody might make, or has made. `before` stands exactly once in its file.
"""

from dataclasses import dataclass

CORE = "controlplane/core"
_PLANS = "tests/laws/test_plan_laws.py"
_INDEX = "tests/laws/test_index_laws.py"
_QUOTA = "tests/laws/test_quota_laws.py"
_STORIES = "tests/scenarios/test_scenarios.py"


@dataclass(frozen=True, slots=True)
class Mutant:
    """`file` below the core; `found_by` as pytest takes them: the laws and tables of which at least one must fail."""

    name: str
    file: str
    before: str
    after: str
    why_wrong: str
    found_by: tuple[str, ...]


def _told_in(story: str) -> str:
    return f"{_STORIES}::test_the_story_goes_as_written[{story}]"


MUTANTS = (
    Mutant(
        "a charge stays in its leaf",
        "quota.py",
        "return max(0, amount - max(0, self.k - self.u))",
        "return 0",
        "ancestors would see no usage and be oversold",
        (
            f"{_QUOTA}::test_usage_equals_its_recomputation_in_whatever_order_it_came",
            _told_in("every_ancestor_is_asked"),
        ),
    ),
    Mutant(
        "a borrowing limit is not looked at",
        "quota.py",
        "above = min(above, self._stored_above())",
        "above = add(above, 0)",
        "a Queue would use more than its own and what it may borrow",
        (f"{_QUOTA}::test_who_takes_only_what_is_available_never_passes_a_limit",),
    ),
    Mutant(
        "a refund passes up what a kept part had absorbed",
        "quota.py",
        "passed = min(amount, max(0, account.u - account.k))",
        "passed = amount",
        "charge and refund would leave an ancestor with less than it had",
        (f"{_QUOTA}::test_charge_then_refund_is_nothing",),
    ),
    Mutant(
        "quota is not rolled back to less",
        "quota.py",
        "            account.u = used\n\n    def settle",
        "            account.u = max(account.u, used)\n\n    def settle",
        "what was tried and taken back would stay charged",
        ("tests/core/test_quota.py::test_rollback_takes_charges_back",),
    ),
    Mutant(
        "sums pass the largest number",
        "resources.py",
        "return max(-UNLIMITED, min(UNLIMITED, left + right))",
        "return left + right",
        "usage would leave what a database column holds",
        ("tests/core/test_resources.py",),
    ),
    Mutant(
        "a borrower goes first",
        "fairshare.py",
        "return late, over, borrows, share,",
        "return late, over, not borrows, share,",
        "who is within its own would wait for who borrows",
        ("tests/core/test_fairshare.py::test_who_does_not_borrow_goes_before_who_does",),
    ),
    Mutant(
        "weights count for nothing",
        "fairshare.py",
        "self.under = max(1, under) * (weight if weight > 0 else 1)",
        "self.under = max(1, under)",
        "a weight of three would borrow as much as one of one",
        ("tests/core/test_fairshare.py::test_a_weight_of_three_borrows_three_times_as_much", _told_in("fair_turns")),
    ),
    Mutant(
        "borrowing is judged by any Flavor",
        "fairshare.py",
        "borrows = borrows or flavor in asked",
        "borrows = True",
        "who borrows of one Flavor would wait for its own of another",
        ("tests/core/test_fairshare.py::test_borrowing_is_judged_by_the_flavor_that_is_asked_for",),
    ),
    Mutant(
        "a started gang that lost a part waits in line",
        "line.py",
        "return is_late, not workload.is_repair, -workload.priority",
        "return is_late, False, -workload.priority",
        "its slot would go to newer work",
        ("tests/core/test_line.py", _told_in("a_gang_that_lost_a_part_goes_before_new_ones")),
    ),
    Mutant(
        "what the last cycle left over has no precedence",
        "line.py",
        "return is_late, not workload.is_repair,",
        "return False, not workload.is_repair,",
        "what a cycle did not reach might never be reached",
        ("tests/core/test_line.py::test_what_was_left_over_comes_before_everything",),
    ),
    Mutant(
        "decay cuts small steps off",
        "decay.py",
        "return (amount * left_after(elapsed, half_life) + ONE // 2) // ONE",
        "return amount * (left_after(elapsed, half_life) * 1000 // ONE) // 1000",
        "use that is sampled often would never add up",
        ("tests/core/test_decay.py",),
    ),
    Mutant(
        "an entry costs nothing",
        "memory.py",
        "return plain * max(self._policy.history_floor_permille * (WHOLE // 1_000), part - off)",
        "return plain * part",
        "one Queue could take all between two reckonings",
        ("tests/core/test_memory.py",),
    ),
    Mutant(
        "a hard budget may be passed",
        "budgets.py",
        "if at.budget.is_hard and at.left == 0:",
        "if at.budget.is_hard and at.left < 0:",
        "a budget that is used up would stop nobody",
        ("tests/core/test_budgets.py", _told_in("budgets_stop_and_put_behind")),
    ),
    Mutant(
        "one more than the most is under way",
        "budgets.py",
        "if most is not None and live >= most:",
        "if most is not None and live > most:",
        "a Queue would have one Workload more than it may",
        ("tests/core/test_budgets.py::test_no_more_workloads_are_under_way_than_a_queue_may_have",),
    ),
    Mutant(
        "closed nodes count as open",
        "index.py",
        "(index, count if count > 0 and not closed[index] else 0)",
        "(index, count if count > 0 else 0)",
        "pods would be placed on nodes that take none",
        (f"{_INDEX}::test_counters_equal_a_recount_and_rollback_restores",),
    ),
    Mutant(
        "a rollback forgets one node",
        "index.py",
        "undone.extend(take.reversed() for take in entry)",
        "undone.extend(take.reversed() for take in entry[1:])",
        "what was tried would stay taken",
        (f"{_INDEX}::test_counters_equal_a_recount_and_rollback_restores",),
    ),
    Mutant(
        "CPU is not counted",
        "index.py",
        "fits = min(fits, self.cpu[index] // size.cpu_milli)",
        "fits = min(fits, self.slots[index])",
        "pods would be placed where they cannot start",
        (f"{_INDEX}::test_counters_equal_a_recount_and_rollback_restores",),
    ),
    Mutant(
        "a warm index forgets what changed but devices",
        "index.py",
        "            size_class.touch(changed)\n",
        "            size_class.touch(others)\n",
        "a warm planner would plan another world than a new one",
        (f"{_INDEX}::test_a_refreshed_index_equals_a_new_one",),
    ),
    Mutant(
        "racks are ordered as text",
        "topology.py",
        "parts = _DIGITS.split(text)",
        "parts = [text]",
        "rank 10 would sit between 1 and 2, and rings would cross the fabric",
        ("tests/core/test_index.py::test_names_sort_as_people_count",),
    ),
    Mutant(
        "nodes without a label are one domain",
        "topology.py",
        'key = (above, label or f"\\0{node.id}")',
        "key = (above, label)",
        "a gang that must sit together would be scattered over them",
        (
            "tests/core/test_index.py::test_a_node_without_a_label_is_a_domain_of_its_own",
            f"{_PLANS}::test_a_gang_alone_starts_exactly_if_some_domain_has_room_by_plain_counting",
        ),
    ),
    Mutant(
        "a taint keeps nobody out",
        "nodes.py",
        '_KEEPS_OUT = frozenset({"NoSchedule", "NoExecute"})',
        '_KEEPS_OUT = frozenset({"NoExecute"})',
        "pods would be placed where their scheduler refuses them",
        ("tests/core/test_nodes.py", _told_in("labels_taints_and_facts")),
    ),
    Mutant(
        "a required level is a wish",
        "placement/search.py",
        "is_required = pod_set.topology_mode is TopologyMode.REQUIRED\n    if within",
        "is_required = False\n    if within",
        "a gang would start scattered that must sit together",
        ("tests/laws/test_placement_oracle.py::test_one_pod_set_finds_a_place_exactly_if_there_is_one",),
    ),
    Mutant(
        "a part of a gang is enough",
        "placement/seating.py",
        "if all(self.seat(unit, within) for unit in units):",
        "if any(self.seat(unit, within) for unit in units):",
        "gangs would start in parts",
        (
            f"{_PLANS}::test_a_plan_is_whole_fits_nodes_and_accounts_and_keeps_required_levels",
            _told_in("a_try_that_failed_leaves_nothing_behind"),
        ),
    ),
    Mutant(
        "what found no seat keeps those that it had",
        "placement/seating.py",
        "        self.scenario.rollback(mark)\n        for placed in self.placed[seated:]:",
        "        for placed in self.placed[seated:]:",
        "the second order of PodSets would find the first one's seats taken",
        (
            "tests/core/test_placement.py::test_where_the_first_takes_what_only_the_last_could_use_the_other_way_round_is_tried",
            "tests/laws/test_placement_oracle.py",
        ),
    ),
    Mutant(
        "a slice need not be whole",
        "placement/counters.py",
        "self.update([(domain, count[domain] // size) for domain in domains])",
        "self.update([(domain, -(-count[domain] // size)) for domain in domains])",
        "slices would straddle racks",
        ("tests/core/test_slices.py",),
    ),
    Mutant(
        "the rest goes to the largest child",
        "placement/strategies/base.py",
        "tight = size_class.smallest_holding(domain, pods)",
        "tight = child",
        "large holes would be broken for small rests",
        ("tests/core/test_placement.py::test_a_gang_over_domains_takes_the_fewest_and_the_last_one_tightly",),
    ),
    Mutant(
        "clusters of no network share one",
        "placement/pieces.py",
        "if domain and domains.count(domain) > 1]",
        "if domains.count(domain) > 1]",
        "ranks could not reach one another",
        ("tests/core/test_pieces.py::test_clusters_that_share_no_network_domain_take_no_gang_together",),
    ),
    Mutant(
        "an old inventory is as good as a new one",
        "placement/filters.py",
        "if age > policy.inventory_stale_seconds:",
        "if age > 100 * policy.inventory_stale_seconds:",
        "work would be sent to what was free hours ago",
        (_told_in("what_was_told_long_ago_counts_for_nothing"),),
    ),
    Mutant(
        "what a gang requires of a cluster is not looked at",
        "placement/filters.py",
        "missing = [fact for fact in workload.requires if fact not in cluster.facts]",
        "missing = [fact for fact in workload.requires if not fact]",
        "it would start where its data is not",
        ("tests/core/test_pieces.py::test_a_cluster_must_have_what_is_required", _told_in("labels_taints_and_facts")),
    ),
    Mutant(
        "whoever uses anything may be stopped",
        "reclaim.py",
        "tree.account(queue, flavor)).u > at.s for queue in lost_side",
        "tree.account(queue, flavor)).u > 0 for queue in lost_side",
        "a Queue within its own would lose it",
        (
            "tests/core/test_reclaim.py::test_a_queue_keeps_its_own_nominal",
            f"{_PLANS}::test_victims_are_whole_borrowers_and_each_is_chosen_once",
        ),
    ),
    Mutant(
        "victims that are not needed are stopped as well",
        "reclaim.py",
        "            if not self._fits(asker, cluster):\n                self._scenario.evict(victim)",
        "            if self._fits(asker, cluster) or True:\n                self._scenario.evict(victim)",
        "ten would stop where one is enough",
        ("tests/core/test_reclaim.py::test_a_victim_that_is_not_needed_is_given_back",),
    ),
    Mutant(
        "two plans of one cycle share a victim",
        "reclaim.py",
        "self._listed = [at for at in self._candidates() if at.workload not in gone]",
        "self._listed = self._candidates()",
        "what is freed once would be promised twice",
        (
            _told_in("plans_of_one_cycle_share_no_victim"),
            f"{_PLANS}::test_victims_are_whole_borrowers_and_each_is_chosen_once",
        ),
    ),
    Mutant(
        "what is freed is kept for nobody",
        "reclaim.py",
        "        self._scenario.keep(earmark)\n",
        "",
        "the next in line would take it, and victims would be stopped for ever",
        (_told_in("plans_of_one_cycle_share_no_victim"), "tests/core/test_reclaim.py"),
    ),
    Mutant(
        "who was freed for waits for all victims of others",
        "scenario.py",
        "if all(room.get(flavor, 0) >= amount for flavor, amount in own.items()):",
        "if True:",
        "its own units would lie idle meanwhile",
        (_told_in("plans_of_one_cycle_share_no_victim"),),
    ),
    Mutant(
        "fresh values are not those after decisions before",
        "recheck.py",
        "                left.take(decision)\n",
        "",
        "two decisions of one commit could take the same free units",
        ("tests/core/test_recheck.py::test_kept_decisions_leave_less_to_those_after_them",),
    ),
    Mutant(
        "entitlements are shared out evenly",
        "shares.py",
        "else min(Fraction(want), height * weight)",
        "else min(Fraction(want), height)",
        "a weight would say nothing about what a Queue is entitled to",
        ("tests/laws/test_share_laws.py::test_shares_equal_those_of_an_independent_oracle_exactly",),
    ),
    Mutant(
        "a warm tree does not hear what clusters own",
        "warm_tree.py",
        "        if owned != self._owned:\n            tree.own(owned)\n",
        "",
        "a root that owns what is left would go on lending devices that are gone",
        ("tests/laws/test_warm_tree_laws.py",),
    ),
    Mutant(
        "Workloads of no Queue end the cycle",
        "refusals.py",
        "return reason(ReasonCode.QUEUE_UNKNOWN, queue=workload.queue)",
        "raise KeyError(workload.queue)",
        "one bad object would stop everybody",
        (_told_in("one_bad_object_stops_nobody"),),
    ),
    Mutant(
        "one refusal stands for requests that may do more",
        "refusals.py",
        "            tuple(size for pod_set in workload.pod_sets for size in sizes(pod_set, room)),\n",
        "",
        "work would wait beside room, because a Queue with less quota had been refused the same before",
        ("tests/laws/test_conservation_laws.py",),
    ),
    Mutant(
        "a refusal beside excluded nodes stands for everybody",
        "refusals.py",
        'workload.shape if workload.shape in self._exclusions else "",',
        '"",',
        "work would wait beside nodes that only another shape of pod may not use",
        ("tests/laws/test_conservation_laws.py",),
    ),
    Mutant(
        "a warm tree does not hear what other Pools use",
        "warm_tree.py",
        "elif table is Table.USAGE_ELSEWHERE:",
        "elif table is Table.OWNERS:",
        "two Pools would use the same quota",
        ("tests/laws/test_warm_tree_laws.py", "tests/laws/test_warm_world_laws.py"),
    ),
    Mutant(
        "the order of rows decides who goes first among equals",
        "fairshare.py",
        "-workload.priority, workload.submitted_at, workload.id",
        '-workload.priority, workload.submitted_at, WorkloadId("")',
        "ties would end in chance, and a replay would be another plan",
        (
            "tests/core/test_fairshare.py::test_the_order_of_input_does_not_matter",
            f"{_PLANS}::test_the_same_world_gives_the_same_plan_in_any_order_warm_or_cold",
        ),
    ),
)
