"""Endpoints that list sessions, show one with its branches, and erase them (rule 30, P6)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict, cast

from fastapi import Depends, Query
from pydantic import StringConstraints

from palimpsest.api.callers import Admitted, AskedSession, api_router, at_most
from palimpsest.api.replies import (
    MessageId,
    NextId,
    Reply,
    Shape,
    Tokens,
    UtcTime,
    described,
    page_of,
    reply,
    shape_of,
    utc_time,
    utc_time_or_none,
)
from palimpsest.core.history.branches import BranchKind
from palimpsest.core.view.compaction import context_id
from palimpsest.proxy.archive import Place
from palimpsest.proxy.erasing import Receipt
from palimpsest.storage.database import Scrub
from palimpsest.storage.history import SessionRow

# Ids are UUIDs in lower case.
IdText = Annotated[str, StringConstraints(pattern=r"^[0-9a-f-]{1,36}$")]
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
    next: NextId


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


class ScrubFields(TypedDict):
    """A scrub of the database's files that is pending."""

    since: UtcTime | None
    attempts: int
    next_attempt_at: Annotated[UtcTime | None, described("Null: one is running or queued.")]
    trouble: Annotated[str | None, described("The kind of the database's error; null: a reader prevents it.")]


class EraseReceipt(TypedDict):
    """What was erased: deleted rows by table, and what is left in the database's files."""

    erased_at: UtcTime
    rows: dict[str, int]
    daily_log_entries: int
    files: Scrub | None
    scrub: ScrubFields | None


class SessionEraseReceipt(EraseReceipt):
    """What was erased of a session. `blocked`: it is never stored again.

    `side_sessions`: of side requests that quoted it; they are erased with it.
    """

    session: str
    side_sessions: list[str]
    blocked: bool


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


api = api_router()


@api.get("/sessions")
async def list_sessions(
    caller: Admitted,
    only: OnlyWith,
    limit: Annotated[int, at_most(500)] = 50,
    after: Annotated[IdText | None, Query(description="The `next` of the page before.")] = None,
    side: Annotated[bool, Query(description="Also sessions that have only side requests.")] = True,
    details: Annotated[bool, Query(description="With sizes, sums and money.")] = False,
) -> Reply[SessionPage]:
    """List sessions, newest first.

    With `client`, `error` or `model`: those with an exchange that has them all; with `named`: those whose
    name or id begins so. With any of these `total` is not counted.
    """
    history = caller.parts.store.history
    rows = await history.sessions(caller.namespace, limit + 1, after, with_side=side, only=only)
    page, more = page_of(rows, limit, "id")
    shown = [cast(SessionRowFields, session_fields(row)) for row in page]
    if details:
        listed = await caller.parts.overviews.listed(caller.namespace, page)
        shown = [
            shape_of(
                SessionRowFields,
                one.sums,
                **fields,
                title=one.title,
                client=one.newest.client if one.newest else None,
                tokens_full=one.tokens,
                tokens_sent=one.sent_tokens,
                window_tokens=one.window_tokens,
                compacted_at_tokens=list(one.compacted_at),
            )
            for fields, one in zip(shown, listed, strict=True)
        ]
    total = None if only else await history.session_count(caller.namespace, with_side=side)
    return reply({"sessions": shown, "total": total, "next": more})


# Names may contain slashes: this path matches those of all other endpoints of a session, which come before.
@api.get("/sessions/{name:path}")
async def get_session(session: AskedSession) -> Reply[WholeSession]:
    """Get a session and its branches."""
    row = await session.row()
    heads = await session.parts.archive.branches(session.namespace, row)
    branches: list[BranchFields] = [
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
    return reply({**session_fields(row), "branches": branches})


@api.delete("/sessions/{name:path}")
async def erase_session(
    session: AskedSession,
    block: Annotated[bool, Query(description="Never store the conversation again: it gets 410.")] = False,
) -> Reply[SessionEraseReceipt]:
    """Erase a session; answers with a receipt."""
    receipt = await session.parts.erases.session(session.namespace, session.name, block=block)
    erased = {"side_sessions": list(receipt.beside), "blocked": receipt.is_blocked}
    return reply(receipt_fields(SessionEraseReceipt, receipt, **erased))


@api.delete("/namespace")
async def erase_everything(
    caller: Admitted, confirm: Annotated[Literal["everything"], Query(description="A safeguard.")]
) -> Reply[EraseReceipt]:
    """Erase all the caller's sessions; answers with a receipt."""
    del confirm
    return reply(receipt_fields(EraseReceipt, await caller.parts.erases.namespace(caller.namespace)))


def session_fields(row: SessionRow) -> Session:
    """A session."""
    times = {"created_at": utc_time(row.created_at), "updated_at": utc_time(row.updated_at)}
    return shape_of(Session, row, name=row.external_id, **times)


def place_fields(place: Place) -> PlaceFields:
    """The session and branch shown."""
    return {
        "session": place.row.id,
        "branch": place.chain.hex() or None,
        "is_default": place.is_default,
    }


def receipt_fields(shape: type[Shape], receipt: Receipt, **others: Any) -> Shape:
    """What was erased, and what is left in the database's files; `others` are further fields of the shape."""
    progress: ScrubFields | None = None
    if receipt.files == receipt.scrub.files == "pending":
        scrub = receipt.scrub
        progress = {
            "since": utc_time_or_none(scrub.since),
            "attempts": scrub.attempts,
            "next_attempt_at": utc_time_or_none(scrub.next_at),
            "trouble": scrub.trouble or None,
        }
    return shape_of(
        shape,
        receipt,
        erased_at=utc_time(receipt.at),
        rows=dict(sorted(receipt.rows.items())),
        daily_log_entries=receipt.log_entries,
        scrub=progress,
        **others,
    )
