"""Answers of chat completions: complete ones, and the sum of the chunks of streamed ones.

Nothing here raises: an upstream may send anything. Deltas are summed by the rules of the openai SDK
(`accumulate_delta`), except where a comment says otherwise. Pure.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from palimpsest.core.wire.json_spans import raw_elements, raw_members, refuse_deeper
from palimpsest.core.wire.json_text import decoded, encoded, verify
from palimpsest.errors import InvalidJson

_GIVEN_UP = re.compile(r"error|abort|cancel|interrupt")


@dataclass(frozen=True, slots=True)
class AnsweredChoice:
    """One choice. `message_body` is its message as JSON: the upstream's bytes, or the sum of deltas.

    `finish_reason` is None until the upstream sends one.
    """

    index: int
    message_body: bytes
    finish_reason: str | None

    @property
    def is_whole(self) -> bool:
        """False where the reason says that the answer was given up: "error", "network_error", "abort"."""
        return not _GIVEN_UP.search(self.finish_reason or "")


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the upstream stated them; None where it stated none.

    `reasoning_tokens`: the part of `completion_tokens` that is reasoning, not text. `written_tokens`: prompt
    tokens that were put into the upstream's cache.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    written_tokens: int | None = None


# No prompt has as many: sums of such counts still fit 64 bits.
_MOST_TOKENS = 10**12


def usage_of(value: Any) -> Usage:
    """The counts in a `usage` object; all None for anything else."""
    if not isinstance(value, dict):
        return Usage()
    details, thought = value.get("prompt_tokens_details"), value.get("completion_tokens_details")
    cached = written = None
    if isinstance(details, dict):
        # The second is OpenRouter's.
        cached, written = _count(details.get("cached_tokens")), _count(details.get("cache_write_tokens"))
    if cached is None:
        # DeepSeek's name for it.
        cached = _count(value.get("prompt_cache_hit_tokens"))
    if written is None:
        # That of Anthropic's models behind LiteLLM.
        written = _count(value.get("cache_creation_input_tokens"))
    return Usage(
        _count(value.get("prompt_tokens")),
        _count(value.get("completion_tokens")),
        cached,
        _count(thought.get("reasoning_tokens")) if isinstance(thought, dict) else None,
        written,
    )


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
    return value if is_count else None


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """An answer. `choices` are those with a message object, in the upstream's order.

    `response_id`: the id by which a later request may continue it; None for chat completions.
    """

    choices: tuple[AnsweredChoice, ...]
    usage: Usage
    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class UnreadableAnswer:
    """The body holds no answer that could be recorded as a message.

    `error` means that the upstream sent an error in its place.
    """

    reason: Literal["invalid_json", "not_an_object", "error", "no_choices"]


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """The answer to a question of our own; `text` may be empty.

    `finish_reason` is in the words of chat completions. `has_calls`: the model, or the upstream for it,
    called a tool.
    """

    text: str
    finish_reason: str | None
    has_calls: bool
    usage: Usage


def text_of(content: Any) -> str:
    """The texts of a message's content, joined."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


Answer = WholeAnswer | UnreadableAnswer


def parsed(body: bytes, read: Callable[[Mapping[str, bytes]], Answer]) -> Answer:
    """A complete answer as `read` reads its raw members. Of a repeated key the last one counts."""
    try:
        verify(body)
        refuse_deeper(body, _LEVELS)
        is_object = body.lstrip().startswith(b"{")
        return read(raw_members(body)) if is_object else UnreadableAnswer("not_an_object")
    except InvalidJson:
        return UnreadableAnswer("invalid_json")


def value_in(members: Mapping[str, bytes], key: str) -> Any:
    """The decoded value of a raw member; None without it."""
    return decoded(members.get(key, b"null"))


def parse_answer(body: bytes) -> Answer:
    """Parses a complete answer."""
    return parsed(body, _read)


