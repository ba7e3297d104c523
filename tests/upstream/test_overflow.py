"""One example of every server's words, as they stand on the wire, and what must never be taken for them."""

# ruff: noqa: E501 - sentences of servers are not broken where a line would end

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.upstream.overflow import Overflow, RequestWords, classify

STREAM = [(b"Content-Type", b"text/event-stream; charset=utf-8")]


def said(message: str, status: int = 400, **more: Any) -> Overflow | None:
    return classify(status, [], json.dumps({"error": {"message": message, **more}}).encode())


def prompt(window: int | None = None, tokens: int | None = None) -> Overflow:
    return Overflow("prompt", window, tokens)


OPENAI_STYLE = [
    ("This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens. Please reduce the length of the messages.", {"code": "context_length_exceeded", "type": "invalid_request_error", "param": "messages"}, prompt(8192, 9001)),
    ("Your input exceeds the context window of this model. Please adjust your input and try again.", {"code": "context_length_exceeded"}, prompt()),
    ("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300123 tokens. Please reduce the length of the messages.", {"code": "context_length_exceeded"}, prompt(272000, 300123)),
    ("This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (130000 of text input, 10000 in the output). Please reduce the length of either one, or use the \"middle-out\" transform to compress your prompt automatically.", {"code": 400, "metadata": {"raw": None}}, prompt(131072, 130000)),
    ("This model's maximum context length is 65536 tokens. However, you requested 70000 tokens (66000 in the messages, 4000 in the completion). Please reduce the length of the messages or completion.", {"code": "invalid_request_error"}, prompt(65536, 66000)),
    ("Please reduce the length of the messages or completion.", {"code": "context_length_exceeded"}, prompt()),
    ("Input is too long for requested model.", {}, prompt()),
    ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", {}, prompt(131072, 537812)),
    ("The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input", {}, prompt()),
    ("Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", {"type": "invalid_request_prompt"}, prompt(32768, 40000)),
    ("prompt is too long: 210000 tokens > 200000 maximum", {"type": "invalid_request_error"}, prompt(200000, 210000)),
    ("input length and `max_tokens` exceed context limit: 197202 + 21333 > 200000, decrease input length or `max_tokens` and try again", {}, prompt(200000, 197202)),
    ("The prompt is too long: 150000, model maximum context length: 131071", {}, prompt(131071, 150000)),
    ("prompt token count of 150000 exceeds the limit of 128000", {}, prompt(128000, 150000)),
    ("Invalid request: Your request exceeded model token limit: 8192", {}, prompt(8192)),
    ("invalid params, context window exceeds limit (2013)", {}, prompt()),
    ("Prompt exceeds max length", {"code": "1261"}, prompt()),
    ("too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292.", {}, prompt(4081, 4292)),
    ("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8000 `inputs` tokens and 1000 `max_new_tokens`", {}, prompt(8193, 8000)),
    ("Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens: 4500 tokens from the input messages and 500 tokens for the completion.", {}, prompt(4096, 4500)),
    ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", {}, prompt(4096, 5000)),
    ("Invalid 'messages[3].content': string too long. Expected a string with maximum length 1048576, but got a string with length 1540820 instead.", {"code": "string_above_max_length", "param": "messages[3].content"}, prompt()),
    ("Invalid 'input[2].content[0].text': string too long. Expected a string with maximum length 10485760, but got a string with length 10485761 instead.", {"code": "string_above_max_length", "param": "input[2].content[0].text"}, prompt()),
]  # fmt: skip


@pytest.mark.spec("W27", "W31", "W33", "W34", "W35", "W36", "W37", "W38")
@pytest.mark.parametrize(("message", "more", "verdict"), OPENAI_STYLE)
def test_openais_shape(message: str, more: dict[str, Any], verdict: Overflow) -> None:
    assert said(message, **more) == verdict


FLAT = {"object": "error", "type": "BadRequestError", "param": None, "code": 400}


