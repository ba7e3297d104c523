"""Streams of events on real sockets: how many there may be, and how they end."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from palimpsest.api.events import EventStream, Pace
from palimpsest.api.front import guarded
from palimpsest.proxy.archive import Archive
from palimpsest.proxy.session_journal import RuntimeReader
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.storage.journal import EventRow
from palimpsest.storage.migrate import migrate
from palimpsest.storage.store import Store, open_store

from tests.kit.chat import Chat
from tests.kit.proxy import Proxy
from tests.kit.serving import served
from tests.storage.talk import Talk

Json = dict[str, Any]
# Nobody waits for a second where a moment does.
QUICK = Pace(poll_seconds=0.01, keep_alive_seconds=0.0)


@dataclass
class Streaming:
    """Streams of one session, served to whoever connects."""

    store: Store
    session: str
    http: httpx.AsyncClient
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def stream(self, path: str = "/") -> AsyncIterator[tuple[httpx.Response, AsyncIterator[str]]]:
        async with asyncio.timeout(20), self.http.stream("GET", path) as reply:
            yield reply, reply.aiter_lines()

    async def happens(self, ident: str, payload: bytes = b"{}") -> None:
        await self.store.journal.add_events("ns", self.session, [EventRow(ident, "flush", payload, 5.0)])


@asynccontextmanager
async def streaming(folder: Path, most: int, pace: Pace = QUICK) -> AsyncIterator[Streaming]:
    url = f"sqlite:///{folder / 'store.db'}"
    await migrate(url)
    store = await open_store(url, new_id=lambda: uuid.uuid4().hex)
    talk = Talk(store)
    await talk.turns(1)
    ended = asyncio.Event()

    async def still_admitted() -> bool:
        return True

    # None of these events has a state to be computed.
    states = RuntimeReader(
        store, Archive(store, MessageReader(lambda _: lambda _: 1, 1_000)), cast("Any", None)
    )
    parts = SimpleNamespace(store=store, states=states, ended=ended, streams=Counter())

    async def app(scope: Any, receive: Any, send: Any) -> None:
        namespace = scope["path"].strip("/") or "ns"
        caller = SimpleNamespace(parts=parts, namespace=namespace, still_admitted=still_admitted)
        response = EventStream(cast("Any", caller), talk.session, 0, (), most, pace)
        await guarded(response, scope, receive, send)

    async with (
        served(app, lifespan="off") as address,
        httpx.AsyncClient(base_url=address, timeout=20, trust_env=False, verify=False) as http,
    ):
        yield Streaming(store, talk.session, http, ended)
        ended.set()
    await store.close()


async def test_no_more_streams_than_are_allowed(tmp_path: Path) -> None:
    async with streaming(tmp_path, most=1) as served_here, served_here.stream() as (first, lines):
        assert (first.status_code, await anext(lines)) == (200, ": open")
        reply = await served_here.http.get("/")
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "server_busy")
        assert reply.headers["retry-after"] == "1"


async def test_one_namespace_has_half_of_them_at_most(tmp_path: Path) -> None:
    async with (
        streaming(tmp_path, most=4) as served_here,
        served_here.stream() as (first, _),
        served_here.stream() as (second, _),
        served_here.stream() as (third, _),
        served_here.stream("/other") as (others, _),
    ):
        assert [reply.status_code for reply in (first, second, third, others)] == [200, 200, 503, 200]


async def test_a_client_that_hangs_up_makes_room(tmp_path: Path) -> None:
    async with streaming(tmp_path, most=1) as served_here:
        async with served_here.stream() as (_, lines):
            await anext(lines)
        async with asyncio.timeout(20):
            while True:
                async with served_here.stream() as (again, _):
                    if again.status_code == 200:
                        break


async def test_a_server_that_stops_ends_its_streams(tmp_path: Path) -> None:
    async with streaming(tmp_path, most=1) as served_here:
        await served_here.happens("e1")
        async with served_here.stream() as (_, lines):
            while await anext(lines) != "event: flush":
                pass
            served_here.ended.set()
            # It ends as it should, not by a cut connection.
            rest = [line async for line in lines]
            assert rest[0] == "data: {}"


async def test_a_stream_ends_when_it_is_old(tmp_path: Path) -> None:
    old = Pace(poll_seconds=0.01, life_seconds=0.0)
    async with streaming(tmp_path, 1, old) as served_here, served_here.stream() as (_, lines):
        assert [line async for line in lines] == [": open", ""]


async def test_what_is_silent_is_kept_open_by_comments(tmp_path: Path) -> None:
    async with streaming(tmp_path, most=1) as served_here, served_here.stream() as (_, lines):
        said = [await anext(lines) for _ in range(6)]
        assert said == [": open", "", ": still here", "", ": still here", ""]
        await served_here.happens("e1")
        while (await anext(lines)) != "event: flush":
            pass


@pytest.mark.parametrize("payload", [b'{\n "a": 1\n}', b'{\r\n"a": 1}'])
async def test_a_payload_of_several_lines_is_one_event(tmp_path: Path, payload: bytes) -> None:
    async with streaming(tmp_path, most=1) as served_here:
        await served_here.happens("e1", payload)
        async with served_here.stream() as (_, lines):
            while not (await anext(lines)).startswith("event:"):
                pass
            data = []
            while line := await anext(lines):
                data.append(line.removeprefix("data: "))
        assert "\n".join(data) == payload.decode().replace("\r", "")


async def test_more_events_than_one_page_come_at_once(tmp_path: Path) -> None:
    slow = Pace(poll_seconds=1_000.0)
    async with streaming(tmp_path, 1, slow) as served_here:
        events = [EventRow(f"e{number}", "flush", b"{}", 5.0) for number in range(250)]
        await served_here.store.journal.add_events("ns", served_here.session, events)
        async with served_here.stream() as (_, lines):
            ids: list[int] = []
            while len(ids) < len(events):
                line = await anext(lines)
                ids += [int(line.removeprefix("id: "))] if line.startswith("id:") else []
        assert ids == sorted(set(ids))


@asynccontextmanager
async def streaming_of(
    proxy: Proxy, chat: Chat, query: str = "", seen: str = ""
) -> AsyncIterator[httpx.Response]:
    """The stream of the running program."""
    headers = {**chat.headers, "accept": "text/event-stream"} | ({"last-event-id": seen} if seen else {})
    path = f"/api/sessions/{chat.session}/events{query}"
    async with asyncio.timeout(30), proxy.http.stream("GET", path, headers=headers) as reply:
        yield reply


async def told(lines: AsyncIterator[str], count: int) -> list[Json]:
    """So many events of a stream, read as a browser reads them."""
    events: list[Json] = []
    fields: Json = {}
    while len(events) < count:
        line = await anext(lines)
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            events.append({**fields, "data": json.loads(fields["data"])})
            fields = {}
    return events


def as_told(event: Json) -> Json:
    return {"id": str(event["seq"]), "event": event["type"], "data": event["payload"]}


@pytest.mark.spec("A23")
@pytest.mark.asyncio(loop_scope="module")
async def test_a_stream_tells_what_was_and_goes_on_with_what_comes(proxy: Proxy, chat: Chat) -> None:
    await chat.talks()
    record = await chat.compacts()
    before = (await chat.asks("GET", "/events"))["events"]
    async with streaming_of(proxy, chat) as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = reply.aiter_lines()
        assert await anext(lines) == ": open"
        undone = asyncio.ensure_future(chat.asks("POST", f"/compactions/{record['id']}/undo"))
        events = await told(lines, len(before) + 1)
        await undone
    after = (await chat.asks("GET", "/events"))["events"]
    assert events == [as_told(event) for event in after]
    assert events[-1]["event"] == "compaction_undone"
    first, rest = after[0], after[1:]
    for query, seen in (("", str(first["seq"])), (f"?after={first['seq']}", "")):
        async with streaming_of(proxy, chat, query, seen) as reply:
            assert await told(reply.aiter_lines(), len(rest)) == [as_told(event) for event in rest]
    async with streaming_of(proxy, chat, "?types=context_summarized") as reply:
        assert (await told(reply.aiter_lines(), 1))[0]["event"] == "context_summarized"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_place_that_is_no_number_and_a_stranger_get_no_stream(proxy: Proxy, chat: Chat) -> None:
    for seen in ("x", "-1", "1.5", "9" * 40):
        async with streaming_of(proxy, chat, seen=seen) as reply:
            await reply.aread()
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, "Last-Event-ID")
    other = proxy.chat(key="stranger")
    await other.says("mine")
    other.replies = chat.replies
    async with streaming_of(proxy, other) as reply:
        assert reply.status_code == 404
