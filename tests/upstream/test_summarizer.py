from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest
from palimpsest.core.wire.chat_answers import QuestionAnswer, Usage
from palimpsest.upstream.headers import UpstreamKey
from palimpsest.upstream.overflow import Overflow
from palimpsest.upstream.summarizer import (
    ANSWER_BYTES,
    Failed,
    KeyRefused,
    Question,
    QuestionTooLong,
    Summarizer,
    SummaryOutcome,
)

from tests.kit.wire import event
from tests.upstream.asking import at
from tests.upstream.scripted import Script, Scripted, cuts_after, head, replies, stalls_after

CALLER = [
    (b"authorization", b"Bearer caller"),
    (b"OpenAI-Project", b"p"),
    (b"x-other", b"1"),
    (b"cookie", b"c"),
    (b"User-Agent", b"cli"),
    (b"Content-Type", b"application/json; x=1"),
    (b"content-length", b"5"),
    (b"Idempotency-Key", b"once"),
]
# A lone surrogate and a number's spelling: messages travel as they are.
MESSAGES = [b'{"role":"user","content":"a \\ud800 b","n":1e2}', b'{"role":"user","content":"sum up"}']

QUESTION = Question(MESSAGES, "m", 100)


def completion(**message: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}).encode()


def refusal(message: str, status: int = 400) -> Script:
    return replies(json.dumps({"error": {"message": message}}).encode(), status)


async def ask(
    *scripts: Script, times: int = 1, deadline: float = 10, question: Question = QUESTION, **how: Any
) -> tuple[Scripted, SummaryOutcome]:
    async with Scripted() as server, at(server.url + "/v1") as upstream:
        server.expects(*scripts)
        summarizer = Summarizer(upstream, **how)
        for _ in range(times):
            outcome = await summarizer.ask(question, CALLER, deadline)
    return server, outcome


async def test_a_summary() -> None:
    server, outcome = await ask(replies(completion(content="It was so.")))
    assert outcome == QuestionAnswer("It was so.", "stop", False, Usage(7, 2))
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/v1/chat/completions")
    assert request.body == b'{"model":"m","temperature":0,"messages":[%b],"max_tokens":100}' % b",".join(
        MESSAGES
    )
    assert request.header("authorization") == "Bearer caller"
    assert request.header("openai-project") == "p"
    names = [name.lower() for name, _ in request.headers]
    assert request.header("user-agent") == "cli"
    assert {b"x-other", b"cookie"} < set(names)
    # They belong to the chat's request alone.
    assert b"idempotency-key" not in names
    assert len(names) == len(set(names))
    assert request.header("content-length") == str(len(request.body))


async def test_an_own_key() -> None:
    server, _ = await ask(replies(completion(content="x")), key=UpstreamKey("own"))
    (request,) = server.requests
    assert [value for name, value in request.headers if name.lower() == b"authorization"] == [b"Bearer own"]
    assert b"caller" not in request.head


async def test_fields_a_model_refuses_are_learned_once() -> None:
    server, outcome = await ask(
        refusal("Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."),
        refusal("Unsupported value: 'temperature' does not support 0 with this model."),
        replies(completion(content="x")),
        replies(completion(content="y")),
        times=2,
    )
    assert isinstance(outcome, QuestionAnswer)
    fields = [sorted(json.loads(request.body)) for request in server.requests]
    assert fields == [
        ["max_tokens", "messages", "model", "temperature"],
        ["max_completion_tokens", "messages", "model", "temperature"],
        ["max_completion_tokens", "messages", "model"],
        ["max_completion_tokens", "messages", "model"],
    ]


STREAM = [(b"Content-Type", b"text/event-stream")]


async def test_a_chat_that_streams_is_summarized_by_a_stream() -> None:
    chunks = [event({"role": "assistant", "content": "It "}), b": wait\n\n", event({"content": "was so."})]
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
    body = b"".join([*chunks, event({}, "stop"), usage, b"data: [DONE]"])
    question = replace(QUESTION, members=(("user", b'"u"'), ("temperature", b"1e0")), streams=True)
    refused = refusal("Unknown parameter: 'stream_options'.")
    server, outcome = await ask(refused, replies(body, 200, STREAM), question=question)
    assert outcome == QuestionAnswer("It was so.", "stop", False, Usage(7, 2))
    sent = b'{"model":"m","user":"u","temperature":1e0,"stream":true,%%b"messages":[%b],"max_tokens":100}'
    sent %= b",".join(MESSAGES)
    usage = b'"stream_options":{"include_usage":true},'
    assert [request.body for request in server.requests] == [sent % usage, sent % b""]


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (b"", Failed("no_choice")),
        (b'data: {"error":{"message":"busy"}}\n\n', Failed("no_choice")),
        (
            b'data: {"error":{"message":"prompt is too long: 9000 tokens > 8000 maximum"}}\n\n',
            QuestionTooLong(Overflow("prompt", 8000)),
        ),
        (event({"content": "It was"}), QuestionAnswer("It was", None, False, Usage())),
    ],
)
async def test_streams_that_bring_no_summary(said: bytes, outcome: SummaryOutcome) -> None:
    _, found = await ask(replies(said, 200, STREAM), question=replace(QUESTION, streams=True))
    assert found == outcome


