"""/api/v1/events over real HTTP: in order, nothing lost or told twice, nobody else's, and no longer than the token."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import controlplane
from controlplane.contract.rest.events import EVENT_KINDS
from controlplane.core.facts.ledger import AuditEntry
from controlplane.services import recovery
from tests.api.bodies import QUEUES, YAML, workload
from tests.support.api import Api, serving, settings_for
from tests.support.databases import Database

WRITERS, ROUNDS = 8, 12
EVENTS = "/api/v1/events"


class Reader:
    """An open stream, read message by message."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()
        self.last = ""

    def message(self) -> tuple[str, str]:
        """The next message that has data: its kind ("" for an event) and its data."""
        kind, data = "", ""
        for line in self._lines:
            field, _, value = line.partition(": ")
            if field == "id":
                self.last = value
            elif field == "event":
                kind = value
            elif field == "data":
                data = value
            elif not line and data:
                return kind, data
        raise AssertionError("the stream ended without a word")

    def event(self) -> dict[str, Any]:
        kind, data = self.message()
        assert not kind, data
        told: dict[str, Any] = json.loads(data)
        assert str(told["position"]) == self.last
        return told


@contextmanager
def reading(client: httpx.Client, last: str | None = None, **asked: object) -> Iterator[Reader]:
    headers = {} if last is None else {"Last-Event-ID": last}
    params = {name: str(value) for name, value in asked.items()}
    with client.stream("GET", EVENTS, params=params, headers=headers) as response:
        if response.status_code != 200:
            raise AssertionError((response.status_code, response.read()))
        assert response.headers["Content-Type"].startswith("text/event-stream")
        yield Reader(response)


def test_a_workloads_life_is_told_from_its_beginning_and_goes_on_live(tree: httpx.Client) -> None:
    made = tree.post("/api/v1/workloads", json=workload()).json()
    tree.post("/api/v1/workloads", json=workload("other", pod_set={"replicas": 1}))
    with reading(tree, workload="llama", after=0) as reader:
        first = reader.event()
        assert (first["action"], first["workload"], first["name"]) == ("workload.submit", made["id"], "llama")
        assert (first["queue"], first["stateTo"], first["actor"]) == ("research/nlp", "pending", "person:admin")
        assert tree.post("/api/v1/workloads/llama/cancel").status_code == 200
        told = [reader.event() for _ in range(2)]
    assert [(each["stateFrom"], each["stateTo"]) for each in told] == [
        ("pending", "cancelling"), ("cancelling", "cancelled"),
    ]  # fmt: skip


def test_without_a_place_it_begins_now(tree: httpx.Client) -> None:
    tree.post("/api/v1/workloads", json=workload("before", pod_set={"replicas": 1}))
    with reading(tree, kind="workload") as reader:
        tree.post("/api/v1/workloads", json=workload("behind", pod_set={"replicas": 1}))
        assert reader.event()["name"] == "behind"


def test_after_cuts_nothing_is_lost_or_told_twice_while_eight_write(api: Api, tree: httpx.Client) -> None:
    made = tree.post("/api/v1/workloads", json=workload()).json()["id"]
    place = threading.Barrier(WRITERS)

    def write(writer: int) -> None:
        """Rows get their numbers in one order, and their transactions end in another."""
        for turn in range(ROUNDS):
            with api.container.uow_factory() as uow:
                entry = AuditEntry(f"writer:{writer}", "test", "workload", made, facts={"n": [writer, turn]})
                uow.audit.record_many([entry])
                uow.audit.write()  # type: ignore[attr-defined]  # the store's own: before the commit, for once
                place.wait(30)

    wanted = {(writer, turn) for writer in range(WRITERS) for turn in range(ROUNDS)}
    with reading(tree, workload=made) as reader:
        last = reader.last
    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    told: list[dict[str, Any]] = []
    while len(told) < len(wanted):
        with reading(tree, last or "0", workload=made, kind="workload") as reader:
            for _ in range(min(7, len(wanted) - len(told))):
                event = reader.event()
                if event["action"] == "test":
                    told.append(event)
            last = reader.last  # and the connection is cut
    for thread in threads:
        thread.join(30)
    assert [event["position"] for event in told] == sorted({event["position"] for event in told})
    assert {tuple(event["facts"]["n"]) for event in told} == wanted
    for writer in range(WRITERS):
        mine = [event["facts"]["n"][1] for event in told if event["facts"]["n"][0] == writer]
        assert mine == list(range(ROUNDS)), "what one writer did first is told first"


def test_what_is_anothers_never_comes(api: Api, tree: httpx.Client) -> None:
    stranger = api.client(api.token("sven", "member", "research/vision"))
    tree.post("/api/v1/workloads", json=workload("secret"))
    with reading(stranger, after=0) as reader:
        assert reader.event()["object"] == "research/vision"  # its own queue, made
        tree.post("/api/v1/workloads/secret/cancel")
        tree.post("/api/v1/workloads", json=workload("mine", queue="research/vision"))
        event = reader.event()
        assert (event["kind"], event["name"]) == ("workload", "mine")
    for asked in ({"workload": "secret"}, {"queue": "research/nlp"}):
        assert stranger.get(EVENTS, params=asked).status_code == 404, asked


def test_what_belongs_to_the_plane_is_for_those_who_read_the_audit_log(api: Api, tree: httpx.Client) -> None:
    with reading(tree, kind="principal", after=0) as reader:
        assert reader.event()["action"] == "token.create"
    everywhere = api.client(api.token("mia", "member"))
    with reading(everywhere, after=0) as reader:
        assert reader.event()["kind"] == "queue"


