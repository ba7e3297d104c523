"""What is remembered between requests is bounded by what it takes, whatever callers send."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from palimpsest.proxy.model_facts import ModelTokens
from palimpsest.proxy.sessions import reader as reading
from palimpsest.proxy.sessions.reader import MessageReader

from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.serving import shared_tokenizer
from tests.kit.words import prose

pytestmark = pytest.mark.timeout(120)
ROOM = 1_000_000
# What is measured is more than messages: the table that finds them, and what the allocator rounds up.
MOST = 1.5 * ROOM


def raw(text: str) -> bytes:
    return json.dumps({"role": "user", "content": text}, ensure_ascii=False).encode()


def reader_of(room: int) -> MessageReader:
    tokens = ModelTokens(shared_tokenizer().counter_for)
    return MessageReader(lambda model: tokens.counter_of(model).count_message, room)


async def taken(texts: list[str]) -> int:
    """The bytes that a reader holds on to after these messages."""
    reader = reader_of(ROOM)
    await reader.read([raw("warm")], "m")
    tracemalloc.start()
    try:
        for start in range(0, len(texts), 50):
            await reader.read([raw(text) for text in texts[start : start + 50]], "m")
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


TEXTS = {
    "short": [f"Line {at}" for at in range(8_000)],
    "long": [f"{at} " + "word " * 600 for at in range(1_500)],
    # One such character makes the whole text take four bytes for each.
    "wide": [f"{at} " + "word " * 600 + "\U0001f600" for at in range(1_500)],
}


@pytest.mark.parametrize("kind", TEXTS)
async def test_parsed_messages_take_no_more_than_their_room(kind: str) -> None:
    assert await taken(TEXTS[kind]) < MOST


async def test_the_control_weighs_only_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_weight", lambda message: len(message.raw))
    assert await taken(TEXTS["short"]) > 2 * MOST


async def test_the_newest_messages_are_remembered_and_a_giant_drives_none_out() -> None:
    reader = reader_of(ROOM)
    old, new, giant = raw("old"), raw("new"), raw("x" * ROOM)
    await reader.read([old], "m")
    await reader.read([raw(f"{at}") for at in range(1_000)], "m")
    await reader.read([new], "m")
    await reader.read([giant], "m")
    assert reader.unaccepted("m", [old, new, giant]) == [old, giant]


def history(words: int) -> list[dict[str, Any]]:
    """A long history that nobody has answered here, the same each time."""
    roles = ("user", "assistant")
    said = [{"role": roles[at % 2], "content": f"{at} {prose(at, words)}"} for at in range(41)]
    return [{"role": "system", "content": "You keep notes."}, *said]


@pytest.mark.spec("H11")
async def test_the_same_history_again_is_not_summarised_again(tmp_path: Path) -> None:
    model, asked = ModelServer(window=4_000), list[int]()
    async with proxied(model, tmp_path) as proxy:
        chats = [proxy.chat() for _ in range(3)]
        for chat in chats:
            assert (await chat.posts(history(150))).status_code == 200
            asked.append(len(model.summaries))
        assert asked[0] > 0
        assert asked == [asked[0]] * 3
        assert len({chat.session for chat in chats}) == 3
        made = [(await chat.compactions())[0] for chat in chats]
        assert len({each["id"] for each in made}) == 3
        assert len({each["summary"] for each in made}) == 1
        # Another caller's is another one (P5).
        await proxy.chat(key="key-2").posts(history(150))
        assert len(model.summaries) > asked[0]


@pytest.mark.spec("H11")
async def test_an_erased_history_is_summarised_again(tmp_path: Path) -> None:
    model = ModelServer(window=4_000)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat()
        await chat.posts(history(150))
        asked = len(model.summaries)
        erased = await proxy.http.delete(f"/api/sessions/{chat.session}", headers=chat.headers)
        assert erased.status_code == 200
        await proxy.chat().posts(history(150))
        assert len(model.summaries) == 2 * asked
