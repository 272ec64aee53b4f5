"""The informer, and the view that rests on it, against an API server that breaks its word, over HTTP.

The server here speaks just enough of list and watch to end them badly; a good one is in `test_on_kubernetes`.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from kubernetes_asyncio import client as library

from agents.cluster import Delete, Verdict
from agents.facts import Json
from agents.kube.client import ANSWER_SECONDS, KubeClient
from agents.kube.cluster import KubeCluster
from agents.kube.watch import Informer

PATH = "/api/v1/pods"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def pod(name: str, version: int, kind: str = "") -> Json:
    raw: Json = {"metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": str(version)}}
    return {"type": kind, "object": raw} if kind else raw


def bookmark(version: int) -> Json:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


def trouble(code: int) -> Json:
    return {"type": "ERROR", "object": {"code": code, "reason": "Trouble", "message": "in the stream"}}


@dataclass
class Server:
    """Answers each list and each watch by its script; the last word of a script is repeated.

    A watch: events, then `None` to break the connection; it ends well without, and stays open after "stay".
    """

    lists: list[tuple[int, list[Json]]]
    watches: list[list[Json | str | None]]
    asked: list[str] = field(default_factory=list)  # "list", or the version that a watch began from
    moments: list[float] = field(default_factory=list)
    may_list: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_list.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.moments.append(time.monotonic())
        if request.query.get("watch") != "true":
            self.asked.append("list")
            await self.may_list.wait()
            version, items = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
            return web.json_response({"metadata": {"resourceVersion": str(version)}, "items": items})
        self.asked.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        for event in self.watches.pop(0) if len(self.watches) > 1 else self.watches[0]:
            if event == "stay":
                await asyncio.sleep(30)
            elif event is None:
                assert request.transport is not None
                request.transport.abort()
            else:
                await response.write(json.dumps(event).encode() + b"\n")
        return response


@dataclass
class Seen:
    names: dict[str, str] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)

    def put(self, raw: Json) -> None:
        self.names[raw["metadata"]["name"]] = raw["metadata"]["resourceVersion"]
        self.history.append("+" + raw["metadata"]["name"])

    def drop(self, raw: Json) -> None:
        del self.names[raw["metadata"]["name"]]
        self.history.append("-" + raw["metadata"]["name"])


@asynccontextmanager
async def serving(handler: Handler, answer_seconds: float = ANSWER_SECONDS) -> AsyncIterator[KubeClient]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    configuration = library.Configuration()
    configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    client = KubeClient(library.ApiClient(configuration), answer_seconds)
    try:
        yield client
    finally:
        await client.close()
        await runner.cleanup()


@asynccontextmanager
async def informing(server: Server) -> AsyncIterator[tuple[Informer, Seen]]:
    async with serving(server.answer) as client:
        seen = Seen()
        informer = Informer(client, PATH, seen.put, seen.drop)
        task = asyncio.create_task(informer.run())
        try:
            yield informer, seen
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(check: Callable[[], bool], within: float = 10.0) -> None:
    deadline = time.monotonic() + within
    while True:
        if check():
            return
        assert time.monotonic() < deadline, f"not within {within} s"
        await asyncio.sleep(0.01)


async def test_a_broken_watch_goes_on_from_the_newest_version_seen() -> None:
    """Or what was deleted meanwhile would be back until the replay has come to its end."""
    events: list[Json | str | None] = [pod("b", 11, "ADDED"), pod("a", 12, "DELETED"), None]
    server = Server([(10, [pod("a", 9)])], [events, [pod("c", 13, "ADDED"), "stay"]])
    async with informing(server) as (_, seen):
        await until(lambda: "c" in seen.names)
    assert server.asked == ["list", "10", "12"]
    assert seen.history == ["+a", "+b", "-a", "+c"]


async def test_a_version_that_is_too_old_is_never_asked_twice() -> None:
    server = Server([(10, []), (40, [pod("a", 30)])], [[trouble(410)], ["stay"]])
    async with informing(server) as (_, seen):
        await until(lambda: len(server.asked) == 4)
    assert server.asked == ["list", "10", "list", "40"]
    assert seen.names == {"a": "30"}


async def test_an_error_in_the_stream_lists_anew_whatever_it_says() -> None:
    server = Server([(10, [])], [[pod("a", 11, "ADDED"), trouble(500)], ["stay"]])
    async with informing(server) as (_, seen):
        await until(lambda: len(server.asked) == 4)
        assert server.asked == ["list", "10", "list", "10"]
        assert seen.history == ["+a", "-a"], "the new list did not name it"


async def test_a_restored_server_counts_from_below_and_is_believed() -> None:
    lists = [(900, [pod("a", 800), pod("b", 850)]), (500, [pod("a", 400)])]
    server = Server(lists, [[bookmark(910), bookmark(505)], [pod("a", 510, "MODIFIED"), "stay"]])
    async with informing(server) as (_, seen):
        await until(lambda: seen.names == {"a": "510"})
    assert server.asked == ["list", "900", "list", "500"]
    assert seen.history == ["+a", "+b", "+a", "-b", "+a"]


async def test_what_we_wrote_while_a_list_was_read_is_not_taken_back_by_it() -> None:
    server = Server([(10, [pod("a", 9)])], [["stay"]])
    server.may_list.clear()
    async with informing(server) as (informer, seen):
        await until(lambda: bool(server.asked))
        informer.learn(pod("a", 15))
        informer.learn(pod("b", 16))
        server.may_list.set()
        await until(lambda: len(server.asked) == 2)
        assert seen.names == {"a": "15", "b": "16"}


async def test_a_watch_that_ends_at_once_is_asked_for_ever_more_rarely() -> None:
    server = Server([(10, [])], [[]])
    async with informing(server):
        await until(lambda: len(server.moments) >= 6)
    assert server.asked[:3] == ["list", "10", "10"], "its version is good, though"
    # The least pauses are an eighth, a quarter, half a second and a whole one.
    assert server.moments[5] - server.moments[1] > 1.5


class Hanging:
    """An empty cluster whose API server may take requests and not answer them, while its watches stay open."""

    hangs = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.sleep(30)
            return response
        if self.hangs:
            await asyncio.sleep(30)
        return web.json_response({"metadata": {"uid": "system", "resourceVersion": "1"}, "items": []})


async def test_a_write_that_nobody_answers_says_at_once_that_the_cluster_is_not_reachable() -> None:
    server = Hanging()
    write = Delete("Job", "team", "train", "uid-train")
    async with serving(server.answer, answer_seconds=1.0) as client:
        cluster = KubeCluster(client, None, lambda _: True)
        try:
            await cluster.open()
            assert reaches(cluster)
            server.hangs = True
            assert (await cluster.carry_out(write)).verdict is Verdict.LATER
            assert not reaches(cluster)
            server.hangs = False
            assert (await cluster.carry_out(write)).verdict is Verdict.DONE
            assert reaches(cluster)
        finally:
            await cluster.close()


def reaches(cluster: KubeCluster) -> bool:
    cluster.look_after()
    return cluster.view.is_reachable