def test_each_kind_that_the_log_has_can_be_asked_for(api: Api, tree: httpx.Client) -> None:
    with api.container.uow_factory() as uow:
        recovery.begin(uow, "operator")
    with reading(tree, kind="plane", after=0) as reader:
        assert reader.event()["action"] == "plane.recovery-begun"
    sources = (Path(controlplane.__file__).parent / "services").glob("*.py")
    written = {kind for file in sources for kind in re.findall(r'object_kind="([a-z]+)"', file.read_text())}
    assert "plane" in written
    assert written <= EVENT_KINDS


def test_a_revoked_token_stops_hearing(api: Api, tree: httpx.Client) -> None:
    reader_of = api.client(api.token("ada", "member", "research/nlp"))
    number = reader_of.get("/api/v1/whoami").json()["token"]
    with reading(reader_of) as reader:
        assert tree.delete(f"/api/v1/tokens/{number}").status_code == 204
        kind, words = reader.message()
    assert kind == "end"
    assert "revoked" in words
    assert reader_of.get(EVENTS).status_code == 401


def test_a_role_that_is_taken_away_takes_its_events_with_it(api: Api, tree: httpx.Client) -> None:
    reader_of = api.client(api.token("ada", "member", "research/nlp"))
    also = tree.post("/api/v1/bindings", json={"principal": "ada", "role": "member", "queue": "research/vision"}).json()
    with reading(reader_of, kind="workload") as reader:
        tree.post("/api/v1/workloads", json=workload("seen", queue="research/vision"))
        assert reader.event()["name"] == "seen"
        assert tree.delete(f"/api/v1/bindings/{also['id']}").status_code == 204
        with reading(tree, kind="principal") as admin:  # the log has come past it
            tree.post("/api/v1/bindings", json={"principal": "eve", "role": "auditor"})
            admin.event()
        tree.post("/api/v1/workloads", json=workload("hidden", queue="research/vision"))
        tree.post("/api/v1/workloads", json=workload("mine"))
        assert reader.event()["name"] == "mine"


def test_two_processes_tell_one_log_and_take_each_others_cursors(
    database: Database, valkey: str, tmp_path: Path
) -> None:
    settings = settings_for(database, valkey, tmp_path)
    with serving(settings) as one, serving(settings) as two:
        here, there = one.client(), two.client()
        assert here.post("/api/v1/apply", content=QUEUES, headers=YAML).status_code == 200
        with reading(here, kind="workload") as first, reading(there, kind="workload") as second:
            for number, client in enumerate((here, there, here)):
                body = workload(f"run-{number}", pod_set={"replicas": 1})
                assert client.post("/api/v1/workloads", json=body).status_code == 201
            told = [[reader.event() for _ in range(3)] for reader in (first, second)]
        assert told[0] == told[1]
        assert [event["name"] for event in told[0]] == ["run-0", "run-1", "run-2"]
        cursor = here.get("/api/v1/workloads", params={"limit": 1}).json()["next"]
        page = there.get("/api/v1/workloads", params={"limit": 1, "cursor": cursor})
        assert [each["name"] for each in page.json()["items"]] == ["run-1"]


def test_no_more_streams_than_there_are_places(database: Database, valkey: str, tmp_path: Path) -> None:
    settings = settings_for(database, valkey, tmp_path, streams_per_principal=2, streams_max=3)
    with serving(settings) as api:
        admin, auditor = api.client(), api.client(api.token("ines", "auditor"))
        with reading(admin), reading(admin):
            refused = admin.get(EVENTS)
            assert (refused.status_code, refused.json()["type"]) == (429, "/problems/rate-limited")
            assert refused.headers["Retry-After"]
            with reading(auditor):
                assert "3 streams are open" in auditor.get(EVENTS).json()["detail"]
        assert "muster_event_streams" in admin.get("/metrics").text


def test_a_question_that_means_nothing_is_refused_before_the_stream_begins(tree: httpx.Client) -> None:
    for asked, slug in (
        ({"kind": "secret"}, "invalid-filter"),
        ({"after": "9999999"}, "invalid-cursor"),
        ({"after": "-1"}, "invalid-parameter"),
        ({"colour": "red"}, "invalid-parameter"),
    ):
        answer = tree.get(EVENTS, params=asked)
        assert (answer.status_code, answer.json()["type"]) == (400, f"/problems/{slug}"), asked
    for last in ("", "x", "-1", "1" * 30, "²"):
        answer = tree.get(EVENTS, headers={b"Last-Event-ID": last.encode()})
        assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-cursor"), last
    assert tree.get(EVENTS, params={"queue": "nowhere"}).status_code == 404
    assert tree.get(EVENTS, params={"workload": "nothing"}).status_code == 404


def test_a_stream_ends_with_its_plane_and_leaves_no_word_in_the_log(
    database: Database, valkey: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        with serving(settings_for(database, valkey, tmp_path / "keys")) as api:
            headers = {"Authorization": f"Bearer {api.admin_token}"}
            opened = stack.enter_context(httpx.stream("GET", f"{api.url}{EVENTS}", headers=headers, timeout=20))
            lines = opened.iter_lines()
            assert next(lines).startswith("retry")
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)
    assert "running task" not in caplog.text, "nothing had to be cancelled"
    assert "Exception" not in caplog.text
