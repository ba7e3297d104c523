"""Endpoints for a session's exchanges: what the model saw, its cost, what was left out."""

from __future__ import annotations

from collections.abc import Sequence
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
Against = Literal["previous", "said"]
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


class PromptDifferenceHead(TypedDict):
    """How many messages two prompts share; an upstream's cache can serve those before."""

    against: Against
    same_before: int
    same_after: int


class PromptDifference(PromptDifferenceHead):
    """How a prompt differs from another one."""

    gone: list[StoredMessage]
    new: list[StoredMessage]


class LostFact(TypedDict):
    """A rule, file, command, failure or number that a folded message says and the prompt does not."""

    kind: str
    text: str
    message: MessageId


class SeenExchangeHead(ExchangeFields):
    """What is known of an exchange beside its messages."""

    shares: Annotated[dict[Category, int], described("The tokens of the prompt by what they are for.")]
    fates: Annotated[dict[Fate, int], described("How many messages were sent how.")]
    lost: Annotated[list[LostFact] | None, described("Where `lost` asks for it.")]
    is_body_kept: bool
    is_exact: Annotated[bool | None, described("The body has the digest of what was sent; null: unknown.")]


class SeenExchangeFields(SeenExchangeHead):
    """An exchange: what was said, what was sent, and what its prompt was for."""

    messages: Annotated[list[SaidMessage], described("The conversation.")]
    parts: Annotated[list[SentPart], described("The messages of the prompt, in their order.")]
    difference: Annotated[PromptDifference | None, described("Where `against` asks for it.")]


class ExchangePages:
    """The endpoints below `/sessions/{name}/exchanges`; `{n}` is a number from 1 or an exchange's id."""

    def __init__(self, archive: Archive, views: ExchangeViews) -> None:
        self._archive = archive
        self._views = views

    def on(self, api: APIRouter) -> None:
        """Register the routes."""
        api.add_api_route("/sessions/{name:path}/exchanges", self.list_exchanges, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/exchanges/{n}", self.get_exchange, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/exchanges/{n}/body", self.get_exchange_body, methods=["GET"])

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
        self,
        caller: Admitted,
        name: SessionName,
        n: ExchangeName,
        against: Annotated[
            Against | None, Query(description="Its difference to the turn before, or to what was said.")
        ] = None,
        lost: Annotated[bool, Query(description="What folded messages say and the prompt does not.")] = False,
    ) -> Reply[SeenExchangeFields]:
        """Get an exchange: what was said and what was sent, every message with its fate."""
        seen = await self._seen(caller.namespace, name, n)
        weight = MESSAGE_WEIGHT * len(seen.talk.messages)
        facts: list[LostFact] = [
            {"kind": one.kind, "text": one.text, "message": context_id(seen.talk.names[one.index])}
            for one in (await self._views.lost(seen) if lost else ())
        ]
        cost = await self._views.cost_of(caller.namespace, seen.exchange)
        fates = [fate.fate for fate in seen.fates]
        head: SeenExchangeHead = {
            **exchange_fields(seen.number, seen.exchange, seen.ratio, cost),
            "shares": await offload(weight, self._views.shares, seen),
            "fates": {fate: fates.count(fate) for fate in dict.fromkeys(fates)},
            "lost": facts if lost else None,
            "is_body_kept": seen.body is not None,
            "is_exact": seen.is_exact,
        }
        before: Sequence[bytes] = ()
        if against == "said":
            before = seen.said
        elif against == "previous" and seen.number > 1:
            before = (await self._seen(caller.namespace, name, str(seen.number - 1))).shown
        differs = b"null" if against is None else _difference(against, before, seen)
        return raw_reply(await offload(weight, _whole, head, seen, differs))

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

    async def _seen(self, namespace: str, name: str, n: str) -> SeenExchange:
        return await self._views.seen(namespace, await self._archive.session(namespace, name), n)


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


def _whole(head: SeenExchangeHead, seen: SeenExchange, difference: bytes) -> bytes:
    said = [object_with(_said(seen, fate), message=seen.talk.messages[fate.index].raw) for fate in seen.fates]
    parts = [object_with(_part(seen, part), message=part.raw) for part in seen.view.parts]
    return object_with(head, messages=array_of(said), parts=array_of(parts), difference=difference)


def _difference(against: Against, before: Sequence[bytes], seen: SeenExchange) -> bytes:
    found = difference(before, seen.shown)
    head: PromptDifferenceHead = {
        "against": against,
        "same_before": found.same_before,
        "same_after": found.same_after,
    }
    return object_with(head, gone=array_of(found.gone), new=array_of(found.new))


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
