"""Endpoints for a session's exchanges: what the model saw, its cost, what was left out."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from fastapi import APIRouter, Path, Query

from palimpsest.api.callers import Admitted, SessionName
from palimpsest.api.replies import (
    MessageId,
    Reply,
    StoredMessage,
    Tokens,
    UtcTime,
    described,
    object_with,
    raw_reply,
    reply,
    utc_time,
)
from palimpsest.core.view.anatomy import Category, Fate, SeenMessage, difference
from palimpsest.core.view.compaction import context_id
from palimpsest.core.view.outcomes import PartKind, ViewPart
from palimpsest.core.wire.json_text import array_of
from palimpsest.errors import NotFound
from palimpsest.proxy.archive import Archive
from palimpsest.proxy.exchange_views import Cost, ExchangeViews, SeenExchange
from palimpsest.proxy.jobs import MESSAGE_WEIGHT, offload
from palimpsest.storage.exchange_log import NEWEST, LoggedExchange

_MOST = 500
ExchangeName = Annotated[str, Path(description="Number of an exchange in its session, from 1, or its id.")]


class ExchangeCostFields(TypedDict):
    """What an exchange cost; `saved` is an estimate."""

    prompt: float
    completion: float
    total: float
    saved: float


class ExchangeFields(TypedDict):
    """A request with its answer. Null is unknown; tokens are the model's."""

    n: Annotated[int, described("Its number in the session, from 1.")]
    id: str
    message: Annotated[MessageId | None, described("The newest message of the request.")]
    answer: MessageId | None
    state: str
    status: Annotated[int | None, described("The HTTP status that the client got.")]
    code: Annotated[str | None, described("The code of a failure.")]
    cause: Annotated[str | None, described("Whose failure it is: `client`, `proxy` or `upstream`.")]
    kind: str
    model: str
    client: str | None
    mode: str | None
    found_by: str | None
    view: str | None
    compaction: Annotated[str | None, described("The compaction in force.")]
    tokens_full: Annotated[int | None, described("The whole prompt.")]
    tokens: Annotated[int | None, described("The prompt that was sent.")]
    prompt_tokens: Annotated[int | None, described("As the upstream counted them, like the other three.")]
    completion_tokens: int | None
    cached_tokens: int | None
    written_tokens: int | None
    cost: Annotated[ExchangeCostFields | None, described("Null where no price is known.")]
    finish_reason: str | None
    started_at: UtcTime
    prepared_seconds: float | None
    waited_seconds: float | None
    first_byte_seconds: float | None
    seconds: float | None


class ExchangePage(TypedDict):
    """Exchanges of a session, newest first."""

    session: str
    exchanges: list[ExchangeFields]
    next: Annotated[int | None, described("The `after` of the next page; null on the last one.")]


class SeenExchangeFields(ExchangeFields):
    """An exchange, with what its prompt was for and what became of the messages."""

    shares: Annotated[dict[Category, int], described("The tokens of the prompt by what they are for.")]
    fates: Annotated[dict[Fate, int], described("How many messages were sent how.")]
    is_body_kept: bool
    is_exact: Annotated[bool | None, described("The body has the digest of what was sent; null: unknown.")]


class SaidMessageHead(TypedDict):
    """What became of a message of the conversation."""

    id: MessageId
    position: int
    role: str
    fate: Fate
    summary: Annotated[str | None, described("The compaction that folded it first.")]
    reason: str
    tokens: Tokens
    tokens_sent: Tokens
    is_said: Annotated[bool, described("The request contained it.")]


class SaidMessage(SaidMessageHead):
    """A message of the conversation."""

    message: StoredMessage


class SentPartHead(TypedDict):
    """What is known of a message of the prompt."""

    kind: PartKind
    id: MessageId | None
    tokens: Tokens
    masked: bool
    reason: str


class SentPart(SentPartHead):
    """A message of the prompt."""

    message: StoredMessage


class ExchangeView(ExchangeFields):
    """What was said and what was sent."""

    messages: list[SaidMessage]
    parts: list[SentPart]


class PromptDifferenceHead(TypedDict):
    """How many messages two prompts share; an upstream's cache can serve those before."""

    n: int
    against: Literal["previous", "said"]
    same_before: int
    same_after: int


class PromptDifference(PromptDifferenceHead):
    """How a prompt differs from another one."""

    gone: list[StoredMessage]
    new: list[StoredMessage]


class LostFact(TypedDict):
    """Something that a folded message says and the prompt does not."""

    kind: str
    text: str
    message: MessageId


class LostFacts(TypedDict):
    """What folded messages say and the prompt does not."""

    n: int
    compaction: str | None
    lost: list[LostFact]


