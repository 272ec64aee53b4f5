"""A process's memory of the quota tree may let something in; a refusal is always the truth."""

import uuid
from datetime import timedelta

import pytest

from controlplane.contract.rest.workloads import WorkloadDocument, WorkloadView
from controlplane.core.facts.queries import Scope
from controlplane.core.facts.tenancy import Binding, Principal, Role
from controlplane.core.ids import WorkloadId
from controlplane.services.authz import Caller
from controlplane.services.documents import document_from
from controlplane.services.errors import Invalid
from controlplane.services.ports.unit_of_work import run
from controlplane.services.recent import RecentWorld
from controlplane.services.submission import Submission, submit
from tests.api.bodies import workload
from tests.services.planes import Plane

ADMIN = Caller(Principal(1, "person", "ann", (Binding(Role.PLATFORM_ADMIN),)))
LONG = timedelta(hours=1)


def _submit(plane: Plane, recent: RecentWorld, name: str) -> WorkloadView:
    document, manifest = document_from(workload(name, {"replicas": 2}, queue="lab"))
    assert isinstance(document, WorkloadDocument)
    sent = Submission(document, manifest)
    return run(plane.uow, lambda uow: submit(uow, ADMIN, sent, lambda: str(uuid.uuid4()), recent)).view


def test_quota_that_was_raised_a_moment_ago_is_seen_by_whoever_would_be_refused(plane: Plane) -> None:
    plane.queue("lab", nominal=8)
    recent = RecentWorld(LONG)
    with pytest.raises(Invalid, match="can never use more"):
        _submit(plane, recent, "first")
    plane.do("UPDATE quota SET nominal = 16")
    assert _submit(plane, recent, "second").state == "pending"


def test_a_queue_that_is_younger_than_the_memory_is_judged_by_the_truth(plane: Plane) -> None:
    plane.queue("old", nominal=8)
    recent = RecentWorld(LONG)
    with plane.uow() as uow:
        recent.get(uow)
    plane.queue("lab", nominal=8)
    with pytest.raises(Invalid, match="can never use more"):
        _submit(plane, recent, "first")


def test_what_a_submitter_is_answered_is_what_a_reader_sees(plane: Plane) -> None:
    plane.queue("lab", nominal=64)
    answered = _submit(plane, RecentWorld(), "first")
    with plane.uow() as uow:
        read = uow.queries.workload(Scope(None), WorkloadId(answered.id))
    assert read == answered
