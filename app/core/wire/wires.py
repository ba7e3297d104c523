"""The wires that are spoken, by name: how a request, an answer and a stream of each are read.

Nothing is read here; what the readings have in common is what the rest of the program knows of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from app.core.wire.answered import AnsweredChoice, Usage
from app.core.wire.assembly import Assembly, Verdict
from app.core.wire.chat_answer import Answer, Unreadable, parse_answer
from app.core.wire.chat_request import ChatRequest, Wire, parse_chat_request
from app.core.wire.json_text import BYTE_ORDER_MARK, decoded, encoded
from app.core.wire.request_body import IsAccepted, Limits
from app.core.wire.responses.answer import parse_response
from app.core.wire.responses.assembly import ResponseAssembly
from app.core.wire.responses.request import parse_responses_request
from app.errors import InvalidJson, NestedTooDeep, NotUnderstood


class Sum(Protocol):
    """What a streamed answer adds up to; see `assembly.Assembly`."""

    usage: Usage | None
    error: bytes | None
    unreadable: int
    is_done: bool
    response_id: str | None

    @property
    def is_finished(self) -> bool:
        """The answer is complete."""

    def choices(self) -> Sequence[AnsweredChoice]:
        """The choices as they stand now."""

    def feed(self, data: bytes) -> Verdict:
        """The data of one more frame."""


@dataclass(frozen=True, slots=True)
class NotRecorded:
    """A request that goes on unrecorded: the upstream alone keeps its conversation, or nobody can read it."""

    why: Literal["upstream", "not-understood"]


def parse_request(
    wire: Wire, body: bytes, limits: Limits, is_accepted: IsAccepted
) -> ChatRequest | NotRecorded:
    """The request that `body` is, whose own `body` is without a byte order mark; or why it is not recorded.

    InvalidJson for what two readers would read differently, or none at all.
    """
    read = parse_responses_request if wire == "responses" else parse_chat_request
    try:
        request = read(body.removeprefix(BYTE_ORDER_MARK), limits, is_accepted)
    except (NotUnderstood, NestedTooDeep):
        return NotRecorded("not-understood")
    return request or NotRecorded("upstream")


def answer_of(wire: Wire, body: bytes) -> Answer | Unreadable:
    """What a whole answer says."""
    return parse_response(body) if wire == "responses" else parse_answer(body)


def sum_for(request: ChatRequest) -> Sum:
    """What a streamed answer to the request is added up with."""
    return ResponseAssembly() if request.wire == "responses" else Assembly(request.n)


def error_of(wire: Wire, data: bytes) -> bytes:
    """What a frame that tells of a failure says of it, as an error's own body would."""
    event = _object(data) if wire == "responses" else None
    if event is None:
        return data
    response = event.get("response")
    inner = response.get("error") if isinstance(response, dict) else None
    return encoded({"error": inner or event.get("error") or event})


def error_event(wire: Wire, error: dict[str, Any]) -> bytes:
    """An error object of the API as the data of one frame."""
    if wire == "responses":
        # The field `error` is what the SDKs raise by, the others are the event of the API's reference.
        told = {key: error.get(key) for key in ("code", "message", "param")}
        return encoded({"type": "error", **told, "sequence_number": 0, "error": error})
    return encoded({"error": error})


def _object(data: bytes) -> dict[str, Any] | None:
    """The object that the data is; None for anything else."""
    try:
        value = decoded(data)
    except InvalidJson:
        return None
    return value if isinstance(value, dict) else None
