"""The pages about one session, and the forms on them: compact, undo, pin, unpin, change settings."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, quote

from fastapi import Depends, Query, Response

from palimpsest.api.body import read_body
from palimpsest.api.callers import (
    ORDER_BYTES,
    ORDER_SECONDS,
    AskedSession,
    CallersSession,
    at_most,
    page_router,
)
from palimpsest.api.compactions import compaction_fields, folding_fields, followed_fields, undo_compaction
from palimpsest.api.journal import MOST_SEQ
from palimpsest.api.pins import pin, pins_of, unpin_message
from palimpsest.api.replies import page_of
from palimpsest.api.status import patch_settings, settings_of
from palimpsest.api.ui.conversations import MOST_ROWS, Asked, folding_facts, talk_facts
from palimpsest.api.ui.entries import CHOICES, days_of, entry_of, use_of
from palimpsest.api.ui.turns import About, text_row, turn_facts, turns_of
from palimpsest.core.utc import moment
from palimpsest.core.view.compaction import context_id
from palimpsest.core.wire.json_text import decoded
from palimpsest.errors import InvalidJson, InvalidParameter, NotFound
from palimpsest.proxy.archive import MOST_TURNS
from palimpsest.proxy.compacting.viewing import NotMade
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.proxy.journal_rows import text_of
from palimpsest.storage.exchange_log import NEWEST
from palimpsest.storage.history import SessionRow

# Kept memories and checkpoints on one page.
_MOST_KEPT = 50
# Nobody reads more branches than these: a chat front end leaves three for every question.
_MOST_BRANCHES = 40
# More folded messages are read for what the prompt does not name when asked: 0.2 ms each.
_READ_AT_ONCE = 1_000
# A page of a session with messages that can be pinned.
_PLACE = re.compile(r"/(messages|turns/\d{1,11})(\?[\w=&-]*)?$")
Show = Literal["all", "compactions", "trouble"]


def asked_for(
    start: Annotated[str, Query(alias="from", pattern=r"^(\d{1,9}|[a-z]+_[0-9a-f]{1,64})?$")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = MOST_ROWS,
    raw: bool = False,
) -> Asked:
    """The messages that a page of a conversation shows; `from`: where it begins, or a message's id."""
    return Asked(int(start) if start.isdigit() else start or None, limit, raw)


ui = page_router()


