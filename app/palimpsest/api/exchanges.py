"""Endpoints for a session's exchanges: what the model saw, its cost, what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypedDict

from fastapi import Path, Query

from palimpsest.api.callers import AskedSession, api_router, at_most
from palimpsest.api.replies import (
    MessageId,
    NextNumber,
    Reply,
    StoredMessage,
    Tokens,
    UtcTime,
    described,
    object_with,
    raw_reply,
    reply,
    shape_of,
    utc_time,
)
from palimpsest.core.view.anatomy import Category, Fate, difference
from palimpsest.core.view.compaction import context_id
from palimpsest.core.view.outcomes import PartKind
from palimpsest.core.wire.json_text import array_of
from palimpsest.errors import NotFound
from palimpsest.proxy.archive import SeenExchange
from palimpsest.proxy.jobs import MESSAGE_WEIGHT, offload
from palimpsest.storage.exchange_log import NEWEST, LoggedExchange

Against = Literal["previous", "said"]
ExchangeName = Annotated[str, Path(description="Number of an exchange in its session, from 1, or its id.")]


class ExchangeCostFields(TypedDict):
    """What an exchange cost by the prices of its end; `saved` is an estimate."""

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
    error: Annotated[str | None, described("The upstream's own words of it, 500 characters without keys.")]
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
    next: NextNumber


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


api = api_router()


@api.get("/sessions/{name:path}/exchanges")
async def list_exchanges(
    session: AskedSession,
    limit: Annotated[int, at_most(500)] = 50,
    after: Annotated[int | None, Query(ge=0, le=NEWEST, description="The `next` of the page before.")] = None,
) -> Reply[ExchangePage]:
    """List every request with its answer, newest first."""
    row, before = await session.row(), NEWEST if after is None else after
    page, more = await session.parts.exchanges.page(session.namespace, row.id, before, limit)
    return reply({"session": row.id, "exchanges": [exchange_fields(*one) for one in page], "next": more})


@api.get("/sessions/{name:path}/exchanges/{n}")
async def get_exchange(
    session: AskedSession,
    n: ExchangeName,
    against: Annotated[
        Against | None, Query(description="Its difference to the turn before, or to what was said.")
    ] = None,
    lost: Annotated[bool, Query(description="What folded messages say and the prompt does not.")] = False,
) -> Reply[SeenExchangeFields]:
    """Get an exchange: what was said and what was sent, every message with its fate."""
    views, row = session.parts.exchanges, await session.row()
    seen = await views.seen(session.namespace, row, n)
    weight = MESSAGE_WEIGHT * len(seen.talk.messages)
    facts: list[LostFact] = [
        {"kind": one.kind, "text": one.text, "message": context_id(seen.talk.names[one.index])}
        for one in (await views.lost(seen) if lost else ())
    ]
    fates = [fate.fate for fate in seen.fates]
    head: SeenExchangeHead = {
        **exchange_fields(seen.number, seen.exchange, seen.ratio),
        "shares": await offload(weight, views.shares, seen),
        "fates": {fate: fates.count(fate) for fate in dict.fromkeys(fates)},
        "lost": facts if lost else None,
        "is_body_kept": seen.body is not None,
        "is_exact": seen.is_exact,
    }
    before: Sequence[bytes] = ()
    if against == "said":
        before = seen.said
    elif against == "previous" and seen.number > 1:
        before = (await views.seen(session.namespace, row, str(seen.number - 1))).shown
    return raw_reply(await offload(weight, _whole, head, seen, against, before))


@api.get("/sessions/{name:path}/exchanges/{n}/body")
async def get_exchange_body(session: AskedSession, n: ExchangeName) -> Reply[dict[str, Any]]:
    """Get the body of the request that was sent to the upstream, decoded.

    The header `x-palimpsest-exact` says whether it has the digest of the body that was sent.
    """
    seen = await session.parts.exchanges.seen(session.namespace, await session.row(), n)
    if seen.body is None:
        raise NotFound("Nothing was sent, or what the request carried beside its messages was not kept.")
    exact = {} if seen.is_exact is None else {"x-palimpsest-exact": str(seen.is_exact).lower()}
    return raw_reply(seen.body, headers=exact)


def exchange_fields(number: int, exchange: LoggedExchange, ratio: float) -> ExchangeFields:
    """An exchange. `ratio`: the model's tokens for one of ours."""
    full, sent = exchange.tokens_full, exchange.tokens_forwarded
    first, end, began = exchange.first_at, exchange.finished_at, exchange.started_at
    return shape_of(
        ExchangeFields,
        exchange,
        n=number,
        message=context_id(exchange.head) if exchange.head else None,
        answer=context_id(exchange.answer) if exchange.answer else None,
        kind=exchange.mark or "main",
        tokens_full=None if full is None else round(full * ratio),
        tokens=None if sent is None else round(sent * ratio),
        cost=None if exchange.cost is None else {"total": exchange.cost, "saved": exchange.saved or 0.0},
        started_at=utc_time(began),
        first_byte_seconds=None if first is None else round(first - began, 3),
        seconds=None if end is None else round(end - began, 3),
    )


def _whole(
    head: SeenExchangeHead, seen: SeenExchange, against: Against | None, before: Sequence[bytes]
) -> bytes:
    """The exchange with its messages; `against` names the prompt `before`, None: it is not compared."""
    names, said, parts, differs = seen.talk.names, [], [], b"null"
    for fate in seen.fates:
        message = seen.talk.messages[fate.index]
        fields = shape_of(
            SaidMessageHead,
            fate,
            id=context_id(names[fate.index]),
            position=fate.index,
            role=message.role,
            tokens=seen.for_model(message.tokens),
            tokens_sent=seen.for_model(fate.tokens),
            is_said=fate.index >= seen.start,
        )
        said.append(object_with(fields, message=message.raw))
    for part in seen.view.parts:
        ident = None if part.index is None else context_id(names[part.index])
        shown = shape_of(SentPartHead, part, id=ident, tokens=seen.for_model(part.tokens))
        parts.append(object_with(shown, message=part.raw))
    if against is not None:
        found = difference(before, seen.shown)
        same = shape_of(PromptDifferenceHead, found, against=against)
        differs = object_with(same, gone=array_of(found.gone), new=array_of(found.new))
    return object_with(head, messages=array_of(said), parts=array_of(parts), difference=differs)
