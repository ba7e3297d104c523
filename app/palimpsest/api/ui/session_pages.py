"""The pages about one session: its turns, its conversation, its compactions, what is kept beside them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request, Response

from palimpsest.api.callers import Admitted, credentials_of
from palimpsest.api.compactions import compaction_fields, folding_fields, followed_fields
from palimpsest.api.events import MOST_SEQ
from palimpsest.api.ui.conversations import MOST_ROWS, Asked, folding_facts, talk_facts
from palimpsest.api.ui.entries import CHOICES, Use, days_of, entry_of, use_of
from palimpsest.api.ui.parts import UiParts
from palimpsest.api.ui.turns import About, TextRow, message_rows, text_row, turn_facts, turns_of
from palimpsest.core.summary.styles import state_fields
from palimpsest.core.utc import moment
from palimpsest.core.view.compaction import context_id
from palimpsest.errors import NotFound
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.proxy.exchange_views import MOST_TURNS, SeenExchange
from palimpsest.proxy.journal_rows import text_of
from palimpsest.storage.exchange_log import NEWEST
from palimpsest.storage.history import SessionRow

_MOST_EVENTS = 500
# Kept memories and checkpoints on one page.
_MOST_KEPT = 50
# Nobody reads more branches than these: a chat front end leaves three for every question.
_MOST_BRANCHES = 40
# More folded messages are read for what the prompt does not name when asked: 0.2 ms each.
_READ_AT_ONCE = 1_000
# Turns on one page of the rail.
_MOST_TURNS = 200
Show = Literal["all", "compactions", "trouble"]


def asked_for(
    start: Annotated[str, Query(alias="from", pattern=r"^(\d{1,9}|[a-z]+_[0-9a-f]{1,64})?$")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = MOST_ROWS,
    raw: bool = False,
) -> Asked:
    """The messages that a page of a conversation shows; `from`: where it begins, or a message's id."""
    return Asked(int(start) if start.isdigit() else start or None, limit, raw)


