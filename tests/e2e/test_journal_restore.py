"""What the state of a session is taken up from when its own checkpoints are damaged or were never there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat, Json
from tests.kit.journal import AT_THE_END, carries_out, compacted, events, read
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied

pytestmark = pytest.mark.timeout(60)
KEY = {"authorization": "Bearer key-1"}
TOTALS = {"inputTokens": 1_000, "outputTokens": 200}
SAID: list[Json] = [
    {"role": "user", "content": "What is it?"},
    {"role": "assistant", "content": "A harbour."},
]
OURS = ("checkpoint", "conversation_snapshot")


def damages(folder: Path, *types: str) -> None:
    """No checkpoint can be read any more, nor an event of these types."""
    carries_out(folder, "UPDATE checkpoints SET payload = x'7b'")
    for kind in types:
        carries_out(folder, f"UPDATE events SET payload = x'7b' WHERE type = '{kind}'")


def writes(folder: Path, table: str, kind: str, payload: Json) -> None:
    """A row as an older version, or somebody's script, may have left it."""
    place = "SELECT namespace, id, arrivals FROM sessions"
    raw = json.dumps(payload).encode().hex()
    values = {
        "checkpoints": "(session, id, namespace, arrival, kind, span_hash, schema, payload, created_at) "
        f"SELECT id, 'old', namespace, arrivals, '{kind}', x'00', 'old', x'{raw}', 1.0",
        "events": "(session, id, namespace, seq, type, payload, created_at) "
        f"SELECT id, 'old {kind}', namespace, arrivals, '{kind}', x'{raw}', 1.0",
    }[table]
    carries_out(folder, "UPDATE sessions SET arrivals = arrivals + 1")
    carries_out(folder, f"INSERT INTO {table} {values} FROM ({place})")


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


async def restorings(proxy: Proxy, chat: Chat) -> list[tuple[str, bool]]:
    """The forms that the session was restored from."""
    told = await events(proxy.http, chat, ["session_restored"])
    return [(event["payload"]["form"], event["payload"]["isUpgraded"]) for event in told]


class Damaged:
    """A session that goes on, its checkpoints being damaged meanwhile. `forms`: what it was restored from."""

    def __init__(self, proxy: Proxy, chat: Chat, whole: Json) -> None:
        self.proxy, self.chat, self.whole = proxy, chat, whole
        self.forms: list[tuple[str, bool]] = []

    async def goes_on(self, form: str, *, upgraded: bool) -> Json:
        """The state after another turn; what is told of compactions and messages is as it was."""
        await self.chat.says(f"Going on from {form}: we decided to keep port {9_000 + len(self.forms)}.")
        found = await state(self.proxy, self.chat, f"We released parser of {form}.")
        self.forms.append((form, upgraded))
        assert await restorings(self.proxy, self.chat) == self.forms
        assert found["loop"]["compactionCount"] == self.whole["loop"]["compactionCount"] == 1
        assert found["loop"]["exchanges"] == len(self.chat.replies)
        assert found["verification"] == self.whole["verification"]
        return found


@pytest.mark.spec("A40", "A41")
async def test_a_damaged_state_falls_to_the_next_form_and_is_v2_again(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(session="notes")
        await compacted(chat)
        whole = await state(proxy, chat, "We released parser 1.")
        assert await restorings(proxy, chat) == []
        session = Damaged(proxy, chat, whole)
        damages(tmp_path)
        second = await session.goes_on("snapshot_v2", upgraded=False)
        # The snapshot is of the compaction: what came since was in the checkpoints that are lost.
        assert 0 < second["usage"]["requests"] <= whole["usage"]["requests"]
        assert second["files"] == whole["files"]
        damages(tmp_path, *OURS)
        writes(tmp_path, "checkpoints", "periodic", {"conversationHistory": SAID, "usageTotals": TOTALS})
        third = await session.goes_on("checkpoint_legacy", upgraded=True)
        assert third["usage"]["requests"] == 2
        assert third["usage"]["inputTokens"] > 1_000
        damages(tmp_path, *OURS)
        writes(tmp_path, "events", "conversation_snapshot", {"conversationHistory": SAID})
        writes(tmp_path, "events", "usage", TOTALS)
        fourth = await session.goes_on("snapshot_legacy", upgraded=True)
        assert fourth["usage"]["requests"] == 2
        damages(tmp_path, *OURS)
        last = await session.goes_on("events_derived", upgraded=True)
        assert last["usage"]["requests"] == 2
        # And with nothing damaged it goes on from its own.
        await chat.says("One more decision: we decided to use port 9999.")
        after = await state(proxy, chat, "We released parser 9.")
        assert after["usage"]["requests"] == last["usage"]["requests"] + 1
        assert await restorings(proxy, chat) == session.forms
        assert await chat.transcript() == chat.said


def v2(**sections: Any) -> Json:
    """A state of another archive, as its snapshot would hold it."""
    empty: Json = {name: {} for name in ("tooling", "files", "loop", "recovery", "queues", "worker")}
    empty |= {"verification": {}, "usage": {"inputTokens": 7, "requests": 1}}
    transcript = {"head": "ab" * 32, "conversationHistory": SAID}
    fields: Json = {"schema": "session_runtime_v2", "version": 2, "transcript": transcript}
    return fields | empty | sections


LEGACY = {"conversationHistory": SAID}
EVENTS: dict[str, Json] = {
    "checkpoint_v2": {"type": "checkpoint", "payload": v2(loop={"turns": 4, "compactionCount": 3})},
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
        assert told[-2:] == ["conversation_snapshot", "session_restored"]
        await chat.says("We decided to use port 8443. Where is it?")
        runtime = await state(proxy, chat, "We released parser 2.")
    assert runtime["transcript"]["messageCount"] == len(chat.said)
    mine = {"checkpoint_v2": 7, "snapshot_v2": 7, "checkpoint_legacy": 1_000}.get(form, 11)
    assert runtime["usage"]["requests"] == 2
    assert mine < runtime["usage"]["inputTokens"] < mine + 500
    assert runtime["loop"]["compactionCount"] == (3 if form == "checkpoint_v2" else 0)
    assert runtime["loop"]["turns"] == {0: 5, 1: 3, 2: 3, 3: 3, 4: 2}[place]
    assert runtime["recovery"]["overflowAttempts"] == (2 if form == "snapshot_v2" else 0)


async def named_events(proxy: Proxy) -> list[Json]:
    """The events of the imported session."""
    reply = await proxy.http.get("/api/sessions/old/events?limit=1000", headers=KEY)
    told: list[Json] = reply.json()["events"]
    return told
