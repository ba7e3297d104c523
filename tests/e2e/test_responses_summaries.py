"""Summaries of conversations of the Responses API: asked for there, behind the prompt the model knows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.summary.asking import APPENDED, INSTRUCTIONS
from palimpsest.core.wire.json_spans import raw_elements, raw_members

from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import Proxy, proxied
from tests.kit.responses import (
    Asked,
    Outputs,
    ResponsesChat,
    ResponsesServer,
    call_item,
    result_item,
    text_item,
    thought_item,
)
from tests.kit.serving import served
from tests.kit.words import prose

Json = dict[str, Any]
pytestmark = [pytest.mark.spec("W56"), pytest.mark.timeout(120)]
WINDOW = 8_000
# Begun so early that a question fits behind the prompt, whatever the counts are corrected by.
SETTINGS: Json = {"policy.advanced.precompute_ratio": 0.75}
TOOLS = [{"type": "function", "name": "read_file", "parameters": {"type": "object", "properties": {}}}]
# As Codex CLI asks.
CODEX: Json = {
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199-thread",
    "text": {"verbosity": "low"},
}


def elements(asked: Asked) -> list[bytes]:
    """The items of a request's input, byte for byte."""
    return raw_elements(raw_members(asked.raw)["input"])


def works(asked: Asked) -> Outputs:
    """Reads a file, then says something about it; both with sealed thoughts."""
    number = len(asked.items)
    if asked.items[-1].get("type") == "function_call_output":
        return [thought_item(f"rs_{number}"), text_item(f"Module {number} is read.", f"msg_{number}")]
    return [thought_item(f"rs_{number}"), call_item(f"call_{number}", "read_file", {"n": number})]


def chat_of(proxy: Proxy, **options: Any) -> ResponsesChat:
    return ResponsesChat(proxy.http, headers={"authorization": "Bearer key-1"}, **options)


async def reads(proxy: Proxy, chat: ResponsesChat, path: str) -> Json:
    reply = await proxy.http.get(f"/api/sessions/{chat.session}/{path}", headers=chat.headers)
    assert reply.status_code == 200, reply.text
    fields: Json = reply.json()
    return fields


async def quiet(proxy: Proxy, chat: ResponsesChat) -> None:
    """No summary is being written any more."""
    async with asyncio.timeout(30):
        while (await reads(proxy, chat, "status"))["compacting"]:
            pass


async def compacted(proxy: Proxy, chat: ResponsesChat, says: Any) -> Json:
    """The first compaction of a conversation that goes on until there is one."""
    for turn in range(40):
        await says(turn)
        await quiet(proxy, chat)
        if made := (await reads(proxy, chat, "compactions"))["compactions"]:
            first: Json = made[0]
            return first
    raise AssertionError("nothing was compacted")


async def noting(proxy: Proxy, chat: ResponsesChat, stream: bool = False) -> Json:
    async def says(turn: int) -> None:
        await chat.says(f"Note {turn}. {prose(turn, 300)}", stream=stream)

    return await compacted(proxy, chat, says)


