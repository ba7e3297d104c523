"""Hides recall calls and hidden rounds from the client: what the APIs share, and chat completions.

An answer in the first round without a recall call is not changed by a byte; nor is a frame in the first round
without one. Pure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from palimpsest.core.recall.rounds.calls import NO_CALLS, Called, called_by, is_ours, name_of
from palimpsest.core.recall.tool_calls import NAMES
from palimpsest.core.wire.chat_answers import AnsweredChoice, Assembly, Sum, Usage, Verdict
from palimpsest.core.wire.json_spans import Span, outline, raw_elements, raw_members
from palimpsest.core.wire.json_text import array_of, decoded, encoded
from palimpsest.errors import InvalidJson


@dataclass(frozen=True, slots=True)
class FrameForm:
    """How a stream frames its data: `data_of` reads a frame (None: no data), `framed` makes one."""

    data_of: Callable[[bytes], bytes | None]
    framed: Callable[[bytes], bytes]

    def refilled(self, frame: bytes, data: bytes, new: bytes) -> bytes:
        """The frame with `new` in place of its `data`; other lines survive if the data is one line."""
        return frame.replace(data, new, 1) if data in frame else self.framed(new)


_WRAP = b'{"e":'


def replaced(text: bytes, path: Sequence[str | int], value: bytes | None) -> bytes:
    """`text` with `value` at `path` (keys and positions, from the outermost value).

    A `value` of None removes the member; only its object is then re-encoded. Without such a path `text` is
    returned unchanged.
    """
    span = _span(text, path[0])
    if span is None:
        return text
    start, end = span
    if len(path) == 1 and value is None:
        kept = [encoded(name) + b":" + raw for name, raw in raw_members(text).items() if name != path[0]]
        return b"{" + b",".join(kept) + b"}"
    inner = value if len(path) == 1 else replaced(text[start:end], path[1:], value)
    return text[:start] + (inner or b"") + text[end:]


def _span(text: bytes, at: str | int) -> Span | None:
    if isinstance(at, str):
        member = outline(text).last(at)
        return (member.start, member.end) if member else None
    wrapped = outline(_WRAP + text + b"}").members[0].elements
    if at >= len(wrapped):
        return None
    start, end = wrapped[at]
    return start - len(_WRAP), end - len(_WRAP)


class ClientAnswer(Protocol):
    """An answer of one or more rounds, as the client sees it."""

    def hidden(self, tokens: int, body: bytes | None) -> None:
        """Adds of a hidden round: completion tokens and, if it was not streamed, its answer."""

    def frames(self, form: FrameForm, *, may_hide: bool) -> Frames:
        """The filter for the frames of the next round, which is streamed."""

    def whole(self, body: bytes, called: Called) -> bytes:
        """The last round's answer, not streamed, as the client sees it."""


class Frames(ABC):
    """Filters the frames of one streamed round for the client.

    `is_over`: the round has ended. `is_hidden` becomes true with the frame that ends an answer which calls
    nothing but our tools: later frames are dropped, and another round follows. Without `may_hide` our calls
    are removed all the same, and the answer ends. `called` and `choice` are the round's result.
    """

    def __init__(self, form: FrameForm, assembly: Sum, *, may_hide: bool) -> None:
        self._form = form
        self._assembly = assembly
        self._may_hide = may_hide
        self.is_over = False
        self.is_hidden = False
        self.called = NO_CALLS

    @property
    def choice(self) -> AnsweredChoice | None:
        """The answer so far; None while it is empty."""
        return next(iter(self._assembly.choices()), None)

    @property
    def usage(self) -> Usage:
        """The round's tokens as the upstream states them; unknown until it does."""
        return self._assembly.usage or Usage()

    def shown(self, frame: bytes) -> bytes:
        """The bytes to send to the client for this frame; may be empty."""
        data = self._form.data_of(frame)
        if data is None:
            return b"" if self.is_hidden else frame
        verdict, was_hidden = self._assembly.feed(data), self.is_hidden
        if (verdict.finishes or verdict.done) and not self.is_over:
            self._end()
        return b"" if was_hidden else self._visible(frame, data, verdict)

    def _end(self) -> None:
        self.is_over = True
        choice = self.choice
        self.called = called_by(choice) if choice else NO_CALLS
        self.is_hidden = self._may_hide and self.called.is_hidden

    @abstractmethod
    def _visible(self, frame: bytes, data: bytes, verdict: Verdict) -> bytes:
        """The bytes to send for a frame with data; the round may have become hidden with this frame."""


