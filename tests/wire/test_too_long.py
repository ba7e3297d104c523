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

from tests.kit.model import tokens_of
from tests.kit.wire import Line, Reply, answer_body, event, post, wired
from tests.kit.words import prose
from tests.upstream.scripted import Script, replies, streams

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
# Sentences of servers as published (2024 to 2026), in OpenAI's shape unless another one is given. {n}: tokens
# of the prompt, {m}: with the answer asked for, {N}: the window.
SAID: list[Any] = [
    "This model's maximum context length is {N} tokens. However, your messages resulted in {n} tokens. Please reduce the length of the messages.",
    "This model's maximum context length is {N} tokens, however you requested {m} tokens ({n} in your prompt; 256 for the completion). Please reduce your prompt; or completion length.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Input tokens exceed the configured limit of {N} tokens. Your messages resulted in {n} tokens. Please reduce the length of the messages.",
    "Invalid 'messages[3].content': string too long. Expected a string with maximum length 1048576, but got a string with length 1540820 instead.",
    "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length 2100 instead.",
    "prompt is too long: {n} tokens > {N} maximum",
    "input length and `max_tokens` exceed context limit: {n} + 256 > {N}, decrease input length or `max_tokens` and try again",
    {"error": {"code": "invalid_parameter_error", "message": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, {N}]", "param": None, "type": "invalid_request_error"}, "request_id": "81a373d6-28bd-9968"},
    "This model's maximum context length is {N} tokens. However, you requested {m} tokens ({n} in the messages, 256 in the completion). Please reduce the length of the messages or completion.",
    "Invalid request: Your request exceeded model token limit: {N} (requested: {n})",
    "model max length exceeded, max length:{N}",
    {"error": {"code": "1261", "message": "Prompt exceeds max length"}},
    {"type": "error", "error": {"type": "invalid_request_error", "message": "invalid params, context window exceeds limit (2013)"}},
    "Prompt contains {n} tokens and 0 draft tokens, too large for model with {N} maximum context length",
    "Please reduce the length of the messages or completion.",
    "Please reduce the length of the messages or completion. Current length is {n} while limit is {N}",
    (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {N}. Given: {n} `inputs` tokens and 256 `max_new_tokens`", "error_type": "validation"}),
    "Input validation error: `inputs` must have less than {N} tokens. Given: {n}",
    "The prompt is too long: {n}, model maximum context length: {N}",
    "This endpoint's maximum context length is {N} tokens. However, you requested about {m} tokens ({n} of text input, 256 in the output). Please reduce the length of either one, or use the \"middle-out\" transform to compress your prompt automatically.",
    {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "{\"error\":{\"message\":\"prompt is too long: {n} tokens > {N} maximum\"}}", "provider_name": "X"}}},
    "litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - Max Input Tokens={N}, Got={n}",
    {"object": "error", "type": "BadRequestError", "param": None, "code": 400, "message": "This model's maximum context length is {N} tokens. However, you requested 256 output tokens and your prompt contains at least {n} input tokens, for a total of at least {m} tokens. Please reduce the length of the input prompt or the number of requested output tokens."},
    {"object": "error", "type": "BadRequestError", "code": 400, "message": "The decoder prompt (length {n}) is longer than the maximum model length of {N}. Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens. For image inputs, the number of image tokens depends on the number of images."},
    "The input ({n} tokens) is longer than the model's context length ({N} tokens).",
    "Input length ({n} tokens) exceeds the maximum allowed length ({N} tokens).",
    "Requested token count exceeds the model's maximum context length of {N} tokens. You requested a total of {m} tokens: {n} tokens from the input messages and 256 tokens for the completion.",
    {"error": {"code": 400, "message": "request ({n} tokens) exceeds the available context size ({N} tokens), try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 6030, "n_ctx": 2200}},
    (500, {"error": {"code": 500, "message": "the request exceeds the available context size. try increasing the context size or enable context shift", "type": "server_error"}}),
    (500, {"error": {"code": 500, "message": "context shift is disabled", "type": "server_error"}}),
    (500, {"error": {"code": 500, "message": "Input prompt is too big compared to KV size. Please try increasing KV size.", "type": "server_error"}}),
    "Requested tokens ({n}) exceed context window of {N}",
    {"error": {"message": "the input length exceeds the context length", "type": "api_error", "param": None, "code": None}},
    "exceeded max context length by 1054 tokens",
    "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input",
    {"error": "Trying to keep the first {n} tokens when context the overflows. However, the model is loaded with context length of only {N} tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input"},
    {"error": "Reached context length of {N} tokens with model (arch: gpt-oss) that does not currently support mid-generation context overflow."},
    {"detail": [{"msg": "Prompt length ({n}) exceeds maximum input length ({N})"}]},
    "The sum of prompt length ({n}.0), query length (0) should not exceed max_num_tokens ({N})",
    "Input is too long for requested model.",
    "Too many input tokens. Max input tokens: {N}, request input token count: {n}",
    [{"error": {"code": 400, "message": "The input token count ({n}) exceeds the maximum number of tokens allowed ({N}).", "status": "INVALID_ARGUMENT"}}],
    [{"error": {"code": 400, "message": "Unable to submit request because the input token count is {n} but model only supports up to {N}. Reduce the input token count and try again. You can also use the CountTokens API to calculate prompt token count and billable characters.", "status": "INVALID_ARGUMENT"}}],
    {"code": "invalid-argument", "error": "This model's maximum prompt length is {N} but the request contains {n} tokens."},
    {"message": "too many tokens: total number of tokens in the prompt cannot exceed {N} - received {n}. Try using a shorter prompt."},
    {"message": "too many tokens: size limit exceeded by 1912 tokens. Try using shorter or fewer inputs, or setting a smaller value for 'max_tokens'."},
    {"code": 20015, "message": "length of prompt_tokens ({n}) must be less than max_seq_len ({N}).", "data": None},
    {"code": 20015, "message": "max_total_tokens ({m}) must be less than or equal to max_seq_len ({N})", "data": None},
    {"errors": [{"message": "AiError: The estimated number of input and maximum output tokens ({m}) exceeded this model context window limit ({N}).", "code": 5021}], "success": False},
    (413, {"error": {"code": "tokens_limit_reached", "message": "Request body too large for gpt-4o model. Max size: {N} tokens.", "details": "Request body too large for gpt-4o model. Max size: {N} tokens."}}),
    {"error": {"message": "prompt token count of {n} exceeds the limit of {N}", "code": "model_max_prompt_tokens_exceeded"}},
    "Request length {n} + 256 is greater than max_seq_len {N}",
    "Requested generation length 1 is not possible! The provided prompt is {n} tokens long, so generating 1 tokens requires a sequence length of {m}, but the maximum supported sequence length is just {N}!",
    {"error": {"message": "Requested 256 to generate tokens, following a prompt of length {n}, which exceeds the max limit of {N} tokens.", "type": "requested_too_many_tokens", "code": 400}},
    {"error": {"code": "InvalidParameter", "message": "Input length {n} exceeds the maximum length {N}"}},
    "Total tokens of image and text exceed max message tokens. Request id: 0217",
    "input_ids size ({n}) + current sequence length (0) exceeds max length ({N})",
    "Token indices sequence length is longer than the specified maximum sequence length for this model ({n} > {N}). Running this sequence through the model will result in indexing errors",
    "Context overflow: prompt too large for the model.",
    "Prompt exceeds maximum context length",
    "输入长度超过模型最大长度限制",
    (413, {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
    (413, b"<html><head><title>413 Request Entity Too Large</title></head><body><hr>nginx/1.27</body></html>"),
    (413, b"Payload Too Large"),
    (413, b""),
    (400, b""),
    (400, b"maximum context length is {N} tokens"),
    # In no server's words: what they say by their shape alone.
    "You sent {n} tokens. The limit is {N} tokens.",
    "Your request has {n} tokens, but this deployment accepts {N}.",
    "The prompt (total {n} tokens) cannot be processed: window {N}",
    "Le contexte est trop long : {n} tokens, maximum {N}",
]  # fmt: skip


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


def told(at: int, messages: list[Json]) -> tuple[int, bytes, int | None]:
    """Status and body of a refusal with the numbers of these messages, and the window that it states."""
    status, body = SAID[at] if isinstance(SAID[at], tuple) else (400, SAID[at])
    body = openai(body) if isinstance(body, str) else body
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    tokens, states = tokens_of(messages), b"{N}" in raw
    for name, number in (("n", tokens), ("m", tokens + 256), ("N", 2_200)):
        raw = raw.replace(b"{%b}" % name.encode(), b"%d" % number)
    return status, raw, 2_200 if states else None


@pytest.mark.spec("W27", "W28", "W29", "W31", "W32", "W33", "W34", "W35", "W36", "W37", "W38")
@pytest.mark.parametrize("at", range(len(SAID)))
async def test_a_refusal_is_answered_by_a_smaller_prompt(near: Line, at: int) -> None:
    # Behind a window that nobody knows.
    before, model, messages = len(near.upstream.requests), f"unknown-{at}", talk(f"said {at}", 420)
    status, body, window = told(at, messages)
    near.upstream.expects(replies(body, status, [JSON_TYPE]), answers(at % 2 == 0))
    reply = await near.asks(request(model, messages, stream=at % 2 == 0))
    await is_recovered(near, reply, before, len(messages))
    learned = await near.http.get("/api/windows", headers={"authorization": "Bearer key-1"})
    assert (f'"{model}"' in learned.text) is (window is not None)
    assert (
        window is None
        or f'"tokens":{window}' in learned.text.replace(" ", "").partition(f'"{model}"')[2][:200]
    )


EVENTS_SAID = (0, 28, 42, 44)


@pytest.mark.parametrize("at", EVENTS_SAID)
async def test_a_refusal_as_the_first_event_of_a_200(near: Line, at: int) -> None:
    # Far from the window: the words are enough.
    before, messages = len(near.upstream.requests), talk(f"{at} in events", 120)
    frames = [b"data: " + told(at, messages)[1] + b"\n\n", b"data: [DONE]\n\n"]
    near.upstream.expects(streams(frames), answers(True))
    reply = await near.asks(request(f"{at}-events", messages, stream=True))
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
@pytest.mark.parametrize("script", [streams([])])
async def test_silence_counts_also_where_the_window_is_a_guess(near: Line, script: Script) -> None:
    before = len(near.upstream.requests)
    near.upstream.expects(script, answers(True))
    messages = talk(f"guess {before}", 420)
    reply = await near.asks(request("unknown-model", messages, stream=True))
    await is_recovered(near, reply, before, len(messages))


@pytest.mark.spec("W38", "W30")
async def test_silence_about_a_short_prompt_is_not_taken_for_an_overflow(near: Line) -> None:
    before = len(near.upstream.requests)
    near.upstream.expects(replies(b"", 400))
    reply = await near.asks(request("unknown-model", talk("short", 20)))
    assert (reply.status, reply.body) == (400, b"")
    assert len(near.upstream.requests) == before + 1


GROQ_TPM = "Request too large for model `m` in organization `o` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 7013, please reduce your message size and try again."
# What compaction cannot cure, near a window that is known.
PASSED: list[Any] = [
    (413, openai(GROQ_TPM, type="tokens", code="rate_limit_exceeded")),
    (413, openai(GROQ_TPM.replace("minute", "min"))),
    (429, OPENAI),
    (429, openai("Your input exceeds the context window of this model.")),
    (401, OPENAI),
    (403, openai("Prompt exceeds the limit of your plan.")),
    (404, OPENAI),
    (500, OPENAI),
    (503, b""),
    (400, openai("Too many tokens, please wait before trying again.", type="throttling")),
    (400, openai("Budget has been exceeded! Current cost: 10.2, Max budget: 10.0")),
    (400, openai("prompt tokens limit exceeded", code=429)),
    (400, openai("max_tokens is too large: 999999. This model supports at most 16384 completion tokens, whereas you provided 999999.")),
    (400, openai("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for this model")),
    (400, openai("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]")),
    (400, openai("`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model")),
    (400, openai("max_tokens (10000) cannot exceed 8192. Please reduce the length of max output tokens generated.")),
    (400, openai("The maximum tokens you requested exceeds the model limit of 2048. Try again with a maximum tokens value that is lower than 2048.")),
    (400, openai("messages.3.content.1.image.source.base64: image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes")),
    (400, openai("Too many images in request: 30. Maximum is 20 per prompt.")),
    (400, openai("At most 1 image(s) may be provided in one prompt.")),
    (413, openai("Image size is too large: 4900 x 5100 pixels; the limit is 4096")),
    (422, {"detail": [{"type": "less_than_equal", "loc": ["body", "temperature"], "msg": "Input should be less than or equal to 2", "input": 3}]}),
    (400, openai("Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 53 instead.")),
    (400, openai("Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 200 instead.")),
    (400, openai("Tool argument validation failed: input length exceeds 1000 characters")),
    (400, openai("Invalid role 'maximum context length is 10 tokens'")),
    (400, openai('Unknown part: {"text": "prompt is too long: 9000 tokens > 8000 maximum"}')),
    (400, openai("The request timed out after 5000 ms (limit 4000)")),
    (400, openai("Invalid value for temperature")),
]  # fmt: skip


@pytest.mark.spec("W36", "W40", "H01")
@pytest.mark.parametrize("at", range(len(PASSED)))
async def test_what_compaction_cannot_cure_passes(near: Line, at: int) -> None:
    before, (status, said) = len(near.upstream.requests), PASSED[at]
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    near.upstream.expects(replies(body, status, [JSON_TYPE]))
    messages = talk(f"passed {at}")
    messages[3]["content"] += (
        " maximum context length is 10 tokens. prompt is too long: 9000 tokens > 8000 maximum"
    )
    sent = request("passed", messages, stream=at % 2 == 0)
    reply = await near.asks(sent)
    assert (reply.status, reply.body) == (status, body)
    assert len(near.upstream.requests) == before + 1
    assert sent.endswith(near.upstream.requests[-1].body)
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
