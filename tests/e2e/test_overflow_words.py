"""However a server says that a prompt is too long, the turn is answered and nobody hears of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

Json = dict[str, Any]
pytestmark = [pytest.mark.timeout(60), pytest.mark.asyncio(loop_scope="module")]
WINDOW = 3_000


def openais(message: str, **more: Any) -> Json:
    return {"error": {"message": message, "type": "invalid_request_error", **more}}


OPENAI = (
    "This model's maximum context length is 3000 tokens. However, your messages resulted in 4100 tokens. "
    "Please reduce the length of the messages."
)
VLLM = (
    "This model's maximum context length is 3000 tokens. However, you requested 4100 tokens in the messages, "
    "Please reduce the length of the messages."
)
VLLM_NEW = (
    "This model's maximum context length is 3000 tokens. However, you requested 100 output tokens and your "
    "prompt contains at least 4001 input tokens, for a total of at least 4101 tokens. Please reduce the "
    "length of the input prompt or the number of requested output tokens."
)
LLAMA = {
    "code": 400,
    "message": "request (4100 tokens) exceeds the available context size (3000 tokens), try increasing it",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 4100,
    "n_ctx": 3000,
}
GEMINI = "The input token count (4100) exceeds the maximum number of tokens allowed (3000)."
OPENROUTER = (
    "This endpoint's maximum context length is 3000 tokens. However, you requested about 4100 tokens (4000 "
    "of text input, 100 in the output). Please reduce the length of either one, or use the "
    '"middle-out" transform to compress your prompt automatically.'
)
MISTRAL = (
    "Prompt contains 4100 tokens and 0 draft tokens, too large for model with 3000 maximum context length"
)
DEEPSEEK = (
    "This model's maximum context length is 3000 tokens. However, you requested 4100 tokens (4000 in the "
    "messages, 100 in the completion). Please reduce the length of the messages or completion."
)
XAI = "This model's maximum prompt length is 3000 but the request contains 4100 tokens."
LM_STUDIO = (
    "The number of tokens to keep from the initial prompt is greater than the context length. Try to load "
    "the model with a larger context length, or provide a shorter input"
)
GROQ = "Please reduce the length of the messages or completion."
LARGE: Json = {
    "type": "error",
    "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"},
}
# Row, status, body, and whether it says what the window is.
SAID: list[tuple[str, int, Any, bool]] = [
    ("W27", 400, openais(OPENAI, code="context_length_exceeded"), True),
    ("W28", 400, {"object": "error", "message": VLLM, "type": "BadRequestError", "code": 400}, True),
    ("W28", 400, {"object": "error", "message": VLLM_NEW, "type": "BadRequestError", "code": 400}, True),
    ("W29", 400, {"error": LLAMA}, True),
    ("W31", 400, openais("prompt is too long: 4100 tokens > 3000 maximum"), True),
    ("W31", 413, LARGE, False),
    ("W32", 400, [{"error": {"code": 400, "message": GEMINI, "status": "INVALID_ARGUMENT"}}], True),
    ("W33", 400, openais(OPENROUTER, code=400), True),
    ("W34", 400, openais(MISTRAL, type="invalid_request_prompt"), True),
    ("W35", 400, openais(DEEPSEEK, code="invalid_request_error"), True),
    ("W36", 400, openais(GROQ, code="context_length_exceeded"), False),
    ("W37", 400, openais("Input is too long for requested model."), False),
    ("W37", 400, {"code": "invalid-argument", "error": XAI}, True),
    ("W37", 400, openais(LM_STUDIO), False),
]
CASES = [
    pytest.param(at, *case[1:], marks=pytest.mark.spec(case[0]), id=f"{case[0]}-{at}")
    for at, case in enumerate(SAID)
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    """Each case has a model of its own: what is learned of one says nothing of another."""
    names = tuple(f"model-{at}" for at in range(len(SAID)))
    folder = tmp_path_factory.mktemp("words")
    async with proxied(
        ModelServer(models=False, names=names), folder, {"compaction.overflow_retries": 2}
    ) as it:
        yield it


@pytest.mark.parametrize(("at", "status", "body", "says_window"), CASES)
async def test_it_is_understood_and_the_turn_is_answered(
    proxy: Proxy, at: int, status: int, body: Any, *, says_window: bool
) -> None:
    chat = proxy.chat(key=f"key-{at}", system="You keep the log.", extra={"model": f"model-{at}"})
    # Met with its history: no prompt as long as this one was ever answered, so that the window is believed.
    for turn in range(8):
        chat.said += [
            {"role": "user", "content": f"Entry {turn}. {prose(turn, 380)}"},
            {"role": "assistant", "content": f"Kept as {turn}."},
        ]
    proxy.model.answers.append(Says(status=status, error=body))
    await chat.says("Refused once.")
    # What the upstream said did not reach the client.
    assert "Answer" in chat.said[-1]["content"]
    refused, taken = proxy.model.prompts[-2:]
    assert refused.messages == chat.sent[-1]
    assert taken.tokens < refused.tokens > WINDOW
    assert taken.messages[-1] == {"role": "user", "content": "Refused once."}
    (made,) = await chat.compactions()
    assert made["trigger"] == "overflow"
    windows = (await proxy.http.get("/api/windows", headers=chat.headers)).json()
    learned = json.dumps(windows)
    assert (f'"tokens": {WINDOW}' in learned) is says_window, learned
    if says_window:
        assert taken.tokens < WINDOW