_CALL_REASONS = (b'"tool_calls"', b'"function_call"')
CALLS = ("choices", 0, "message", "tool_calls")


def with_tokens(body: bytes, hidden_tokens: int, of_answer: str = "completion_tokens") -> bytes:
    """An answer or chunk with the completion tokens of hidden rounds added to its usage (rule 17)."""
    if not hidden_tokens:
        return body
    usage = decoded(raw_members(body).get("usage", b"null"))
    for key in (of_answer, "total_tokens"):
        count = usage.get(key) if isinstance(usage, dict) else None
        if isinstance(count, int) and not isinstance(count, bool):
            body = replaced(body, ("usage", key), str(count + hidden_tokens).encode())
    return body


def stopped(body: bytes) -> bytes:
    """The answer or chunk with "stop" in place of a finish reason that announces calls."""
    if _choice_in(body).get("finish_reason") not in _CALL_REASONS:
        return body
    return replaced(body, ("choices", 0, "finish_reason"), b'"stop"')


Json = dict[str, Any]
_DELTA = ("choices", 0, "delta")
# Values of a delta's fields that carry nothing.
_NO_CONTENT: tuple[Any, ...] = (None, "", [])


@dataclass(slots=True)
class ChatClientAnswer:
    """A chat completion: whether its role has been sent, and the completion tokens of hidden rounds."""

    has_role: bool = False
    hidden_tokens: int = 0

    def hidden(self, tokens: int, body: bytes | None) -> None:
        """See `ClientAnswer`. Of a chat completion the client sees the last round only."""
        del body
        self.hidden_tokens += tokens

    def frames(self, form: FrameForm, *, may_hide: bool) -> Frames:
        """See `ClientAnswer`."""
        return RoundFrames(form, self, may_hide=may_hide)

    def whole(self, body: bytes, called: Called) -> bytes:
        """The answer without our calls; its usage includes earlier rounds (rule 17)."""
        if called.ours and called.others:
            message = raw_members(_choice_in(body)["message"])
            kept = [raw for raw in raw_elements(message["tool_calls"]) if not is_ours(decoded(raw))]
            body = replaced(body, CALLS, array_of(kept))
        elif called.ours:
            body = stopped(replaced(body, CALLS, None))
        return with_tokens(body, self.hidden_tokens)


