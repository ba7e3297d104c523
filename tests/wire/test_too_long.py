"""Every server's way to say "too long" is understood: the prompt goes again, smaller, and the client sees
one answer; what only looks like it passes through.
"""

# ruff: noqa: E501 - sentences of servers are not broken where a line would end

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.kit.wire import Line, Reply, answer_body, event, post, wired
from tests.kit.words import prose
from tests.upstream.scripted import Script, Wire, replies, streams

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
JSON_TYPE = (b"Content-Type", b"application/json")
EVENTS = [event({"role": "assistant", "content": "Once"}), event({}, "stop"), b"data: [DONE]\n\n"]
# Nothing is compacted before it is sent, and no model is asked: what happens is the upstream's doing.
NEAR = {
    "models": [{"match": "unknown-*"}, {"match": "*", "window_tokens": 5_000}],
    "window.lookup_seconds": 0,
    "policy.trigger_ratio": 0.95,
    "compaction.deadline_seconds": 0,
    "compaction.background": False,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def near(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    async with wired(tmp_path_factory.mktemp("near"), NEAR) as running:
        yield running


def openai(message: str, **more: Any) -> Json:
    return {
        "error": {"message": message, "type": "invalid_request_error", "param": None, "code": None, **more}
    }


def refusal(body: Any, status: int = 400) -> Script:
    return replies(b"" if body is None else json.dumps(body).encode(), status, [JSON_TYPE])


OPENAI = openai(
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
    code="context_length_exceeded",
)
LLAMA = {
    "code": 400,
    "message": "request (6030 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 6030,
    "n_ctx": 4096,
}
GEMINI = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
XAI = "This model's maximum prompt length is 131072 but the request contains 537812 tokens."
# One of each form; tests/upstream/test_overflow.py has the words of every server.
SERVERS: dict[str, tuple[Any, int]] = {
    "openai": (OPENAI, 400),
    "llama.cpp": ({"error": LLAMA}, 400),
    "gemini": ([{"error": {"code": 400, "message": GEMINI, "status": "INVALID_ARGUMENT"}}], 400),
    "xai": ({"code": "invalid-argument", "error": XAI}, 400),
    "cerebras": (None, 400),
    "zai": (None, 413),
}


def talk(name: str, words: int = 270) -> list[Json]:
    """About 3,000 tokens in ten messages, of which no other test has sent one."""
    return [{"role": "user", "content": f"{name}, entry {turn}. {prose(turn, words)}"} for turn in range(10)]


def request(model: str, messages: list[Json], **fields: Any) -> bytes:
    return post(json.dumps({"model": model, "messages": messages, **fields}).encode())


def answers(stream: bool) -> Script:
    return streams(EVENTS) if stream else replies(answer_body("Once"), 200, [JSON_TYPE])


async def is_recovered(line: Line, reply: Reply, before: int, sent: int) -> None:
    """One answer came, behind two requests of which the second was smaller, and one turn is stored."""
    assert (reply.status, reply.is_whole) == (200, True), reply.body
    assert reply.header("x-palimpsest-view") == "compacted"
    first, second = (request.body for request in line.upstream.requests[before:])
    assert len(second) < 0.8 * len(first)
    assert json.loads(first)["messages"][-1] == json.loads(second)["messages"][-1]
    rows = await line.rows(reply)
    assert [row["role"] for row in rows] == ["user"] * sent + ["assistant"]
    assert line.states(reply) == ["done"]
    types = await line.http.get(
        f"/api/sessions/{reply.header('x-palimpsest-session')}/events",
        params={"types": "overflow_recovery_started"},
        headers={"authorization": "Bearer key-1"},
    )
    assert len(types.json()["events"]) == 1


@pytest.mark.spec("W27", "W29", "W32", "W37", "W38")
@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_answered_by_a_smaller_prompt(near: Line, name: str, stream: bool) -> None:
    before = len(near.upstream.requests)
    near.upstream.expects(refusal(*SERVERS[name]), answers(stream))
    messages = talk(f"{name} {stream}")
    reply = await near.asks(request(f"{name}-{stream}", messages, stream=stream))
    await is_recovered(near, reply, before, len(messages))


@pytest.mark.parametrize("name", [name for name, (body, _) in SERVERS.items() if body is not None])
async def test_a_refusal_as_the_first_event_of_a_200(near: Line, name: str) -> None:
    before = len(near.upstream.requests)
    frames = [b"data: " + json.dumps(SERVERS[name][0]).encode() + b"\n\n", b"data: [DONE]\n\n"]
    # Far from the window: the words are enough.
    messages = talk(f"{name} in events", 120)
    near.upstream.expects(streams(frames), answers(True))
    reply = await near.asks(request(f"{name}-events", messages, stream=True))
    await is_recovered(near, reply, before, len(messages))


@pytest.mark.spec("W30")
async def test_an_empty_stream_of_a_long_prompt(near: Line) -> None:
    before = len(near.upstream.requests)
    near.upstream.expects(streams([]), answers(True))
    messages = talk("empty stream")
    reply = await near.asks(request("llama_cpp.server", messages, stream=True))
    await is_recovered(near, reply, before, len(messages))


@pytest.mark.spec("W27")
async def test_a_whole_answer_of_status_200_that_is_a_refusal(near: Line) -> None:
    before = len(near.upstream.requests)
    near.upstream.expects(refusal(OPENAI, 200), answers(False))
    messages = talk("whole 200")
    reply = await near.asks(request("gateway", messages))
    await is_recovered(near, reply, before, len(messages))


@pytest.mark.spec("W38", "W30")
@pytest.mark.parametrize("script", [replies(b"", 400), replies(b"", 413), streams([])])
async def test_silence_counts_also_where_the_window_is_a_guess(near: Line, script: Script) -> None:
    before = len(near.upstream.requests)
    near.upstream.expects(script, answers(True))
    messages = talk(f"guess {before}", 420)
    reply = await near.asks(request("unknown-model", messages, stream=True))
    await is_recovered(near, reply, before, len(messages))


@pytest.mark.spec("W38", "W30")
@pytest.mark.parametrize("status", [400, 413])
async def test_silence_about_a_short_prompt_is_not_taken_for_an_overflow(near: Line, status: int) -> None:
    before = len(near.upstream.requests)
    near.upstream.expects(replies(b"", status))
    reply = await near.asks(request("unknown-model", talk("short", 20)))
    assert (reply.status, reply.body) == (status, b"")
    assert len(near.upstream.requests) == before + 1


GROQ_TPM = "Request too large for model `m` in organization `o` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 7013, please reduce your message size and try again."
MAX_TOKENS = "max_tokens is too large: 999999. This model supports at most 16384 completion tokens, whereas you provided 999999."
PASSED = {
    "groq-tpm": refusal(openai(GROQ_TPM, type="tokens", code="rate_limit_exceeded"), 413),
    "max-tokens": refusal(openai(MAX_TOKENS)),
    "rate-limit": refusal(OPENAI, 429),
    "failure": refusal(OPENAI, 500),
    "overloaded": replies(b"", 503),
}


@pytest.mark.spec("W36", "W40")
@pytest.mark.parametrize("name", PASSED)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_compaction_cannot_cure_passes(near: Line, name: str, stream: bool) -> None:
    before, script = len(near.upstream.requests), PASSED[name]
    seen: list[bytes] = []

    async def noting(wire: Wire) -> None:
        seen.append(wire.request.body)
        await script(wire)

    near.upstream.expects(noting)
    sent = request("passed", talk(f"{name} {stream}"), stream=stream)
    reply = await near.asks(sent)
    assert reply.status in (400, 413, 429, 500, 503)
    assert len(near.upstream.requests) == before + 1
    assert sent.endswith(seen[0])
    assert near.states(reply) in (["rejected"], ["failed"])


@pytest.mark.spec("W40")
async def test_off_relays_a_refusal_as_it_came(near: Line) -> None:
    said = [b"data: " + json.dumps(OPENAI).encode() + b"\n\n", b"data: [DONE]\n\n"]
    near.upstream.expects(streams(said))
    body = json.dumps({"model": "off", "messages": talk("off"), "stream": True}).encode()
    reply = await near.asks(post(body, [(b"X-Palimpsest", b"off")]))
    assert (reply.status, reply.body) == (200, b"".join(said))


async def test_a_refusal_in_events_that_nothing_cures_is_relayed_whole(near: Line) -> None:
    said = [b"data: " + json.dumps(OPENAI).encode() + b"\n\n", b"data: [DONE]\n\n"]
    near.upstream.expects(*[streams(said)] * 3)
    reply = await near.asks(request("for-ever", talk("for ever"), stream=True))
    assert (reply.status, reply.body) == (200, b"".join(said))
    assert near.states(reply) == ["failed"]
