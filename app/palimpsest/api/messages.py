"""The endpoint that reads a transcript as stored, byte for byte (P4)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from fastapi import Query

from palimpsest.api.callers import AskedSession, Branch, api_router
from palimpsest.api.replies import (
    MessageId,
    NextNumber,
    Reply,
    StoredMessage,
    UtcTime,
    described,
    object_with,
    raw_reply,
    utc_time,
)
from palimpsest.api.sessions import PlaceFields, place_fields
from palimpsest.core.history.message import Message
from palimpsest.core.history.stored_points import MessageState
from palimpsest.core.view.clients import is_client_summary, may_be_client_summary
from palimpsest.core.view.compaction import context_id
from palimpsest.core.view.view import folded_in
from palimpsest.core.wire.json_text import array_of, decoded
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.proxy.archive import Place
from palimpsest.proxy.compaction_context import in_force
from palimpsest.proxy.jobs import MESSAGE_WEIGHT, offload
from palimpsest.storage.history import MessageRow

_LAST_POSITION = 10**9
# Fields of a stored message that are shown as they are.
_AS_STORED = ("role", "tokens", "state", "in_path", "finish_reason")


class TranscriptEntryFields(TypedDict):
    """What is known of a message of a transcript."""

    id: MessageId | None
    position: Annotated[int, described("Its place in the transcript, from 0.")]
    role: str
    tokens: Annotated[int | None, described("In our own count: it belongs to no model.")]
    origin: Literal["client", "relayed", "instructions", "hidden"]
    state: MessageState
    in_path: Annotated[bool, described("False for a message that the client has dropped since.")]
    is_compacted: Annotated[bool | None, described("A summary replaces it now; null: not known.")]
    finish_reason: str | None
    created_at: UtcTime | None
    seam: NotRequired[Annotated[Literal["client_compaction"], described("A client's own summary.")]]
    answer: NotRequired[Annotated[MessageId, described("Of a hidden message: the answer it led to.")]]


class TranscriptEntry(TranscriptEntryFields):
    """A message of a transcript."""

    message: StoredMessage


class TranscriptFields(PlaceFields):
    """The place of a transcript, and its page."""

    total: int
    next: NextNumber


class Transcript(TranscriptFields):
    """A transcript: instructions first, then every message."""

    instructions: Annotated[Any, described("The field `instructions` of the Responses API, or null.")]
    messages: list[TranscriptEntry]


@dataclass(frozen=True, slots=True)
class _Unseen:
    """A hidden message that led to `answer`, or belongs to it."""

    answer: MessageRow
    raw: bytes


api = api_router()


@api.get("/sessions/{name:path}/messages")
async def list_messages(
    session: AskedSession,
    branch: Branch = None,
    limit: Annotated[int | None, Query(ge=1, description="At most so many; else all of them.")] = None,
    after: Annotated[
        int | None, Query(ge=0, le=_LAST_POSITION, description="The position before the first one shown.")
    ] = None,
    hidden: Annotated[bool, Query(description="Also what the client has not seen, in its place.")] = False,
) -> Reply[Transcript]:
    """List the messages of a transcript.

    Instructions first, then every message, each byte for byte as it was sent.
    `hidden`: include messages between proxy and model that the client has not seen, in their places.
    """
    archive, place = session.parts.archive, await session.place(branch)
    instructions, field = await archive.preamble(place)
    rows = await archive.transcript(place)
    folded = await _folded(session, place)
    every: list[Message | MessageRow | _Unseen] = [*instructions]
    answers = [row.chain for row in rows if hidden and row.role == "assistant"]
    rounds = await archive.hidden(place.namespace, place.row.id, answers) if hidden else {}
    for row in rows:
        known = rounds.get(context_id(row.chain))
        before, behind = known.unseen() if known else ((), ())
        every += [*(_Unseen(row, raw) for raw in before), row, *(_Unseen(row, raw) for raw in behind)]
    start = 0 if after is None else min(after + 1, len(every))
    stop = len(every) if limit is None else min(len(every), start + limit)
    head: TranscriptFields = {
        **place_fields(place),
        "total": len(every),
        "next": stop - 1 if stop < len(every) else None,
    }

    def page() -> bytes:
        items = array_of(_item(at, every[at], folded) for at in range(start, stop))
        return object_with(head, instructions=field or b"null", messages=items)

    return raw_reply(await offload(MESSAGE_WEIGHT * (stop - start), page))


async def _folded(session: AskedSession, place: Place) -> Collection[bytes] | None:
    """Chains of the messages that the current view replaces by a summary (B13).

    None when the compaction's record cannot be read; the transcript is still readable.
    """
    if not place.row.compactions:
        return ()
    talk = (await session.branch(place)).conversation
    try:
        stored = await session.parts.store.compactions.of_session(place.namespace, place.row.id)
    except ValueError:
        return None
    places = await offload(
        MESSAGE_WEIGHT * len(talk.messages), lambda: folded_in(in_force(stored, talk), talk)
    )
    return frozenset(talk.names[at] for at in places)


def _item(at: int, message: Message | MessageRow | _Unseen, folded: Collection[bytes] | None) -> bytes:
    # Instructions and hidden messages are outside the chain (rules 1 and 31) and have no id.
    fields: dict[str, Any] = {
        "id": None,
        "position": at,
        "role": "assistant",
        "tokens": None,
        "origin": "hidden",
        "state": "live",
        "in_path": True,
        "is_compacted": False,
        "finish_reason": None,
        "created_at": None,
    }
    match message:
        case Message(raw=raw):
            fields |= {"role": message.role, "tokens": message.tokens, "origin": "instructions"}
        case _Unseen(answer, raw):
            fields["role"] = as_chat(decoded(raw)).get("role", "assistant")
            fields |= {"answer": context_id(answer.chain), "in_path": answer.in_path}
            fields["created_at"] = utc_time(answer.created_at)
        case MessageRow(body=raw):
            fields |= {name: getattr(message, name) for name in _AS_STORED}
            fields["id"] = context_id(message.chain)
            fields["origin"] = "relayed" if message.relayed else "client"
            fields["is_compacted"] = None if folded is None else message.chain in folded
            fields["created_at"] = utc_time(message.created_at)
            # A client's own summary, from which the conversation continues.
            if (
                message.role == "user"
                and may_be_client_summary(raw)
                and is_client_summary(as_chat(decoded(raw)))
            ):
                fields["seam"] = "client_compaction"
    return object_with(fields, message=raw)
