"""Endpoints that list sessions, and show one with its branches."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict, cast

from fastapi import APIRouter, Depends, Query
from pydantic import StringConstraints

from palimpsest.api.callers import Admitted, SessionName
from palimpsest.api.replies import MessageId, Reply, Tokens, UtcTime, described, reply, utc_time
from palimpsest.core.history.branches import BranchKind
from palimpsest.core.view.compaction import context_id
from palimpsest.proxy.archive import Archive, Place
from palimpsest.proxy.session_lists import ListedSession, SessionLists
from palimpsest.storage.history import Head, SessionRow
from palimpsest.storage.store import Store

# Ids are UUIDs in lower case.
IdText = Annotated[str, StringConstraints(pattern=r"^[0-9a-f-]{1,36}$")]
_MOST_SESSIONS = 500
_STATUS = re.compile(r"[1-5][0-9]{2}")


class Session(TypedDict):
    """A session. `full_history`: it received the whole list of a conversation at least once."""

    id: Annotated[str, described("Our id.")]
    name: Annotated[str | None, described("The client's own name for it.")]
    model: str
    found_by: Annotated[str, described("How its first request was assigned to it.")]
    full_history: bool
    is_side: Annotated[bool, described("It has side requests only, such as those for a title.")]
    messages: int
    exchanges: int
    compactions: int
    created_at: UtcTime
    updated_at: UtcTime


class SessionDetails(TypedDict, total=False):
    """What `details` adds to a session. Null is unknown; `saved` is an estimate."""

    title: Annotated[str, described("The session's first words.")]
    client: str | None
    tokens_full: Annotated[int | None, described("The newest whole prompt.")]
    tokens_sent: Annotated[int | None, described("What was sent of it.")]
    window_tokens: Tokens
    compacted_at_tokens: Annotated[list[int], described("The whole prompt at each compaction, ascending.")]
    failed: Annotated[int, described("Turns that failed.")]
    cost: float | None
    saved: float | None


class SessionRowFields(Session, SessionDetails):
    """A session of a list; the fields from `title` on only with `details`. Null is unknown."""


class SessionPage(TypedDict):
    """Sessions, newest first."""

    sessions: list[SessionRowFields]
    total: Annotated[int | None, described("How many there are; null where fields were asked for.")]
    next: Annotated[str | None, described("The `after` of the next page; null on the last one.")]


class BranchFields(TypedDict):
    """A branch. `beside`: the message of the default branch at which it leaves that."""

    branch: str
    is_default: bool
    kind: BranchKind
    beside: MessageId | None
    messages: int
    answers: int


class WholeSession(Session):
    """A session and its branches, the default one first."""

    branches: list[BranchFields]


class PlaceFields(TypedDict):
    """The session and branch shown; `branch` is null when the session has none."""

    session: str
    branch: str | None
    is_default: bool


def fields_asked(
    client: Annotated[str, Query(max_length=500, description="With an exchange of this client.")] = "",
    error: Annotated[
        str, Query(max_length=100, description="With an exchange that failed so: a code, or an HTTP status.")
    ] = "",
    model: Annotated[str, Query(max_length=500, description="With an exchange of this model.")] = "",
    named: Annotated[str, Query(max_length=500, description="Whose name or id begins so.")] = "",
) -> Mapping[str, str]:
    """What a listed session must have: an exchange with all of the fields, a name or id that begins so.

    A parameter named `code` would be a key to the hosts that take one there.
    """
    asked = {"client": client, "model": model, "named": named}
    asked["status" if _STATUS.fullmatch(error) else "code"] = error
    return {name: value for name, value in asked.items() if value}


OnlyWith = Annotated[Mapping[str, str], Depends(fields_asked)]


class SessionPages:
    """The endpoints of sessions that only read."""

    def __init__(self, archive: Archive, store: Store, lists: SessionLists) -> None:
        self._archive = archive
        self._store = store
        self._lists = lists

    def on(self, api: APIRouter) -> None:
        """Register the route of the list."""
        api.add_api_route("/sessions", self.list_sessions, methods=["GET"])

    def on_last(self, api: APIRouter) -> None:
        """Register `/sessions/{name}`: names may contain slashes, so it would match all other paths."""
        api.add_api_route("/sessions/{name:path}", self.get_session, methods=["GET"])

    async def list_sessions(
        self,
        caller: Admitted,
        only: OnlyWith,
        limit: Annotated[int, Query(ge=1, le=_MOST_SESSIONS, description="At most so many.")] = 50,
        after: Annotated[IdText | None, Query(description="The `next` of the page before.")] = None,
        side: Annotated[bool, Query(description="Also sessions that have only side requests.")] = True,
        details: Annotated[bool, Query(description="With sizes, sums and money.")] = False,
    ) -> Reply[SessionPage]:
        """List sessions, newest first.

        With `client`, `error` or `model`: those with an exchange that has them all; with `named`: those whose
        name or id begins so. With any of these `total` is not counted.
        """
        history = self._store.history
        rows = await history.sessions(caller.namespace, limit + 1, after, with_side=side, only=only)
        page = rows[:limit]
        shown = [cast(SessionRowFields, session_fields(row)) for row in page]
        if details:
            listed = await self._lists.of(caller.namespace, page)
            more = map(_details, listed)
            shown = [cast(SessionRowFields, {**one, **two}) for one, two in zip(shown, more, strict=True)]
        return reply(
            {
                "sessions": shown,
                "total": None if only else await history.session_count(caller.namespace, with_side=side),
                "next": page[-1].id if len(rows) > limit else None,
            }
        )

    async def get_session(self, caller: Admitted, name: SessionName) -> Reply[WholeSession]:
        """Get a session and its branches."""
        row = await self._archive.session(caller.namespace, name)
        heads = await self._archive.branches(caller.namespace, row)
        return reply({**session_fields(row), "branches": _branches(heads)})


def session_fields(row: SessionRow) -> Session:
    """A session."""
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
        "created_at": utc_time(row.created_at),
        "updated_at": utc_time(row.updated_at),
    }


def _details(one: ListedSession) -> SessionDetails:
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


def place_fields(place: Place) -> PlaceFields:
    """The session and branch shown."""
    return {
        "session": place.row.id,
        "branch": place.chain.hex() or None,
        "is_default": place.is_default,
    }


def _branches(heads: Sequence[Head]) -> list[BranchFields]:
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
