"""Endpoints that read sessions, branches and messages as stored, byte for byte (P4)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from pydantic import StringConstraints

from palimpsest.api.callers import Admitted
from palimpsest.api.replies import array_of, object_with, raw_reply, reply
from palimpsest.core.history.message import Message
from palimpsest.core.view.clients import is_client_summary, may_be_client_summary
from palimpsest.core.view.compaction import Compaction, SpentTokens, context_id
from palimpsest.core.view.view import folded_in
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.proxy.archive import Archive, Place, ReadBranch
from palimpsest.proxy.compaction_context import in_force
from palimpsest.proxy.jobs import MESSAGE_WEIGHT, offload
from palimpsest.proxy.session_lists import ListedSession, SessionLists
from palimpsest.storage.compactions import StoredCompaction
from palimpsest.storage.history import Head, MessageRow, SessionRow
from palimpsest.storage.store import Store

# Ids are UUIDs in lower case.
IdText = Annotated[str, StringConstraints(pattern=r"^[0-9a-f-]{1,36}$")]
_MOST_SESSIONS = 500
_STATUS = re.compile(r"[1-5][0-9]{2}")


@dataclass(frozen=True, slots=True)
class _Unseen:
    """A hidden message that led to `answer`, or belongs to it."""

    answer: MessageRow
    raw: bytes


def fields_asked(
    client: Annotated[str, Query(max_length=500)] = "",
    error: Annotated[str, Query(max_length=100, description="a code, or an HTTP status")] = "",
    model: Annotated[str, Query(max_length=500)] = "",
    named: Annotated[str, Query(max_length=500)] = "",
) -> Mapping[str, str]:
    """What a listed session must have: an exchange with all of the fields, a name or id that begins so.

    A parameter named `code` would be a key to the hosts that take one there.
    """
    asked = {"client": client, "model": model, "named": named}
    asked["status" if _STATUS.fullmatch(error) else "code"] = error
    return {name: value for name, value in asked.items() if value}


OnlyWith = Annotated[Mapping[str, str], Depends(fields_asked)]


class SessionPages:
    """The endpoints below `/sessions` that only read."""

    def __init__(self, archive: Archive, store: Store, lists: SessionLists | None) -> None:
        self._archive = archive
        self._store = store
        self._lists = lists

    def on(self, api: APIRouter) -> None:
        """Register the routes, except the one that `on_last` registers."""
        api.add_api_route("/sessions", self.listed, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/messages", self.messages, methods=["GET"])

    def on_last(self, api: APIRouter) -> None:
        """Register `/sessions/{name}`: names may contain slashes, so it would match all other paths."""
        api.add_api_route("/sessions/{name:path}", self.one, methods=["GET"])

    async def listed(
        self,
        caller: Admitted,
        only: OnlyWith,
        limit: Annotated[int, Query(ge=1, le=_MOST_SESSIONS)] = 50,
        before: Annotated[IdText | None, Query()] = None,
        side: bool = False,
        details: bool = False,
    ) -> Response:
        """Sessions, newest first; `next` is the `before` of the next page, null on the last one.

        `side`: include sessions that have only side requests. With `client`, `error` or `model`: those with
        an exchange that has them; with `named`: those whose name or id begins so; their `total` is not
        counted. `details`: with sizes, sums and money.
        """
        history = self._store.history
        rows = await history.sessions(caller.namespace, limit + 1, before, with_side=side, only=only)
        page = rows[:limit]
        shown = [session_fields(row) for row in page]
        if details and self._lists is not None:
            listed = await self._lists.of(caller.namespace, page)
            shown = [fields | _details(one) for fields, one in zip(shown, listed, strict=True)]
        return reply(
            {
                "sessions": shown,
                "total": None if only else await history.session_count(caller.namespace, with_side=side),
                "next": page[-1].id if len(rows) > limit else None,
            }
        )

    async def one(self, caller: Admitted, name: str) -> Response:
        """A session and its branches."""
        row = await self._archive.session(caller.namespace, name)
        heads = await self._archive.branches(caller.namespace, row)
        return reply({**session_fields(row), "branches": _branches(heads)})

    async def messages(
        self,
        caller: Admitted,
        name: str,
        branch: str | None = None,
        limit: Annotated[int | None, Query(ge=1)] = None,
        offset: Annotated[int, Query(ge=0)] = 0,
        hidden: bool = False,
    ) -> Response:
        """The transcript, or `limit` entries of it: instructions first, then every message.

        `hidden`: include messages between proxy and model that the client has not seen, in their places.
        """
        place = await self._archive.place(caller.namespace, name, branch)
        instructions, field = await self._archive.preamble(place)
        rows = await self._archive.transcript(place)
        folded = await self._folded(place)
        said = await self._with_hidden(place, rows) if hidden else rows
        every: list[Message | MessageRow | _Unseen] = [*instructions, *said]
        total = len(every)
        stop = total if limit is None else min(total, offset + limit)
        head = {**place_fields(place), "total": total, "offset": offset}
        head["next_offset"] = stop if stop < total else None
        # The Responses API's `instructions`, which requests have beside their items.
        body = object_with(head, "instructions", field or b"null")
        weight = MESSAGE_WEIGHT * (stop - offset)
        return raw_reply(await offload(weight, _page, body, every, range(min(offset, total), stop), folded))

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


def session_fields(row: SessionRow) -> dict[str, Any]:
    """A session; times are UTC seconds."""
    return {
        "id": row.id,
        "name": row.external_id,
        "model": row.model,
        "found_by": row.found_by,
        "full_history": row.full_history,
        "is_side": row.is_side,
        "messages": row.messages,
        "exchanges": row.exchanges,
        "compactions": row.compactions,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def _details(one: ListedSession) -> dict[str, Any]:
    """What `details` adds to a session; null is unknown, and `saved` an estimate."""
    return {
        "title": one.title,
        "client": one.newest.client if one.newest else None,
        "tokens_full": one.tokens,
        "tokens_sent": one.sent_tokens,
        "window_tokens": one.window_tokens,
        "compacted_at_tokens": list(one.compacted_at),
        "failed": one.sums.failed,
        "cost": one.sums.cost,
        "saved": one.sums.saved,
    }


def place_fields(place: Place) -> dict[str, Any]:
    """The session and branch shown; `branch` is null when the session has none."""
    return {
        "session": place.row.id,
        "branch": place.chain.hex() or None,
        "is_default": place.is_default,
    }


def compaction_fields(compaction: Compaction) -> dict[str, Any]:
    """A compaction's record: what was folded and kept, tokens before and after, and who wrote the summary."""
    names = compaction.names()
    return {
        "id": compaction.id,
        "kind": compaction.kind,
        "trigger": compaction.trigger,
        "reason": compaction.reason,
        "policy": compaction.policy,
        "author": compaction.author,
        "model": compaction.model,
        "passes": compaction.passes,
        "rebuilt": compaction.rebuilt,
        "parents": list(compaction.parents),
        "tokens_before": compaction.tokens_before,
        "tokens_after": compaction.tokens_after,
        "tokens_freed": compaction.tokens_before - compaction.tokens_after,
        "spent": spent_fields(compaction.spent),
        "messages_folded": compaction.messages_folded,
        "watermark": context_id(compaction.watermark) if compaction.watermark else None,
        "kept": [context_id(chain) for chain in compaction.kept],
        "masks": [
            {"message": names[mask.chain], "limit_chars": mask.limit_chars} for mask in compaction.masks
        ],
        "summary": compaction.summary,
        "memory": compaction.memory,
    }


