"""What the command does with answers that a busy plane gives: it edits what it saw, and asks again where that helps."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.cli.running import Muster

Answer = tuple[int, dict[str, str], object]


class Scripted(BaseHTTPRequestHandler):
    """A plane that says what a test wrote down, one line after the other, and keeps what it was asked."""

    answers: list[Answer]
    asked: list[tuple[str, str, str]]

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append((self.command, self.path, self.headers.get("If-Match", "")))
        status, headers, body = self.answers.pop(0)
        raw = json.dumps(body).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(raw)), "Connection": "close", **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_PATCH = do_DELETE = do_POST = _answer  # noqa: N815 - as http.server calls them

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def scripted() -> Iterator[str]:
    Scripted.answers, Scripted.asked = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(10)


def problem(status: int, slug: str, detail: str, **headers: str) -> Answer:
    body = {"type": f"/problems/{slug}", "title": "No", "status": status, "detail": detail}
    return status, {"Content-Type": "application/problem+json", **headers}, body


def test_a_priority_is_wanted_whatever_somebody_else_changed(lonely: Muster, scripted: str) -> None:
    seen: Answer = (200, {"ETag": '"4"'}, {"name": "llama", "priority": 500})
    later: Answer = (200, {"ETag": '"5"'}, {"name": "llama", "priority": 700})
    changed: Answer = (200, {"ETag": '"6"'}, {"name": "llama", "priority": 600})
    Scripted.answers = [seen, problem(412, "precondition-failed", "llama has changed"), later, changed]
    ran = lonely("priority llama 600", MUSTER_URL=scripted)
    assert ran.out == "llama has priority 600 (it had 700)\n"
    assert [(method, tag) for method, _, tag in Scripted.asked] == [
        ("GET", ""), ("PATCH", '"4"'), ("GET", ""), ("PATCH", '"5"'),
    ]  # fmt: skip


def test_what_is_deleted_is_what_was_seen(lonely: Muster, scripted: str) -> None:
    Scripted.answers = [(200, {"ETag": '"4"'}, {}), problem(412, "precondition-failed", "lab has changed")]
    ran = lonely("queue delete lab", MUSTER_URL=scripted)
    assert (ran.code, ran.out) == (4, "")
    assert ran.err == (
        "muster: lab has changed [precondition-failed]\n"
        "somebody changed it since you looked; look again, then repeat the command\n"
    )
    assert Scripted.asked[-1] == ("DELETE", "/api/v1/queues/lab", '"4"')


def test_what_passes_by_itself_is_asked_again_and_no_more_than_that(lonely: Muster, scripted: str) -> None:
    busy, often = problem(503, "unavailable", "busy"), problem(429, "too-often", "too often", **{"Retry-After": "0"})
    Scripted.answers = [busy, often, (200, {}, {"principal": "ada", "roles": []})]
    assert lonely("whoami", MUSTER_URL=scripted).out == "ada: no role\n"
    Scripted.answers = [often] * 3
    ran = lonely("whoami", MUSTER_URL=scripted)
    assert (ran.code, "wait a moment" in ran.err) == (4, True)
    Scripted.answers = [busy]
    assert lonely("cluster accept home", MUSTER_URL=scripted).code == 5, "whether it was done is not known"


def test_a_sentence_is_said_once(lonely: Muster, scripted: str) -> None:
    status, headers, body = problem(422, "unknown-field", "there is no field x")
    assert isinstance(body, dict)
    body["errors"] = [{"pointer": "/spec/x", "detail": "there is no field x", "slug": "unknown-field"}]
    Scripted.answers = [(status, headers, body)]
    ran = lonely("whoami", MUSTER_URL=scripted)
    assert (ran.code, ran.err) == (2, "muster: there is no field x (/spec/x) [unknown-field]\n")


def test_an_answer_that_is_none_of_a_plane_is_no_traceback(lonely: Muster, scripted: str) -> None:
    Scripted.answers = [(200, {"Content-Type": "text/html"}, "hello"), (502, {}, "gateway")]
    for code in (1, 5):  # a gateway that says 502 has no plane behind it
        ran = lonely("whoami", MUSTER_URL=scripted)
        assert (ran.code, "not as a plane does" in ran.err) == (code, True)