def known_before(server: ResponsesServer, question: Asked) -> Asked:
    """The newest prompt of the conversation that the question's begins with, byte for byte."""
    spelled = elements(question)
    known = [asked for asked in server.asked if spelled[: len(elements(asked))] == elements(asked)]
    return known[-1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("speaks", [("responses",), ("chat", "responses")])
async def test_a_summary_is_asked_for_behind_the_prompt_that_the_model_knows(
    speaks: tuple[str, ...], stream: bool, tmp_path: Path
) -> None:
    server = ResponsesServer(window=WINDOW, speaks=speaks, caches=True, keeps=False)
    server.plays = works
    async with proxied(server, tmp_path, SETTINGS) as proxy:
        chat = chat_of(proxy, tools=TOOLS, instructions="You are a careful engineer.", options=CODEX)

        async def says(turn: int) -> None:
            output = await chat.says(f"Read module {turn}.", stream=stream)
            await chat.says(result_item(output[-1]["call_id"], prose(turn, 250)), stream=stream)

        compaction = await compacted(proxy, chat, says)
        spent = (await reads(proxy, chat, "status"))["spending"]
    assert compaction["author"] == "model"
    (question,) = server.questions
    known = known_before(server, question)
    answered = works(known)
    rest = [json.loads(raw) for raw in elements(question)[len(elements(known)) :]]
    # All that went out, the answer to it unless it calls a tool, then the question.
    assert rest[:-1] in ([], answered)
    assert rest[-1]["content"].startswith(APPENDED)
    same = ("model", "instructions", "tools", "reasoning", "parallel_tool_calls", "text", "prompt_cache_key")
    assert {name: question.body.get(name) for name in same} == {name: known.body.get(name) for name in same}
    assert question.body["store"] is False
    assert question.body["tool_choice"] == "none"
    assert question.body["max_output_tokens"] > compaction["tokens_before"] * 0.05
    assert not {"include", "temperature", "previous_response_id"} & question.body.keys()
    assert question.faults == []
    assert [seen.raw for seen in server.seen] == [question.raw]
    # Of the question's prompt the upstream has seen all but the newest answer and the question before.
    assert spent["calls"] == 1
    assert spent["prompt_tokens"] == question.tokens
    assert spent["cached_tokens"] == known.tokens > 0.9 * question.tokens


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize(("asked_words", "answer_words"), [(300, 3), (3, 300)])
async def test_what_the_upstream_keeps_is_left_to_it(
    keeps: bool, asked_words: int, answer_words: int, tmp_path: Path
) -> None:
    """Of the same question a server that forgets is told all, and one that keeps answers what is new.

    A question grows past the mark, then the summary stands behind it alone, or an answer does.
    """
    server = ResponsesServer(window=WINDOW, speaks=("responses",), caches=True, keeps=keeps)
    server.plays = lambda asked: [text_item(prose(len(asked.items), answer_words), f"msg_{len(asked.items)}")]
    async with proxied(server, tmp_path, SETTINGS) as proxy:
        chat = chat_of(proxy)
        answers: list[Json] = []

        async def says(turn: int) -> None:
            body: Json = {"model": "test-model", "input": f"Note {turn}. {prose(turn, asked_words)}"}
            body |= {"previous_response_id": answers[-1]["id"]} if answers else {}
            answers.append(await chat.post(body))

        compaction = await compacted(proxy, chat, says)
    assert compaction["author"] == "model"
    (question,) = server.questions
    before = [asked for asked in server.asked if question.items[: len(asked.items)] == asked.items]
    known, rest = before[-1], question.items[len(before[-1].items) :]
    assert rest[-1]["content"].startswith(APPENDED)
    assert [item["role"] for item in rest[:-1]] == (["assistant"] if answer_words > 3 else [])
    assert question.body.get("previous_response_id") == known.body.get("previous_response_id")
    assert ("previous_response_id" in question.body) is keeps
    assert len(question.body["input"]) == (1 + len(rest) if keeps else len(question.items))
    assert question.body["store"] is False
    assert server.kept.keys() <= {answer["id"] for answer in answers}


async def test_thoughts_that_only_their_upstream_has_are_not_sent_back(tmp_path: Path) -> None:
    """Neither sealed nor kept by anybody they would be refused: the question stands before them."""
    server = ResponsesServer(window=WINDOW, keeps=False)

    def thinks(asked: Asked) -> Outputs:
        lone = {"id": f"rs_{len(asked.items)}", "type": "reasoning", "summary": []}
        return [lone, text_item("Noted.", f"msg_{len(asked.items)}")]

    server.plays = thinks
    async with proxied(server, tmp_path, SETTINGS) as proxy:
        chat = chat_of(proxy, drops_thoughts=True, options={"store": False})
        compaction = await noting(proxy, chat)
    assert compaction["author"] == "model"
    (question,) = server.questions
    assert elements(question)[:-1] == elements(known_before(server, question))
    assert '"reasoning"' not in question.text


class Second:
    """Fails behind a prompt as it is told, and writes summaries when asked on its own."""

    def __init__(self, first: Says) -> None:
        self._first = first

    def __call__(self, seen: Seen) -> Says:
        if seen.messages[-1]["content"].startswith(APPENDED):
            return self._first
        return Says({"role": "assistant", "content": plain_summary(seen)})


_CALL = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
FAILURES = [
    Says({"role": "assistant", "content": "## 1. Primary"}, finish="length"),
    Says({"role": "assistant", "content": None, "tool_calls": [_CALL]}),
    Says(status=400, error={"error": {"message": "Item 'rs_1' not found.", "type": "invalid_request_error"}}),
    Says({"role": "assistant", "content": ""}),
]


@pytest.mark.parametrize("failure", FAILURES, ids=["cut short", "calls", "refused", "empty"])
async def test_a_question_of_its_own_follows_where_the_first_answer_is_none(
    failure: Says, tmp_path: Path
) -> None:
    server = ResponsesServer(window=WINDOW, speaks=("responses",), lacks=("temperature",))
    server.summary = Second(failure)
    async with proxied(server, tmp_path, SETTINGS) as proxy:
        compaction = await noting(proxy, chat_of(proxy, tools=TOOLS))
    assert compaction["author"] == "model"
    append_limit, own = server.questions
    assert append_limit.body["input"][-1]["content"].startswith(APPENDED)
    assert own.body["instructions"] == INSTRUCTIONS
    assert [item["role"] for item in own.body["input"]] == ["user"]
    assert "Note 1." in own.body["input"][0]["content"]
    assert own.body["store"] is False
    assert "tools" not in own.body


async def test_a_compaction_by_hand_asks_on_the_same_api(tmp_path: Path) -> None:
    server = ResponsesServer(speaks=("chat", "responses"))
    async with proxied(server, tmp_path, SETTINGS) as proxy:
        chat = chat_of(proxy)
        for turn in range(12):
            await chat.says(f"Note {turn}. {prose(turn, 200)}")
        path = f"/api/sessions/{chat.session}/compact"
        reply = await proxy.http.post(path, json={}, headers=chat.headers)
        assert reply.json()["compacted"] is True, reply.text
        (compaction,) = (await reads(proxy, chat, "compactions"))["compactions"]
    assert compaction["author"] == "model"
    assert [question.body["instructions"] for question in server.questions] == [INSTRUCTIONS]
    assert len(server.summaries) == 1


@pytest.mark.parametrize("speaks", [("chat",), ("responses",), ("chat", "responses")])
async def test_a_server_of_its_own_writes_them_on_the_api_that_it_has(
    speaks: tuple[str, ...], tmp_path: Path
) -> None:
    server = ResponsesServer(window=WINDOW)
    writer = ResponsesServer(speaks=speaks)
    async with served(writer, lifespan="off") as address:
        own = SETTINGS | {"summarizer.base_url": f"{address}/v1", "summarizer.model": "test-model"}
        async with proxied(server, tmp_path, own) as proxy:
            compaction = await noting(proxy, chat_of(proxy))
    assert compaction["author"] == "model"
    assert server.questions == []
    assert server.summaries == []
    assert len(writer.summaries) >= 1
    assert bool(writer.questions) is ("chat" not in speaks)


async def test_a_model_of_another_route_that_knows_chat_completions_alone_writes_them(tmp_path: Path) -> None:
    server = ResponsesServer(window=WINDOW, speaks=("responses",))
    writer = ModelServer(names=("summary-model",))
    async with served(writer, lifespan="off") as address:
        routed = SETTINGS | {
            "routes": [{"match": "summary-*", "base_url": f"{address}/v1"}],
            "summarizer.model": "summary-model",
        }
        async with proxied(server, tmp_path, routed) as proxy:
            compaction = await noting(proxy, chat_of(proxy))
    assert compaction["author"] == "model"
    assert compaction["model"] == "summary-model"
    assert server.questions == []
    assert len(writer.summaries) >= 1
