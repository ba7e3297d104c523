"""Whether an answer says "too long", in every server's words, and the numbers it gives.

Pure; knows nothing of HTTP clients or of what is done about it. The tables are what servers were seen
to send or what their sources say; a test holds one example of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec


@dataclass(frozen=True, slots=True)
class Overflow:
    """The request did not fit the model's window.

    `kind` is "prompt" when a shorter prompt would be answered, and "output" when the tokens asked for
    as an answer exceed what the model gives, whatever the prompt: compaction cannot cure that.
    `window` and `prompt_tokens` are in the upstream's own count, None when it did not say.
    """

    kind: Literal["prompt", "output"]
    window: int | None
    prompt_tokens: int | None


@dataclass(frozen=True, slots=True)
class NotOverflow:
    """Anything else: relay it as it is."""


Verdict: TypeAlias = Overflow | NotOverflow

# 429 is a rate limit and 5xx a fault whatever their text says; 401, 403 and 404 are about keys and names.
_STATUSES = frozenset({200, 400, 413, 422})
# Where servers put their words and codes, at any depth; anything else in an error body (echoed input,
# debug fields) is not read, so that a quoted message never counts as the server's own.
_SPOKEN = frozenset(
    {"message", "error", "detail", "code", "type", "msg", "errors", "raw", "metadata", "status"}
)
_DEPTH = 6
# Only the beginning of an error is read: the words stand there, and the rest may be an HTML page.
_READ_BYTES = 64 * 1024

_CODES = frozenset(
    {
        "context_length_exceeded",
        "exceed_context_size_error",
        "request_too_large",
        "model_max_prompt_tokens_exceeded",
        "context_window_exceeded",
        "model_context_window_exceeded",
        "contextwindowexceedederror",
        # z.ai: "Prompt exceeds max length".
        "1261",
    }
)
_RATE = re.compile(r"rate.?limit|tokens per (?:minute|day)|\b[TR]P[MD]\b|quota", re.IGNORECASE)

# The answer asked for is too long whatever the prompt is.
_OUTPUT = re.compile(
    r"supports at most \d+ completion tokens"
    r"|max_(?:completion_|output_|new_)?tokens: \d+ > \d+"
    r"|maximum allowed number of output tokens"
    r"|valid range of max_tokens"
    r"|max_?(?:completion_|output_|new_)?tokens.{0,40}must be (?:less|at most|between)",
    re.IGNORECASE,
)

_TOO_LONG = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # OpenAI, Azure, vLLM, OpenRouter, DeepSeek, SGLang, Fireworks, Mistral.
        r"maximum context length",
        r"exceeds? the context window",
        # OpenAI, of one text; of an id, a name or metadata the same words mean something else.
        r"(?:content|text|output|arguments|input)'?: string too long",
        r"input tokens exceed the configured limit",
        r"exceeds the model's maximum context",
        r"longer than the model's context length",
        # vLLM.
        r"prompt contains at least \d+ input tokens",
        r"is too large: \d+\. this model's maximum",
        r"context length (?:is|of) only \d+",
        r"longer than the maximum model length",
        # llama.cpp and its kin.
        r"exceeds the available context size",
        r"exceed context window of \d+",
        r"configured context size is \d+",
        # Anthropic, Fireworks.
        r"prompt is too long",
        r"exceed context limit",
        r"request exceeds the maximum size",
        # Gemini.
        r"input token count .{0,24}exceeds the maximum",
        # Mistral.
        r"too large for model with \d+",
        # Groq.
        r"reduce the length of the messages or completion",
        # Bedrock, xAI, LM Studio, Ollama.
        r"input is too long for requested model",
        r"maximum prompt length is \d+",
        r"greater than the context length",
        r"exceeds (?:the )?context length",
        r"exceeded (?:max )?context length",
        # Others that speak this wire: GitHub, Moonshot, MiniMax, Cohere, TGI and Together, z.ai.
        r"prompt token count of \d+ exceeds",
        r"exceeded model token limit",
        r"context window exceeds limit",
        r"too many tokens: .{0,60}(?:cannot exceed|limit exceeded|exceeds the limit)",
        r"exceeds the maximum allowed input length",
        r"tokens in request more than max tokens allowed",
        r"`inputs` tokens \+ `max_new_tokens` must be <= \d+",
        r"prompt exceeds max length",
        # A front end's bound on bytes (nginx): a shorter prompt passes it too.
        r"request entity too large",
    )
)

# In order of trust: the first that matches gives the number.
_N = r"(\d[\d,]*)"
_WINDOW = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:maximum )?context length (?:is|of)(?: only)? {_N}",
        rf"(?:maximum )?context length: {_N}",
        rf"with {_N} maximum context length",
        rf"available context size \({_N}",
        rf"configured limit of {_N}",
        rf"\d+ \+ \d+ > {_N}",
        rf"tokens > {_N} maximum",
        rf"maximum number of tokens allowed \(?{_N}",
        rf"maximum prompt length is {_N}",
        rf"context length \({_N}",
        rf"exceeds the limit of {_N}",
        rf"token limit: {_N}",
        rf"must be <= {_N}",
        rf"cannot exceed {_N}",
        rf"maximum model length of {_N}",
        rf"exceed context window of {_N}",
        rf"configured context size is {_N}",
        rf"allowed input length of {_N}",
        rf"limit for this model is {_N}",
    )
)
_PROMPT = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_N}(?: tokens)? (?:in|from|of) (?:the )?(?:input |text )?(?:messages|input|prompt)\b",
        rf"contains (?:at least )?{_N}(?: input)? tokens",
        rf"request has {_N} input tokens",
        rf"request \({_N} tokens\)",
        rf"context limit: {_N} \+",
        rf"too long: {_N}",
        rf"input token count \({_N}\)",
        rf"messages resulted in {_N}",
        rf"prompt token count of {_N}",
        rf"the input \({_N} tokens\)",
        rf"given: {_N} `inputs`",
        rf"received {_N}",
        rf"requested {_N} tokens in the messages",
        rf"passed {_N} input tokens",
        rf"prompt \(length {_N}\)",
        rf"requested tokens \({_N}\)",
        rf"prompt has {_N} tokens",
        rf"keep the first {_N} tokens",
    )
)
_ASKED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_N}(?: tokens)? (?:in|for|of) the (?:completion|output)",
        rf"requested {_N} output tokens",
        rf"tokens'? is too large: {_N}",
        rf"context limit: \d+ \+ {_N}",
        rf"and {_N} `max_new_tokens`",
    )
)


def classify(
    status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes, *, near_window: bool = False
) -> Verdict:
    """Whether this answer says that the prompt, or the answer asked for, is too long.

    `body` is the decoded body, or the beginning of a stream (its frames are read; a stream that holds
    anything but an error is no overflow). `near_window` is our own count's opinion: only with it is an
    error or a stream without any body taken for an overflow, as Cerebras, z.ai (400 and 413) and
    llama_cpp.server (200) say it.
    """
    if status not in _STATUSES:
        return NotOverflow()
    if not body.strip():
        silent = status in (400, 413) or (status == 200 and _is_stream(headers))
        return Overflow("prompt", None, None) if silent and near_window else NotOverflow()
    said = _Said.of(body[:_READ_BYTES], errors_only=status == 200)
    return said.verdict()


@dataclass(frozen=True, slots=True)
class _Said:
    """An error's own words and codes, and the counts some servers give as numbers."""

    text: str
    codes: frozenset[str]
    window: int | None
    prompt_tokens: int | None

    @classmethod
    def of(cls, body: bytes, *, errors_only: bool) -> _Said:
        roots = list(_documents(body))
        if errors_only:
            roots = [error for root in roots for error in _errors(root)]
        spoken = [pair for root in roots for pair in _spoken("message", root, _DEPTH)]
        if not roots and not errors_only:
            spoken = [("message", body.decode("utf-8", "replace"))]
        numbers = dict(pair for root in roots for pair in _numbers(root, _DEPTH))
        return cls(
            text="\n".join(value for _, value in spoken),
            codes=frozenset(value.lower() for key, value in spoken if key in ("code", "type", "status")),
            window=numbers.get("n_ctx"),
            prompt_tokens=numbers.get("n_prompt_tokens"),
        )

    def verdict(self) -> Verdict:
        if not self.text or "rate_limit_exceeded" in self.codes or _RATE.search(self.text):
            return NotOverflow()
        if _OUTPUT.search(self.text):
            return Overflow("output", None, None)
        if not (self.codes & _CODES or any(pattern.search(self.text) for pattern in _TOO_LONG)):
            return NotOverflow()
        window = self.window or _first(_WINDOW, self.text)
        asked = _first(_ASKED, self.text)
        # An answer as long as the window leaves no room for any prompt. A shorter one does, so a
        # shorter prompt is a cure, also where the server puts the blame on max_tokens.
        hopeless = window is not None and asked is not None and asked >= window
        return Overflow(
            "output" if hopeless else "prompt", window, self.prompt_tokens or _first(_PROMPT, self.text)
        )