@pytest.mark.spec("W28")
@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens in the messages, "
            "Please reduce the length of the messages.",
            prompt(4096, 5000),
        ),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 100 output tokens and your "
            "prompt contains at least 3997 input tokens, for a total of at least 4097 tokens. Please reduce the "
            "length of the input prompt or the number of requested output tokens.",
            prompt(4096, 3997),
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 "
            "tokens and your request has 3000 input tokens (2000 > 4096 - 3000).",
            prompt(4096, 3000),
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 "
            "tokens and your request has 100 input tokens (5000 > 4096 - 100).",
            Overflow("output", 4096, 100),
        ),
    ],
)
def test_vllms_flat_shape(message: str, verdict: Overflow) -> None:
    assert classify(400, [], json.dumps({**FLAT, "message": message}).encode()) == verdict
    assert said(message, type="BadRequestError", code=400) == verdict


@pytest.mark.spec("W29")
def test_llama_cpp_gives_numbers() -> None:
    error = {
        "code": 400,
        "message": "request (6030 tokens) exceeds the available context size (4096 tokens), try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 6030,
        "n_ctx": 4096,
    }
    assert classify(400, [], json.dumps({"error": error}).encode()) == prompt(4096, 6030)
    words_only = {"error": {"message": error["message"]}}
    assert classify(400, [], json.dumps(words_only).encode()) == prompt(4096, 6030)


@pytest.mark.spec("W31")
def test_anthropics_413() -> None:
    body = (
        b'{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}'
    )
    assert classify(413, [], body) == prompt()


@pytest.mark.spec("W32")
@pytest.mark.parametrize(
    "message",
    [
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "The input token count (1200000) exceeds the maximum number of tokens allowed 1048576.",
    ],
)
def test_geminis_array(message: str) -> None:
    body = json.dumps([{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}]).encode()
    assert classify(400, [], body) == prompt(1048576, 1200000)


