"""Recognizes errors that say "the prompt is too long", in the wording of any server, and their numbers.

A sentence that names what is measured beside a word of excess counts, or two numbers beside words of length
of which one is about our own count of the prompt. Errors may quote the request: words that also occur in the
request prove nothing, and no number is taken from them. So a conversation cannot forge an overflow.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import msgspec

from palimpsest.core.wire.credentials import RawHeaders

# This many successive words of an error that also occur in the request are a quotation. Fewer are chance:
# many a conversation contains "context length". Every phrase that is searched has at least as many words.
_QUOTED_WORDS = 3
_WORD = re.compile(rb"[a-z0-9_]+")
# What may separate two words, however often the text was escaped. Possessive, or a crafted body would be
# searched for minutes.
_BETWEEN = rb"(?:\\{1,8}+(?:[nrtbf]|u[0-9a-f]{4}|x[0-9a-f]{2})|[^a-z0-9_]){1,8}+"
# Escapes of ASCII characters that need none, with any number of backslashes.
_ESCAPED = re.compile(rb"(?<!\\)\\++u00([2-7][0-9a-f])")
# A server may drop characters that are not ASCII before it quotes.
_NON_ASCII = re.compile(rb"[\x80-\xff]+|(?<!\\)\\++u[0-9a-f]{4}")
# Levels of strings within strings: unescaping one may reveal another.
_MOST_ESCAPES = 4
# A larger request is not searched (up to here it took 0.4 s at worst): it is taken to contain anything.
_MOST_REQUEST_BYTES = 2 * 1024 * 1024


@dataclass(eq=False)
class SentRequest:
    """What was refused: its bytes, to find quotations of them, and our own counts of it.

    `parts` are read at the first use; more than two megabytes are taken to contain any words. `tokens` are
    those of the prompt, `answer_tokens` those of the longest answer asked for; 0: not known. `is_near`: the
    prompt nearly fills the window.
    """

    parts: Iterable[bytes] = ()
    _: KW_ONLY
    tokens: int = 0
    answer_tokens: int = 0
    is_near: bool = False

    @cached_property
    def _held(self) -> tuple[bytes, ...]:
        return tuple(self.parts)

    def near(self, numbers: Iterable[int]) -> list[int]:
        """Those that may be the server's count of this prompt, the nearest to ours first."""
        about = (one for one in numbers if self.tokens <= 2 * one <= 4 * self.tokens)
        return sorted(about, key=lambda one: abs(one - self.tokens))

    def hold(self, words: str) -> bool:
        """True when three successive words of `words` (all, if fewer) occur in the request.

        Case, punctuation, escapes, and how a text is split into parts of a message are ignored.
        """
        if sum(map(len, self._held)) > _MOST_REQUEST_BYTES:
            return True
        spoken = _WORD.findall(words.lower().encode("utf-8", "replace"))
        starts = range(max(1, len(spoken) - _QUOTED_WORDS + 1)) if spoken else ()
        runs = (re.compile(_BETWEEN.join(spoken[at : at + _QUOTED_WORDS])) for at in starts)
        return any(run.search(text) for run in runs for text in self._texts)

    @cached_property
    def _texts(self) -> set[bytes]:
        said = b"\n".join((*self._held, *map(_joined_strings, self._held))).lower()
        plain = said
        for _ in range(_MOST_ESCAPES):
            plain = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), plain)
        return {said, plain, _NON_ASCII.sub(b"", plain)}


def _joined_strings(part: bytes) -> bytes:
    """The strings of a JSON document, joined by key: servers join the parts of a message."""
    joined: defaultdict[str, list[str]] = defaultdict(list)
    # Not recursive: bodies may be nested deeply.
    left = [("", json_of(part))]
    while left:
        name, one = left.pop()
        if isinstance(one, str):
            joined[name].append(one)
        elif isinstance(one, list):
            left.extend((name, item) for item in reversed(one))
        elif isinstance(one, dict):
            left.extend(reversed(one.items()))
    return "\n".join(map("".join, joined.values())).encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Overflow:
    """The request did not fit the model's window.

    `kind` is "prompt" when a shorter prompt would be answered, and "output" when the requested length of the
    answer exceeds what the model can write, whatever the prompt: compaction does not help then.
    `window` and `prompt_tokens` are in the upstream's own count, None when it does not state them; of an
    "output", `window` is the longest answer.
    """

    kind: Literal["prompt", "output"]
    window: int | None = None
    prompt_tokens: int | None = None


