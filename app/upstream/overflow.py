"""Whether an answer says "too long", in every server's words, and the numbers it gives.

Pure; knows nothing of HTTP clients or of what is done about it. The tables are what servers were seen
to send or what their sources say; a test holds one example of each. Servers quote what they refuse: words of
an error that also stand in the request are the request's, and no number is taken from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from app.upstream.request_words import RequestWords


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
# Where only the server itself writes codes and counts; below any other member it may quote whole objects.
_OWN_PLACES = frozenset({"error"})
_COUNTS = ("n_ctx", "n_prompt_tokens")
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
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes,
    *,
    request: RequestWords | None = None,
    near_window: bool = False,
) -> Verdict:
    """Whether this answer says that the prompt, or the answer asked for, is too long.

    `body` is the decoded body, or the beginning of a stream (its frames are read; a stream that holds
    anything but an error is no overflow). `request` is what was refused. `near_window` is our own count's
    opinion: only with it are words that the request may have said taken for an overflow, without a number,
    and an error or a stream without any body, as Cerebras, z.ai (400 and 413) and llama_cpp.server (200)
    say it.
    """
    if status not in _STATUSES:
        return NotOverflow()
    if not body.strip():
        silent = status in (400, 413) or (status == 200 and _is_stream(headers))
        return Overflow("prompt", None, None) if silent and near_window else NotOverflow()
    said = _Said.of(body[:_READ_BYTES], request or RequestWords(), errors_only=status == 200)
    return said.verdict(near_window=near_window)


@dataclass(frozen=True, slots=True)
class _Spoken:
    """One string of an error. `is_own`: it stands where a server quotes nobody."""

    key: str
    value: str
    is_own: bool

    def is_code(self, request: RequestWords) -> bool:
        """True for a code that is the server's, not a quoted object's."""
        if self.key not in ("code", "type", "status"):
            return False
        return self.is_own or not request.hold(f"{self.key} {self.value}")


@dataclass(frozen=True, slots=True)
class _Said:
    """An error's words, its own codes, and the counts some servers give as numbers."""

    text: str
    codes: frozenset[str]
    counts: dict[str, int]
    request: RequestWords

    @classmethod
    def of(cls, body: bytes, request: RequestWords, *, errors_only: bool) -> _Said:
        roots = list(_documents(body))
        if errors_only:
            roots = [error for root in roots for error in _errors(root)]
        spoken = [one for root in roots for one in _spoken("message", root, _DEPTH, is_own=True)]
        if not roots and not errors_only:
            spoken = [_Spoken("message", body.decode("utf-8", "replace"), is_own=False)]
        counts = dict(pair for root in roots for pair in _counts(root, _DEPTH))
        return cls(
            text="\n".join(one.value for one in spoken),
            codes=frozenset(one.value.lower() for one in spoken if one.is_code(request)),
            counts={name: count for name, count in counts.items() if not request.hold(f"{name} {count}")},
            request=request,
        )

    def verdict(self, *, near_window: bool) -> Verdict:
        if not self.text or "rate_limit_exceeded" in self.codes or _RATE.search(self.text):
            return NotOverflow()
        if self._own((_OUTPUT,)):
            return Overflow("output", None, None)
        if not (self.codes & _CODES or self._own(_TOO_LONG)):
            is_likely = near_window and any(pattern.search(self.text) for pattern in _TOO_LONG)
            return Overflow("prompt", None, None) if is_likely else NotOverflow()
        window = self.counts.get("n_ctx") or self._number(_WINDOW)
        asked = self._number(_ASKED)
        # An answer as long as the window leaves no room for any prompt. A shorter one does, so a
        # shorter prompt is a cure, also where the server puts the blame on max_tokens.
        hopeless = window is not None and asked is not None and asked >= window
        prompt_tokens = self.counts.get("n_prompt_tokens") or self._number(_PROMPT)
        return Overflow("output" if hopeless else "prompt", window, prompt_tokens)

    def _own(self, patterns: Iterable[re.Pattern[str]]) -> re.Match[str] | None:
        """The first place where the server, and not the request, says one of `patterns`."""
        places = (found for pattern in patterns for found in pattern.finditer(self.text))
        return next((found for found in places if not self.request.hold(found[0])), None)

    def _number(self, patterns: Iterable[re.Pattern[str]]) -> int | None:
        found = self._own(patterns)
        return int(found[1].replace(",", "")) if found else None


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


def _spoken(key: str, value: Any, depth: int, *, is_own: bool) -> Iterator[_Spoken]:
    if isinstance(value, str):
        yield _Spoken(key, value, is_own)
        yield from _quoted(key, value, depth)
    elif isinstance(value, int) and key == "code":
        yield _Spoken(key, str(value), is_own)
    elif depth and isinstance(value, list):
        for item in value:
            yield from _spoken(key, item, depth - 1, is_own=is_own)
    elif depth and isinstance(value, dict):
        for name in value.keys() & _SPOKEN:
            inner = value[name]
            own = is_own and (name in _OWN_PLACES or not isinstance(inner, dict | list))
            yield from _spoken(name, inner, depth - 1, is_own=own)


def _quoted(key: str, value: str, depth: int) -> Iterator[_Spoken]:
    # LiteLLM and OpenRouter quote the server's own JSON inside a message; others quote the request's.
    if depth and value.lstrip()[:1] in ("{", "["):
        yield from _spoken(key, _parsed(value.encode("utf-8", "replace")), depth - 1, is_own=False)


def _counts(value: Any, depth: int) -> Iterator[tuple[str, int]]:
    """Counts as members of an error object, and nowhere else."""
    if isinstance(value, list) and depth:
        for item in value:
            yield from _counts(item, depth - 1)
    elif isinstance(value, dict) and depth:
        for name in value.keys() & _OWN_PLACES:
            yield from _counts(value[name], depth - 1)
        for name in _COUNTS:
            count = value.get(name)
            if isinstance(count, int) and not isinstance(count, bool) and count > 0:
                yield name, count