class SessionUi:
    """The pages below `/ui/sessions/{name}`; names may have slashes."""

    def __init__(self, parts: UiParts) -> None:
        self._of = parts

    def on(self, ui: APIRouter) -> None:
        """Register the routes."""
        ui.add_api_route("/ui/sessions/{name:path}/messages", self.messages, methods=["GET"])
        ui.add_api_route(
            "/ui/sessions/{name:path}/compactions/{compaction}", self.compaction, methods=["GET"]
        )
        ui.add_api_route("/ui/sessions/{name:path}/state", self.state, methods=["GET"])
        ui.add_api_route("/ui/sessions/{name:path}/settings", self.settings, methods=["GET"])
        ui.add_api_route("/ui/sessions/{name:path}/events", self.events, methods=["GET"])
        ui.add_api_route("/ui/sessions/{name:path}/turns/{n}", self.turn, methods=["GET"])
        ui.add_api_route("/ui/sessions/{name:path}", self.session, methods=["GET"])

    async def session(
        self,
        request: Request,
        caller: Admitted,
        name: str,
        after: Annotated[int, Query(ge=0, le=NEWEST)] = NEWEST,
        limit: Annotated[int, Query(ge=1, le=_MOST_TURNS)] = 50,
        nothing: bool = False,
        turn: Annotated[int | None, Query(ge=1, le=10**11)] = None,
    ) -> Response:
        """One session as a page: how full its window is, its compactions, and its turns, newest first.

        `nothing`: a compaction by hand has just found nothing to fold. `turn`: to the page of that turn.
        """
        if turn is not None:
            return Response(status_code=303, headers={"location": f"/ui/sessions/{quote(name)}/turns/{turn}"})
        row = await self._of.row(request, caller.namespace, name)
        made = await self._of.store.compactions.of_session(caller.namespace, row.id)
        followed = await self._of.compactions.followed(caller.namespace, row) if made else ()
        standing = [one.compaction.id for one in made if one.undone_at is None]
        return await self._of.paper.page(
            request,
            "session.html",
            {
                **await self._about(request, caller.namespace, row),
                **await self._rail(caller.namespace, row, after, limit),
                "findings": await self._of.exchanges.findings(caller.namespace, row),
                "followed": {one.compaction.id: followed_fields(one) for one in followed},
                "force": standing[-1] if standing else None,
                "nothing": nothing,
                "made": {one.compaction.id: compaction_fields(one.compaction) for one in made},
            },
        )

    async def _rail(self, namespace: str, row: SessionRow, before: int, limit: int) -> dict[str, Any]:
        """The turns of a session's page."""
        page, after = await self._of.exchanges.priced(namespace, row.id, before, limit)
        return {"turns": turns_of(page), "is_newest": before == NEWEST, "next": after}

    async def turn(
        self,
        request: Request,
        caller: Admitted,
        name: str,
        n: str,
        start: Annotated[int | None, Query(alias="from", ge=0, le=10**9)] = None,
        lost: bool = False,
    ) -> Response:
        """One turn as a page: left what was said, right what was sent. `from`: the first message shown.

        `lost`: read what is not named in the prompt, however many messages are folded.
        """
        row = await self._of.row(request, caller.namespace, name)
        seen = await self._of.exchanges.seen(caller.namespace, row, n)
        context = await self._of.contexts.of(seen.branch)
        cost = await self._of.exchanges.cost_of(caller.namespace, seen.exchange)
        folded = sum(fate.fate == "folded" for fate in seen.fates)
        is_read = bool(seen.force) and (lost or folded <= _READ_AT_ONCE)
        before = None
        if seen.number > 1:
            before = (await self._of.exchanges.seen(caller.namespace, row, str(seen.number - 1))).shown
        facts = await asyncio.to_thread(
            lambda: turn_facts(seen, self._of.exchanges.shares(seen), context, cost, before, start)
        )
        facts |= {"session": row, "answer": await self._answer(caller.namespace, seen)}
        facts |= {"lost": await self._of.exchanges.lost(seen) if is_read else None, "is_asked": lost}
        return await self._of.paper.page(request, "turn.html", facts)

    async def _answer(self, namespace: str, seen: SeenExchange) -> TextRow | None:
        """What was answered; None without an answer, and where it is erased meanwhile."""
        if seen.exchange.answer is None:
            return None
        ident = context_id(seen.exchange.answer)
        try:
            _, found = await self._of.archive.message(namespace, ident)
        except NotFound:
            return None
        return text_row(found.body, About(ident, seen.for_model(found.tokens)))

    async def messages(
        self,
        request: Request,
        caller: Admitted,
        name: str,
        asked: Annotated[Asked, Depends(asked_for)],
        branch: Annotated[str | None, Query(max_length=100)] = None,
    ) -> Response:
        """The conversation as a page, compactions as seams."""
        row = await self._of.row(request, caller.namespace, name)
        place = await self._of.archive.place(caller.namespace, row.id, branch)
        instructions, _ = await self._of.archive.preamble(place)
        told = await self._of.archive.transcript(place)
        talk = (await self._of.archive.branch(place, ())).conversation
        made = await self._of.store.compactions.of_session(caller.namespace, row.id)
        turns = await self._of.exchanges.page(caller.namespace, row.id, NEWEST, MOST_TURNS)
        numbers = {one.head: n for n, one in reversed(turns)}
        facts = await asyncio.to_thread(talk_facts, instructions, told, talk, made, numbers, asked)
        heads = await self._of.archive.branches(caller.namespace, row)
        more = {"session": row, "branches": heads[:_MOST_BRANCHES], "branch": branch and place.chain.hex()}
        return await self._of.paper.page(request, "messages.html", facts | more)

    async def compaction(
        self,
        request: Request,
        caller: Admitted,
        name: str,
        compaction: str,
        start: Annotated[int | None, Query(alias="from", ge=0, le=10**9)] = None,
    ) -> Response:
        """One compaction as a page: its summary, line by line, beside the messages that it stands for.

        `from`: the first folded message shown, else the first that was not folded before.
        """
        row = await self._of.row(request, caller.namespace, name)
        found = await self._of.compactions.folding(caller.namespace, row, compaction)
        cost = await self._of.compactions.cost_of(found.stored.compaction)
        followed = await self._of.compactions.followed(caller.namespace, row)
        after = next((one for one in followed if one.compaction.id == compaction), None)
        facts = await asyncio.to_thread(folding_facts, found, start)
        more = {
            "session": row,
            "one": folding_fields(found, cost),
            "made_at": moment(found.stored.created_at),
            "after": followed_fields(after) if after else None,
            "is_newest": found.is_newest,
        }
        return await self._of.paper.page(request, "compaction.html", facts | more)

    async def state(self, request: Request, caller: Admitted, name: str) -> Response:
        """What is kept beside a session's messages, as a page: working state, pins, memory, checkpoints."""
        row = await self._of.row(request, caller.namespace, name)
        place = await self._of.archive.place(caller.namespace, row.id, None)
        context = await self._of.contexts.of(await self._of.archive.branch(place, credentials_of(request)))
        kept = await context.done(CompactionContext.kept_state)
        at = caller.namespace, row.id
        pins = await self._of.pins.pins(request, caller.namespace, row)
        texts = [(await self._of.archive.message(caller.namespace, pin["message"]))[1].body for pin in pins]
        return await self._of.paper.page(
            request,
            "state.html",
            {
                "session": row,
                "strategy": context.policy.name,
                "state": _state_lines(state_fields(kept)),
                "pins": list(zip(pins, message_rows(texts), strict=True)),
                "memories": [
                    (kept.kind, text_of(kept), moment(kept.created_at))
                    for kept in await self._of.store.journal.memories(*at, _MOST_KEPT)
                ],
                "checkpoints": [
                    (one.kind, one.id, moment(one.created_at))
                    for one in await self._of.store.journal.checkpoints(*at, _MOST_KEPT)
                ],
            },
        )

    async def settings(self, request: Request, caller: Admitted, name: str) -> Response:
        """A session's own settings as a page, and its policy: each number and where it comes from."""
        row = await self._of.row(request, caller.namespace, name)
        fields = await self._of.settings.fields(caller.namespace, row)
        facts = {"own": json.dumps(fields["settings"], indent=2, ensure_ascii=False)}
        return await self._of.paper.page(
            request,
            "settings.html",
            {
                "session": row,
                "policy": fields["policy"],
                **facts,
            },
        )

    async def events(
        self,
        request: Request,
        caller: Admitted,
        name: str,
        after: Annotated[int, Query(ge=0, le=MOST_SEQ)] = 0,
        limit: Annotated[int, Query(ge=1, le=_MOST_EVENTS)] = 100,
        show: Show = "all",
    ) -> Response:
        """The events of a session as a page: those after `after`, oldest first."""
        row = await self._of.row(request, caller.namespace, name)
        events = await self._of.store.journal.events(
            caller.namespace, row.id, after, limit + 1, CHOICES[show]
        )
        page = events[:limit]
        return await self._of.paper.page(
            request,
            "events.html",
            {
                **await self._about(request, caller.namespace, row),
                "days": days_of([entry_of(one) for one in page]),
                "show": show,
                "choices": tuple(CHOICES),
                "limit": limit,
                "after": after,
                "next": page[-1].seq if len(events) > limit else None,
            },
        )

    async def _about(self, request: Request, namespace: str, row: SessionRow) -> dict[str, Any]:
        """What the pages of a session's turns and events say of it above them."""
        return {
            "session": row,
            "use": await self._use(request, namespace, row),
            "started": moment(row.created_at),
            "touched": moment(row.updated_at),
            "branches": (await self._of.archive.branches(namespace, row))[:_MOST_BRANCHES],
        }

    async def _use(self, request: Request, namespace: str, row: SessionRow) -> Use:
        place = await self._of.archive.place(namespace, row.id, None)
        subject = await self._of.archive.branch(place, credentials_of(request))
        context = await self._of.contexts.of(subject, by_hand=True)
        return await context.done(use_of)


def _state_lines(state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each filled field of a state with its value as text; a list has a line for each element."""
    return [(name.replace("_", " "), _state_text(value)) for name, value in state.items() if value]


def _state_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(f"- {_state_text(each)}" for each in value)
    return json.dumps(value, ensure_ascii=False, default=str)