def test_an_error_quoted_in_an_error() -> None:
    inner = json.dumps({"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}})
    body = {"error": {"message": "The server returned error", "code": 400, "metadata": {"raw": inner}}}
    assert classify(400, [], json.dumps(body).encode()) == prompt(200000, 210000)
    litellm = "litellm.ContextWindowExceededError: AnthropicException - " + inner
    assert said(litellm) == prompt(200000, 210000)


@pytest.mark.spec("W37")
def test_xais_flat_error() -> None:
    words = "This model's maximum prompt length is 131072 but the request contains 537812 tokens."
    body = json.dumps({"code": "invalid-argument", "error": words}).encode()
    assert classify(400, [], body) == prompt(131072, 537812)


def test_a_front_ends_bound_on_bytes() -> None:
    body = b"<html><head><title>413 Request Entity Too Large</title></head></html>"
    assert classify(413, [], body) == prompt()


def test_fastapi_and_plain_text() -> None:
    words = "maximum context length is 4096 tokens"
    assert classify(422, [], json.dumps({"detail": [{"msg": words}]}).encode()) == prompt(4096)
    assert classify(400, [], words.encode()) == prompt(4096)


# Without words.


@pytest.mark.spec("W38")
@pytest.mark.parametrize("status", [400, 413])
def test_no_body_counts_only_near_the_window(status: int) -> None:
    assert classify(status, [], b"", near_window=True) == prompt()
    assert classify(status, [], b" \n", near_window=True) == prompt()
    assert classify(status, [], b"") is None


@pytest.mark.spec("W30")
def test_an_empty_stream_counts_only_near_the_window() -> None:
    assert classify(200, STREAM, b"", near_window=True) == prompt()
    assert classify(200, STREAM, b"") is None
    assert classify(200, [(b"content-length", b"0")], b"", near_window=True) is None


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
    "message",
    [
        "max_tokens is too large: 999999. This model supports at most 16384 completion tokens, whereas you provided "
        "999999.",
        "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for this model",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
        "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the "
        "`context_window` for this model",
    ],
)
def test_too_long_an_answer_is_not_curable(message: str) -> None:
    verdict = said(message)
    assert isinstance(verdict, Overflow)
    assert verdict.kind == "output"


@pytest.mark.spec("W40")
def test_an_answer_as_long_as_the_window_leaves_no_prompt() -> None:
    message = (
        "This model's maximum context length is 8192 tokens. However, you requested {} tokens (1000 in the messages, "
        "{} in the completion). Please reduce the length of the messages or completion."
    )
    assert said(message.format(10000, 9000)) == Overflow("output", 8192, 1000)
    assert said(message.format(8500, 7500)) == prompt(8192, 1000)


# Never.


@pytest.mark.spec("W40")
@pytest.mark.parametrize("status", [401, 403, 404, 408, 409, 429, 500, 502, 503, 529])
def test_other_statuses_are_never_overflow(status: int) -> None:
    assert said("This model's maximum context length is 4096 tokens.", status) is None
    assert classify(status, [], b"", near_window=True) is None


@pytest.mark.spec("W36", "W40")
@pytest.mark.parametrize("status", [400, 413])
def test_a_rate_limit_is_not_an_overflow(status: int) -> None:
    groq = (
        "Request too large for model `llama-3.1-8b-instant` in organization `o` on tokens per minute (TPM): Limit "
        "6000, Requested 7013, please reduce your message size and try again."
    )
    assert said(groq, status, type="tokens", code="rate_limit_exceeded") is None
    assert said(groq, status) is None


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
    assert classify(400, [], body, near_window=True) is None


# Words of the request.


PHRASE = "maximum context length is 10 tokens"


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
        json.dumps({"role": "maxi\u00admum con\u200btext length\u2028is 10 tokens"}),
        json.dumps({"role": "maxi\u00admum con\u200btext length is 10"}, ensure_ascii=False),
        f"not JSON: {PHRASE}",
        PHRASE + " " * 2_100_000,
    ],
)
def test_what_the_request_says_is_not_the_servers(request_body: str) -> None:
    asked = RequestWords([request_body.encode()])
    for message in (f"'{PHRASE}' is no role", f"{PHRASE!r}: {PHRASE.upper()}", f'{{"message": "{PHRASE}"}}'):
        body = json.dumps({"error": {"message": message}}).encode()
        assert classify(400, [], body, request=asked) is None
        # A long prompt may be too long all the same: the number is nobody's.
        assert classify(400, [], body, request=asked, near_window=True) == prompt()
        assert classify(400, [], body) == prompt(10)


@pytest.mark.spec("H01")
def test_words_that_the_request_says_in_two_places_are_not_the_servers() -> None:
    asked = RequestWords([b'{"role": "maximum context", "name": "length is 10 tokens"}'])
    body = json.dumps({"error": {"message": f"{PHRASE} is nobody"}}).encode()
    assert classify(400, [], body, request=asked) is None


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
    asked = RequestWords([json.dumps({"messages": [{"role": "user", "content": said}]}).encode()])
    body = json.dumps({"error": {"message": OPENAI_STYLE[0][0]}}).encode()
    assert classify(400, [], body, request=asked) == prompt(8192, 9001)


@pytest.mark.spec("H01")
def test_counts_and_codes_are_taken_where_only_the_server_writes_them() -> None:
    quoted = {"n_ctx": 10, "code": "context_length_exceeded", "message": "x"}
    asked = RequestWords([json.dumps({"messages": [quoted]}).encode()])
    for error in (
        {"detail": [{"msg": "bad", "input": quoted}]},
        {"detail": quoted},
        {"error": {"message": json.dumps(quoted)}},
        {"error": {"message": "bad", "metadata": {"raw": json.dumps({"error": quoted})}}},
    ):
        assert classify(400, [], json.dumps(error).encode(), request=asked) is None
    own = {"error": {"message": "too long", "type": "exceed_context_size_error", "n_ctx": 4_096}}
    assert classify(400, [], json.dumps(own).encode(), request=asked) == prompt(4_096)
    # A gateway quotes its server's JSON, which is no request's.
    assert classify(400, [], json.dumps({"detail": quoted}).encode()) == prompt()
