"""A plan for people: who starts where, who leaves, who waits and why, who has which share."""

from collections.abc import Callable, Iterable
from typing import TextIO

from controlplane.cli import render
from controlplane.cli.render import Json, counted


def tell(plan: Json) -> None:
    """Pool by Pool, as tables and sentences."""
    for number, pool in enumerate(plan["pools"]):
        if number:
            print()
        _tell_pool(pool, render.moment(plan["now"]))


def started(plan: Json) -> list[str]:
    """The Workloads that start, by Queue and name."""
    return [f"{each['queue']}/{each['workload']}" for pool in plan["pools"] for each in pool["starts"]]


def tell_foreseen(plan: Json, out: TextIO) -> None:
    """What one Pool's next cycle would do otherwise, were documents applied."""
    counts = ", ".join(
        f"{plan['after'][fate]} {verb}{_instead(plan, fate)}"
        for fate, verb in (("starts", "start"), ("waits", "wait"), ("leaves", "leave"), ("runs", "run on"))
    )
    print(render.paint(render.clean(f"By the next cycle of pool {plan['pool']}: {counts}"), "bold"), file=out)
    for fate, mark, verb in _FATES:
        for each in plan[fate]:
            print(render.paint(render.clean(f"{mark} {_called(each)} {verb}{_changed(each)}"), _MARKS[mark]), file=out)
            for reason in each["reasons"]:
                print(render.clean(f"    {reason['sentence']} [{reason['code']}]"), file=out)


def _instead(plan: Json, fate: str) -> str:
    before = plan["before"][fate]
    return "" if before == plan["after"][fate] else f" (without: {before})"


def _changed(each: Json) -> str:
    charges = " and ".join(f"{amount} {flavor}" for flavor, amount in each["charges"].items())
    where = f" in {' and '.join(each['clusters'])}" if each["clusters"] else ""
    asker = f" for {each['asker']}" if each["asker"] else ""
    was = f"; without these documents it {_WAS[each['before']]}" if each["before"] else ""
    return f"{where}{asker}" + (f" ({charges})" if charges else "") + was


def _tell_pool(pool: Json, now: str) -> None:
    counts = f"{len(pool['starts'])} start, {len(pool['leaves'])} leave, {len(pool['waits'])} wait"
    print(render.paint(render.clean(f"Pool {pool['pool']} at {now} UTC: {counts}"), "bold"))
    _section("Starts", pool["starts"], _tell_start)
    _section("Has to leave", pool["leaves"], _tell_leave)
    _section("Is kept", pool["keeps"], _tell_keep)
    _section("Waits", pool["waits"], _tell_wait)
    if pool["leftOver"]:
        print(f"\n{counted(pool['leftOver'], 'workload')} beyond what one cycle looks at; the next one goes on there")
    if pool["shares"]:
        print("\nShares")
        has_entitled = any(each["entitled"] is not None for each in pool["shares"])
        render.rows([*_SHARE_COLUMNS, *([_ENTITLED] if has_entitled else [])], pool["shares"])
    policy, work = f"policy version {pool['policyVersion']}", counted(pool["workUnits"], "unit")
    print(f"\nplan {pool['planSha256'][:16]}, {policy}, {work} of work")


def _section(heading: str, items: list[Json], told: Callable[[Json], Iterable[str]]) -> None:
    if items:
        print(f"\n{heading}")
    for each in items:
        for line in told(each):
            print(render.clean(f"  {line}"))


def _tell_start(each: Json) -> Iterable[str]:
    charges = " and ".join(f"{amount} {flavor}" for flavor, amount in each["charges"].items()) or "no devices"
    after = f", once {' and '.join(each['standsOn'])} has left" if each["standsOn"] else ""
    attempt = f", attempt {each['attempt']}" if each["attempt"] > 1 else ""
    yield f"{_called(each)}: {counted(each['pods'], 'pod')}, {charges}{attempt}{after}"
    for place in each["placements"]:
        for line in _nodes(place):
            yield f"  {place['cluster']}: {line}"


def _nodes(place: Json) -> Iterable[str]:
    """Neighbours that hold equal parts in one line: a gang of a thousand pods is read, too."""
    lines: list[list[Json]] = []
    for node in place["nodes"]:
        if lines and _part(lines[-1][-1]) == _part(node) and _follows(lines[-1][-1], node):
            lines[-1].append(node)
        else:
            lines.append([node])
    for nodes in lines:
        first, last = nodes[0], nodes[-1]
        names = first["node"] if len(nodes) == 1 else f"{first['node']} … {last['node']} ({len(nodes)} nodes)"
        each = "" if len(nodes) == 1 else " each"
        units = f", {first['units']} {first['flavor']}" if first["units"] else ""
        ranks = first["ranks"] if len(nodes) == 1 else f"{first['ranks'].split('-')[0]}-{last['ranks'].split('-')[-1]}"
        said = f"rank {ranks}" if ranks.isdecimal() else f"ranks {ranks}"
        yield f"{names}: {counted(first['pods'], 'pod')} of {first['podSet']}{units}{each}, {said}"


def _part(node: Json) -> tuple[str, int, str, int]:
    return node["podSet"], node["pods"], node["flavor"], node["units"]


def _follows(before: Json, after: Json) -> bool:
    """Whether ranks go on without a gap, each node's in one run."""
    runs = before["ranks"], after["ranks"]
    if any("," in ranks for ranks in runs):
        return False
    return int(runs[0].split("-")[-1]) + 1 == int(runs[1].split("-")[0])


def _tell_leave(each: Json) -> Iterable[str]:
    asker = f"{each['asker']} of {each['askerQueue']}"
    yield f"{_called(each)}, attempt {each['attempt']}, for {asker}: {each['reason']['sentence']}"


def _tell_keep(each: Json) -> Iterable[str]:
    units = " and ".join(f"{amount} {flavor}" for flavor, amount in each["units"].items()) or "room"
    yield f"{units} in {each['cluster']} for {_called(each)} until {render.moment(each['until'])}"


def _tell_wait(each: Json) -> Iterable[str]:
    yield f"{_called(each)}, priority {each['priority']}"
    for reason in each["reasons"]:
        yield f"  {reason['sentence']} [{reason['code']}]"


def _called(each: Json) -> str:
    return f"{each['workload']} of {each['queue']}"


def _or(key: str, otherwise: str) -> Callable[[Json], object]:
    return lambda each: otherwise if each[key] is None else each[key]


_FATES = (
    ("starts", "+", "would start"), ("waits", "~", "would wait"), ("leaves", "-", "would have to leave"),
    ("runs", "+", "would run on"),
)  # fmt: skip
_WAS = {"starts": "starts", "waits": "waits", "leaves": "has to leave", "runs": "runs on"}
_MARKS = {"+": "green", "~": "yellow", "-": "red"}
_SHARE_COLUMNS: list[render.Column] = [
    ("QUEUE", _or("queue", "")), ("FLAVOR", _or("flavor", "")), ("NOMINAL", _or("nominal", "what is left")),
    ("OWNS", _or("owns", "-")), ("USED", _or("used", "-")), ("AFTER", _or("after", "-")),
]  # fmt: skip
_ENTITLED: render.Column = ("ENTITLED", _or("entitled", "-"))
