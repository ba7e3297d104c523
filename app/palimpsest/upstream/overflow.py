"""Recognizes errors that say "the prompt is too long", in the wording of every server, and their numbers.

The tables hold what servers were seen to send, or what their sources contain; a test has one example of each.
Errors may quote the request: words that also occur in the request prove nothing, and no number is taken from
them. So a conversation cannot forge an overflow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import msgspec

# This many successive words of an error that also occur in the request are a quotation. Fewer are chance:
# many a conversation contains "context length". Every phrase that is searched has at least as many words.
_QUOTED_WORDS = 3
_WORD = re.compile(r"[a-z0-9_]+")
# What may separate two words, however often the text was escaped. Possessive, or a crafted body would be
# searched for minutes.
_BETWEEN = rb"(?:\\{1,8}+(?:[nrtbf]|u[0-9a-f]{4}|x[0-9a-f]{2})|[^a-z0-9_]){1,8}+"
# Escapes of ASCII characters that need none, with any number of backslashes.
_ESCAPED = re.compile(rb"\\+u00([2-7][0-9a-f])")
# A server may drop characters that are not ASCII before it quotes.
_NON_ASCII = re.compile(rb"[\x80-\xff]+|\\+u[0-9a-f]{4}")
# Levels of strings within strings: unescaping one may reveal another.
_MOST_ESCAPES = 4
# A larger request is not searched (up to here it took 0.4 s at worst): it is taken to contain anything.
_MOST_REQUEST_BYTES = 2 * 1024 * 1024


class RequestWords:
    """The bytes of a request, to find quotations of it; `parts` are read at the first use.

    A request of more than two megabytes is taken to contain any words.
    """

    def __init__(self, parts: Iterable[bytes] = ()) -> None:
        self._source = parts

    @cached_property
    def _parts(self) -> tuple[bytes, ...]:
        return tuple(self._source)

    @cached_property
    def _size(self) -> int:
        return sum(map(len, self._parts))

    def hold(self, words: str) -> bool:
        """True when three successive words of `words` (all, if fewer) occur in the request.

        Case, punctuation, escapes, and how a text is split into parts of a message are ignored.
        """
        if self._size > _MOST_REQUEST_BYTES:
            return True
        spoken = _WORD.findall(words.lower())
        runs = (spoken[at : at + _QUOTED_WORDS] for at in range(max(1, len(spoken) - _QUOTED_WORDS + 1)))
        return bool(spoken) and any(self._has(run) for run in runs)

    def _has(self, run: list[str]) -> bool:
        pattern = re.compile(_BETWEEN.join(word.encode() for word in run))
        return any(pattern.search(text) for text in self._texts)

    @cached_property
    def _texts(self) -> tuple[bytes, ...]:
        said = b"\n".join((*self._parts, *map(_joined_strings, self._parts))).lower()
        plain = said
        for _ in range(_MOST_ESCAPES):
            unescaped = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), plain)
            if unescaped == plain:
                break
            plain = unescaped
        texts = [plain] if plain is said else [said, plain]
        if (bare := _NON_ASCII.sub(b"", plain)) != plain:
            texts.append(bare)
        return tuple(texts)


def _joined_strings(part: bytes) -> bytes:
    """The strings of a JSON document, joined by key: servers join the parts of a message."""
    joined: dict[str, list[str]] = {}
    for name, text in _strings_in(json_of(part)):
        joined.setdefault(name, []).append(text)
    return "\n".join("".join(texts) for texts in joined.values()).encode("utf-8", "replace")


def _strings_in(value: Any) -> Iterator[tuple[str, str]]:
    """Every string with its key, in order. Not recursive: bodies may be nested deeply."""
    left = [("", value)]
    while left:
        under, one = left.pop()
        if isinstance(one, str):
            yield under, one
        elif isinstance(one, list):
            left.extend((under, item) for item in reversed(one))
        elif isinstance(one, dict):
            left.extend((key, item) for key, item in reversed(one.items()))


@dataclass(frozen=True, slots=True)
class Overflow:
    """The request did not fit the model's window.

    `kind` is "prompt" when a shorter prompt would be answered, and "output" when the requested length of the
    answer exceeds what the model can write, whatever the prompt: compaction does not help then.
    `window` and `prompt_tokens` are in the upstream's own count, None when it does not state them.
    """

    kind: Literal["prompt", "output"]
    window: int | None
    prompt_tokens: int | None


# 429 is a rate limit and 5xx a fault, whatever their text says; 401, 403 and 404 are about keys and names.
_STATUSES = frozenset({200, 400, 413, 422})
# Members with the server's messages and codes, at any depth. Other members of an error body (echoed input,
# debug fields) are not read, so that a quoted message never counts as the server's.
_MESSAGE_KEYS = frozenset(
    {"message", "error", "detail", "code", "type", "msg", "errors", "raw", "metadata", "status"}
)
_DEPTH = 6
# Members whose codes and counts are the server's own; below any other member it may quote whole objects.
_OWN_KEYS = frozenset({"error"})
_COUNTS = ("n_ctx", "n_prompt_tokens")
# Only the beginning of an error is read: the message is there, and the rest may be an HTML page.
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

# The requested length of the answer is too large, whatever the prompt.
_OUTPUT = re.compile(
    r"supports at most \d+ completion tokens"
    r"|max_(?:completion_|output_|new_)?tokens: \d+ > \d+"
    r"|maximum allowed number of output tokens"
    r"|valid range of max_tokens"
    r"|max_?(?:completion_|output_|new_)?tokens.{0,40}must be (?:less|at most|between)",
    re.IGNORECASE,
)


def _patterns(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


_TOO_LONG = _patterns(
    # OpenAI, Azure, vLLM, OpenRouter, DeepSeek, SGLang, Fireworks, Mistral.
    r"maximum context length",
    r"exceeds? the context window",
    # OpenAI, about one text; about an id, a name or metadata the same words are not an overflow.
    r"(?:content|text|output|arguments|input)'?: string too long",
    r"input tokens exceed the configured limit",
    r"exceeds the model's maximum context",
    r"longer than the model's context length",
    # vLLM.
    r"prompt contains at least \d+ input tokens",
    r"is too large: \d+\. this model's maximum",
    r"context length (?:is|of) only \d+",
    r"longer than the maximum model length",
    # llama.cpp and its derivatives.
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
    # Other servers of this API: GitHub, Moonshot, MiniMax, Cohere, TGI and Together, z.ai.
    r"prompt token count of \d+ exceeds",
    r"exceeded model token limit",
    r"context window exceeds limit",
    r"too many tokens: .{0,60}(?:cannot exceed|limit exceeded|exceeds the limit)",
    r"exceeds the maximum allowed input length",
    r"tokens in request more than max tokens allowed",
    r"`inputs` tokens \+ `max_new_tokens` must be <= \d+",
    r"prompt exceeds max length",
    # A front end's limit on bytes (nginx): a shorter prompt stays below it too.
    r"request entity too large",
)

# In order of trust: the first that matches gives the number.
_N = r"(\d[\d,]*)"
_WINDOW = _patterns(
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
_PROMPT_TOKENS = _patterns(
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
_ANSWER_TOKENS = _patterns(
    rf"{_N}(?: tokens)? (?:in|for|of) the (?:completion|output)",
    rf"requested {_N} output tokens",
    rf"tokens'? is too large: {_N}",
    rf"context limit: \d+ \+ {_N}",
    rf"and {_N} `max_new_tokens`",
)


def classify(
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes,
    *,
    request: RequestWords | None = None,
    near_window: bool = False,
) -> Overflow | None:
    """What an answer says of a prompt, or a requested length of the answer, that is too long; None: nothing.

    `body` is the decoded body, or the beginning of a stream (its frames are read; a stream that holds
    anything but an error is not an overflow). `request` is what was refused. `near_window`: by our own count
    the prompt nearly fills the window. Only then do words that may be quoted count as an overflow, without
    numbers, and errors or streams with an empty body, as sent by Cerebras, z.ai (400 and 413) and
    llama_cpp.server (200).
    """
    if status not in _STATUSES:
        return None
    if not body.strip():
        silent = status in (400, 413) or (status == 200 and _is_stream(headers))
        return Overflow("prompt", None, None) if silent and near_window else None
    request, body = request or RequestWords(), body[:_READ_BYTES]
    roots = list(_documents(body))
    if status == 200:
        roots = [error for root in roots for error in _errors(root)]
    spoken = [one for root in roots for one in _error_strings("message", root, _DEPTH, is_own=True)]
    if not roots and status != 200:
        spoken = [("message", body.decode("utf-8", "replace"), False)]
    text = "\n".join(said for _, said, _ in spoken)
    # The server's codes and counts, not those of a quoted object.
    codes = {
        said.lower()
        for key, said, is_own in spoken
        if key in ("code", "type", "status") and (is_own or not request.hold(f"{key} {said}"))
    }
    counts = {
        name: number
        for root in roots
        for name, number in _counts(root, _DEPTH)
        if not request.hold(f"{name} {number}")
    }

    def own(patterns: Iterable[re.Pattern[str]]) -> re.Match[str] | None:
        """The first match of `patterns` that is not quoted from the request."""
        places = (found for pattern in patterns for found in pattern.finditer(text))
        return next((found for found in places if not request.hold(found[0])), None)

    def number(patterns: Iterable[re.Pattern[str]]) -> int | None:
        found = own(patterns)
        return int(found[1].replace(",", "")) if found else None

    if not text or "rate_limit_exceeded" in codes or _RATE.search(text):
        return None
    if own((_OUTPUT,)):
        return Overflow("output", None, None)
    if not (codes & _CODES or own(_TOO_LONG)):
        is_likely = near_window and any(pattern.search(text) for pattern in _TOO_LONG)
        return Overflow("prompt", None, None) if is_likely else None
    window = counts.get("n_ctx") or number(_WINDOW)
    asked = number(_ANSWER_TOKENS)
    # An answer as long as the window leaves no room for any prompt. A shorter one does, so a shorter prompt
    # helps, even if the server blames max_tokens.
    hopeless = window is not None and asked is not None and asked >= window
    prompt_tokens = counts.get("n_prompt_tokens") or number(_PROMPT_TOKENS)
    return Overflow("output" if hopeless else "prompt", window, prompt_tokens)


def _is_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(
        name.lower() == b"content-type" and value.lower().startswith(b"text/event-stream")
        for name, value in headers
    )


def _documents(body: bytes) -> Iterator[Any]:
    """The JSON values of a body: itself, or the data of each of its SSE frames."""
    whole = json_of(body)
    if whole is not None:
        yield whole
        return
    for line in body.splitlines():
        field, _, value = line.partition(b":")
        if field == b"data" and (parsed := json_of(value)) is not None:
            yield parsed


def json_of(data: bytes) -> Any:
    """The JSON value; None for what is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _errors(root: Any) -> Iterator[Any]:
    """The errors in a 200: the `error` of an object, or the object itself if its type is "error"."""
    for one in root if isinstance(root, list) else [root]:
        if not isinstance(one, dict):
            continue
        if one.get("error"):
            yield one["error"]
        elif "error" in (one.get("object"), one.get("type")):
            yield one


