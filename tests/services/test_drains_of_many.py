"""A drained cluster in which much runs: told to stop in pieces."""

from controlplane.services import drains
from controlplane.services.attempt_batch import By
from controlplane.services.cordons import Wish, locked
from controlplane.services.ports.unit_of_work import UnitOfWork, run
from tests.services.agents import node, placed, ready
from tests.services.planes import Plane

ROOT = By("root")


def test_a_large_cluster_is_emptied_in_pieces_so_that_nobody_waits_long_for_one(plane: Plane) -> None:
    eu = ready(plane, "eu", *(node(f"e{number}") for number in range(5)))
    team = plane.queue("team", nominal=40)
    for number in range(5):
        _, name = placed(plane, eu, team, pods=1, name=f"gang-{number}")
        eu.run(name)
    run(plane.uow, lambda uow: drains.drain(uow, "eu", Wish("new switches", 3_600), ROOT))
    plane.do("UPDATE cluster SET drain_deadline_at = now() - interval '1 second'")

    def piece(uow: UnitOfWork) -> int:
        cluster = locked(uow, "eu")
        assert cluster.drain is not None
        return drains.carry_on(uow, cluster, cluster.drain, ROOT, at_once=2)

    assert [run(plane.uow, piece) for _ in range(4)] == [2, 2, 1, 0]
    assert len(plane.rows("SELECT FROM attempt WHERE state = 'stopping'")) == 5
