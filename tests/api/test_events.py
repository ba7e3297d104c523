"""What happened in a session, as a list and as a stream that goes on (A23, A25)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.kit.chat import Chat
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
# What an entry of the timeline must hold, and of which JSON type (A23, E11).
SCHEMA = {
    "title": str,
    "summary": str,
    "removedCount": int,
    "tokensBefore": int,
    "tokensAfter": int,
    "tokensFreed": int,
    "proactive": bool,
    "compactionId": str,
    "trigger": str,
    "reason": str,
    "watermarkFrom": str,
    "watermarkTo": str,
    "turnsSummarised": int,
    "passes": int,
    "layersApplied": list,
    "summarizerRunId": str,
}


@pytest_asyncio.fixture(loop_scope="module")
async def long_chat(proxy: Proxy) -> Chat:
    talk = proxy.chat(system="Be exact.", session="long")
    for turn in range(8):
        await talk.says(f"Question {turn}: " + f"detail {turn} of the matter. " * 60)
    return talk


async def compact(proxy: Proxy, chat: Chat) -> Json:
    reply = await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
    assert reply.json()["compacted"], reply.text
    record: Json = reply.json()["compaction"]
    return record


async def listed(proxy: Proxy, chat: Chat, **params: Any) -> Json:
    path = f"/api/sessions/{chat.session}/events"
    reply = await proxy.http.get(path, headers=chat.headers, params=params)
    assert reply.status_code == 200, reply.text
    value: Json = reply.json()
    return value


@pytest.mark.spec("A23", "A25")
async def test_a_compaction_is_an_event_with_the_numbers_of_its_record(proxy: Proxy, long_chat: Chat) -> None:
    record = await compact(proxy, long_chat)
    (event,) = (await listed(proxy, long_chat, types="context_summarized"))["events"]
    payload = event["payload"]
    assert {key: type(payload[key]) for key in SCHEMA} == SCHEMA
    assert payload["title"] == "Session context compacted"
    assert payload["summary"] == record["summary"]
    assert (payload["compactionId"], payload["proactive"]) == (record["id"], True)
    assert payload["tokensBefore"] == record["tokens_before"]
    assert payload["tokensAfter"] == record["tokens_after"]
    assert payload["tokensFreed"] == record["tokens_freed"]
    assert payload["removedCount"] == record["messages_folded"]
    assert (event["type"], set(event)) == (
        "context_summarized",
        {"seq", "id", "type", "created_at", "payload"},
    )


async def test_events_come_in_order_and_in_pages(proxy: Proxy, long_chat: Chat) -> None:
    assert (await listed(proxy, long_chat))["events"] == []
    await compact(proxy, long_chat)
    whole = await listed(proxy, long_chat)
    seqs = [event["seq"] for event in whole["events"]]
    assert seqs == sorted(set(seqs))
    assert (len(seqs) > 2, whole["next"]) == (True, None)
    pages, after = [], 0
    while after is not None:
        page = await listed(proxy, long_chat, after=after, limit=2)
        pages += page["events"]
        after = page["next"]
    assert pages == whole["events"]
    types = [event["type"] for event in whole["events"]]
    some = await listed(proxy, long_chat, types=f"{types[0]}, {types[-1]}")
    assert {event["type"] for event in some["events"]} == {types[0], types[-1]}


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("types=nothing", "types"),
        ("after=-1", "after"),
        ("limit=0", "limit"),
        ("after=9" + "9" * 30, "after"),
    ],
)
async def test_what_cannot_be_asked_for_is_named(proxy: Proxy, chat: Chat, query: str, param: str) -> None:
    reply = await proxy.http.get(f"/api/sessions/{chat.session}/events?{query}", headers=chat.headers)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


@asynccontextmanager
async def streaming(
    proxy: Proxy, chat: Chat, query: str = "", seen: str = ""
) -> AsyncIterator[httpx.Response]:
    headers = {**chat.headers, "accept": "text/event-stream"} | ({"last-event-id": seen} if seen else {})
    path = f"/api/sessions/{chat.session}/events{query}"
    async with asyncio.timeout(30), proxy.http.stream("GET", path, headers=headers) as reply:
        yield reply


async def told(reply: httpx.Response, count: int) -> list[Json]:
    """So many events of a stream, read as a browser reads them."""
    events: list[Json] = []
    fields: Json = {}
    async for line in reply.aiter_lines():
        if not line:
            if fields:
                events.append({**fields, "data": json.loads(fields["data"])})
            fields = {}
            if len(events) == count:
                break
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
    return events


def as_told(event: Json) -> Json:
    return {"id": str(event["seq"]), "event": event["type"], "data": event["payload"]}


@pytest.mark.spec("A23")
async def test_a_stream_tells_what_was_and_goes_on_with_what_comes(proxy: Proxy, long_chat: Chat) -> None:
    record = await compact(proxy, long_chat)
    before = (await listed(proxy, long_chat))["events"]
    async with streaming(proxy, long_chat) as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = reply.aiter_lines()
        assert await anext(lines) == ": open"
        undone = asyncio.ensure_future(
            proxy.http.post(
                f"/api/sessions/{long_chat.session}/compactions/{record['id']}/undo",
                headers=long_chat.headers,
            )
        )
        events = await told_from(lines, len(before) + 1)
        assert (await undone).status_code == 200
    after = (await listed(proxy, long_chat))["events"]
    assert events == [as_told(event) for event in after]
    assert events[-1]["event"] == "compaction_undone"


async def told_from(lines: AsyncIterator[str], count: int) -> list[Json]:
    class Rest:
        def aiter_lines(self) -> AsyncIterator[str]:
            return lines

    return await told(Rest(), count)  # type: ignore[arg-type]


async def test_a_stream_goes_on_behind_what_was_seen(proxy: Proxy, long_chat: Chat) -> None:
    await compact(proxy, long_chat)
    events = (await listed(proxy, long_chat))["events"]
    first, rest = events[0], events[1:]
    async with streaming(proxy, long_chat, seen=str(first["seq"])) as reply:
        assert await told(reply, len(rest)) == [as_told(event) for event in rest]
    async with streaming(proxy, long_chat, f"?after={first['seq']}") as reply:
        assert await told(reply, len(rest)) == [as_told(event) for event in rest]
    async with streaming(proxy, long_chat, "?types=context_summarized") as reply:
        assert [event["event"] for event in await told(reply, 1)] == ["context_summarized"]


@pytest.mark.parametrize("seen", ["x", "-1", "1.5", "9" * 40])
async def test_a_place_that_is_no_number_is_refused(proxy: Proxy, chat: Chat, seen: str) -> None:
    async with streaming(proxy, chat, seen=seen) as reply:
        await reply.aread()
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "Last-Event-ID")


async def test_a_stranger_gets_no_stream(proxy: Proxy, chat: Chat) -> None:
    other = proxy.chat(key="stranger")
    await other.says("mine")
    other.replies = chat.replies
    async with streaming(proxy, other) as reply:
        assert reply.status_code == 404