class RoundFrames(Frames):
    """Filters the frames of one round of a chat completion."""

    def __init__(self, form: FrameForm, so_far: ChatClientAnswer, *, may_hide: bool) -> None:
        super().__init__(form, Assembly(1), may_hide=may_hide)
        self._so_far = so_far
        self._calls = _CallPieces()
        self._is_first = not so_far.has_role

    def _visible(self, frame: bytes, data: bytes, verdict: Verdict) -> bytes:
        if verdict.done:
            return b"" if self.is_hidden else frame
        return frame if verdict.error else self._rewritten(frame, data, ends=verdict.finishes)

    def _rewritten(self, frame: bytes, data: bytes, *, ends: bool) -> bytes:
        try:
            chunk = decoded(data)
        except InvalidJson:
            return frame
        if not isinstance(chunk, dict):
            return frame
        delta = _delta_of(chunk)
        new = with_tokens(data, self._so_far.hidden_tokens) if "usage" in chunk else data
        if delta is not None:
            new = self._with_delta(new, delta)
        if ends and self.is_hidden:
            new = replaced(replaced(new, ("choices", 0, "finish_reason"), b"null"), ("usage",), None)
        elif ends and self.called.ours and not self.called.others:
            new = stopped(new)
        if new == data:
            return frame
        is_said = delta is None or (ends and not self.is_hidden)
        if not is_said:
            # Whether it carries anything for the client: text, a call, the role, usage.
            seen = decoded(new)
            values = (_delta_of(seen) or {}).values()
            is_said = any(value not in _NO_CONTENT for value in values) or isinstance(seen.get("usage"), dict)
        return self._form.framed(new) if is_said else b""

    def _with_delta(self, data: bytes, delta: Json) -> bytes:
        if "role" in delta:
            if not self._is_first:
                data = replaced(data, (*_DELTA, "role"), None)
            self._so_far.has_role = True
        if isinstance(delta.get("tool_calls"), list) and delta["tool_calls"]:
            raw = raw_elements(raw_members(_choice_in(data)["delta"])["tool_calls"])
            kept = self._calls.kept(raw, delta["tool_calls"])
            if kept != raw:
                value = array_of(kept) if kept else None
                data = replaced(data, (*_DELTA, "tool_calls"), value)
        return data


class _CallPieces:
    """Sorts the pieces of streamed tool calls into the client's and ours, and renumbers the client's."""

    def __init__(self) -> None:
        # By the upstream's index: the index for the client, or None for a call of ours.
        self._places: dict[int, int | None] = {}
        self._waiting: dict[int, list[bytes]] = {}
        self._names: dict[int, str] = {}
        self._newest = -1

    def kept(self, raw: list[bytes], pieces: list[Any]) -> list[bytes]:
        """The pieces to show the client now, with indexes that leave out our calls."""
        kept: list[bytes] = []
        for text, piece in zip(raw, pieces, strict=True):
            index = self._index(piece)
            if index not in self._places:
                self._waiting.setdefault(index, []).append(text)
                if not self._is_known(index, piece):
                    continue
                text_pieces = self._waiting.pop(index)
            else:
                text_pieces = [text]
            place = self._places[index]
            if place is not None:
                number = str(place).encode()
                for each in text_pieces:
                    is_same = raw_members(each).get("index") in (None, number)
                    kept.append(each if is_same else replaced(each, ("index",), number))
        return kept

    def _index(self, piece: Any) -> int:
        """As in `chat_answers`: without an index, a piece with an id starts a call, another continues one."""
        index = piece.get("index") if isinstance(piece, dict) else None
        if not isinstance(index, int):
            opens = isinstance(piece, dict) and piece.get("id")
            index = self._newest + 1 if opens or self._newest < 0 else self._newest
        self._newest = max(self._newest, index)
        return index

    def _is_known(self, index: int, piece: Any) -> bool:
        """Whether it is known whose call this is; the name may come in pieces, or after the id."""
        name = self._names[index] = self._names.get(index, "") + name_of(piece)
        if name in NAMES:
            self._places[index] = None
            return True
        function = piece.get("function") if isinstance(piece, dict) else None
        has_begun = isinstance(function, dict) and bool(function.get("arguments"))
        is_custom = isinstance(piece, dict) and "custom" in piece
        if not has_begun and not is_custom and any(ours.startswith(name) for ours in NAMES):
            return False
        self._places[index] = sum(place is not None for place in self._places.values())
        return True


def _delta_of(chunk: Json) -> Json | None:
    """The first choice's delta; None without one."""
    choices = chunk.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    delta = first.get("delta") if isinstance(first, dict) else None
    return delta if isinstance(delta, dict) else None


def _choice_in(data: bytes) -> dict[str, bytes]:
    """The raw members of the first choice of an answer or chunk."""
    return raw_members(raw_elements(raw_members(data)["choices"])[0])
