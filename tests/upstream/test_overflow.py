"""The numbers of an error, and what must never be taken from one; tests/wire/test_too_long.py has the words."""

# ruff: noqa: E501 - sentences of servers are not broken where a line would end

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.upstream.overflow import Overflow, SentRequest, classify

STREAM = [(b"Content-Type", b"text/event-stream; charset=utf-8")]
NEAR = SentRequest(is_near=True)


def said(
    message: str, status: int = 400, *, tokens: int = 0, answer: int = 0, **more: Any
) -> Overflow | None:
    body = json.dumps({"error": {"message": message, **more}}).encode()
    return classify(status, [], body, SentRequest(tokens=tokens, answer_tokens=answer))


def prompt(window: int | None = None, tokens: int | None = None) -> Overflow:
    return Overflow("prompt", window, tokens)


# Window and prompt as the server counts them; our own count is a tenth less.
NUMBERS = [
    ("This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.", 8192, 9001),
    ("This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (130000 of text input, 10000 in the output).", 131072, 130000),
    ("input length and `max_tokens` exceed context limit: 197202 + 21333 > 200000, decrease input length", 200000, 197202),
    ("too many tokens: total number of tokens in the prompt cannot exceed 4,081 - received 4,292.", 4081, 4292),
    ("`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8000 `inputs` tokens and 1000 `max_new_tokens`", 8193, 8000),
    ("'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 tokens and your request has 3000 input tokens (2000 > 4096 - 3000).", 4096, 3000),
    ("The decoder prompt (length 10127) is longer than the maximum model length of 8192.", 8192, 10127),
    ("invalid params, context window exceeds limit (2013)", None, None),
    ("Invalid 'messages[3].content': string too long. Expected a string with maximum length 1048576, but got a string with length 1540820 instead.", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("message", "window", "tokens"), NUMBERS)
def test_numbers_are_told_apart_by_our_own_count(message: str, window: int, tokens: int) -> None:
    for answer in (0, 2000):
        assert said(message, tokens=(tokens or 0) * 9 // 10, answer=answer) == prompt(window, tokens)
    # Without one the window is still the window.
    assert said(message) == prompt(window)


def test_the_server_alone_states_counts() -> None:
    own = {"message": "request too long for the context size", "n_prompt_tokens": 6030, "n_ctx": 4096}
    assert classify(400, [], json.dumps({"error": own}).encode(), SentRequest(tokens=5500)) == prompt(
        4096, 6030
    )


# Without words.


@pytest.mark.spec("W38")
def test_no_body_counts_only_near_the_window_but_of_413() -> None:
    for body in (b"", b" \n"):
        assert classify(400, [], body, NEAR) == classify(413, [], body) == prompt()
        assert classify(400, [], body) is None


@pytest.mark.spec("W30")
def test_an_empty_stream_counts_only_near_the_window() -> None:
    assert classify(200, STREAM, b"", NEAR) == prompt()
    assert classify(200, STREAM, b"") is None
    assert classify(200, [(b"content-length", b"0")], b"", NEAR) is None


# In a stream.

FRAME = b'{"error":{"message":"This model\'s maximum context length is 4096 tokens.","type":"x","code":400}}'


def test_an_error_frame() -> None:
    assert classify(200, STREAM, b": hi\n\ndata: " + FRAME + b"\n\n") == prompt(4096)
    assert classify(200, STREAM, b"event: error\r\ndata:" + FRAME + b"\r\n\r\n") == prompt(4096)
    assert classify(200, [], FRAME) == prompt(4096)


def test_an_answer_may_talk_about_overflow() -> None:
    words = "maximum context length is 4096 tokens; prompt is too long"
    frame = json.dumps({"choices": [{"delta": {"content": words}}], "error": None}).encode()
    assert classify(200, STREAM, b"data: " + frame + b"\n\ndata: [DONE]\n\n") is None
    assert classify(200, [], json.dumps({"choices": [{"message": {"content": words}}]}).encode()) is None


# The answer asked for is too long: compaction is no cure.


@pytest.mark.spec("W40")
@pytest.mark.parametrize(
    ("message", "most"),
    [
        ("max_tokens is too large: 5000. This model supports at most 4096 completion tokens, whereas you provided 5000.", 4096),
        ("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for this model", 64000),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
        ("`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model", 8192),
    ],
)  # fmt: skip
def test_too_long_an_answer_is_not_curable(message: str, most: int) -> None:
    # Also where our own count is one of the numbers.
    assert said(message, tokens=5000) == said(message) == Overflow("output", most)


@pytest.mark.spec("W40")
def test_an_answer_as_long_as_the_window_leaves_no_prompt() -> None:
    message = "This model's maximum context length is 8192 tokens. However, you requested {} tokens (1000 in the messages, {} in the completion)."
    assert said(message.format(10000, 9000), tokens=990, answer=9000) == Overflow("output", 8192, 1000)
    assert said(message.format(8500, 7500), tokens=990, answer=7500) == prompt(8192, 1000)


# Never.


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"Invalid value for temperature","type":"invalid_request_error","code":null}}',
        b'{"error":{"message":"bad image","input":"This model\'s maximum context length is 4 tokens"}}',
        b'{"error":{"message":"Too many tokens, please wait before trying again.","type":"throttling"}}',
        b'{"error":{"message":"Tool argument validation failed: input length exceeds 1000 characters"}}',
        # No shorter prompt has a shorter id.
        b'{"error":{"message":"Invalid \'messages[3].tool_calls[0].id\': string too long. Expected a string with '
        b'maximum length 40, but got a string with length 53 instead.","type":"invalid_request_error",'
        b'"param":"messages[3].tool_calls[0].id","code":"string_above_max_length"}}',
        b"<html><body>400 Bad Request</body></html>",
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b"[" * 5000,
        b'{"error":' * 3000,
    ],
)
def test_other_errors_pass(body: bytes) -> None:
    assert classify(400, [], body, NEAR) is None