@ui.get("/ui/sessions/{name:path}/messages")
async def show_messages(
    session: AskedSession,
    asked: Annotated[Asked, Depends(asked_for)],
    branch: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """The conversation as a page, compactions as seams."""
    row, parts = await session.row(), session.parts
    place = await session.place(branch)
    subject = await session.branch(place)
    talk = subject.conversation
    instructions = (*subject.stated, *talk.preamble)
    told = await parts.archive.transcript(place)
    made = await parts.store.compactions.of_session(session.namespace, row.id)
    turns = await parts.store.exchange_log.page(session.namespace, row.id, NEWEST, MOST_TURNS)
    numbers = {one.head: n for n, one in reversed(turns)}
    facts = await asyncio.to_thread(talk_facts, instructions, told, talk, made, numbers, asked)
    heads = await parts.archive.branches(session.namespace, row)
    more = {
        "session": row,
        "branches": heads[:_MOST_BRANCHES],
        "branch": branch and place.chain.hex(),
        "pinned": await _pinned(session, row),
    }
    return await session.page("messages.html", facts | more)


@ui.get("/ui/sessions/{name:path}/compactions/{compaction}")
async def show_compaction(
    session: AskedSession,
    compaction: str,
    start: Annotated[int | None, Query(alias="from", ge=0, le=10**9)] = None,
) -> Response:
    """One compaction as a page: its summary, line by line, beside the messages that it stands for.

    `from`: the first folded message shown, else the first that was not folded before.
    """
    row, views = await session.row(), session.parts.exchanges
    found = await views.folding(session.namespace, row, compaction)
    followed = await views.followed(session.namespace, row)
    after = next((one for one in followed if one.compaction.id == compaction), None)
    facts = await asyncio.to_thread(folding_facts, found, start)
    more = {
        "session": row,
        "one": folding_fields(found),
        "made_at": moment(found.stored.created_at),
        "after": followed_fields(after) if after else None,
        "is_newest": found.is_newest,
    }
    return await session.page("compaction.html", facts | more)


@ui.get("/ui/sessions/{name:path}/state")
async def show_state(session: AskedSession) -> Response:
    """What is kept beside a session's messages, as a page: working state, pins, memory, checkpoints."""
    row, parts = await session.row(), session.parts
    _, context = await session.context()
    kept = await context.done(CompactionContext.kept_state)
    memories = await parts.store.journal.memories(session.namespace, row.id, _MOST_KEPT)
    points = await parts.store.journal.checkpoints(session.namespace, row.id, _MOST_KEPT)
    pins = await pins_of(session, row)
    bodies = [(await parts.archive.message(session.namespace, pin["message"]))[1].body for pin in pins]
    facts = {
        "session": row,
        "strategy": context.policy.name,
        # Each filled field with its value as text.
        "state": [(name.replace("_", " "), _state_text(value)) for name, value in kept.items() if value],
        "pins": [(pin, text_row(body, About())) for pin, body in zip(pins, bodies, strict=True)],
        "memories": [(one.kind, text_of(one), moment(one.created_at)) for one in memories],
        "checkpoints": [(one.kind, one.id, moment(one.created_at)) for one in points],
    }
    return await session.page("state.html", facts)


@ui.get("/ui/sessions/{name:path}/settings")
async def show_settings(session: AskedSession) -> Response:
    """A session's own settings as a page, and its policy: each number and where it comes from."""
    row = await session.row()
    fields = await settings_of(session, row)
    own = json.dumps(fields["settings"], indent=2, ensure_ascii=False)
    return await session.page("settings.html", {"session": row, "policy": fields["policy"], "own": own})


@ui.get("/ui/sessions/{name:path}/events")
async def show_events(
    session: AskedSession,
    after: Annotated[int, Query(ge=0, le=MOST_SEQ)] = 0,
    limit: Annotated[int, at_most(500)] = 100,
    show: Show = "all",
) -> Response:
    """The events of a session as a page: those after `after`, oldest first."""
    row = await session.row()
    journal, types = session.parts.store.journal, CHOICES[show]
    events = await journal.events(session.namespace, row.id, after, limit + 1, types)
    page, more = page_of(events, limit, "seq")
    facts = {
        **await _about(session, row),
        "days": days_of([entry_of(one) for one in page]),
        "show": show,
        "choices": tuple(CHOICES),
        "limit": limit,
        "after": after,
        "next": more,
    }
    return await session.page("events.html", facts)


@ui.get("/ui/sessions/{name:path}/turns/{n}")
async def show_turn(
    session: AskedSession,
    n: str,
    start: Annotated[int | None, Query(alias="from", ge=0, le=10**9)] = None,
    lost: bool = False,
) -> Response:
    """One turn as a page: left what was said, right what was sent. `from`: the first message shown.

    `lost`: read what is not named in the prompt, however many messages are folded.
    """
    row, views, namespace = await session.row(), session.parts.exchanges, session.namespace
    seen = await views.seen(namespace, row, n)
    context = await session.parts.contexts.of(seen.branch)
    folded = sum(fate.fate == "folded" for fate in seen.fates)
    is_read = bool(seen.force) and (lost or folded <= _READ_AT_ONCE)
    before = (await views.seen(namespace, row, str(seen.number - 1))).shown if seen.number > 1 else None
    facts = await asyncio.to_thread(lambda: turn_facts(seen, views.shares(seen), context, before, start))
    answer = None
    if seen.exchange.answer is not None:
        ident = context_id(seen.exchange.answer)
        # It may be erased meanwhile.
        with suppress(NotFound):
            _, found = await session.parts.archive.message(namespace, ident)
            answer = text_row(found.body, About(ident, seen.for_model(found.tokens)))
    missed = await views.lost(seen) if is_read else None
    pinned = await _pinned(session, row)
    more = {"session": row, "answer": answer, "lost": missed, "is_asked": lost, "pinned": pinned}
    return await session.page("turn.html", facts | more)


@ui.get("/ui/sessions/{name:path}")
async def show_session(
    session: AskedSession,
    after: Annotated[int, Query(ge=0, le=NEWEST)] = NEWEST,
    limit: Annotated[int, at_most(200)] = 50,
    did: Literal["", "undone"] | NotMade = "",
    turn: Annotated[int | None, Query(ge=1, le=10**11)] = None,
) -> Response:
    """One session as a page: how full its window is, its compactions, and its turns, newest first.

    `did`: what a button has just done, or why it did nothing. `turn`: to the page of that turn.
    """
    if turn is not None:
        return _redirect(session.name, f"/turns/{turn}")
    row, parts = await session.row(), session.parts
    own = await parts.store.journal.settings_of(session.namespace, row.id)

    async def facts() -> dict[str, Any]:
        made = await parts.store.compactions.of_session(session.namespace, row.id)
        followed = await parts.exchanges.followed(session.namespace, row) if made else ()
        standing = [one for one in made if one.undone_at is None]
        page, more = await parts.exchanges.page(session.namespace, row.id, after, limit)
        # Made by hand since the newest turn: no turn tells of it yet.
        is_waiting = bool(page and standing) and standing[-1].created_at > page[0][1].started_at
        turns = turns_of(page)
        return {
            **await _about(session, row),
            "turns": turns,
            "is_newest": after == NEWEST,
            "next": more,
            "findings": await parts.exchanges.findings(session.namespace, row),
            "followed": {one.compaction.id: followed_fields(one) for one in followed},
            "force": standing[-1].compaction.id if standing else None,
            "is_waiting": is_waiting and page[0][1].compaction != standing[-1].compaction.id,
            "did": did,
            "made": {one.compaction.id: compaction_fields(one.compaction) for one in made},
        }

    return await session.live_page("session.html", (row, own, did), facts)


@ui.post("/ui/sessions/{name:path}")
async def act(session: AskedSession) -> Response:
    """Do what the form's button says, and show what was done.

    Plain forms, so that a browser sends the key it was given. A form on another site's page is refused at the
    front door by its origin (`core.wire.web_origins`), as any request of another origin is.
    """
    body = await read_body(session.request.scope, session.request.receive, ORDER_BYTES, ORDER_SECONDS)
    form = parse_qs(body.decode("latin-1"), encoding="latin-1")
    row, end = await session.row(), ""
    match _field(form, "action"):
        case "compact":
            subject = await session.branch(await session.place())
            made = await session.parts.viewing.by_hand(subject, "")
            end = f"?did={made}" if isinstance(made, str) else ""
        case "undo":
            await undo_compaction(session, _field(form, "compaction"))
            end = "?did=undone"
        case "pin":
            await pin(session, row, message := _field(form, "message"))
            end = _place(session, message)
        case "unpin":
            await unpin_message(session, message := _field(form, "message"))
            end = _place(session, message)
        case "settings":
            try:
                patch = decoded(_field(form, "patch").encode("latin-1"))
            except InvalidJson as error:
                raise InvalidParameter(f"The settings are not JSON: {error.message}", param="patch") from None
            if not isinstance(patch, dict):
                raise InvalidParameter("The settings are no JSON object.", param="patch")
            await patch_settings(session, row, patch)
            end = "/settings"
        case other:
            raise InvalidParameter(f"There is no action {other}.", param="action")
    return _redirect(row.id, end)


def _redirect(session: str, end: str) -> Response:
    return Response(status_code=303, headers={"location": f"/ui/sessions/{quote(session)}{end}"})


def _place(session: CallersSession, message: str) -> str:
    """Where the message is that was pinned: on the page that the form was on."""
    found = _PLACE.search(session.request.headers.get("referer", ""))
    return f"{found[0]}#pin-{quote(message)}" if found else "/state"


def _field(form: Mapping[str, list[str]], name: str) -> str:
    """A field of the form. InvalidParameter when it is missing, or there twice."""
    found = form.get(name, [])
    if len(found) != 1:
        raise InvalidParameter(f"The form needs one field {name}.", param=name)
    return found[0]


async def _pinned(session: CallersSession, row: SessionRow) -> set[str]:
    """The ids of messages pinned by hand."""
    pins = await session.parts.store.history.pins(session.namespace, row.id)
    return {context_id(pin.chain) for pin in pins if not pin.is_lifted}


async def _about(session: CallersSession, row: SessionRow) -> dict[str, Any]:
    """What the pages of a session's turns and events say of it above them."""
    _, context = await session.context(by_hand=True)
    branches = await session.parts.archive.branches(session.namespace, row)
    return {
        "session": row,
        "use": await context.done(use_of),
        "started": moment(row.created_at),
        "touched": moment(row.updated_at),
        "branches": branches[:_MOST_BRANCHES],
    }


def _state_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(f"- {_state_text(each)}" for each in value)
    return json.dumps(value, ensure_ascii=False, default=str)
