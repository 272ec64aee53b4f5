"""Rows that a newer version wrote while both are at work: read for what this one knows of them."""

import json

from controlplane.core.ids import NodeId
from controlplane.core.records import World
from tests.services.planes import H100, Plane


def test_an_earmark_with_needs_that_this_version_does_not_know_is_kept_for_those_that_it_does(plane: Plane) -> None:
    lab = plane.queue("lab", nominal=32)
    cluster = plane.cluster("east", nodes=1)
    gang = plane.workload("gang", lab, pods=1)
    [node] = plane.rows("SELECT id FROM node")
    shares = [{"node": node.id, "flavor": H100, "amount": 8, "pods": 1, "qubits": 3}]
    plane.do(
        """INSERT INTO earmark (workload_id, cluster_id, pool_id, shares, created_at, until, next_check_at)
           VALUES (CAST(:gang AS uuid), :cluster, :pool, CAST(:shares AS jsonb), now(), now() + interval '1 hour',
                   now() + interval '1 hour')""",
        gang=gang, cluster=cluster, pool=plane.pool, shares=json.dumps(shares),
    )  # fmt: skip
    world = World(plane.pool)
    world.apply(plane.tools.reader.read(plane.pool, None).changes)
    [earmark] = world.freeze().earmarks.values()
    assert [(share.node, share.amount) for share in earmark.shares] == [(NodeId(node.id), 8)]
