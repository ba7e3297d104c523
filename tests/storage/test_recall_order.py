"""In which order a search shows what it found, over HTTP and on both databases (C14)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.journal import AT_THE_END
from tests.kit.model import SUMMARY_MODEL, ModelServer, Says, Seen
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

pytestmark = pytest.mark.timeout(90)

Json = dict[str, Any]
# The same words in every one of them, so that only what they are tells them apart.
WORDS = f"{prose(3, 120)} The zeppelin landed. {prose(4, 120)}"
LARGE_TOKENS = 1_000
SETTINGS = AT_THE_END | {"recall.large_payload_tokens": LARGE_TOKENS, "summarizer.model": SUMMARY_MODEL}
SETTINGS |= {"policy.name": "worker", "policy.tail_messages": 3}


def filler(number: int) -> list[Json]:
    """What keeps two of them from standing beside each other, which counts too."""
    return [
        {"role": "user", "content": f"We talked of the weather on walk {number} {place}."} for place in "abc"
    ]


def apart(*told: list[Json]) -> list[Json]:
    """One list of messages, each group far from the next."""
    return [message for number, group in enumerate(told) for message in (*filler(number), *group)] + filler(
        99
    )


def tool(name: str, content: str) -> list[Json]:
    call = {"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": name, "content": content},
    ]


def summed(_: Seen) -> Says:
    """A summary of the same words, as many as are left beside those that introduce it."""
    return Says({"role": "assistant", "content": f"The zeppelin landed on a kumquat. {prose(3, 100)}"})


async def searched(proxy: Proxy, chat: Chat, query: str, **only: str) -> list[Json]:
    path, params = f"/api/sessions/{chat.session}/search", {"q": query, "limit": "50", **only}
    reply = await proxy.http.get(path, headers=chat.headers, params=params)
    assert reply.status_code == 200, reply.text
    hits: list[Json] = reply.json()["results"]
    return hits


async def more_often_goes_before_newer(proxy: Proxy, chat: Chat) -> None:
    first, second = [hit for hit in await searched(proxy, chat, "gondola") if "gondola" in hit["text"]][:2]
    assert first["depth"] < second["depth"]
    assert "A gondola is no gondola" in first["text"]


@pytest.mark.spec("C14")
async def test_what_it_is_decides_then_the_words_then_the_time(url: str, tmp_path: Path) -> None:
    model = ModelServer(window=60_000)
    model.summary = summed
    async with proxied(model, tmp_path, SETTINGS, url=url) as proxy:
        chat = proxy.chat()
        # What is to come last is said first, so that time alone would turn the order round, or keep none.
        messages = apart(
            tool("c1", WORDS),
            [{"role": "user", "content": WORDS + " And then." * 400}],
            [{"role": "user", "content": f"Execute this step: {WORDS}"}],
            [{"role": "function", "name": "look", "content": WORDS}],
            [{"role": "assistant", "content": WORDS}],
            [{"role": "user", "content": WORDS}],
            [{"role": "user", "content": WORDS.replace("The zeppelin landed", "A gondola is no gondola")}],
            [{"role": "user", "content": WORDS.replace("The zeppelin landed", "My gondola is some boat")}],
        )
        await chat.sends(*messages)
        reply = await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
        assert reply.json()["compacted"], reply.text
        hits = [hit for hit in await searched(proxy, chat, "zeppelin") if "zeppelin" in hit["text"]]
        assert [(hit["kind"], hit["role"]) for hit in hits] == [
            # Of equal ones the newest.
            ("message", "user"),
            ("message", "assistant"),
            ("message", "function"),
            # An execution wrapper.
            ("message", "user"),
            ("payload", "user"),
            ("message", "tool"),
        ]
        (wrapper,) = [
            row for row in await chat.rows() if str(row["message"]["content"]).startswith("Execute")
        ]
        # What is folded is found itself: a summary only where it is asked for, or nothing else is found.
        for only, query in (({"kind": "summary"}, "zeppelin"), ({}, "kumquat")):
            (summary,) = await searched(proxy, chat, query, **only)
            assert summary["kind"] == "summary"
        assert hits[3]["id"] == wrapper["id"]
        await more_often_goes_before_newer(proxy, chat)
