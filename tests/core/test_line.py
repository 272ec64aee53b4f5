"""Who goes first within one leaf."""

from collections import Counter
from collections.abc import Iterable

from controlplane.core.ids import QueueId
from controlplane.core.line import Line
from tests.builders.core import AWorkload, a_workload


def job(name: str, owner: str = "ann", minutes: int = 0, priority: int = 0) -> AWorkload:
    return a_workload(name).at(minutes).with_priority(priority).having(owner=owner)


def turns(jobs: Iterable[AWorkload], used: dict[str, int] | None = None, *, each: int = 0) -> list[str]:
    """The order of turns, where every turn costs its owner `each`."""
    past = Counter(used or {})
    line = Line(lambda owner: past[owner])
    for one in jobs:
        line.add(one.build(QueueId(1)))
    line.close()
    order = []
    while (head := line.head()) is not None:
        line.pop()
        past[head.owner] += each
        order.append(head.name)
    return order


def test_of_two_owners_the_one_who_used_less_goes_first_whatever_the_age() -> None:
    jobs = [job("a1", "ann", 1), job("b1", "bob", 9)]
    assert turns(jobs) == ["a1", "b1"]
    assert turns(jobs, {"ann": 1}) == ["b1", "a1"]


def test_owners_take_turns_when_each_start_counts() -> None:
    jobs = [*(job(f"a{number}", "ann", number) for number in range(4)), job("b0", "bob", 20), job("b1", "bob", 21)]
    assert turns(jobs, each=1) == ["a0", "b0", "a1", "b1", "a2", "a3"]


def test_priority_and_repairs_come_before_what_owners_used() -> None:
    jobs = [job("b1", "bob"), job("a1", "ann", priority=5), job("a2", "ann", 60).having(is_repair=True, owner="ann")]
    assert turns(jobs, {"ann": 10**9}) == ["a2", "a1", "b1"]


def test_an_owner_s_own_go_by_age_then_id() -> None:
    assert turns([job("z", minutes=1), job("b", minutes=2), job("a", minutes=2)], each=1) == ["z", "a", "b"]


def test_what_was_left_over_comes_before_everything() -> None:
    line = Line()
    line.add(job("new", priority=9).build(QueueId(1)), is_late=True)
    line.add(job("old").build(QueueId(1)))
    line.close()
    assert [each.name for each in line.rest()] == ["old", "new"]
    head = line.head()
    assert head is not None
    assert head.name == "old"


def test_a_line_that_is_through_has_no_head_and_no_rest() -> None:
    line = Line()
    line.add(job("only").build(QueueId(1)))
    line.close()
    line.pop()
    line.pop()
    assert line.head() is None
    assert line.rest() == []
