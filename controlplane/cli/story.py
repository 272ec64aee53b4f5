"""A workload's life in words, out of what the plane knows of it and nothing else."""

from collections.abc import Iterator

from controlplane.cli.render import Json, ago, between, clean, counted, seconds_since, span, until

FINAL = frozenset({"succeeded", "failed", "cancelled"})
LIVE = "pending,reserved,running,stopping,cancelling"
SENTENCES_MAX = 3
NODES_MAX = 4
_STEPS = {
    "placed": "its nodes are chosen and held; the cluster makes its pods",
    "prepared": "its pods are there, held back until all of them may start",
    "starting": "its pods may start; images are pulled and containers come up",
    "running": "its pods run",
    "stopping": "its pods are being stopped",
}
_ENDS = {
    "succeeded": "succeeded",
    "preempted": "gave its devices back to the queue that lent them",
    "rejected": "was refused by the cluster",
    "voided": "was taken back before it started",
    "lost": "was lost with its machines",
    "failed": "failed",
    "moved": "was moved",
    "cancelled": "was cancelled",
}


def waiting(found: Json) -> str:
    """Why it waits, and until when where that is known."""
    reasons = [_sentence(each["sentence"]) for each in found["reasons"]]
    more = len(reasons) - SENTENCES_MAX
    said = [f"{found['name']} waits in {found['queue']}.", *reasons[:SENTENCES_MAX]]
    if more > 0:
        said.append(f"(and {more} more: `muster explain {found['name']}`)")
    if found.get("notBefore") and seconds_since(found["notBefore"]) < 0:
        said.append(f"It is tried again {until(found['notBefore'])}.")
    return " ".join(said)


def step(found: Json, attempt: Json) -> str:
    """Where a live attempt stands."""
    words = _STEPS.get(attempt["state"], attempt["state"])
    text = f"{found['name']}, attempt {attempt['attempt']}{where(attempt)}: {words}"
    messages = [clean(each["message"]) for each in attempt["placements"] if each["message"]]
    if attempt["state"] == "starting":
        messages += [clean(f"rank {each['rank']}: {each['text']}") for each in attempt["words"][:1]]
    return f"{text} ({'; '.join(messages)})" if messages else text


def where(attempt: Json) -> str:
    """Its clusters and the first of its nodes."""
    parts = []
    for placement in attempt["placements"]:
        nodes = [node["node"] for node in placement["nodes"]]
        named = ", ".join(nodes[:NODES_MAX]) + (f" and {len(nodes) - NODES_MAX} more" if len(nodes) > NODES_MAX else "")
        parts.append(f"{placement['cluster']} ({named})" if named else str(placement["cluster"]))
    return f" in {' and '.join(parts)}" if parts else ""


def ending(attempt: Json) -> str:
    """How an attempt ended, and why."""
    words = _ENDS.get(attempt["outcome"], str(attempt["outcome"]))
    if attempt["outcome"] == "failed" and attempt["verdict"] == "infrastructure":
        words = "ended because of its machines, which does not count against it"
    why = f" {_sentence(attempt['reason']['sentence'])}" if attempt["reason"] else ""
    return f"attempt {attempt['attempt']} {words}.{why}"


def disturbance(found: Json, attempt: Json) -> str:
    """An attempt that ended and will be followed by another: for whom, what was lost, from where it goes on."""
    return f"{found['name']}: {ending(attempt)} {_lost(found, attempt)}"


def undecided(found: Json, attempt: Json) -> str:
    """An attempt whose pods have ended, and of which nobody can say yet whether it is tried again."""
    return (
        f"{found['name']}: {ending(attempt)} It waits, up to the evidence window of pool {found['pool']}, until its "
        "program and its machines can be told apart; what follows is decided then."
    )


def end(found: Json) -> str:
    """How the workload ended."""
    took = ""
    if found.get("finishedAt"):
        took = f" after {span(between(found['submittedAt'], found['finishedAt']))}"
    last = found["attempts"][0] if found["attempts"] else None
    why = f": {ending(last)}" if last and found["state"] == "failed" else ""
    return f"{found['name']} {found['state']}{took}{why}"


def history(attempt: Json) -> Iterator[str]:
    """One attempt, with when each step came after the one before and what each node gave."""
    yield f"Attempt {attempt['attempt']}: {_headline(attempt)}"
    steps = _timeline(attempt)
    if steps:
        yield f"  {steps}"
    if attempt["reason"]:
        yield f"  {clean(attempt['reason']['sentence'])}"
    for placement in attempt["placements"]:
        message = f": {clean(placement['message'])}" if placement["message"] else ""
        yield f"  {placement['cluster']} {placement['state']}{message}"
        for node in placement["nodes"]:
            states = ", ".join(f"{count} {state}" for state, count in node["states"].items())
            devices = f", {node['devices']} {node['flavor']}" if node["devices"] else ""
            yield f"    {node['node']}: {counted(node['pods'], 'pod')}{devices} ({states})"
    yield from last_words(attempt)


def last_words(attempt: Json) -> Iterator[str]:
    """What its pods' programs said last, or what their cluster says of those that wait."""
    for each in attempt["words"]:
        code = "" if each["exitCode"] is None else f", exit code {each['exitCode']}"
        verb = "waits" if each["state"] == "pending" else "said last"
        yield f"  Rank {each['rank']} on {each['node'] or '?'} ({each['state']}{code}) {verb}:"
        for line in clean(each["text"]).splitlines():
            yield f"    | {line}"


def _sentence(text: str) -> str:
    """With its full stop: words of people and clusters at its end have none."""
    said = clean(text).rstrip()
    return said if said.endswith((".", "!", "?")) else f"{said}."


def _headline(attempt: Json) -> str:
    if attempt["outcome"] is None:
        return str(attempt["state"])
    ran = _ran(attempt)
    verdict = f", {attempt['verdict']}" if attempt["verdict"] else ""
    return f"{attempt['outcome']}{verdict}" + (f", after running for {span(ran)}" if ran is not None else "")


def _timeline(attempt: Json) -> str:
    marks = (
        ("placed", "placedAt"), ("prepared", "preparedAt"), ("start ordered", "startOrderedAt"),
        ("running", "runningAt"), ("stop ordered", "stopOrderedAt"), ("ended", "endedAt"),
    )  # fmt: skip
    said, before = [], None
    for words, key in marks:
        moment = attempt.get(key)
        if not moment:
            continue
        later = "" if before is None else f" +{span(between(before, moment))}"
        said.append(f"{words} {ago(moment)}" if before is None else f"{words}{later}")
        before = moment
    return ", ".join(said)


def _ran(attempt: Json) -> float | None:
    """Seconds that it ran; None where it never did."""
    stop = attempt["failedAt"] or attempt["stopOrderedAt"] or attempt["endedAt"]
    if not attempt["runningAt"] or not stop:
        return None
    return max(0.0, between(attempt["runningAt"], stop))


def _lost(found: Json, attempt: Json) -> str:
    ran = _ran(attempt)
    if ran is None:
        return "It had not run yet, so nothing is lost; it is planned again at its old place in the queue."
    mode = (found["spec"].get("checkpoint") or {}).get("mode", "none")
    if mode == "none":
        return (
            f"It starts again from its beginning at its old place in the queue, since no checkpoint of it is known to "
            f"the plane: {span(ran)} of running are lost."
        )
    return f"It had run for {span(ran)}; it goes on from its own last checkpoint, which the plane does not know."