# 429 is a rate limit and 5xx a fault, whatever their text says; 401, 403 and 404 are about keys and names.
_STATUSES = frozenset({200, 400, 413, 422, 500})
# Members with the server's messages and codes, at any depth. Other members of an error body (echoed input,
# debug fields) are not read, so that a quoted message never counts as the server's.
_MESSAGE_KEYS = re.compile(
    r"(?:message|errors?|details?|code|type|msg|raw|metadata|status|n_(?:prompt_tokens|ctx))\Z"
)
_DEPTH = 6
_CODE_KEYS = frozenset({"code", "type", "status"})
# Only the beginning of an error is read: the message is there, and the rest may be an HTML page.
_READ_BYTES = 64 * 1024


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(words, re.IGNORECASE)


# Codes and types, as "context_length_exceeded"; 1261 is z.ai's.
_CODE = _pattern(
    r"(?:context|prompt|input|tokens?)_?\w*(?:exceed|limit|too_(?:long|large|many)|overflow)|exceed\w*context"
    r"|request_(?:entity_)?too_large|\b1261\b"
)
_RATE = _pattern(
    r"^\D*(?:401|402|403|429)\b|rate.?limit"
    r"|(?:tokens|requests|characters|messages) (?:per|every|/) ?(?:min|day|hour|sec|month)"
    r"|\b[TR]P[MDHS]\b|quota|credits|billing|balance|throttl|\bbudget (?:has|exceed)|max budget|please wait"
    r"|try again (?:in|later)|too many requests|concurren"
)
# What is measured, other than the prompt. It remains the subject of the sentences that follow.
_OTHER = _pattern(
    r"\b(?:images?|pictures?|photos?|audio|videos?|pixels?|attachments?|pdfs?)\b(?!.*token)"
    r"|\bfiles? (?:size|too|exceed|is)|\btools?\W{1,3}(?:call\W+)?(?:arg|array|name|desc|schema|choice)"
    r"|metadata|_key\b|\.(?:id|name|url|filename)\b|['\"`](?:user|stop|seed|tools|functions|name|n)['\"`]"
    r"|\bstop sequences|logprobs|time(?:d )?.?out|nest|depth|schema\b|api.?key"
)
# The longest answer, its limits, and where it alone is refused whatever else the sentence names.
_ANSWER = _pattern(r"max(?:imum)?[ _](?:(?:completion|output|new)[ _])?tokens|(?:completion|output) tokens")
_ANSWER_ONLY = _pattern(
    r"max_?(?:completion_|output_|new_)?tokens\b.{0,40}must be (?:less|at most|between)|range of max_tokens"
)
_LIMITS = _pattern(
    r"too (?:large|high|big|long)|at most|exceed|less than|maxim|range|limit|\d > \d|up to|lower"
)

_SUBJECT = (
    r"(?:context|prompt|\binput|n_ctx|kv[ _](?:cache|size)|(?:seq\w*|model|max\w*)[ _]len|length of (?:the"
    r"|your)|tokens? limit|total[ _]tokens|messages?(?= (?:is |are )?too)|message tokens|history|conversation"
    r"|tokens in (?:the |your )?request|(?:content|text|output|arguments)'?: string|messages'?: array"
    r"|上下文|输入|提示词)"
)
_MORE = (
    r"(?:exceed|too (?:long|large|many|big|much)|over(?:flow|long|size|limit| the\b)|more than|beyond"
    r"|(?<!should be )(?<!must be )(?:long|larg|great|bigg|high)er than|超|过长)"
)
_EXCESS = (
    rf"(?:{_MORE}|\bmax(?!\w*_tokens)|(?<!should be )less than|must be (?:<|at most)|up to|at most|range of"
    r"|limit|only|shift|reduc|short|requested|reached|exhaust|configured|not fit|no room|full\b|space|最大)"
)
# With two more words: three that the request has, too, may be its own.
_TOO_LONG = _pattern(
    rf"(?:{_SUBJECT}.{{0,100}}?{_EXCESS}|{_EXCESS}.{{0,80}}?{_SUBJECT})\w*(?:\W{{1,4}}\w+){{0,2}}"
)
# Words of length: enough beside our own count.
_MEASURED = _pattern(r"token|prompt|context|length|window|\binput|request|message|model")
# Enough of a long prompt.
_LONG = _pattern(
    rf"(?:{_SUBJECT}|tokens?|message|conversation|history|request|body|payload|content|text|length|长度).*{_MORE}"
    rf"|{_MORE}.*(?:{_SUBJECT}|token|message|conversation|request|body|payload|content)"
)
# Of 500, which is a fault elsewhere.
_LLAMA_CPP = _pattern(r"context[ _](?:shift|size)|kv[ _](?:cache|size)")
_SENTENCE = re.compile(r"(?<=[.;!?])\s+|[\n。；！]")
# Long enough to be a text of the request, in quotation marks.
_QUOTATION = re.compile(r"(?<!\w)['\"`“‘«](.{9,}?)['\"`”’»](?!\w)")
_ESCAPE = re.compile(r"(?<!\\)\\++(?:[nrt]|u[0-9a-f]{4})")
# Between words that a server joined without a space.
_GLUED = re.compile(r"[\d_]+")
# Such sentences count something else than tokens.
_NO_TOKENS = _pattern(r"\b(?:string|array|characters?|chars|bytes)\b|\d ?[kmg]i?b\b")

