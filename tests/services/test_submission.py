"""What a submission reads out of its template, and what could never start; cancelling what lives."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from controlplane.contract.rest.workloads import WorkloadDocument, WorkloadView
from controlplane.core.facts.tenancy import Binding, Principal, Role
from controlplane.core.ids import WorkloadId
from controlplane.services import cancellation, queries
from controlplane.services.authz import Caller
from controlplane.services.documents import document_from
from controlplane.services.errors import Conflict, Invalid
from controlplane.services.ports.unit_of_work import run
from controlplane.services.submission import Submission, submit
from tests.api.bodies import IMAGE, job, template, workload
from tests.services.planes import H100, Plane
from tests.support.databases import Database

ADMIN = Caller(Principal(1, "person", "root", (Binding(Role.PLATFORM_ADMIN),)), "request-1")
ID = "0192f3a0-0000-7000-8000-000000000001"


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    """One leaf queue of 64 devices and a cluster of 32."""
    made = Plane(database)
    made.cluster("eu-west", nodes=4)
    made.queue("research", nominal=0)
    made.queue("research/nlp", nominal=64)
    yield made
    made.close()


def sent(value: dict[str, Any]) -> Submission:
    document, manifest = document_from(value)
    assert isinstance(document, WorkloadDocument)
    return Submission(document, manifest)


def pass_through(plane: Plane, kind: str, object_id: str, *states: str) -> None:
    """What others would do to it, with their audit rows."""
    for before, after in pairwise(states):
        plane.do(f"UPDATE {kind} SET state = :state, next_check_at = NULL", state=after)
        plane.do(
            """INSERT INTO audit (at, actor, action, object_kind, object_id, state_from, state_to)
               VALUES (now(), 'test', 'test', :kind, :id, :before, :after)""",
            kind=kind, id=object_id, before=before, after=after,
        )  # fmt: skip


def submitted(plane: Plane, value: dict[str, Any]) -> WorkloadView:
    """What the read model shows of it."""
    made = run(plane.uow, lambda uow: submit(uow, ADMIN, sent(value), lambda: ID))
    with plane.uow() as uow:
        return queries.workload(uow, ADMIN.principal, made.id)


def test_without_a_flavor_every_flavor_of_the_resource_that_is_known_will_do(plane: Plane) -> None:
    plane.do("INSERT INTO quota (queue_id, flavor, nominal) SELECT id, 'nvidia-a100-40gb', 8 FROM queue")
    plane.do("INSERT INTO quota (queue_id, flavor, nominal) SELECT id, 'nvidia-a100-40gb-mig-1g.5gb', 8 FROM queue")
    plane.do("INSERT INTO quota (queue_id, flavor, nominal) SELECT id, 'amd-mi300x-192gb', 8 FROM queue")
    assert submitted(plane, job()).pod_sets[0].flavors == ["nvidia-a100-40gb", H100]


def test_devices_of_no_resource_are_of_the_only_vendor_there_is(plane: Plane) -> None:
    bare = template(containers=[{"name": "main", "image": IMAGE}])
    asked = workload(pod_set={"template": bare, "devices": 8, "flavors": []})
    plane.do("INSERT INTO quota (queue_id, flavor, nominal) SELECT id, 'amd-mi300x-192gb', 8 FROM queue")
    with pytest.raises(Invalid, match="several vendors"):
        submitted(plane, asked)
    plane.do("UPDATE quota SET is_listed = false WHERE flavor = 'amd-mi300x-192gb'")
    assert submitted(plane, asked).pod_sets[0].flavors == [H100]


def test_a_mig_profile_wants_flavors_of_that_profile(plane: Plane) -> None:
    plane.do("INSERT INTO quota (queue_id, flavor, nominal) SELECT id, 'nvidia-a100-40gb-mig-1g.5gb', 8 FROM queue")
    limits = {"limits": {"nvidia.com/mig-1g.5gb": 1}}
    pods = template(containers=[{"name": "main", "image": IMAGE, "resources": limits}])
    assert submitted(plane, job(template=pods)).pod_sets[0].flavors == ["nvidia-a100-40gb-mig-1g.5gb"]


def test_needs_are_the_sum_of_containers_and_sidecars_or_the_largest_init_container(plane: Plane) -> None:
    pods = template(
        containers=[
            {"name": "a", "image": IMAGE, "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
            {"name": "b", "image": IMAGE, "resources": {"limits": {"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": 1}}},
        ],
        initContainers=[
            {"name": "c", "image": IMAGE, "resources": {"limits": {"cpu": "1", "memory": "3Gi"}}},
            {"name": "d", "image": IMAGE, "restartPolicy": "Always", "resources": {"limits": {"cpu": "250m"}}},
        ],
    )
    submitted(plane, workload(pod_set={"template": pods}))
    (row,) = plane.rows("SELECT cpu_milli, memory_bytes, devices FROM pod_set")
    assert (row.cpu_milli, row.memory_bytes, row.devices) == (2_750, 3 * 2**30, 1)


def test_equal_templates_have_equal_shapes(plane: Plane) -> None:
    submitted(plane, workload("one"))
    run(plane.uow, lambda uow: submit(uow, ADMIN, sent(workload("two")), lambda: ID.replace("001", "002")))
    other = workload("three", pod_set={"template": template(containers=[{"name": "x", "image": IMAGE}]), "devices": 8})
    run(plane.uow, lambda uow: submit(uow, ADMIN, sent(other), lambda: ID.replace("001", "003")))
    shapes = [row.shape for row in plane.rows("SELECT shape FROM workload ORDER BY submitted_at, id")]
    assert shapes[0] == shapes[1] != shapes[2]


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        (5, "No cluster could ever hold it: the largest owns 32"),
        (9, "research/nlp can never use more than 64"),
    ],
)
def test_what_could_never_start_is_refused_with_the_numbers(plane: Plane, replicas: int, words: str) -> None:
    with pytest.raises(Invalid, match="never-satisfiable|" + words) as refused:
        submitted(plane, workload(pod_set={"replicas": replicas}))
    assert refused.value.slug == "never-satisfiable"
    assert plane.rows("SELECT id FROM workload") == []


def test_an_unreachable_cluster_counts_with_what_it_owns(plane: Plane) -> None:
    (cluster,) = plane.rows("SELECT id FROM cluster")
    pass_through(plane, "cluster", str(cluster.id), "ready", "suspect", "unreachable")
    assert submitted(plane, workload(pod_set={"replicas": 4})).state == "pending"


def test_a_flavor_that_no_cluster_carries_yet_makes_it_wait(plane: Plane) -> None:
    plane.do("INSERT INTO quota (queue_id, flavor) SELECT id, 'nvidia-gb200-192gb' FROM queue WHERE path = 'research'")
    asked = workload(pod_set={"flavors": [{"name": "nvidia-gb200-192gb"}], "replicas": 100})
    assert submitted(plane, asked).state == "pending"


def test_one_flavor_that_would_do_is_enough(plane: Plane) -> None:
    flavors = [{"name": "nvidia-a100-80gb"}, {"name": H100}]
    assert submitted(plane, workload(pod_set={"flavors": flavors})).state == "pending"


def test_a_queue_without_a_namespace_anywhere_takes_no_work(plane: Plane) -> None:
    plane.do("UPDATE queue SET namespace = ''")
    with pytest.raises(Invalid) as refused:
        submitted(plane, workload())
    assert refused.value.slug == "queue-without-namespace"


def test_cancelling_what_is_placed_orders_the_stop_and_keeps_its_devices_until_it_is_proven(plane: Plane) -> None:
    made = submitted(plane, workload())
    plane.planner().step()
    assert plane.state(made.id) == "reserved"
    for _ in range(2):
        state = run(plane.uow, lambda uow: cancellation.cancel(uow, ADMIN, WorkloadId(made.id)))
        assert state == "cancelling"
    kinds = [row.kind for row in plane.rows("SELECT kind FROM directive ORDER BY gen")]
    assert kinds == ["apply", "tombstone"]
    assert len(plane.rows("SELECT number FROM directive_number")) == 2
    (attempt,) = plane.rows("SELECT state, outcome_wanted FROM attempt")
    assert (attempt.state, attempt.outcome_wanted) == ("stopping", "cancelled")
    (held,) = plane.rows("SELECT sum(amount) AS devices FROM hold WHERE released_at IS NULL")
    assert held.devices == 32


def test_what_has_ended_by_itself_is_not_cancelled(plane: Plane) -> None:
    made = submitted(plane, workload())
    pass_through(plane, "workload", made.id, "pending", "reserved", "succeeded")
    plane.do("UPDATE workload SET finished_at = now()")
    with pytest.raises(Conflict) as refused:
        run(plane.uow, lambda uow: cancellation.cancel(uow, ADMIN, WorkloadId(made.id)))
    assert refused.value.slug == "terminal"