def _read(said: Mapping[str, bytes]) -> Answer:
    if "choices" not in said:
        return UnreadableAnswer("error" if "error" in said else "no_choices")
    read = [_choice(raw, index) for index, raw in enumerate(raw_elements(said["choices"]))]
    answered = tuple([choice for choice in read if choice is not None])
    return (
        WholeAnswer(answered, usage_of(value_in(said, "usage")))
        if answered
        else UnreadableAnswer("no_choices")
    )


def _choice(raw: bytes, position: int) -> AnsweredChoice | None:
    fields = raw_members(raw)
    message = fields.get("message", b"")
    if not message.startswith(b"{"):
        return None
    index, reason = value_in(fields, "index"), value_in(fields, "finish_reason")
    return AnsweredChoice(
        index=index if isinstance(index, int) and not isinstance(index, bool) else position,
        message_body=message,
        finish_reason=reason if isinstance(reason, str) and reason else None,
    )


# Not streamed: a later value replaces the first.
_STATED = frozenset({"index", "type", "format", "expires_at"})
# The first value counts; some servers repeat it, or send "" or another one, in later deltas.
_FIRST = frozenset({"id", "role"})
# Streamed by some servers in pieces, repeated whole by others.
_NAMES = frozenset({"name"})
# Padding against traffic analysis.
_DROPPED = frozenset({"obfuscation"})
# Strings under any other key are appended.
_NOT_APPENDED = _STATED | _FIRST | _NAMES


class DeltaSum:
    """The sum of the deltas of one choice, and the reason with which it finished, None until it does.

    Strings are appended, objects merged, lists merged by the `index` of their items (items without
    one are appended), everything else replaced; null is ignored. The same holds for unknown fields.
    """

    __slots__ = ("_fields", "_places", "finish_reason")

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        # By index as stated: the newest call there, by its index among all.
        self._places: dict[int, int] = {}
        self.finish_reason: str | None = None

    @property
    def is_empty(self) -> bool:
        """True while no delta has held a value."""
        return not self._fields

    def add(self, delta: dict[str, Any]) -> None:
        """Adds `delta` to the sum."""
        for key, value in delta.items():
            if value is None or key in _DROPPED:
                continue
            known = self._fields.get(key)
            if isinstance(known, _Text) and isinstance(value, str) and key not in _NOT_APPENDED:
                # The fast path: nearly every delta of a stream.
                known.pieces.append(value)
                continue
            if key == "tool_calls" and isinstance(value, list):
                for call in value:
                    self._fields[key] = _sum(key, self._fields.get(key), [self._placed(call)])
                continue
            self._fields[key] = _sum(key, known, value)

    def _placed(self, call: Any) -> Any:
        """A tool call delta with the index of its call among all.

        Another id at an index, or a name where the arguments are complete, begins another call: some servers
        give all calls the index 0. Without an index, which Gemini's compatible endpoint leaves out, an id
        does.
        """
        if not isinstance(call, dict):
            return call
        calls = self._fields.get("tool_calls") or []
        free, stated = max(map(_order, calls), default=-1) + 1, _index(call)
        if stated is None:
            return call | {"index": free if call.get("id") or not free else free - 1}
        at = self._places.get(stated, free if stated in self._places.values() else stated)
        if any(_order(each) == at and _is_another(call, each) for each in calls):
            same = (_order(each) for each in calls if call.get("id") and str(each.get("id")) == call["id"])
            at = next(same, free)
        self._places[stated] = at
        return call | {"index": at}

    def message(self) -> bytes:
        """The message as JSON, in the shape of an answer that was not streamed.

        `role` comes first ("assistant" by default), then `content` (null by default), then the other
        fields. Tool calls are ordered by their index, which is removed.
        """
        said = _mapped(self._fields, lambda leaf: str(leaf) if isinstance(leaf, _Text) else leaf)
        fields = {"role": "assistant", "content": None} | said
        calls = fields.get("tool_calls")
        if isinstance(calls, list):
            fields["tool_calls"] = [
                {key: value for key, value in call.items() if key != "index"}
                if isinstance(call, dict)
                else call
                for call in sorted(calls, key=_order)
            ]
        return encoded(fields)


