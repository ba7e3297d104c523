"""A refusal for size says so in the code and the words that clients look for, in the model's tokens (H10)."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio
from palimpsest.upstream.overflow import Overflow, classify

from tests.kit.model import ModelServer, tokens_of
from tests.kit.proxy import proxied
from tests.kit.wire import Line, Reply, answer_body, chat_body, post, wired
from tests.kit.words import prose
from tests.upstream.scripted import replies

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.spec("H10")]

WINDOW = 2_000
SMALL = {"models": [{"match": "*", "window_tokens": WINDOW}], "compaction.background": False}
HUGE = prose(7, 3_000)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    """A proxy for models whose small window is known."""
    async with wired(tmp_path_factory.mktemp("line"), SMALL) as running:
        yield running


def bodies() -> dict[str, tuple[str, dict[str, Any]]]:
    """Every way in which a request can be too long, by the path that it is sent to."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": HUGE})}}
    chat, responses = "/v1/chat/completions", "/v1/responses"
    said, brief = [{"role": "user", "content": HUGE}], [{"role": "user", "content": "hi"}]
    return {
        "newest message": (chat, {"messages": said}),
        "streamed": (chat, {"messages": said, "stream": True}),
        "instructions": (chat, {"messages": [{"role": "system", "content": HUGE}, *brief]}),
        "instructions alone": (chat, {"messages": [{"role": "system", "content": HUGE}]}),
        "a call": (chat, {"messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
        ]}),
        "input": (responses, {"input": HUGE}),
        "input streamed": (responses, {"input": HUGE, "stream": True}),
        "the field instructions": (responses, {"input": "hi", "instructions": HUGE}),
    }  # fmt: skip


# What clients look for, as published (2026-11): each by the name of who looks.
TABLES: dict[str, Callable[[dict[str, Any], str], bool]] = {
    "OpenAI's own code": lambda error, _: error["code"] == "context_length_exceeded",
    "OpenAI's own type": lambda error, _: error["type"] == "invalid_request_error",
    "LiteLLM": lambda _, text: "this model's maximum context length is" in text.lower(),
    "LangChain": lambda _, text: "context_length_exceeded" in text,
    "opencode, pi": lambda _, text: bool(re.search(r"(?i)maximum context length is \d+ tokens", text)),
    "Cline": lambda error, _: bool(re.search(r"(?i)\bcontext\s*(?:length|window)\b", error["message"])),
    "pi, of Groq": lambda _, text: bool(re.search(r"(?i)reduce the length of the messages", text)),
    "aider": lambda _, text: "maximum context length" in text,
    "numbers": lambda error, _: bool(re.search(r"max.*?(\d+) tokens.*?(\d+) ", error["message"])),
}  # fmt: skip


async def refused(line: Line, path: str, fields: dict[str, Any]) -> Reply:
    before = len(line.upstream.requests)
    body = json.dumps({"model": "m", **fields}).encode()
    reply = await line.asks(post(body, path=path, key=uuid.uuid4().hex))
    assert (reply.status, reply.code) == (400, "context_length_exceeded")
    assert len(line.upstream.requests) == before
    return reply


@pytest.mark.parametrize("name", bodies())
async def test_every_refusal_is_known_to_every_table(line: Line, name: str) -> None:
    path, fields = bodies()[name]
    reply = await refused(line, path, fields)
    error, text = reply.json()["error"], reply.body.decode()
    assert [who for who, knows in TABLES.items() if not knows(error, text)] == []
    assert error["param"] == ("input" if path == "/v1/responses" else "messages")
    told = re.search(r"length is (\d+) tokens\. However, your messages resulted in (\d+) tokens", text)
    assert told is not None
    assert WINDOW == int(told[1]) < int(told[2])


async def test_another_proxy_of_ours_understands_it(line: Line) -> None:
    reply = await refused(line, "/v1/chat/completions", {"messages": [{"role": "user", "content": HUGE}]})
    verdict = classify(reply.status, reply.headers, reply.body)
    assert isinstance(verdict, Overflow)
    assert (verdict.kind, verdict.window) == ("prompt", WINDOW)


async def test_the_sdk_raises_it_with_its_code_and_id(line: Line) -> None:
    url = f"http://127.0.0.1:{line.port}/v1"
    async with openai.AsyncOpenAI(api_key="key-sdk", base_url=url, max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": HUGE}])
    assert caught.value.code == "context_length_exceeded"
    # The exchange is kept under the id that the client is told.
    row = line.query("SELECT state, status FROM exchanges WHERE id = ?", caught.value.request_id)
    assert row == [("refused", 400)]


async def test_numbers_are_the_models_own(tmp_path: Path) -> None:
    """A model that counts three tokens where this program counts two, behind a window that is known."""
    model = ModelServer(window=6_000, counted=1.5)
    async with proxied(model, tmp_path, {"compaction.background": False}) as proxy:
        chat = proxy.chat(system="You keep the log.")
        for turn in range(3):
            await chat.says(f"Entry {turn}. {prose(turn, 300)}")
        asked = [*chat.said, {"role": "user", "content": prose(9, 6_000)}]
        reply = await chat.posts(asked)
        assert reply.status_code == 400
        window, whole, newest = map(int, re.findall(r"\d+", reply.json()["error"]["message"]))
        assert window == 6_000
        assert whole == pytest.approx(1.5 * tokens_of(asked), rel=0.02)
        assert newest == pytest.approx(1.5 * tokens_of(asked[-1:]), rel=0.02)


async def test_every_error_of_ours_has_an_id_of_its_own(line: Line) -> None:
    requests = [
        post(b"{"),
        post(chat_body(), [(b"X-Palimpsest", b"maybe")]),
        post(b"{}", path="/v1/../x"),
        post(b"{}", path="/nowhere"),
        b"TRACE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /ui/sessions/none/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer key-1\r\n\r\n",
        b"GET /api/sessions/none HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer key-1\r\n\r\n",
    ]
    idents = [(await line.asks(request)).header("x-request-id") for request in requests]
    assert None not in idents
    assert len(set(idents)) == len(requests)


@pytest.mark.spec("P1")
@pytest.mark.parametrize("status", [200, 429])
@pytest.mark.parametrize("ident", [None, b"req_theirs"])
async def test_the_upstreams_id_is_its_own(line: Line, status: int, ident: bytes | None) -> None:
    more = [(b"x-request-id", ident)] if ident else []
    line.upstream.expects(replies(answer_body(), status, more))
    reply = await line.asks(post(chat_body()))
    assert reply.status == status
    assert reply.all("x-request-id") == ([ident.decode()] if ident else [])