def _error_strings(key: str, value: Any, depth: int, *, is_own: bool) -> Iterator[tuple[str, str, bool]]:
    """The strings of an error with their keys, and whether servers do not quote in their place."""
    if isinstance(value, str):
        yield key, value, is_own
        # LiteLLM and OpenRouter quote the upstream's JSON inside a message; others quote the request's.
        if depth and value.lstrip()[:1] in ("{", "["):
            inside = json_of(value.encode("utf-8", "replace"))
            yield from _error_strings(key, inside, depth - 1, is_own=False)
    elif isinstance(value, int) and key == "code":
        yield key, str(value), is_own
    elif depth and isinstance(value, list):
        for item in value:
            yield from _error_strings(key, item, depth - 1, is_own=is_own)
    elif depth and isinstance(value, dict):
        for name in value.keys() & _MESSAGE_KEYS:
            inner = value[name]
            own = is_own and (name in _OWN_KEYS or not isinstance(inner, dict | list))
            yield from _error_strings(name, inner, depth - 1, is_own=own)


def _counts(value: Any, depth: int) -> Iterator[tuple[str, int]]:
    """Counts among the members of an error object itself."""
    if isinstance(value, list) and depth:
        for item in value:
            yield from _counts(item, depth - 1)
    elif isinstance(value, dict) and depth:
        for name in value.keys() & _OWN_KEYS:
            yield from _counts(value[name], depth - 1)
        for name in _COUNTS:
            count = value.get(name)
            if isinstance(count, int) and not isinstance(count, bool) and count > 0:
                yield name, count