# Windows and prompts of at least 1,000 tokens.
_NUMBER = re.compile(r"\b(\d[\d,]{3,13})\b")
_N = r"(?!2013\))(\d[\d,]{3,13})"
# In order of trust: the first that matches gives the window. MiniMax puts its error code 2013 there.
_WINDOWS = (
    _pattern(rf"n_ctx {_N}"),
    _pattern(rf"\d(?: tokens)?\)? > {_N}"),
    _pattern(rf"\[\d+, ?{_N}\]"),
    _pattern(
        r"(?:context|seq\w*|model|token|allowed)(?: \w+)?[ _](?:length|len|window|size|limit)(?: limit)?"
        rf"(?: \(\w+\))?(?: (?:is|of|for|this|model|only|just|limit|tokens))*[ :=(]*{_N}"
    ),
    _pattern(
        r"(?:\bmax(?!_?(?:completion_|output_|new_)?tokens)\w*|limit(?:ed)?|up to|supports?|exceed|at most"
        r"|only|less than|<=|more than|window|accepts)(?: (?:number|of|size|length|limit|input|prompt|context"
        r"|sequence|tokens|allowed|supported|total|the|is|to|just|value|for this model|or equal))*[ :=(]*"
        + _N
    ),
    _pattern(rf"with {_N} maximum"),
)


def classify(
    status: int, headers: RawHeaders, body: bytes, sent: SentRequest | None = None
) -> Overflow | None:
    """What an answer says of a prompt, or a requested length of the answer, that is too long; None: nothing.

    `body` is the decoded body, or the beginning of a stream (its frames are read; a stream that holds
    anything but an error is not an overflow). `sent` is what was refused. Only near the window do words that
    may be quoted count as an overflow, without numbers, and errors or streams with an empty body, as sent by
    Cerebras, z.ai (400) and llama_cpp.server (200). A 413 asks for less, whatever its body.
    """
    if status not in _STATUSES:
        return None
    sent, is_large = sent or SentRequest(), status == 413
    if not body.strip():
        kinds = [value.lower() for name, value in headers if name.lower() == b"content-type"]
        is_stream = any(kind.startswith(b"text/event-stream") for kind in kinds)
        is_silent = status == 400 or (status == 200 and is_stream)
        return Overflow("prompt") if is_large or (is_silent and sent.is_near) else None
    body = body[:_READ_BYTES]
    roots = _documents(body)
    if status == 200:
        roots = [error for root in roots for error in _errors(root)]
    spoken = [one for root in roots for one in _error_strings("message", root, _DEPTH, is_own=True)]
    if not roots and status != 200:
        spoken = [("message", body.decode("utf-8", "replace"), False)]
    # The server's codes, not those of a quoted object.
    codes = " ".join(
        said
        for key, said, is_own in spoken
        if key in _CODE_KEYS and (is_own or not sent.hold(f"{key} {said}"))
    )
    text = "\n".join(dict.fromkeys(said for key, said, _ in spoken if key not in _CODE_KEYS))
    is_fault = status == 500 and not _LLAMA_CPP.search(text)
    if not spoken or is_fault or _RATE.search(f"{codes} {text}"):
        return None
    # What the server quotes in marks is never its own; escapes in what it quotes are spaces.
    text = _QUOTATION.sub(
        lambda found: " " if found[1].count(" ") + 1 >= _QUOTED_WORDS and sent.hold(found[1]) else found[0],
        _ESCAPE.sub(" ", text),
    )
    about, of_answer = _sentences(text)
    if answer := _ANSWER_ONLY.search(text):
        about, of_answer = [], [text[answer.start() :]]
    numbers = _numbers(_NUMBER, about, sent)
    found = [match[0] for sentence in about for match in _TOO_LONG.finditer(sentence)]
    is_measured = sent.near(numbers) and len(set(numbers)) > 1 and any(map(_MEASURED.search, about))
    is_stated = any(not sent.hold(words) and not sent.hold(_GLUED.sub(" ", words)) for words in found)
    is_bare = is_large and about and not of_answer
    if not answer and (is_stated or is_measured or is_bare or _CODE.search(codes)):
        return _prompt(about, numbers, sent)
    if of_answer:
        most = min(_numbers(_NUMBER, of_answer, sent), default=None)
        return Overflow("output", most) if not sent.hold(of_answer[0]) else None
    is_likely = sent.is_near and (found or any(map(_LONG.search, about)))
    return Overflow("prompt") if is_likely else None