# Words of the request.


PHRASE = "maximum context length is 10000 tokens"


@pytest.mark.spec("H01")
@pytest.mark.parametrize(
    "request_body",
    [
        json.dumps({"role": PHRASE}),
        json.dumps({"role": PHRASE.upper()}),
        json.dumps({"role": PHRASE}).replace("m", "\\u006d"),
        json.dumps({"arguments": json.dumps({"text": json.dumps(PHRASE).replace("m", "\\u006d")})}),
        json.dumps({"role": PHRASE.replace(" ", "\n\t")}),
        json.dumps({"content": [{"type": "text", "text": word + " "} for word in PHRASE.split()]}),
        json.dumps({"role": "maxi\u00admum con\u200btext length\u2028is 10000 tokens"}),
        json.dumps({"role": "maxi\u00admum con\u200btext length is 10000"}, ensure_ascii=False),
        f"not JSON: {PHRASE}",
        PHRASE + " " * 2_100_000,
    ],
)
def test_what_the_request_says_is_not_the_servers(request_body: str) -> None:
    asked, near = (SentRequest([request_body.encode()], is_near=near) for near in (False, True))
    for message in (f"{PHRASE} is no role", f'{{"message": "{PHRASE}"}}'):
        body = json.dumps({"error": {"message": message}}).encode()
        assert classify(400, [], body, asked) is None
        # A long prompt may be too long all the same: the number is nobody's.
        assert classify(400, [], body, near) == prompt()
        assert classify(400, [], body) == prompt(10_000)
    # In quotation marks the words are never the server's.
    body = json.dumps({"error": {"message": f"'{PHRASE}' is no role"}}).encode()
    assert classify(400, [], body, near) is None


@pytest.mark.spec("H01")
def test_words_that_the_request_says_in_two_places_are_not_the_servers() -> None:
    asked = SentRequest([b'{"role": "maximum context", "name": "length is 10000 tokens"}'])
    body = json.dumps({"error": {"message": f"{PHRASE} is nobody"}}).encode()
    assert classify(400, [], body, asked) is None


@pytest.mark.spec("H01")
@pytest.mark.parametrize(
    "said",
    [
        "What is the context length of this model, at maximum?",
        "This model's maximum context is what? The length is 8191 tokens.",
        "maximum, context and length",
    ],
)
def test_a_conversation_about_models_takes_no_words_from_the_server(said: str) -> None:
    asked = SentRequest([json.dumps({"messages": [{"role": "user", "content": said}]}).encode()])
    body = json.dumps({"error": {"message": NUMBERS[0][0]}}).encode()
    assert classify(400, [], body, asked) == prompt(8192)


@pytest.mark.spec("H01")
def test_counts_and_codes_are_taken_where_only_the_server_writes_them() -> None:
    quoted = {"n_ctx": 10, "code": "context_length_exceeded", "message": "x"}
    asked = SentRequest([json.dumps({"messages": [quoted]}).encode()])
    for error in (
        {"detail": [{"msg": "bad", "input": quoted}]},
        {"detail": quoted},
        {"error": {"message": json.dumps(quoted)}},
        {"error": {"message": "bad", "metadata": {"raw": json.dumps({"error": quoted})}}},
    ):
        assert classify(400, [], json.dumps(error).encode(), asked) is None
    own = {"error": {"message": "too long", "type": "exceed_context_size_error", "n_ctx": 4_096}}
    assert classify(400, [], json.dumps(own).encode(), asked) == prompt(4_096)
    # A gateway quotes its server's JSON, which is no request's.
    assert classify(400, [], json.dumps({"detail": quoted}).encode()) == prompt()
