"""Answers of the Responses API: complete ones, and the sum of the events of streamed ones.

Nothing here raises: an upstream may send anything. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palimpsest.core.wire.chat_answers import (
    Answer,
    AnsweredChoice,
    Sum,
    UnreadableAnswer,
    Usage,
    Verdict,
    WholeAnswer,
    parsed,
    usage_of,
    value_in,
)
from palimpsest.core.wire.json_spans import raw_elements
from palimpsest.core.wire.json_text import array_of, decoded, encoded
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.errors import InvalidJson

_FINISH_REASONS = {"max_output_tokens": "length"}
# Statuses of an answer without output, or without any yet.
FAILED = ("failed", "cancelled", "queued", "in_progress")


def parse_response(body: bytes) -> Answer:
    """Parses a complete answer as one choice whose message is the array of its items."""
    return parsed(body, _read)


def _read(said: Mapping[str, bytes]) -> Answer:
    status, output = value_in(said, "status"), said.get("output", b"")
    if value_in(said, "error") or status in FAILED:
        return UnreadableAnswer("error")
    items = raw_elements(output) if output.startswith(b"[") else []
    if value_in(said, "object") == "response.compaction":
        # The items before the compaction are the client's own messages.
        items = items[-1:]
    if not items or not all(item.startswith(b"{") for item in items):
        return UnreadableAnswer("no_choices")
    message, ident = array_of(items), value_in(said, "id")
    choice = AnsweredChoice(0, message, finish_reason(message, status, value_in(said, "incomplete_details")))
    # The id by which a later request may continue the answer.
    named = ident if isinstance(ident, str) and ident else None
    return WholeAnswer((choice,), tokens_of(value_in(said, "usage")), named)


def finish_reason(message: bytes, status: Any, incomplete: Any) -> str | None:
    """How the answer ended, in the words of chat completions; None until it ends."""
    if status == "completed":
        said = as_chat(decoded(message))
        return "tool_calls" if isinstance(said, dict) and said.get("tool_calls") else "stop"
    if status != "incomplete":
        return None
    reason = incomplete.get("reason") if isinstance(incomplete, dict) else None
    return _FINISH_REASONS.get(str(reason), str(reason or "length"))


def tokens_of(usage: Any) -> Usage:
    """The counts in a `usage` object of this API."""
    if not isinstance(usage, dict):
        return Usage()
    return usage_of({
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "prompt_tokens_details": usage.get("input_tokens_details"),
        "completion_tokens_details": usage.get("output_tokens_details"),
    })  # fmt: skip


def error_body(data: bytes) -> bytes:
    """The error body that corresponds to an event that reports a failure."""
    try:
        event = decoded(data)
    except InvalidJson:
        return data
    if not isinstance(event, dict):
        return data
    response = event.get("response")
    inner = response.get("error") if isinstance(response, dict) else None
    return encoded({"error": inner or event.get("error") or event})


def error_event(error: dict[str, Any]) -> bytes:
    """An error object as the data of one event."""
    # The SDKs raise on the field `error`; the other fields are the event of the API reference.
    stated = {key: error.get(key) for key in ("code", "message", "param")}
    return encoded({"type": "error", **stated, "sequence_number": 0, "error": error})


_ENDS = frozenset({"response.completed", "response.incomplete"})
_FAILS = frozenset({"response.failed", "error"})
# Events that acknowledge the request and carry nothing of the answer.
_OPENINGS = frozenset({"response.created", "response.queued", "response.in_progress"})


class ResponseAssembly(Sum):
    """Sums the events of one streamed answer.

    A finished item is taken as the upstream states it in its `done` event. Of an unfinished one only the text
    deltas are used.
    """

    __slots__ = ("_done", "_ending", "_texts")

    def __init__(self) -> None:
        super().__init__()
        self._done: dict[int, Any] = {}
        self._texts: dict[int, list[str]] = {}
        self._ending: dict[str, Any] | None = None

    @property
    def is_finished(self) -> bool:
        """The upstream has ended the answer: complete, or cut short by a limit."""
        return self._ending is not None

    def choices(self) -> tuple[AnsweredChoice, ...]:
        """The answer so far, finished or not; none while it is empty."""
        ending = self._ending or {}
        whole = ending.get("output")
        texts = {
            place: {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "".join(pieces)}],
            }
            for place, pieces in self._texts.items()
        }
        items: list[Any] = [item for _, item in sorted((texts | self._done).items())]
        # Some servers send no item events, or not for all items; others end without repeating the output.
        if isinstance(whole, list) and len(whole) > len(items):
            items = [item for item in whole if isinstance(item, dict)]
        if not items:
            return ()
        message = encoded(items)
        reason = finish_reason(message, ending.get("status"), ending.get("incomplete_details"))
        return (AnsweredChoice(0, message, reason),)

    def _add(self, said: dict[str, Any], data: bytes) -> Verdict:
        kind, response = said.get("type"), said.get("response")
        kind = kind if isinstance(kind, str) else None
        if isinstance(response, dict):
            ident = response.get("id")
            self.response_id = ident if isinstance(ident, str) and ident else self.response_id
        if kind in _FAILS or (kind is None and said.get("error")):
            return self._failed(data)
        if kind in _ENDS and isinstance(response, dict):
            self._ending = response
            self.usage = tokens_of(response.get("usage"))
            return "finishes"
        if kind in _OPENINGS:
            return "opens"
        place = said.get("output_index")
        if isinstance(place, int):
            if kind == "response.output_item.done" and isinstance(said.get("item"), dict):
                self._done[place] = said["item"]
                self._texts.pop(place, None)
            elif kind == "response.output_text.delta" and isinstance(said.get("delta"), str):
                self._texts.setdefault(place, []).append(said["delta"])
        return "ordinary"
