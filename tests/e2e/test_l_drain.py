"""Story (l): a cluster is emptied by a deadline, whatever its gang thinks of it."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.federation import Federation, Site, gang
from tests.kube.objects import RACK, NodeShape


@contextmanager
def drained(federation: Federation, site: Site, deadline: str) -> Iterator[dict[str, object]]:
    """Drained until the end of the block: the next story wants it back."""
    asked = {"reason": "new firmware", "deadline": deadline}
    try:
        yield federation.ask("POST", f"/clusters/{site.name}/drain", asked)["drain"]
    finally:
        federation.ask("POST", f"/clusters/{site.name}/undrain")


def test_a_gang_that_would_not_end_is_moved_whole_and_new_work_never_comes(federation: Federation) -> None:
    """Story (l)."""
    east, west = federation.sites
    shape = NodeShape(topology={RACK: 4})
    federation.add_nodes(east, 3, shape)
    federation.set_quotas({"nlp": 24})
    stays = federation.submit(gang("stays", 2))
    federation.wait_state(stays, "running")
    federation.add_nodes(west, 3, shape)

    with drained(federation, east, "10s") as told:
        assert (told["reason"], told["attemptsLeft"]) == ("new firmware", 1)
        late = federation.submit(gang("late", 1))
        federation.wait_state(late, "running")
        assert (len(west.pods_of(late)), len(east.pods_of(stays))) == (1, 2), (
            "new work elsewhere, the gang where it was"
        )

        def moved() -> bool:
            attempts = federation.attempts(stays)
            assert [(each["state"], each["outcome"]) for each in attempts] == [("ended", "moved"), ("running", None)]
            return True

        federation.wait_for(moved, "the gang in the other cluster")
        seen = federation.workload(stays)
        assert (seen["programFailures"], len(west.pods_of(stays))) == (0, 2)
        assert not east.pods_of(stays)
        assert federation.cluster(east)["drain"]["attemptsLeft"] == 0
        assert federation.usage("lab/nlp")["used"] == 24
        waits = federation.submit(gang("waits", 1))
        federation.set_quotas({"nlp": 48})
        federation.wait_for(lambda: "east is drained: new firmware" in federation.explain(waits), "why not in the east")

    federation.wait_state(waits, "running")
    assert len(east.pods_of(waits)) == 1
