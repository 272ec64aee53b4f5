"""A Pool's knobs on the real path: every one that a document sets is stored, told, and what its planner obeys."""

from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.contract.rest.common import Json
from controlplane.core.policy import Policy
from controlplane.db.snapshot_reader import SqlSnapshotReader
from controlplane.services import applying, tokens
from controlplane.services.applying import Sent
from controlplane.services.authz import Caller
from controlplane.services.documents import document_from
from controlplane.services.forms import form_of_stored
from controlplane.services.ports.unit_of_work import run
from tests.contract.test_policy_page import default_of, knobs, other_than, said
from tests.services.planes import Plane
from tests.support.databases import Database


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    made = Plane(database)
    run(made.uow, tokens.first_admin)
    yield made
    made.close()


def apply(plane: Plane, spec: dict[str, object]) -> None:
    document: dict[str, Any] = {
        "apiVersion": "muster.dev/v1", "kind": "Policy", "metadata": {"name": "default"}, "spec": spec,
    }  # fmt: skip
    with plane.uow() as uow:
        admin = uow.tenancy.principal("person", tokens.FIRST_ADMIN)
    assert admin is not None
    run(plane.uow, lambda uow: applying.apply(uow, Caller(admin), [Sent(*document_from(document))], str))


def shown(plane: Plane) -> Json:
    with plane.uow() as uow:
        (stored,) = uow.documents.stored("Policy", "default")
    return form_of_stored(stored).document()["spec"]


def obeyed(plane: Plane) -> Policy:
    return SqlSnapshotReader(plane.engine).read(plane.pool, None).policy


def test_every_knob_that_is_set_is_shown_and_obeyed_and_each_change_is_a_version(plane: Plane) -> None:
    before = obeyed(plane)
    wanted = {name: other_than(said()[name], default_of(knob)) for name, knob in knobs().items()}
    apply(plane, wanted)
    assert shown(plane) == wanted
    now = obeyed(plane)
    assert {name: getattr(now, knob.name) for name, knob in knobs().items()} == wanted
    assert now.version == before.version + 1

    apply(plane, {"backoffSeconds": 77})
    assert shown(plane) == {"backoffSeconds": 77}
    assert obeyed(plane) == Policy(version=before.version + 2, backoff_seconds=77)
