"""What a client is shown of a streamed answer that came with our tools, frame by frame.

Pure. Of a frame without a call of ours, in the first round, not a byte is changed. Knows nothing of sockets,
of holding an answer's end back for its commit, nor of what a tool finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.core.recall.rounds.calls import Called, called_by, name_of
from app.core.recall.rounds.form import Form
from app.core.recall.rounds.json_edits import replaced
from app.core.recall.rounds.visible import stopped, with_tokens
from app.core.recall.tool_schemas import NAMES
from app.core.wire.answered import AnsweredChoice
from app.core.wire.assembly import Assembly
from app.core.wire.json_members import raw_elements, raw_members
from app.core.wire.json_text import decoded
from app.errors import InvalidJson

Json = dict[str, Any]
_DELTA = ("choices", 0, "delta")
_NO_CALLS = Called((), 0, is_hidden=False)
# Fields of a delta that say nothing by themselves.
_EMPTY: tuple[Any, ...] = (None, "", [])


@dataclass(slots=True)
class SoFar:
    """What the client has been shown and not shown in earlier rounds: `hidden_tokens` of completion."""

    has_role: bool = False
    hidden_tokens: int = 0


class RoundFrames:
    """The frames of one round, as the client may see them.

    `is_over`: its end has come. `is_hidden` is true from the frame on that ends an answer which calls nothing
    but our tools: the rest is swallowed, and the round is followed by another. Without `may_hide` our calls
    are left out all the same, and the answer ends. `called` and `choice` say what the round came to.
    """

    def __init__(self, form: Form, so_far: SoFar, *, may_hide: bool) -> None:
        self._form = form
        self._so_far = so_far
        self._may_hide = may_hide
        self._assembly = Assembly(1)
        self._calls = _CallPieces()
        self._is_first = not so_far.has_role
        self.is_over = False
        self.is_hidden = False
        self.called = _NO_CALLS

    @property
    def choice(self) -> AnsweredChoice | None:
        """The answer as it stands; None before any of it."""
        return next(iter(self._assembly.choices()), None)

    @property
    def completion_tokens(self) -> int:
        """What the upstream said of the round's own; 0 while it said nothing."""
        usage = self._assembly.usage
        return (usage.completion_tokens or 0) if usage else 0

    def shown(self, frame: bytes) -> bytes:
        """What goes out for this frame; empty when nothing does."""
        data = self._form.data_of(frame)
        if data is None:
            return b"" if self.is_hidden else frame
        verdict = self._assembly.feed(data)
        if self.is_hidden:
            return b""
        if (verdict.finishes or verdict.done) and not self.is_over:
            self._end()
        if verdict.done:
            return b"" if self.is_hidden else frame
        return frame if verdict.error else self._rewritten(frame, data, ends=verdict.finishes)

    def _end(self) -> None:
        self.is_over = True
        choice = self.choice
        self.called = called_by(choice) if choice else _NO_CALLS
        self.is_hidden = self._may_hide and self.called.is_hidden

    def _rewritten(self, frame: bytes, data: bytes, *, ends: bool) -> bytes:
        try:
            chunk = decoded(data)
        except InvalidJson:
            return frame
        if not isinstance(chunk, dict):
            return frame
        delta = _delta_of(chunk)
        new = self._with_counts(data) if "usage" in chunk else data
        if delta is not None:
            new = self._with_delta(new, delta)
        if ends and self.is_hidden:
            new = replaced(replaced(new, ("choices", 0, "finish_reason"), b"null"), ("usage",), None)
        elif ends and self.called.ours and not self.called.others:
            new = stopped(new)
        if new == data:
            return frame
        is_said = delta is None or _says(new) or (ends and not self.is_hidden)
        return self._form.framed(new) if is_said else b""

    def _with_counts(self, data: bytes) -> bytes:
        return with_tokens(data, self._so_far.hidden_tokens)

    def _with_delta(self, data: bytes, delta: Json) -> bytes:
        if "role" in delta:
            if not self._is_first:
                data = replaced(data, (*_DELTA, "role"), None)
            self._so_far.has_role = True
        if isinstance(delta.get("tool_calls"), list) and delta["tool_calls"]:
            raw = raw_elements(raw_members(_raw_delta(data))["tool_calls"])
            kept = self._calls.kept(raw, delta["tool_calls"])
            if kept != raw:
                value = b"[" + b",".join(kept) + b"]" if kept else None
                data = replaced(data, (*_DELTA, "tool_calls"), value)
        return data


class _CallPieces:
    """Which pieces of tool calls are the client's, and their places without ours."""

    def __init__(self) -> None:
        # By the upstream's index: the client's, or None for a call of ours.
        self._places: dict[int, int | None] = {}
        self._waiting: dict[int, list[bytes]] = {}
        self._names: dict[int, str] = {}
        self._newest = -1

    def kept(self, raw: list[bytes], pieces: list[Any]) -> list[bytes]:
        """The pieces that the client sees, renumbered where ours came before them."""
        kept: list[bytes] = []
        for text, piece in zip(raw, pieces, strict=True):
            index = self._index(piece)
            if index not in self._places:
                self._waiting.setdefault(index, []).append(text)
                if not self._is_settled(index, piece):
                    continue
                text_pieces = self._waiting.pop(index)
            else:
                text_pieces = [text]
            place = self._places[index]
            if place is not None:
                kept += [_renumbered(each, place) for each in text_pieces]
        return kept

    def _index(self, piece: Any) -> int:
        """As answers are assembled: without an index it opens a call if it has an id, else it goes on."""
        index = piece.get("index") if isinstance(piece, dict) else None
        if not isinstance(index, int):
            opens = isinstance(piece, dict) and piece.get("id")
            index = self._newest + 1 if opens or self._newest < 0 else self._newest
        self._newest = max(self._newest, index)
        return index

    def _is_settled(self, index: int, piece: Any) -> bool:
        """Whether it is known whose call this is; a name may come in pieces, or after the id."""
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


def _renumbered(piece: bytes, place: int) -> bytes:
    index = raw_members(piece).get("index")
    return (
        piece
        if index is None or index == str(place).encode()
        else replaced(piece, ("index",), str(place).encode())
    )


def _delta_of(chunk: Json) -> Json | None:
    """The first choice's delta; None without one."""
    choices = chunk.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    delta = first.get("delta") if isinstance(first, dict) else None
    return delta if isinstance(delta, dict) else None


def _raw_delta(data: bytes) -> bytes:
    return raw_members(raw_elements(raw_members(data)["choices"])[0])["delta"]


def _says(data: bytes) -> bool:
    """Whether a chunk has anything for the client: a word, a call, the role, counts."""
    chunk = decoded(data)
    delta = _delta_of(chunk) or {}
    return any(value not in _EMPTY for value in delta.values()) or isinstance(chunk.get("usage"), dict)
