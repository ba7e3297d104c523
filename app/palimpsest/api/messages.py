"""The endpoint that reads a transcript as stored, byte for byte (P4)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from fastapi import APIRouter, Query

from palimpsest.api.callers import Admitted, Branch, SessionName
from palimpsest.api.replies import (
    MessageId,
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
from palimpsest.proxy.archive import Archive, Place
from palimpsest.proxy.compaction_context import in_force
from palimpsest.proxy.jobs import MESSAGE_WEIGHT, offload
from palimpsest.proxy.turn import ReadBranch
from palimpsest.storage.compactions import StoredCompaction
from palimpsest.storage.history import MessageRow
from palimpsest.storage.store import Store

_LAST_POSITION = 10**9


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
    next: Annotated[int | None, described("The `after` of the next page; null on the last one.")]


class Transcript(TranscriptFields):
    """A transcript: instructions first, then every message."""

    instructions: Annotated[Any, described("The field `instructions` of the Responses API, or null.")]
    messages: list[TranscriptEntry]


@dataclass(frozen=True, slots=True)
class _Unseen:
    """A hidden message that led to `answer`, or belongs to it."""

    answer: MessageRow
    raw: bytes


class MessagePages:
    """The endpoint of a session's messages."""

    def __init__(self, archive: Archive, store: Store) -> None:
        self._archive = archive
        self._store = store

    def on(self, api: APIRouter) -> None:
        """Register the route."""
        api.add_api_route("/sessions/{name:path}/messages", self.list_messages, methods=["GET"])

    async def list_messages(
        self,
        caller: Admitted,
        name: SessionName,
        branch: Branch = None,
        limit: Annotated[int | None, Query(ge=1, description="At most so many; else all of them.")] = None,
        after: Annotated[
            int | None, Query(ge=0, le=_LAST_POSITION, description="The position before the first one shown.")
        ] = None,
        hidden: Annotated[
            bool, Query(description="Also what the client has not seen, in its place.")
        ] = False,
    ) -> Reply[Transcript]:
        """List the messages of a transcript.

        Instructions first, then every message, each byte for byte as it was sent.
        `hidden`: include messages between proxy and model that the client has not seen, in their places.
        """
        place = await self._archive.place(caller.namespace, name, branch)
        instructions, field = await self._archive.preamble(place)
        rows = await self._archive.transcript(place)
        folded = await self._folded(place)
        said = await self._with_hidden(place, rows) if hidden else rows
        every: list[Message | MessageRow | _Unseen] = [*instructions, *said]
        start = 0 if after is None else min(after + 1, len(every))
        stop = len(every) if limit is None else min(len(every), start + limit)
        head: TranscriptFields = {
            **place_fields(place),
            "total": len(every),
            "next": stop - 1 if stop < len(every) else None,
        }
        weight, shown = MESSAGE_WEIGHT * (stop - start), range(start, stop)
        return raw_reply(await offload(weight, _page, head, field or b"null", every, shown, folded))

    async def _folded(self, place: Place) -> frozenset[bytes] | None:
        """Chains of the messages that the current view replaces by a summary (B13).

        None when the compaction's record cannot be read; the transcript is still readable.
        """
        if not place.row.compactions:
            return frozenset()
        branch = await self._archive.branch(place, ())
        try:
            stored = await self._store.compactions.of_session(place.namespace, place.row.id)
        except ValueError:
            return None
        return await offload(MESSAGE_WEIGHT * len(branch.conversation.messages), _folded_in, stored, branch)

    async def _with_hidden(self, place: Place, rows: Sequence[MessageRow]) -> list[MessageRow | _Unseen]:
        chains = [row.chain for row in rows if row.role == "assistant"]
        hidden = await self._archive.hidden(place.namespace, place.row.id, chains)
        every: list[MessageRow | _Unseen] = []
        for row in rows:
            rounds = hidden.get(context_id(row.chain))
            before, behind = rounds.unseen() if rounds else ((), ())
            every += [_Unseen(row, raw) for raw in before]
            every.append(row)
            every += [_Unseen(row, raw) for raw in behind]
        return every


def _folded_in(stored: Sequence[StoredCompaction], branch: ReadBranch) -> frozenset[bytes]:
    talk = branch.conversation
    return frozenset(talk.names[at] for at in folded_in(in_force(stored, talk), talk))


def _page(
    head: TranscriptFields,
    instructions: bytes,
    every: Sequence[Message | MessageRow | _Unseen],
    shown: range,
    folded: Collection[bytes] | None,
) -> bytes:
    """`instructions`: those of the Responses API, which requests have beside their items."""
    items = [_item(at, every[at], folded) for at in shown]
    return object_with(head, instructions=instructions, messages=array_of(items))


def _item(at: int, message: Message | MessageRow | _Unseen, folded: Collection[bytes] | None) -> bytes:
    if isinstance(message, Message):
        return object_with(_outside(at, message.role, "instructions", message.tokens), message=message.raw)
    if isinstance(message, _Unseen):
        answer = message.answer
        fields = _outside(at, as_chat(decoded(message.raw)).get("role", "assistant"), "hidden", None)
        fields["answer"], fields["in_path"] = context_id(answer.chain), answer.in_path
        fields["created_at"] = utc_time(answer.created_at)
        return object_with(fields, message=message.raw)
    fields = {
        "id": context_id(message.chain),
        "position": at,
        "role": message.role,
        "tokens": message.tokens,
        "origin": "relayed" if message.relayed else "client",
        "state": message.state,
        "in_path": message.in_path,
        "is_compacted": None if folded is None else message.chain in folded,
        "finish_reason": message.finish_reason,
        "created_at": utc_time(message.created_at),
    }
    if _is_seam(message):
        fields["seam"] = "client_compaction"
    return object_with(fields, message=message.body)


def _is_seam(message: MessageRow) -> bool:
    """True for a client's own summary, from which the conversation continues."""
    return (
        message.role == "user"
        and may_be_client_summary(message.body)
        and is_client_summary(as_chat(decoded(message.body)))
    )


def _outside(
    at: int, role: str, origin: Literal["instructions", "hidden"], tokens: int | None
) -> TranscriptEntryFields:
    """Instructions and hidden messages are outside the chain (rules 1 and 31) and have no id."""
    return {
        "id": None,
        "position": at,
        "role": role,
        "tokens": tokens,
        "origin": origin,
        "state": "live",
        "in_path": True,
        "is_compacted": False,
        "finish_reason": None,
        "created_at": None,
    }
