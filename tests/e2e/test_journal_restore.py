"""What the state of an imported session is taken up from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat, Json
from tests.kit.journal import read
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied

pytestmark = pytest.mark.timeout(60)
KEY = {"authorization": "Bearer key-1"}
TOTALS = {"inputTokens": 1_000, "outputTokens": 200}
SAID: list[Json] = [
    {"role": "user", "content": "What is it?"},
    {"role": "assistant", "content": "A harbour."},
]


async def state(proxy: Proxy, chat: Chat, marker: str) -> Json:
    """The state in the checkpoint that completing the session gives."""
    reply = await proxy.http.post(
        f"/api/sessions/{chat.session}/complete", json={"marker": marker}, headers=chat.headers
    )
    assert reply.status_code == 200, reply.text
    made = reply.json()["checkpoint"]
    assert made, marker
    newest = await read(proxy.http, chat, f"sessions/{chat.session}/checkpoints/{made}")
    assert newest["payload"]["schema"] == "session_checkpoint_v2"
    runtime: Json = newest["payload"]["runtime"]
    assert runtime["schema"] == "session_runtime_v2"
    return runtime


def v2(**sections: Any) -> Json:
    """A state of another archive, as its snapshot would hold it."""
    empty: Json = {name: {} for name in ("tooling", "files", "loop", "recovery", "queues", "worker")}
    empty |= {"verification": {}, "usage": {"inputTokens": 7, "requests": 1}}
    transcript = {"head": "ab" * 32, "conversationHistory": SAID}
    fields: Json = {"schema": "session_runtime_v2", "version": 2, "transcript": transcript}
    return fields | empty | sections


# What we have none of ourselves.
STATED = {"queues": {"pending": {"summary": 2}}, "verification": {"audits": 3, "faults": ["short"]}}
LEGACY = {"conversationHistory": SAID}
EVENTS: dict[str, Json] = {
    "checkpoint_v2": {"type": "checkpoint", "payload": v2(**STATED, loop={"turns": 4, "compactionCount": 3})},
    "snapshot_v2": {"type": "conversation_snapshot", "payload": v2(recovery={"overflowAttempts": 2})},
    "checkpoint_legacy": {"type": "checkpoint", "payload": LEGACY | {"usageTotals": TOTALS}},
    "snapshot_legacy": {"type": "conversation_snapshot", "payload": LEGACY},
    "events_derived": {"type": "user_message", "payload": {"content": "What is it?"}},
}
ORDER = list(EVENTS)
USAGE: Json = {"type": "usage", "payload": {"prompt_tokens": 11, "completion_tokens": 5}}


@pytest.mark.spec("A40", "A41")
@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("damaged", [False, True])
async def test_an_import_takes_the_best_form_there_is_and_is_v2_after_the_next_turn(
    tmp_path: Path, place: int, *, damaged: bool
) -> None:
    form = ORDER[place]
    chosen = [dict(EVENTS[each]) for each in ORDER[place:]]
    if damaged:
        # Those before it are there and cannot be read.
        broken = [EVENTS[each] | {"payload": {"schema": "session_runtime_v2"}} for each in ORDER[:place]]
        chosen = [*broken, *chosen]
    document = {"name": "old", "events": [*chosen, USAGE]}
    async with proxied(ModelServer(), tmp_path) as proxy:
        reply = await proxy.http.post("/api/sessions/import", json=document, headers=KEY)
        assert reply.status_code == 201, reply.text
        assert (reply.json()["form"], reply.json()["is_upgraded"]) == (form, place >= 2)
        chat = proxy.chat(session="old")
        chat.said = [*SAID] if place < 4 else [SAID[0]]
        if place < 4:
            # What later events tell is part of it, unless the history ends with it already.
            chat.said += [{"role": "user", "content": "What is it?"}]
        told = [event["type"] for event in await named_events(proxy)]
        assert told[-2:] == ["session_restored", "conversation_snapshot"]
        await chat.says("We decided to use port 8443. Where is it?")
        runtime = await state(proxy, chat, "We released parser 2.")
    assert runtime["transcript"]["messageCount"] == len(chat.said)
    mine = {"checkpoint_v2": 7, "snapshot_v2": 7, "checkpoint_legacy": 1_000}.get(form, 11)
    assert runtime["usage"]["requests"] == 2
    assert mine < runtime["usage"]["inputTokens"] < mine + 500
    assert runtime["loop"]["compactionCount"] == (3 if form == "checkpoint_v2" else 0)
    assert runtime["loop"]["turns"] == {0: 5, 1: 3, 2: 3, 3: 3, 4: 2}[place]
    stated = {name: runtime[name] for name in ("queues", "worker", "verification")}
    assert stated == STATED | {"worker": {}} if form == "checkpoint_v2" else not any(stated.values())
    assert runtime["recovery"]["overflowAttempts"] == (2 if form == "snapshot_v2" else 0)


async def named_events(proxy: Proxy) -> list[Json]:
    """The events of the imported session."""
    reply = await proxy.http.get("/api/sessions/old/events?limit=1000", headers=KEY)
    told: list[Json] = reply.json()["events"]
    return told