class _Text:
    """A growing string kept as pieces, so that appending is not quadratic."""

    __slots__ = ("pieces",)

    def __init__(self, text: str) -> None:
        self.pieces = [text]

    def __str__(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0]


def _mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """A copy of `value` with `leaf` of all that is no object and no list."""
    if isinstance(value, dict):
        return {key: _mapped(item, leaf) for key, item in value.items()}
    return [_mapped(item, leaf) for item in value] if isinstance(value, list) else leaf(value)


def _growing(value: Any) -> Any:
    """A copy of `value` with every string as a `_Text`."""
    return _mapped(value, lambda leaf: _Text(leaf) if isinstance(leaf, str) else leaf)


def _sum(key: str, old: Any, new: Any) -> Any:
    """`old` (growing, changed in place where possible) plus `new` (as received)."""
    if new is None:
        return old
    if isinstance(old, _Text):
        return _sum_with_text(key, old, new)
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in new.items():
            old[name] = _sum(name, old.get(name), value)
        return old
    if isinstance(old, list):
        return _sum_with_list(old, new)
    # The openai SDK adds numbers; no server is known to stream a number in pieces.
    return _growing(new)


def _sum_with_text(key: str, old: _Text, new: Any) -> Any:
    if isinstance(new, list):
        # Mistral streams content as text until a list of parts comes.
        return [{"type": _Text("text"), "text": old}, *_growing(new)]
    if not isinstance(new, str):
        return _growing(new)
    if key in _STATED:
        return _Text(new) if new else old
    if key in _FIRST and str(old):
        return old
    if key not in _NAMES or str(old) != new:
        old.pieces.append(new)
    return old


def _sum_with_list(old: list[Any], new: Any) -> list[Any]:
    items = new if isinstance(new, list) else [{"type": "text", "text": new}]
    for item in items:
        index = _index(item)
        known = (at for at, each in enumerate(old) if index is not None and _index(each) == index)
        if (at := next(known, None)) is None:
            old.append(_growing(item))
        else:
            old[at] = _sum("", old[at], item)
    return old


def _is_another(call: dict[str, Any], taken: dict[str, Any]) -> bool:
    """True when the delta begins another call than the one so far, `taken`."""
    ident, function = call.get("id"), call.get("function")
    name = function.get("name") if isinstance(function, dict) else call.get("custom")
    said = str((taken.get("function") or {}).get("arguments") or "")
    is_whole = said.endswith("}") and isinstance(said_in(said.encode()), dict)
    known = str(taken.get("id") or "")
    return ident != known if ident and known else bool(name and is_whole)


def _index(item: Any) -> int | None:
    index = item.get("index") if isinstance(item, dict) else None
    return index if isinstance(index, int) else None


def _order(item: Any) -> int:
    index = _index(item)
    return -1 if index is None else index


# What one frame's data means. "finishes": it gives the last choice its finish_reason; it and all later
# frames are held until the commit (rule 15). "goes_on": it carries more of an answer that had finished.
# "done": it is `[DONE]`. "error": it reports a failure; the answer is incomplete. "opens": it announces an
# answer without any of its content.
Verdict = Literal["ordinary", "finishes", "goes_on", "done", "error", "opens"]

# As in requests: no answer is nested deeper than what a client may send back.
_LEVELS = 128


def said_in(data: bytes) -> Any:
    """The decoded data of one frame; None when it is not JSON, or nested too deeply."""
    try:
        said = decoded(data)
        refuse_deeper(data, _LEVELS)
    except InvalidJson:
        return None
    return said