def spent_fields(spent: SpentTokens | None) -> dict[str, int] | None:
    """Tokens that the calls for a summary took; null when code wrote it, or where it was not kept."""
    if spent is None:
        return None
    return {
        "prompt_tokens": spent.prompt,
        "cached_tokens": spent.cached,
        "completion_tokens": spent.completion,
    }


def stored_fields(stored: StoredCompaction) -> dict[str, Any]:
    """A compaction's record with its times (UTC seconds)."""
    times = {"created_at": stored.created_at, "undone_at": stored.undone_at}
    return {**compaction_fields(stored.compaction), **times}


def _branches(heads: Sequence[Head]) -> list[dict[str, Any]]:
    return [
        {
            "branch": head.chain.hex(),
            "is_default": at == 0,
            "kind": head.kind,
            "beside": context_id(head.beside) if head.beside else None,
            "messages": head.depth,
            "answers": head.answers,
        }
        for at, head in enumerate(heads)
    ]


def _folded_in(stored: Sequence[StoredCompaction], branch: ReadBranch) -> frozenset[bytes]:
    talk = branch.conversation
    return frozenset(talk.names[at] for at in folded_in(in_force(stored, talk), talk))


def _page(
    head: bytes,
    every: Sequence[Message | MessageRow | _Unseen],
    shown: range,
    folded: Collection[bytes] | None,
) -> bytes:
    items = [_item(at, every[at], folded) for at in shown]
    return head[:-1] + b',"messages":' + array_of(items) + b"}"


def _item(at: int, message: Message | MessageRow | _Unseen, folded: Collection[bytes] | None) -> bytes:
    if isinstance(message, Message):
        return object_with(_outside(at, message.role, "instructions", message.tokens), "message", message.raw)
    if isinstance(message, _Unseen):
        answer = message.answer
        fields = _outside(at, as_chat(decoded(message.raw)).get("role", "assistant"), "hidden", None)
        fields |= {"answer": context_id(answer.chain), "in_path": answer.in_path}
        fields["created_at"] = answer.created_at
        return object_with(fields, "message", message.raw)
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
        "created_at": message.created_at,
    }
    if _is_seam(message):
        fields["seam"] = "client_compaction"
    return object_with(fields, "message", message.body)


def _is_seam(message: MessageRow) -> bool:
    """True for a client's own summary, from which the conversation continues."""
    return (
        message.role == "user"
        and may_be_client_summary(message.body)
        and is_client_summary(as_chat(decoded(message.body)))
    )


def _outside(at: int, role: str, origin: str, tokens: int | None) -> dict[str, Any]:
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
