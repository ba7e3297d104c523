"""A real small model behind the proxy: 4,096 tokens of context, and conversations far beyond it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from palimpsest.core.summary.record import PREAMBLE

from tests.kit.chat import Chat
from tests.kit.proxy import fronting
from tests.realmodel.conversation import ANSWER_TOKENS, MODEL, PATIENCE_SECONDS, Turns, client_of, usage_of
from tests.realmodel.serve_model import CONTEXT_TOKENS
from tests.realmodel.server import ModelMissing, model_server
from tests.realmodel.talk import FACTS, letter

pytestmark = pytest.mark.realmodel
Json = dict[str, Any]
# Words of the server's own errors, of which none may come to stand in a view.
ERROR_WORDS = ("exceed_context_size", "available context size", "invalid_request_error", "Loading model")


class _Row(msgspec.Struct):
    message: msgspec.Raw


class _Page(msgspec.Struct):
    messages: list[_Row]


async def is_archived(chat: Chat, http: httpx.AsyncClient) -> None:
    """Every message is in the archive, in order, and what the client wrote is there byte for byte."""
    assert await chat.transcript() == chat.said
    reply = await http.get(f"/api/sessions/{chat.session}/messages", headers=chat.headers)
    page = msgspec.json.decode(reply.content, type=_Page)
    for row, said in zip(page.messages, chat.said, strict=True):
        if said["role"] != "assistant":
            assert bytes(row.message) == json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()


async def is_shown_well(chat: Chat) -> None:
    """Instructions, first and newest letter stand as they were sent; between them one whole summary."""
    view = await chat.view()
    shown = [part["message"] for part in view["parts"]]
    assert shown[:2] == chat.said[:2]
    assert chat.sent[-1][-1] in shown
    summaries = [part["message"]["content"] for part in view["parts"] if part["kind"] == "summary"]
    assert len(summaries) == 1
    assert summaries[0].count(PREAMBLE) == 1
    # A part that has nothing is left out.
    assert "\n## " in summaries[0]
    assert [words for words in ERROR_WORDS if words in json.dumps(shown)] == []


def refused_directly(url: str, chat: Chat) -> None:
    """What the proxy was sent, the model itself refuses, streamed or not."""
    for stream in (False, True):
        body = {"model": MODEL, "messages": chat.sent[-1], "max_tokens": ANSWER_TOKENS, "stream": stream}
        reply = httpx.post(f"{url}/chat/completions", json=body, timeout=PATIENCE_SECONDS, trust_env=False)
        error = reply.json()["error"]
        assert (reply.status_code, error["type"]) == (400, "exceed_context_size_error")
        assert error["n_ctx"] == CONTEXT_TOKENS < error["n_prompt_tokens"]


@pytest.mark.spec("A01", "A45")
async def test_a_conversation_outgrows_the_model_and_goes_on(model_url: str, tmp_path: Path) -> None:
    # Half of what a summary may take by default: this model's never stop by themselves.
    settings = {"compaction.deadline_seconds": 10}
    async with fronting(model_url, tmp_path, settings, patience_seconds=PATIENCE_SECONDS) as front:
        turns = Turns(client_of(front, "harbour"))
        await turns.go_on(7)
        chat = turns.chat
        assert all(usage["completion_tokens"] > 0 for usage in turns.usages)
        assert turns.full_tokens > CONTEXT_TOKENS >= turns.largest_prompt
        view = await chat.view()
        assert (view["window"]["tokens"], view["window"]["source"]) == (CONTEXT_TOKENS, "upstream")
        compactions = await chat.compactions()
        assert {compaction["author"] for compaction in compactions} <= {"model", "deterministic"}
        assert compactions
        await is_archived(chat, front.http)
        await is_shown_well(chat)
        kept = json.dumps(await chat.transcript())
        assert [fact for fact in FACTS[:7] if fact not in kept] == []
        refused_directly(model_url, chat)


@pytest.mark.spec("E06")
async def test_a_window_configured_too_large_costs_a_refusal_and_no_answer(
    model_url: str, tmp_path: Path
) -> None:
    # The client brings a long past along; a summary is given no time, so that code writes it.
    settings = {"models": [{"match": "*", "window_tokens": 32_000}], "compaction.deadline_seconds": 1}
    async with fronting(model_url, tmp_path, settings, patience_seconds=PATIENCE_SECONDS) as front:
        chat = client_of(front, "elsewhere")
        for number in range(12):
            answer = {"role": "assistant", "content": f"Letter {number + 1} is filed."}
            chat.said += [{"role": "user", "content": letter(number)}, answer]
        for number, stream in ((12, False), (13, True)):
            chat.stream = stream
            await chat.says(letter(number))
            assert 0 < usage_of(chat.reply)["prompt_tokens"] <= CONTEXT_TOKENS
        view = await chat.view()
        # What the operator says stands; the refusal's number serves the request that met it.
        assert (view["window"]["tokens"], view["window"]["source"]) == (32_000, "configured")
        assert {compaction["trigger"] for compaction in await chat.compactions()} == {"overflow"}
        await is_archived(chat, front.http)
        await is_shown_well(chat)
        refused_directly(model_url, chat)


def test_a_missing_model_is_no_silent_skip(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="make model"), model_server(tmp_path):
        pass