class Sum(ABC):
    """Sums the frames of one streamed answer.

    `usage` are the latest counts the upstream stated. `error` is the data of the first frame that reported a
    failure. `unreadable` counts frames that should be objects and cannot be read: the sum lacks their text.
    `is_done` is true after `[DONE]`. `response_id` is the id by which a later request may continue the
    answer, None for chat completions.
    """

    __slots__ = ("error", "is_done", "response_id", "unreadable", "usage")

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.error: bytes | None = None
        self.unreadable = 0
        self.is_done = False
        self.response_id: str | None = None

    @property
    @abstractmethod
    def is_finished(self) -> bool:
        """The answer is complete."""

    @abstractmethod
    def choices(self) -> tuple[AnsweredChoice, ...]:
        """The choices so far, by index; finished or not."""

    def feed(self, data: bytes) -> Verdict:
        """Adds `data` (the data of one frame) to the answer; returns what it means."""
        if data.strip() == b"[DONE]":
            # The Responses API has no such frame; some servers send it there all the same.
            self.is_done = True
            return "done"
        said = said_in(data)
        return self._add(said, data) if isinstance(said, dict) else self._add_invalid(said, data)

    @abstractmethod
    def _add(self, said: dict[str, Any], data: bytes) -> Verdict:
        """Adds a decoded frame to the answer."""

    def _add_invalid(self, said: Any, data: bytes) -> Verdict:
        """Handles data that is not a JSON object."""
        self.unreadable += said is None and data.lstrip().startswith(b"{")
        return "ordinary"

    def _failed(self, data: bytes) -> Verdict:
        if self.error is None:
            self.error = data
        return "error"


class Assembly(Sum):
    """Sums the chunks of one streamed chat completion."""

    __slots__ = ("_choices", "_expected", "_finished")

    def __init__(self, n: int = 1) -> None:
        """`n` is the number of choices the client asked for."""
        super().__init__()
        self._expected = n
        self._choices: dict[int, DeltaSum] = {}
        self._finished = 0

    @property
    def is_finished(self) -> bool:
        """Every choice has a finish_reason: all requested ones or, after `[DONE]`, all that came."""
        complete = 0 < len(self._choices) == self._finished
        return complete and (self._finished >= self._expected or self.is_done)

    def choices(self) -> tuple[AnsweredChoice, ...]:
        """The choices so far, by index; finished or not."""
        return tuple(
            AnsweredChoice(index, choice.message(), choice.finish_reason)
            for index, choice in sorted(self._choices.items())
        )

    def _add(self, said: dict[str, Any], data: bytes) -> Verdict:
        if said.get("error") or said.get("object") == "error":
            return self._failed(data)
        counts = said.get("usage")
        if isinstance(counts, dict):
            self.usage = usage_of(counts)
        choices = said.get("choices")
        if not choices or not isinstance(choices, list):
            return "ordinary"
        was_finished = self._finished > 0 and self.is_finished
        for position, choice in enumerate(choices):
            if isinstance(choice, dict):
                self._extend(choice, position)
        if was_finished:
            deltas = [choice.get("delta") for choice in choices if isinstance(choice, dict)]
            goes_on = any(value for delta in deltas if isinstance(delta, dict) for value in delta.values())
            return "goes_on" if goes_on else "ordinary"
        return "finishes" if self._finished and self.is_finished else "ordinary"

    def _extend(self, part: dict[str, Any], position: int) -> None:
        index = part.get("index")
        place = index if isinstance(index, int) else position
        choice = self._choices.get(place)
        if choice is None:
            choice = self._choices[place] = DeltaSum()
        delta = part.get("delta")
        if delta is None and choice.is_empty:
            # Servers that cannot stream send the whole message in one chunk.
            delta = part.get("message")
        if isinstance(delta, dict):
            choice.add(delta)
        reason = part.get("finish_reason")
        # Some servers send "" until the end.
        if isinstance(reason, str) and reason:
            if choice.finish_reason is None:
                self._finished += 1
            choice.finish_reason = reason

    def _add_invalid(self, said: Any, data: bytes) -> Verdict:
        # Gemini wraps an error in an array.
        first = said[0] if isinstance(said, list) and said else None
        if isinstance(first, dict) and first.get("error"):
            return self._failed(data)
        return super()._add_invalid(said, data)