async def test_an_answer_longer_than_the_model_writes_is_asked_for_shorter_and_this_is_learned() -> None:
    words = "max_tokens is too large: 5000. This model supports at most 4096 completion tokens"
    x, question = replies(completion(content="x")), replace(QUESTION, max_tokens=5_000)
    server, outcome = await ask(refusal(words), x, x, times=2, question=question)
    assert isinstance(outcome, QuestionAnswer)
    assert [json.loads(request.body)["max_tokens"] for request in server.requests] == [5_000, 4_096, 4_096]


async def test_a_lesson_that_does_not_help_is_an_end() -> None:
    hopeless = "temperature and max_completion_tokens are both wrong"
    server, outcome = await ask(*[refusal(hopeless)] * 3)
    assert outcome == Failed("status_400")
    assert len(server.requests) == 3


@pytest.mark.spec("H01")
async def test_words_of_a_conversation_teach_no_dialect() -> None:
    """A refusal quotes the conversation; what did not help is not held against the next question."""
    quoting = refusal("bad role 'temperature, unsupported max_completion_tokens'")
    server, outcome = await ask(*[quoting] * 3, replies(completion(content="It was so.")), times=2)
    assert isinstance(outcome, QuestionAnswer)
    assert server.requests[3].body == server.requests[0].body


async def test_too_long() -> None:
    words = (
        "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens in the input"
    )
    _, outcome = await ask(refusal(words))
    assert outcome == QuestionTooLong(Overflow("prompt", 4096))
    words = (
        "'max_tokens' or 'max_completion_tokens' is too large: 100. This model's maximum context length is "
        "4096 tokens and your request has 4090 input tokens (100 > 4096 - 4090)."
    )
    server, outcome = await ask(refusal(words))
    assert outcome == QuestionTooLong(Overflow("prompt", 4096))
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key(status: int) -> None:
    _, outcome = await ask(refusal("no", status))
    assert outcome == KeyRefused(status)


ANSWER = head(200, [(b"Content-Length", b"50")]) + b'{"choices": ['


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (refusal("slow down", 429), "status_429"),
        (refusal("oops", 500), "status_500"),
        (refusal("oops", 529), "status_529"),
        (replies(b"", 307, [(b"Location", b"http://127.0.0.1:9/")]), "status_307"),
        (replies(b"not json"), "no_choice"),
        (replies(b'{"error":{"message":"busy"}}'), "no_choice"),
        (replies(b'{"choices":[]}'), "no_choice"),
        (replies(b"[]"), "no_choice"),
        (replies(b'{"choices":[' + b" " * ANSWER_BYTES), "unreadable"),
        (
            replies(gzip.compress(bytes(ANSWER_BYTES * 4)), 200, [(b"Content-Encoding", b"gzip")]),
            "unreadable",
        ),
        (replies(b"x", 200, [(b"Content-Encoding", b"dcb")]), "unreadable"),
        (cuts_after(0, b""), "unreachable"),
        (cuts_after(len(ANSWER), ANSWER), "cut"),
        (cuts_after(99, b"HTTP/9 what\r\n\r\n"), "unreadable"),
    ],
)
async def test_failures_are_words(script: Script, reason: str) -> None:
    server, outcome = await ask(script)
    assert outcome == Failed(reason)
    assert len(server.requests) == 1


async def test_cookies_are_not_kept() -> None:
    cookie = replies(completion(content="x"), 200, [(b"Set-Cookie", b"session=1; Path=/")])
    server, _ = await ask(cookie, cookie, times=2)
    assert server.requests[1].header("cookie") == "c"


@pytest.mark.parametrize("start", [b"", ANSWER], ids=["silent", "in the middle"])
async def test_a_hanging_summarizer_ends_at_the_deadline(start: bytes) -> None:
    async with Scripted() as server, at(server.url) as upstream:
        server.expects(stalls_after(start))
        outcome = await Summarizer(upstream).ask(QUESTION, CALLER, 0.5)
        assert outcome == Failed("timeout")
        await asyncio.wait_for((await server.arrived(1)).gone.wait(), 10)


async def test_a_callers_cancellation_is_not_swallowed() -> None:
    async with Scripted() as server, at(server.url) as upstream:
        server.expects(stalls_after(b""))
        task = asyncio.create_task(Summarizer(upstream).ask(QUESTION, CALLER, 60))
        request = await server.arrived(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(request.gone.wait(), 10)