def _is_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(
        name.lower() == b"content-type" and value.lower().startswith(b"text/event-stream")
        for name, value in headers
    )


def _documents(body: bytes) -> Iterator[Any]:
    """The JSON values of a body: itself, or the data of each of its SSE frames."""
    whole = _parsed(body)
    if whole is not None:
        yield whole
        return
    for line in body.splitlines():
        field, _, value = line.partition(b":")
        if field == b"data" and (parsed := _parsed(value)) is not None:
            yield parsed


def _parsed(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _errors(root: Any) -> Iterator[Any]:
    """What a 200 says is an error: `error` of an object, or the object itself if it is typed so."""
    for one in root if isinstance(root, list) else [root]:
        if not isinstance(one, dict):
            continue
        if one.get("error"):
            yield one["error"]
        elif "error" in (one.get("object"), one.get("type")):
            yield one


def _spoken(key: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
        yield from _quoted(key, value, depth)
    elif isinstance(value, int) and key == "code":
        yield key, str(value)
    elif depth and isinstance(value, list):
        for item in value:
            yield from _spoken(key, item, depth - 1)
    elif depth and isinstance(value, dict):
        for name in value.keys() & _SPOKEN:
            yield from _spoken(name, value[name], depth - 1)


def _quoted(key: str, value: str, depth: int) -> Iterator[tuple[str, str]]:
    # LiteLLM and OpenRouter quote the server's own JSON inside a message.
    if depth and value.lstrip()[:1] in ("{", "["):
        yield from _spoken(key, _parsed(value.encode("utf-8", "replace")), depth - 1)


def _numbers(value: Any, depth: int) -> Iterator[tuple[str, int]]:
    if isinstance(value, list) and depth:
        for item in value:
            yield from _numbers(item, depth - 1)
    elif isinstance(value, dict) and depth:
        for name, item in value.items():
            if name in ("n_ctx", "n_prompt_tokens") and isinstance(item, int) and item > 0:
                yield name, item
            else:
                yield from _numbers(item, depth - 1)


def _first(patterns: Iterable[re.Pattern[str]], text: str) -> int | None:
    for pattern in patterns:
        if found := pattern.search(text):
            return int(found.group(1).replace(",", ""))
    return None
