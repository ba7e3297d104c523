"""A summarizer of one's own at an address: what it is sent, what its answers do, how it may fail (E07)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.judge import are_sound
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.words import prose
from tests.upstream.scripted import Script, Scripted, Wire, replies, stalls_after

Json = dict[str, Any]
WINDOW = 8_000
KEY = "sk-of-the-operator-0123456789"
pytestmark = pytest.mark.timeout(120)


def settings(url: str, **more: Any) -> Json:
    """The style with a worker at `url`; summaries are asked for in the turn that needs them."""
    return {
        "policy.name": "worker",
        "policy.tail_messages": 4,
        "summarizer.worker_url": url,
        "summarizer.worker_key": KEY,
        "compaction.background": False,
        **more,
    }


async def told(chat: Chat, turns: int) -> None:
    for turn in range(len(chat.replies), len(chat.replies) + turns):
        await chat.says(f"Entry {turn}. {prose(turn, 300)}")


class Numbering:
    """Summaries with a number each; `tasks` are the questions."""

    def __init__(self) -> None:
        self.tasks: list[Json] = []

    async def __call__(self, wire: Wire) -> None:
        self.tasks.append(json.loads(wire.request.body))
        summary = (
            f"Summary number {len(self.tasks)}: the harbour's log was kept, entry by entry, and is whole."
        )
        await replies(json.dumps({"summary": summary}).encode())(wire)


@pytest.mark.spec("E07", "E05")
async def test_it_gets_the_summary_so_far_and_what_was_said_since_and_never_a_callers_key(
    tmp_path: Path,
) -> None:
    model, worker = ModelServer(window=WINDOW), Numbering()
    async with Scripted() as server:
        server.always(worker)
        async with proxied(model, tmp_path, settings(f"{server.url}/sum?up=1")) as proxy:
            chat = proxy.chat(system="You keep the log.", key="key-of-the-caller")
            await told(chat, 60)
            are_sound(model.prompts, chat.sent, WINDOW)
            assert await chat.transcript() == chat.said
            compactions = await chat.compactions()
        assert len(compactions) >= 2
        assert {compaction["author"] for compaction in compactions} == {"model"}
        assert "Summary number 1:" in compactions[0]["summary"]
        # No model was asked, and none was offered the worker as a tool.
        assert model.summaries == []
        assert not any("tools" in prompt.body for prompt in model.prompts)
        first, second = worker.tasks[:2]
        assert set(first) == {"previous_summary", "conversation", "max_tokens", "model"}
        assert first["previous_summary"] == ""
        assert "Entry 1." in first["conversation"]
        assert second["previous_summary"].startswith("Summary number 1:")
        assert "Entry 1." not in second["conversation"]
        assert first["model"] == "test-model"
        assert first["max_tokens"] > 0
        for request in server.requests:
            assert (request.method, request.target) == ("POST", "/sum?up=1")
            assert request.header("authorization") == f"Bearer {KEY}"
            assert b"key-of-the-caller" not in request.head + request.body


def _answer(**fields: Any) -> Script:
    return replies(json.dumps(fields).encode())


_GOOD = "The harbour's log was kept, entry by entry, and zanzibar is in it."
FAILURES: dict[str, Script] = {
    "refused": replies(b'{"error": "zanzibar"}', 500),
    "key": replies(b'{"error": "zanzibar"}', 401),
    "no json": replies(b"zanzibar"),
    "no summary": _answer(text=_GOOD),
    "no text": _answer(summary=["zanzibar"]),
    "empty": _answer(summary=""),
    "error text": _answer(summary="Error: the zanzibar could not summarize this conversation, try later."),
    "too large": _answer(summary=_GOOD + "x" * 2_000_000),
    "silent": stalls_after(b""),
}


@pytest.mark.spec("E07", "E08", "F09", "P8")
@pytest.mark.parametrize("failure", sorted(FAILURES))
async def test_a_failing_one_costs_neither_an_answer_nor_history(failure: str, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with Scripted() as server:
        server.always(FAILURES[failure])
        overrides = settings(server.url, **{"compaction.deadline_seconds": 0.5})
        async with proxied(model, tmp_path, overrides) as proxy:
            chat = proxy.chat(system="You keep the log.")
            while not server.requests:
                await told(chat, 1)
            await told(chat, 1)
            are_sound(model.prompts, chat.sent, WINDOW)
            assert {row["author"] for row in await chat.compactions()} <= {"deterministic", "none"}
            assert await chat.compactions()
            assert model.summaries == []
            assert not any("zanzibar" in prompt.text for prompt in model.prompts)
            assert await chat.transcript() == chat.said


@pytest.mark.spec("E07")
async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    model, elsewhere = ModelServer(window=WINDOW), Numbering()
    async with Scripted() as other, Scripted() as server:
        other.always(elsewhere)
        server.always(replies(b"", 307, [(b"Location", f"{other.url}/sum".encode())]))
        async with proxied(model, tmp_path, settings(server.url)) as proxy:
            chat = proxy.chat()
            while not server.requests:
                await told(chat, 1)
            assert {row["author"] for row in await chat.compactions()} == {"deterministic"}
        assert other.requests == []


@pytest.mark.spec("E07")
async def test_other_styles_ask_their_model(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with Scripted() as server:
        overrides = settings(server.url, **{"policy.name": "handoff", "policy.tail_messages": 0})
        async with proxied(model, tmp_path, overrides) as proxy:
            chat = proxy.chat()
            while not await _compactions(chat):
                await told(chat, 1)
        assert server.requests == []
        assert model.summaries


async def _compactions(chat: Chat) -> list[Json]:
    return await chat.compactions() if chat.replies else []
