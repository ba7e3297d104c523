"""Endpoints for a session's exchanges and compactions: what the model saw, its cost, what was left out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from palimpsest.api.callers import Admitted
from palimpsest.api.replies import array_of, object_with, raw_reply, reply
from palimpsest.api.sessions import stored_fields
from palimpsest.core.view.anatomy import SeenMessage, difference
from palimpsest.core.view.compaction import context_id
from palimpsest.core.view.outcomes import ViewPart
from palimpsest.errors import NotFound
from palimpsest.proxy.archive import Archive
from palimpsest.proxy.compaction_views import CompactionViews, Folding, Followed
from palimpsest.proxy.exchange_views import Cost, ExchangeViews, SeenExchange
from palimpsest.proxy.jobs import MESSAGE_WEIGHT, offload
from palimpsest.storage.exchange_log import NEWEST, LoggedExchange

_MOST = 500


class ExchangePages:
    """The endpoints below `/sessions/{name}/exchanges`; `{n}` is a number from 1 or an exchange's id."""

    def __init__(self, archive: Archive, views: ExchangeViews, compactions: CompactionViews) -> None:
        self._archive = archive
        self._views = views
        self._compactions = compactions

    def on(self, api: APIRouter) -> None:
        """Register the routes."""
        api.add_api_route("/sessions/{name:path}/exchanges", self.listed, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/report", self.report, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/compactions/{compaction}", self.folding, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/exchanges/{n}", self.one, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/exchanges/{n}/view", self.view, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/exchanges/{n}/body", self.body, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/exchanges/{n}/diff", self.diff, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/exchanges/{n}/lost", self.lost, methods=["GET"])

    async def listed(
        self,
        caller: Admitted,
        name: str,
        limit: Annotated[int, Query(ge=1, le=_MOST)] = 50,
        before: Annotated[int, Query(ge=0, le=NEWEST)] = NEWEST,
    ) -> Response:
        """Exchanges, newest first; `next` is the `before` of the next page, null on the last one."""
        row = await self._archive.session(caller.namespace, name)
        found = await self._views.page(caller.namespace, row.id, before, limit + 1)
        page = found[:limit]
        costs = [await self._views.cost_of(caller.namespace, one) for _, one in page]
        ratios = [self._views.ratio_of(caller.namespace, one) for _, one in page]
        listed = [
            exchange_fields(number, one, ratio, cost)
            for (number, one), ratio, cost in zip(page, ratios, costs, strict=True)
        ]
        after = page[-1][1].arrival if len(found) > limit else None
        return reply({"session": row.id, "exchanges": listed, "next": after})

    async def report(self, caller: Admitted, name: str) -> Response:
        """What followed each compaction of the default branch, and what makes it dearer than need be."""
        row = await self._archive.session(caller.namespace, name)
        followed = await self._compactions.followed(caller.namespace, row)
        findings = await self._views.findings(caller.namespace, row)
        return reply(
            {
                "session": row.id,
                "compactions": [followed_fields(one) for one in followed],
                "findings": [asdict(one) for one in findings],
            }
        )

    async def folding(self, caller: Admitted, name: str, compaction: str) -> Response:
        """One compaction: what it folded, and each line of its summary with the messages it comes from."""
        row = await self._archive.session(caller.namespace, name)
        found = await self._compactions.folding(caller.namespace, row, compaction)
        cost = await self._compactions.cost_of(found.stored.compaction)
        return reply({"session": row.id, **folding_fields(found, cost)})

    async def one(self, caller: Admitted, name: str, n: str) -> Response:
        """One exchange, with the tokens of its prompt by what they are for."""
        seen = await self._seen(caller.namespace, name, n)
        weight = MESSAGE_WEIGHT * len(seen.talk.messages)
        return reply(
            {
                **await self._fields(caller.namespace, seen),
                "shares": await offload(weight, self._views.shares, seen),
                "fates": _counted(seen),
                "is_body_kept": seen.body is not None,
                "is_exact": seen.is_exact,
            }
        )

    async def view(self, caller: Admitted, name: str, n: str) -> Response:
        """What was said and what was sent: every message with its fate, and the parts of the prompt.

        `messages` is the conversation; `is_said`: the request contained the message. `parts` are the messages
        of the prompt in their order.
        """
        seen = await self._seen(caller.namespace, name, n)
        fields = await self._fields(caller.namespace, seen)
        weight = MESSAGE_WEIGHT * len(seen.talk.messages)
        return raw_reply(await offload(weight, _view, fields, seen))

    async def body(self, caller: Admitted, name: str, n: str) -> Response:
        """The request's body as it was sent to the upstream, decoded.

        The header `x-palimpsest-exact` says whether it has the digest of the body that was sent.
        """
        seen = await self._seen(caller.namespace, name, n)
        if seen.body is None:
            raise NotFound("Nothing was sent, or what the request carried beside its messages was not kept.")
        exact = {} if seen.is_exact is None else {"x-palimpsest-exact": str(seen.is_exact).lower()}
        return raw_reply(seen.body, headers=exact)

    async def diff(
        self, caller: Admitted, name: str, n: str, against: Literal["previous", "said"] = "previous"
    ) -> Response:
        """How the prompt differs from that of the turn before, or from what was said.

        `same_before` and `same_after` count the messages that both share; an upstream's cache can serve the
        former.
        """
        seen = await self._seen(caller.namespace, name, n)
        if against == "said":
            before = seen.said
        elif seen.number == 1:
            before = ()
        else:
            before = (await self._seen(caller.namespace, name, str(seen.number - 1))).shown
        found = difference(before, seen.shown)
        head = {
            "n": seen.number,
            "against": against,
            "same_before": found.same_before,
            "same_after": found.same_after,
        }
        told = object_with(head, "gone", array_of(found.gone))
        return raw_reply(told[:-1] + b',"new":' + array_of(found.new) + b"}")

    async def lost(self, caller: Admitted, name: str, n: str) -> Response:
        """What the folded messages say and the prompt does not: rules, files, commands, failures, numbers."""
        seen = await self._seen(caller.namespace, name, n)
        found = await self._views.lost(seen)
        lost = [
            {"kind": one.kind, "text": one.text, "message": context_id(seen.talk.names[one.index])}
            for one in found
        ]
        return reply({"n": seen.number, "compaction": seen.exchange.compaction, "lost": lost})

    async def _seen(self, namespace: str, name: str, n: str) -> SeenExchange:
        return await self._views.seen(namespace, await self._archive.session(namespace, name), n)

    async def _fields(self, namespace: str, seen: SeenExchange) -> dict[str, Any]:
        cost = await self._views.cost_of(namespace, seen.exchange)
        return exchange_fields(seen.number, seen.exchange, seen.ratio, cost)


def exchange_fields(number: int, exchange: LoggedExchange, ratio: float, cost: Cost | None) -> dict[str, Any]:
    """An exchange; null is unknown. Tokens are the model's, times UTC seconds."""
    full, sent = exchange.tokens_full, exchange.tokens_forwarded
    first, end, began = exchange.first_at, exchange.finished_at, exchange.started_at
    return {
        "n": number,
        "id": exchange.id,
        "message": context_id(exchange.head) if exchange.head else None,
        "answer": context_id(exchange.answer) if exchange.answer else None,
        "state": exchange.state,
        "status": exchange.status,
        "code": exchange.code,
        "cause": exchange.cause,
        "kind": exchange.mark or "main",
        "model": exchange.model,
        "client": exchange.client,
        "mode": exchange.mode,
        "found_by": exchange.found_by,
        "view": exchange.view,
        "compaction": exchange.compaction,
        "arm": exchange.arm,
        "tokens_full": None if full is None else round(full * ratio),
        "tokens": None if sent is None else round(sent * ratio),
        "prompt_tokens": exchange.prompt_tokens,
        "completion_tokens": exchange.completion_tokens,
        "cached_tokens": exchange.cached_tokens,
        "written_tokens": exchange.written_tokens,
        "cost": cost_fields(cost),
        "finish_reason": exchange.finish_reason,
        "started_at": began,
        "prepared_seconds": exchange.prepared_seconds,
        "waited_seconds": exchange.waited_seconds,
        "first_byte_seconds": None if first is None else round(first - began, 3),
        "seconds": None if end is None else round(end - began, 3),
    }


def followed_fields(one: Followed) -> dict[str, Any]:
    """What followed a compaction; `repeated_cost` and `saved` are estimates, null without a price."""
    return {
        "compaction": one.compaction.id,
        "since": one.since,
        "turns": one.turns,
        "calls": one.after.all_calls,
        "calls_until_change": one.after.calls,
        "repeated_calls": one.after.repeated,
        "repeated_cost": one.repeated_cost,
        "lookups": one.lookups,
        "cost": one.cost,
        "saved": one.saved,
        "waited_seconds": one.waited_seconds,
    }


def folding_fields(found: Folding, cost: float | None) -> dict[str, Any]:
    """A compaction with what it folded; `newly_folded` were not folded before. `cost` is of its text."""
    ids = [] if found.talk is None else [context_id(name) for name in found.talk.names]
    return {
        **stored_fields(found.stored),
        "cost": cost,
        "folded": [ids[at] for at in found.folded],
        "newly_folded": sum(at >= found.since for at in found.folded),
        "lines": [
            {"text": line.text, "is_heading": line.is_heading, "sources": [ids[at] for at in line.sources]}
            for line in found.lines
        ],
    }


def cost_fields(cost: Cost | None) -> dict[str, float] | None:
    """What an exchange cost; `saved` is an estimate."""
    if cost is None:
        return None
    return {"prompt": cost.prompt, "completion": cost.completion, "total": cost.total, "saved": cost.saved}


def _view(fields: dict[str, Any], seen: SeenExchange) -> bytes:
    said = [
        object_with(_said(seen, fate), "message", seen.talk.messages[fate.index].raw) for fate in seen.fates
    ]
    parts = [object_with(_part(seen, part), "message", part.raw) for part in seen.view.parts]
    head = object_with(fields, "messages", array_of(said))
    return head[:-1] + b',"parts":' + array_of(parts) + b"}"


def _part(seen: SeenExchange, part: ViewPart) -> dict[str, Any]:
    return {
        "kind": part.kind,
        "id": None if part.index is None else context_id(seen.talk.names[part.index]),
        "tokens": seen.for_model(part.tokens),
        "masked": part.masked,
        "reason": part.reason,
    }


def _said(seen: SeenExchange, fate: SeenMessage) -> dict[str, Any]:
    message = seen.talk.messages[fate.index]
    return {
        "id": context_id(seen.talk.names[fate.index]),
        "position": fate.index,
        "role": message.role,
        "fate": fate.fate,
        "summary": fate.summary,
        "reason": fate.reason,
        "tokens": seen.for_model(message.tokens),
        "tokens_sent": seen.for_model(fate.tokens),
        "is_said": fate.index >= seen.start,
    }


def _counted(seen: SeenExchange) -> dict[str, int]:
    fates = [fate.fate for fate in seen.fates]
    return {fate: fates.count(fate) for fate in dict.fromkeys(fates)}
