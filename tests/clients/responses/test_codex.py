"""Codex CLI beyond the common conversation: a long turn, its own compactions, those it asks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients.drivers.responses.codex import Codex
from tests.clients.drivers.talk import Talk
from tests.clients.recorder import Recorder
from tests.kit.proxy import Front, fronting
from tests.kit.responses import Asked, Outputs, ResponsesServer, call_item, text_item, thought_item
from tests.kit.serving import served
from tests.kit.words import prose

Json = dict[str, Any]
KEY = "key-1"
GOAL = "Read every part of the log and say where the pump failed."
# Its instructions and tools take 8,200 tokens.
SMALL, LARGE = 12_000, 1_000_000
# It compacts at nine tenths of it.
LOW_LIMIT = 12_000
STEPS, LOW_STEPS = 40, 14
_CHECKPOINT = "CONTEXT CHECKPOINT COMPACTION"
_NOTE = "The pump of berth 42 was checked up to part"


@dataclass
class Worker(ResponsesServer):
    """A model that reads one part of the log after the other, and writes a note when asked for a summary."""

    keeps: bool = False
    steps: int = STEPS
    done: int = 0

    def __post_init__(self) -> None:
        self.plays = self._works

    def _works(self, asked: Asked) -> Outputs:
        if _CHECKPOINT in json.dumps(asked.items[-1]):
            return [text_item(f"{_NOTE} {self.done}.", f"msg_note_{self.done}")]
        self.done += 1
        if self.done > self.steps:
            return [text_item("In part 7.", "msg_last")]
        command = f"sed -n '1,40p' part-{self.done}.txt"
        call = call_item(f"call_{self.done}", "exec_command", {"cmd": command})
        return [thought_item(f"rs_{self.done}"), call]


@dataclass
class Place:
    """A proxy before a model, and what came in and out of it."""

    model: Worker
    recorder: Recorder
    front: Front

    async def reads(self, path: str) -> Json:
        reply = await self.front.http.get(f"/api/{path}", headers={"authorization": f"Bearer {KEY}"})
        reply.raise_for_status()
        fields: Json = reply.json()
        return fields

    async def session(self) -> str:
        """The only one that there is."""
        (session,) = (await self.reads("sessions"))["sessions"]
        return str(session["id"])


@asynccontextmanager
async def proxied(model: Worker, folder: Path, overrides: Json | None = None) -> AsyncIterator[Place]:
    recorder = Recorder(None)

    def around(app: Any) -> Recorder:
        recorder.app = app
        return recorder

    async with (
        served(model, lifespan="off") as upstream,
        fronting(f"{upstream}/v1", folder, overrides, around=around) as front,
    ):
        yield Place(model, recorder, front)


async def works(url: str, folder: Path, limit: int | None = None, provider: str = "Palimpsest") -> list[Json]:
    """What one `codex exec` told of the whole task."""
    codex = codex_in(folder, url, limit, provider)
    return await asyncio.to_thread(codex.runs, GOAL)


def codex_in(folder: Path, url: str, limit: int | None, provider: str = "Palimpsest") -> Codex:
    """Codex in a folder where the log lies."""
    talk = Talk("work", f"{url}/v1", KEY, "test-model", "", [GOAL], {}, str(folder / "work"), limit)
    Path(talk.folder).mkdir(parents=True)
    for part in range(1, STEPS + 1):
        (Path(talk.folder) / f"part-{part}.txt").write_text(f"Part {part}.\n{prose(part, 250)}\n")
    return Codex(talk, provider)


def last_words(events: list[Json]) -> str:
    said = [event["item"] for event in events if event["type"] == "item.completed"]
    return str([item["text"] for item in said if item["type"] == "agent_message"][-1])


@pytest.mark.spec("S12", "P9", "P4")
async def test_codex_long_turn(tmp_path: Path) -> None:
    """Codex: in a turn of forty commands every prompt is valid and fits, and every item is in the archive"""
    async with proxied(Worker(window=SMALL), tmp_path) as place:
        assert last_words(await works(place.front.url, tmp_path)) == "In part 7."
        sent = [json.loads(asked.body)["input"] for asked in place.recorder.chats(KEY)]
        session = await place.session()
        compactions = (await place.reads(f"sessions/{session}/compactions"))["compactions"]
        rows = (await place.reads(f"sessions/{session}/messages?limit=1000"))["messages"]
    shown = place.model.asked
    assert len(sent) == len(shown) == STEPS + 1
    assert [asked.faults for asked in shown if asked.faults] == []
    assert max(asked.tokens for asked in shown) <= SMALL
    rules = [item for item in sent[0] if item["role"] == "developer"]
    assert all(asked.items[: len(rules)] == rules for asked in shown)
    (goal,) = [item for item in sent[0] if GOAL in json.dumps(item)]
    assert all(goal in asked.items for asked in shown)
    assert all(
        asked.items[-1]["call_id"] == items[-1]["call_id"]
        for asked, items in zip(shown[1:], sent[1:], strict=True)
    )
    assert len(compactions) > 2
    assert not any(_CHECKPOINT in asked.text for asked in shown)
    stored = [item for row in rows for item in _items(row["message"])]
    assert [_bare(item) for item in stored[:-1]] == [_bare(item) for item in sent[-1]]
    assert stored[-1]["content"][0]["text"] == "In part 7."


@pytest.mark.spec("S12", "F38")
async def test_codex_own_compactions(tmp_path: Path) -> None:
    """Codex: with a low limit it compacts by itself, as often as without the proxy, and its note is kept"""
    direct = Worker(window=LARGE, steps=LOW_STEPS)
    async with served(direct, lifespan="off") as url:
        # Prompts tell the folder, and Codex counts their tokens: two names of equal length.
        await works(url, tmp_path / "work-1", LOW_LIMIT)
    async with proxied(Worker(window=LARGE, steps=LOW_STEPS), tmp_path) as place:
        assert last_words(await works(place.front.url, tmp_path / "work-2", LOW_LIMIT)) == "In part 7."
        bodies = [asked.body for asked in place.recorder.chats(KEY)]
        await place.session()
    shown = place.model.asked
    assert [asked.raw for asked in shown] == bodies
    notes = [_CHECKPOINT in json.dumps(asked.items[-1]) for asked in shown]
    assert notes == [_CHECKPOINT in json.dumps(asked.items[-1]) for asked in direct.asked]
    assert sum(notes) > 1
    first = notes.index(True)
    assert all(_NOTE in asked.text for asked in shown[first + 1 :])


@pytest.mark.spec("S12", "F38")
async def test_codex_note_folded_again(tmp_path: Path) -> None:
    """Codex: what it summarized by itself stays word for word in the prompt when the proxy compacts, too"""
    async with proxied(Worker(window=LARGE, steps=LOW_STEPS - 2), tmp_path) as place:
        codex = codex_in(tmp_path, place.front.url, LOW_LIMIT)
        await asyncio.to_thread(codex.runs, GOAL)
        key = {"authorization": f"Bearer {KEY}"}
        session = await place.session()
        branches = (await place.reads(f"sessions/{session}"))["branches"]
        # Its own compaction goes on in the same conversation.
        (live,) = [branch["branch"] for branch in branches if branch["kind"] == "main"]
        path = f"/api/sessions/{session}/compact"
        made = await place.front.http.post(path, json={"branch": live}, headers=key)
        assert made.json().get("compacted") is True, made.text
        before = len(place.model.asked)
        place.model.steps += 2
        assert last_words(await asyncio.to_thread(codex.runs, "Go on.")) == "In part 7."
        assert await place.session() == session
    later = place.model.asked[before:]
    sent = json.loads(place.recorder.chats(KEY)[before].body)["input"]
    (note,) = [item for item in sent if _NOTE in json.dumps(item) and item["type"] == "message"]
    assert len(later[0].items) < len(sent)
    assert [asked.faults for asked in later if asked.faults] == []
    assert all("<palimpsest_summary>" in asked.text and note in asked.items for asked in later)


@pytest.mark.spec("S12")
async def test_codex_asks_for_compactions(tmp_path: Path) -> None:
    """Codex: named OpenAI it asks the server for compactions; where that has none, the proxy makes them"""
    auto = {"upstream.compaction_requests": "auto"}
    async with proxied(Worker(window=LARGE, steps=LOW_STEPS), tmp_path, auto) as place:
        events = await works(place.front.url, tmp_path, LOW_LIMIT, "OpenAI")
        assert last_words(events) == "In part 7."
        await place.session()
    sent = [json.loads(asked.body)["input"] for asked in place.recorder.chats(KEY)]
    triggers = [items[-1]["type"] == "compaction_trigger" for items in sent]
    assert sum(triggers) > 1
    # The first goes upstream, which refuses it.
    assert [asked.items[-1]["type"] for asked in place.model.asked].count("compaction_trigger") == 1
    answered = [asked for asked in place.model.asked if asked.items[-1]["type"] != "compaction_trigger"]
    assert [asked.faults for asked in answered if asked.faults] == []
    first = triggers.index(True)
    assert len(answered) == len(sent) - sum(triggers)
    later = [asked for asked in answered if "<palimpsest_summary>" in asked.text]
    assert len(later) == len(answered) - first
    assert all("part-1.txt" in asked.text for asked in later)


def _items(message: Any) -> list[Json]:
    return message if isinstance(message, list) else [message]


def _bare(item: Json) -> Json:
    """An item without what Codex adds to an answer's."""
    return {key: value for key, value in item.items() if value is not None and key != "status"}
