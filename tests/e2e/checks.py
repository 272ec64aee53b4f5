"""What must be true in more than one story."""

from collections.abc import Sequence

from tests.e2e.federation import H100, Federation, Pod


def started_whole(history: Sequence[Pod], ranks: int) -> None:
    """No gate came off before every rank was pinned; each ran once, where it was pinned."""
    first_free = next(index for index, pod in enumerate(history) if not pod.is_gated)
    pinned = {pod.rank for pod in history[:first_free] if pod.is_gated and pod.pinned}
    assert pinned == set(range(ranks)), "a gate came off too early"
    assert not any(pod.node for pod in history if pod.is_gated)
    ran = {(pod.rank, pod.name, pod.node) for pod in history if pod.phase == "Running"}
    assert len(ran) == ranks
    assert all(pod.node in {"", pod.pinned} for pod in history)


def settled(federation: Federation) -> None:
    """Nothing is kept for anybody."""
    for queue in ("lab", "lab/nlp", "lab/vision"):
        usage = federation.usage(queue)
        assert (usage["used"], usage["running"], usage["pending"]) == (0, 0, 0), queue
    for site in federation.sites:
        assert all(each["held"] == 0 for each in federation.cluster(site)["flavors"] if each["flavor"] == H100)
