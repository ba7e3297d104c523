"""Summaries asked for on either API, in its own names, and on the other where an address is not there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.chat_answers import QuestionAnswer, Usage
from palimpsest.core.wire.request import Wire
from palimpsest.core.wire.responses.request import RESPONSES
from palimpsest.upstream.overflow import Overflow
from palimpsest.upstream.summarizer import (
    Failed,
    KeyRefused,
    Question,
    QuestionTooLong,
    Summarizer,
    SummaryOutcome,
)

from tests.upstream.asking import at
from tests.upstream.scripted import Script, Scripted, replies

Json = dict[str, Any]
pytestmark = pytest.mark.spec("W56")
CALLER = [(b"authorization", b"Bearer caller"), (b"x-other", b"1")]
SYSTEM, USER = b'{"role":"system","content":"Keep the record."}', b'{"role":"user","content":"a \\ud800 b"}'
OWN = Question((SYSTEM, USER), "m", 100, wire=RESPONSES)
BEHIND = Question(
    (SYSTEM, USER), "m", 100, b'[{"type":"x"}]', RESPONSES, (("reasoning", b"{ }"),), rides=True
)


def response(text: str = "It was so.", **fields: Any) -> Script:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    usage = {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 5}, "output_tokens": 2}
    body = {"object": "response", "status": "completed", "output": [said], "usage": usage, **fields}
    return replies(json.dumps(body).encode())


def completion(text: str = "It was so.") -> Script:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return replies(json.dumps({"choices": [choice]}).encode())


def refusal(message: str, status: int = 400) -> Script:
    return replies(json.dumps({"error": {"message": message}}).encode(), status)


async def asked(
    *scripts: Script, questions: tuple[Question, ...] = (OWN,), **how: Any
) -> tuple[Scripted, list[SummaryOutcome]]:
    async with Scripted() as server, at(server.url + "/v1") as upstream:
        server.expects(*scripts)
        summarizer = Summarizer(upstream, **how)
        outcomes = [await summarizer.ask(question, CALLER, 10) for question in questions]
    return server, outcomes


async def test_a_question_of_its_own() -> None:
    server, (outcome,) = await asked(response())
    assert outcome == QuestionAnswer("It was so.", "stop", False, Usage(7, 2, 5))
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/v1/responses")
    assert request.body == (
        b'{"model":"m","temperature":0,"instructions":"Keep the record.","input":[%b],"store":false,'
        b'"max_output_tokens":100}' % USER
    )
    assert request.header("authorization") == "Bearer caller"


async def test_behind_a_prompt_what_it_is_made_of_goes_along_and_no_tool_may_be_called() -> None:
    server, _ = await asked(response(), questions=(BEHIND,))
    assert server.requests[0].body == (
        b'{"model":"m","reasoning":{ },"input":[%b,%b],"store":false,"max_output_tokens":100,'
        b'"tools":[{"type":"x"}],"tool_choice":"none"}' % (SYSTEM, USER)
    )


async def test_fields_a_model_refuses_are_learned_once_on_each_api() -> None:
    server, outcomes = await asked(
        refusal("Unsupported parameter: 'temperature' is not supported with this model."),
        refusal("Unsupported parameter: max_output_tokens"),
        response(),
        response(),
        completion(),
        questions=(OWN, OWN, Question((USER,), "m", 100)),
    )
    assert all(isinstance(outcome, QuestionAnswer) for outcome in outcomes)
    optional = {"temperature", "max_output_tokens", "max_tokens"}
    fields = [sorted(optional & json.loads(request.body).keys()) for request in server.requests]
    assert fields == [
        ["max_output_tokens", "temperature"],
        ["max_output_tokens"],
        [],
        [],
        ["max_tokens", "temperature"],
    ]


async def test_a_limit_that_is_only_too_low_or_too_high_is_no_lesson() -> None:
    words = "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16"
    server, (outcome,) = await asked(refusal(words))
    assert outcome == Failed("status_400")
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [404, 405, 501])
@pytest.mark.parametrize("wire", [CHAT, RESPONSES])
async def test_an_address_that_is_not_there_is_asked_for_once(wire: Wire, status: int) -> None:
    found = completion() if wire is RESPONSES else response()
    question = Question((SYSTEM, USER), "m", 100, wire=wire)
    server, outcomes = await asked(refusal("no", status), found, found, questions=(question, question))
    assert all(isinstance(outcome, QuestionAnswer) for outcome in outcomes)
    first, other = "/v1/responses", "/v1/chat/completions"
    if wire is CHAT:
        first, other = other, first
    assert [request.target for request in server.requests] == [first, other, other]
    assert ("messages" in json.loads(server.requests[1].body)) is (wire is RESPONSES)


async def test_a_model_that_is_on_neither_is_tried_again() -> None:
    server, outcomes = await asked(*[refusal("no such model", 404)] * 4, questions=(OWN, OWN))
    assert outcomes == [Failed("status_404")] * 2
    assert [request.target for request in server.requests] == ["/v1/responses", "/v1/chat/completions"] * 2


async def test_an_api_that_only_fails_is_not_remembered() -> None:
    server, outcomes = await asked(
        refusal("no", 404), refusal("slow down", 429), response(), questions=(OWN, OWN)
    )
    assert outcomes[0] == Failed("status_429")
    assert [request.target for request in server.requests] == [
        "/v1/responses", "/v1/chat/completions", "/v1/responses",
    ]  # fmt: skip


async def test_a_question_behind_a_prompt_stays_on_its_api() -> None:
    chat = Question((USER,), "m", 100, rides=True)
    server, outcomes = await asked(
        refusal("no", 404), completion(), refusal("no", 404), refusal("no", 404),
        questions=(OWN, BEHIND, chat),
    )  # fmt: skip
    assert outcomes[1:] == [Failed("status_404")] * 2
    assert [request.target for request in server.requests[2:]] == ["/v1/responses", "/v1/chat/completions"]


async def test_a_server_of_its_own_is_asked_by_chat_completions_first() -> None:
    server, _ = await asked(
        completion(), refusal("no", 404), response(), questions=(OWN, OWN), is_foreign=True
    )
    assert [request.target for request in server.requests] == [
        "/v1/chat/completions", "/v1/chat/completions", "/v1/responses",
    ]  # fmt: skip
    assert all(b"caller" not in request.head for request in server.requests)


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (response(status="failed", error={"code": "server_error", "message": "busy"}), Failed("no_choice")),
        (
            response(
                status="failed",
                output=[],
                error={
                    "code": "context_length_exceeded",
                    "message": "This model's maximum context length is 4096 tokens.",
                },
            ),
            QuestionTooLong(Overflow("prompt", 4096, None)),
        ),
        (completion(), Failed("no_choice")),
        (replies(b"not json"), Failed("no_choice")),
        (refusal("slow down", 429), Failed("status_429")),
        (refusal("no", 401), KeyRefused(401)),
    ],
)
async def test_failures(script: Script, outcome: SummaryOutcome) -> None:
    server, outcomes = await asked(script)
    assert outcomes == [outcome]
    assert len(server.requests) == 1