class ExchangePages:
    """The endpoints below `/sessions/{name}/exchanges`; `{n}` is a number from 1 or an exchange's id."""

    def __init__(self, archive: Archive, views: ExchangeViews) -> None:
        self._archive = archive
        self._views = views

    def on(self, api: APIRouter) -> None:
        """Register the routes."""
        api.add_api_route("/sessions/{name:path}/exchanges", self.list_exchanges, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/exchanges/{n}", self.get_exchange, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/exchanges/{n}/view", self.get_exchange_view, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/exchanges/{n}/body", self.get_exchange_body, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/exchanges/{n}/diff", self.get_exchange_diff, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/exchanges/{n}/lost", self.get_exchange_lost, methods=["GET"])

    async def list_exchanges(
        self,
        caller: Admitted,
        name: SessionName,
        limit: Annotated[int, Query(ge=1, le=_MOST, description="At most so many.")] = 50,
        after: Annotated[
            int | None, Query(ge=0, le=NEWEST, description="The `next` of the page before.")
        ] = None,
    ) -> Reply[ExchangePage]:
        """List every request with its answer, newest first."""
        row = await self._archive.session(caller.namespace, name)
        before = NEWEST if after is None else after
        page, more = await self._views.priced(caller.namespace, row.id, before, limit)
        return reply({"session": row.id, "exchanges": [exchange_fields(*one) for one in page], "next": more})

    async def get_exchange(
        self, caller: Admitted, name: SessionName, n: ExchangeName
    ) -> Reply[SeenExchangeFields]:
        """Get an exchange, with the tokens of its prompt by what they are for."""
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

    async def get_exchange_view(
        self, caller: Admitted, name: SessionName, n: ExchangeName
    ) -> Reply[ExchangeView]:
        """Get what was said and what was sent.

        Every message with its fate, and the parts of the prompt.
        `messages` is the conversation; `is_said`: the request contained the message. `parts` are the messages
        of the prompt in their order.
        """
        seen = await self._seen(caller.namespace, name, n)
        fields = await self._fields(caller.namespace, seen)
        weight = MESSAGE_WEIGHT * len(seen.talk.messages)
        return raw_reply(await offload(weight, _view, fields, seen))

    async def get_exchange_body(
        self, caller: Admitted, name: SessionName, n: ExchangeName
    ) -> Reply[dict[str, Any]]:
        """Get the body of the request that was sent to the upstream, decoded.

        The header `x-palimpsest-exact` says whether it has the digest of the body that was sent.
        """
        seen = await self._seen(caller.namespace, name, n)
        if seen.body is None:
            raise NotFound("Nothing was sent, or what the request carried beside its messages was not kept.")
        exact = {} if seen.is_exact is None else {"x-palimpsest-exact": str(seen.is_exact).lower()}
        return raw_reply(seen.body, headers=exact)

    async def get_exchange_diff(
        self,
        caller: Admitted,
        name: SessionName,
        n: ExchangeName,
        against: Annotated[
            Literal["previous", "said"], Query(description="The turn before, or what was said.")
        ] = "previous",
    ) -> Reply[PromptDifference]:
        """Show how the prompt differs from that of the turn before, or from what was said.

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
        head: PromptDifferenceHead = {
            "n": seen.number,
            "against": against,
            "same_before": found.same_before,
            "same_after": found.same_after,
        }
        return raw_reply(object_with(head, gone=array_of(found.gone), new=array_of(found.new)))

    async def get_exchange_lost(
        self, caller: Admitted, name: SessionName, n: ExchangeName
    ) -> Reply[LostFacts]:
        """List what the folded messages say and the prompt does not.

        Rules, files, commands, failures, numbers.
        """
        seen = await self._seen(caller.namespace, name, n)
        found = await self._views.lost(seen)
        lost: list[LostFact] = [
            {"kind": one.kind, "text": one.text, "message": context_id(seen.talk.names[one.index])}
            for one in found
        ]
        return reply({"n": seen.number, "compaction": seen.exchange.compaction, "lost": lost})

    async def _seen(self, namespace: str, name: str, n: str) -> SeenExchange:
        return await self._views.seen(namespace, await self._archive.session(namespace, name), n)

    async def _fields(self, namespace: str, seen: SeenExchange) -> ExchangeFields:
        cost = await self._views.cost_of(namespace, seen.exchange)
        return exchange_fields(seen.number, seen.exchange, seen.ratio, cost)


def exchange_fields(number: int, exchange: LoggedExchange, ratio: float, cost: Cost | None) -> ExchangeFields:
    """An exchange."""
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
        "tokens_full": None if full is None else round(full * ratio),
        "tokens": None if sent is None else round(sent * ratio),
        "prompt_tokens": exchange.prompt_tokens,
        "completion_tokens": exchange.completion_tokens,
        "cached_tokens": exchange.cached_tokens,
        "written_tokens": exchange.written_tokens,
        "cost": cost_fields(cost),
        "finish_reason": exchange.finish_reason,
        "started_at": utc_time(began),
        "prepared_seconds": exchange.prepared_seconds,
        "waited_seconds": exchange.waited_seconds,
        "first_byte_seconds": None if first is None else round(first - began, 3),
        "seconds": None if end is None else round(end - began, 3),
    }


def cost_fields(cost: Cost | None) -> ExchangeCostFields | None:
    """What an exchange cost."""
    if cost is None:
        return None
    return {"prompt": cost.prompt, "completion": cost.completion, "total": cost.total, "saved": cost.saved}


def _view(fields: ExchangeFields, seen: SeenExchange) -> bytes:
    said = [object_with(_said(seen, fate), message=seen.talk.messages[fate.index].raw) for fate in seen.fates]
    parts = [object_with(_part(seen, part), message=part.raw) for part in seen.view.parts]
    return object_with(fields, messages=array_of(said), parts=array_of(parts))


def _part(seen: SeenExchange, part: ViewPart) -> SentPartHead:
    return {
        "kind": part.kind,
        "id": None if part.index is None else context_id(seen.talk.names[part.index]),
        "tokens": seen.for_model(part.tokens),
        "masked": part.masked,
        "reason": part.reason,
    }


def _said(seen: SeenExchange, fate: SeenMessage) -> SaidMessageHead:
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


def _counted(seen: SeenExchange) -> dict[Fate, int]:
    fates = [fate.fate for fate in seen.fates]
    return {fate: fates.count(fate) for fate in dict.fromkeys(fates)}
