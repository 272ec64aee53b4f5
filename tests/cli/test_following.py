"""`run`, `watch` and `events` against a real plane: they end as the workload does, and Ctrl-C ends only them."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path

import pytest

from controlplane.cli.client import Client
from controlplane.cli.config import Context
from controlplane.cli.following import events
from controlplane.embedded.home import free_port
from tests.api.bodies import IMAGE, QUEUES
from tests.cli.running import Muster
from tests.services.planes import Plane
from tests.support.api import serving, settings_for
from tests.support.databases import ROOT, Database
from tests.support.waiting import eventually

RUN = (
    f"run --name llama -n 2 --devices 8 -q research/nlp --image {IMAGE} --flavor nvidia-h100-80gb -- torchrun train.py"
)


@contextmanager
def begun(muster: Muster, line: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """`muster <line>` as a process that goes on, and the file that it writes."""
    said = muster.home / "said"
    command = [sys.executable, "-m", "controlplane.cli.main", *line.split()]
    with said.open("w") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env=muster.environment({}), stdout=out, stderr=out, text=True, start_new_session=True
        )
    try:
        yield process, said
    finally:
        process.kill()
        process.wait(10)


def test_run_follows_from_waiting_to_the_end_and_ends_with_1_where_it_is_cancelled(
    muster: Muster, database: Database
) -> None:
    muster.fine("apply -f -", stdin=QUEUES)
    with begun(muster, RUN) as (process, said):
        eventually(lambda: "llama waits in research/nlp." in said.read_text(), within=30)
        plane = Plane(database)
        plane.cluster("eu-west", nodes=2, namespaces=["nlp"])
        plane.wake()
        plane.planner().step()
        plane.close()
        eventually(lambda: "llama, attempt 1 in eu-west (eu-west-0, eu-west-1): its nodes" in said.read_text(), 30)
        muster.fine("cancel llama")
        eventually(lambda: "its pods are being stopped" in said.read_text() or process.poll() is not None, 30)
    assert muster("describe llama -o json").json["state"] in {"cancelling", "cancelled"}


def test_run_ends_with_1_where_the_workload_did_not_succeed(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=QUEUES)
    with begun(muster, RUN) as (process, said):
        eventually(lambda: "llama waits" in said.read_text(), within=30)
        muster.fine("cancel llama")
        assert process.wait(30) == 1
        assert re.fullmatch(r"\d\d:\d\d:\d\d  llama cancelled.*", said.read_text().splitlines()[-1])


def test_ctrl_c_leaves_the_workload_alone_and_says_how_to_go_on(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=QUEUES)
    with begun(muster, RUN) as (process, said):
        eventually(lambda: "llama waits" in said.read_text(), within=30)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert "llama goes on; `muster watch llama` follows it, `muster cancel llama` ends it" in said.read_text()
    assert muster("describe llama -o json").json["state"] == "pending"


def test_watch_gives_up_in_time_and_says_so(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=QUEUES)
    muster.fine(RUN.replace("run ", "run --detach "))
    ran = muster("watch llama --timeout 1")
    assert (ran.code, "llama is pending, and not over after 1 s" in ran.err) == (1, True)
    every = muster("watch --timeout 1 -o json")
    assert (every.code, json.loads(every.out.splitlines()[0])["name"]) == (0, "llama")
    assert muster("watch --timeout 1 -o name").out == "llama\n"


def test_events_tell_what_happened_and_what_happens(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=QUEUES)
    with begun(muster, "events --kind workload --limit 2 -o json") as (process, said):
        # It listens from now on, and when that is nobody can see: so it is given something until it has heard enough.
        numbers = iter(range(1_000))

        def has_heard() -> bool:
            muster.fine(RUN.replace("run --name llama", f"run --detach --name llama-{next(numbers)}"))
            return process.poll() is not None

        eventually(has_heard, within=30, pause=0.2)
        first, second = map(json.loads, said.read_text().splitlines())
    assert process.returncode == 0
    assert first["position"] < second["position"]
    told = muster.fine(f"events --after {first['position']} --limit 1 --kind workload -o json")
    assert json.loads(told)["position"] == second["position"], "it begins where it is told to"
    named = muster.fine("events --after 0 --kind queue --limit 2 -o name").splitlines()
    assert all(named), "an event that is no workload's is called after what it is about"
    assert muster("events --kind nonsense").code == 2


@pytest.mark.parametrize("line", ["watch llama", "watch", "events --kind workload --after 0"])
def test_a_plane_that_starts_again_is_waited_for_with_a_word(
    muster: Muster, database: Database, valkey: str, tmp_path: Path, line: str
) -> None:
    settings = settings_for(database, valkey, tmp_path / "keys", api_port=free_port())
    muster.fine("apply -f -", stdin=QUEUES)
    muster.fine(RUN.replace("run ", "run --detach "))
    with ExitStack() as stack:
        with serving(settings) as first:
            here = Muster(tmp_path, {"MUSTER_URL": first.url, "MUSTER_TOKEN": muster.told["MUSTER_TOKEN"]})
            process, said = stack.enter_context(begun(here, line))
            eventually(lambda: "llama" in said.read_text(), within=30)
        eventually(lambda: f"muster: {first.url} does not answer; it is waited for" in said.read_text(), within=30)
        with serving(settings):
            muster.fine("cancel llama")
            eventually(lambda: re.search("llama.*cancelled", said.read_text()) is not None, within=30)
            assert line != "watch llama" or process.wait(30) == 1
            process.kill()
        assert said.read_text().count("does not answer") == 1


def test_events_of_a_plane_that_never_answered_end_with_5(lonely: Muster) -> None:
    ran = lonely("events", MUSTER_URL=f"http://127.0.0.1:{free_port()}")
    assert (ran.code, ran.out, "does not answer" in ran.err) == (5, "", True)


class _Cut(BaseHTTPRequestHandler):
    """Answers each request with one message, then breaks the connection."""

    seen: list[str]

    def do_GET(self) -> None:
        last = self.headers.get("Last-Event-ID", "")
        self.seen.append(last)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        number = int(last or 0) + 1
        text = f': hello\nid: {number}\n\nid: {number}\ndata: {{\ndata: "position": {number}}}\n\n'.encode()
        self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def cutting() -> Iterator[tuple[str, list[str]]]:
    """A plane whose streams break, and what each request said came last."""
    _Cut.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Cut)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", _Cut.seen
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_a_broken_stream_is_taken_up_where_it_broke(cutting: tuple[str, list[str]]) -> None:
    url, seen = cutting
    client = Client(Context("here", url))
    heard = [event["position"] for event in islice(events(client, {"after": 0}), 3)]
    client.close()
    assert heard == [1, 2, 3]
    assert seen == ["", "1", "2"]