def _sentences(text: str) -> tuple[list[str], list[str]]:
    """The sentences that may be about the prompt, and those about the length of the answer alone."""
    about: list[str] = []
    of_answer: list[str] = []
    for sentence in _SENTENCE.split(text):
        if _OTHER.search(sentence):
            break
        is_answer = _ANSWER.search(sentence) and not re.search(_SUBJECT, sentence, re.IGNORECASE)
        if not is_answer:
            about.append(sentence)
        elif _LIMITS.search(sentence):
            of_answer.append(sentence)
    return about, of_answer


def _numbers(pattern: re.Pattern[str], sentences: list[str], sent: SentRequest) -> list[int]:
    """The counts of tokens that the pattern finds, without those in the request's own words."""
    told = "\n".join(sentence for sentence in sentences if not _NO_TOKENS.search(sentence))
    return [int(found[1].replace(",", "")) for found in pattern.finditer(told) if not sent.hold(found[0])]


def _prompt(about: list[str], numbers: list[int], sent: SentRequest) -> Overflow:
    """The overflow with its numbers; one of the answer where that is as long as the window by itself."""
    window: int | None = None
    for pattern in _WINDOWS:
        window = window or min(_numbers(pattern, about, sent), default=None)
    sums = {one + other for one, other in combinations(numbers, 2)} | {window, sent.answer_tokens}
    prompt_tokens = next(iter(sent.near(one for one in numbers if one not in sums)), None)
    if window is None and prompt_tokens:
        window = max((one for one in numbers if one < prompt_tokens <= 2 * one), default=None)
    # An answer as long as the window leaves no room for any prompt. A shorter one does, so a shorter prompt
    # helps, even if the server blames max_tokens.
    is_hopeless = window and prompt_tokens and prompt_tokens <= window <= sent.answer_tokens
    return Overflow("output" if is_hopeless else "prompt", window, prompt_tokens)


def _documents(body: bytes) -> list[Any]:
    """The JSON values of a body: itself, or the data of each of its SSE frames."""
    if (whole := json_of(body)) is not None:
        return [whole]
    mark = b"data:"
    frames = (json_of(line.removeprefix(mark)) for line in body.splitlines() if line.startswith(mark))
    return [frame for frame in frames if frame is not None]


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
    inner: Iterable[tuple[str, Any, bool]] = ()
    if isinstance(value, str):
        yield key, value, is_own
        # LiteLLM and OpenRouter quote the upstream's JSON inside a message; others quote the request's.
        if value.lstrip()[:1] in ("{", "["):
            inner = [(key, json_of(value.encode("utf-8", "replace")), False)]
    elif isinstance(value, int):
        # llama.cpp states its counts in members of their own.
        yield key, f"{key} {value}" if key[:2] == "n_" else str(value), is_own
    elif isinstance(value, list):
        inner = [(key, item, is_own) for item in value]
    elif isinstance(value, dict):
        # Below any member but `error` a server may quote whole objects.
        inner = [
            (name, item, is_own and (name == "error" or not isinstance(item, dict | list)))
            for name, item in value.items()
            if _MESSAGE_KEYS.match(name)
        ]
    for name, item, own in inner if depth else ():
        yield from _error_strings(name, item, depth - 1, is_own=own)
