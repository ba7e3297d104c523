"""Endpoints for a branch's view, for single messages and summaries, and for a compaction by hand."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from fastapi import Path, Query
from pydantic import BaseModel, StringConstraints

from palimpsest.api.callers import Admitted, AskedSession, Branch, api_router, order_like
from palimpsest.api.compactions import MadeCompaction, compaction_fields
from palimpsest.api.replies import (
    MessageId,
    Reply,
    StoredMessage,
    Tokens,
    described,
    object_with,
    raw_reply,
    reply,
    shape_of,
)
from palimpsest.api.sessions import PlaceFields, place_fields
from palimpsest.core.budget.upstream_counts import Prices
from palimpsest.core.history.stored_points import MessageState
from palimpsest.core.recall.searchable_text import summary_text
from palimpsest.core.recall.tool_results import chain_digits_of, summary_id
from palimpsest.core.view.compaction import Compaction, context_id
from palimpsest.core.view.masking import text_of
from palimpsest.core.view.outcomes import PartKind
from palimpsest.core.wire.json_text import array_of, decoded, encoded
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.errors import InvalidParameter
from palimpsest.proxy.compacting.viewing import NotMade
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.proxy.turn import ForwardedView, ReadBranch

# The policy's marks in the order in which a growing prompt reaches them.
_MARKS = ("target_tokens", "precompute_tokens", "trigger_tokens", "ceiling_tokens", "window_tokens")
# What a budget says in our own count.
_COUNTED = (*_MARKS[:-1], "fixed_tokens", "available_tokens", "summary_tokens")


class PricesFields(TypedDict):
    """The prices of one token in a prompt of this size; without known ones an uncached token's is 1."""

    input: float
    cached: float
    written: float
    output: float


class TurnCostFields(TypedDict):
    """The cost of tokens in one turn: read from the upstream's cache, or not."""

    cached: float
    uncached: float


class MarkFields(TypedDict):
    """A mark of the policy; `distance_tokens` is negative where it was passed."""

    mark: str
    tokens: Tokens
    share: Annotated[float, described("Of the window.")]
    distance_tokens: int


class Explanation(TypedDict):
    """What the view costs, and how far the marks are."""

    prices: PricesFields
    cost_per_turn: TurnCostFields
    marks: list[MarkFields]


class WindowFields(TypedDict):
    """The model's window; `ratio` is the model's tokens per token of our count."""

    tokens: Tokens
    source: str
    ratio: float


class BudgetFields(TypedDict):
    """The policy's marks in the model's tokens."""

    window_tokens: Tokens
    fixed_tokens: Annotated[int, described("Of instructions and tools.")]
    available_tokens: Tokens
    precompute_tokens: Tokens
    trigger_tokens: Tokens
    target_tokens: Tokens
    ceiling_tokens: Tokens
    summary_tokens: Tokens
    policy: str


class ViewHead(PlaceFields):
    """A view without its parts."""

    model: str
    view: Literal["original", "compacted"]
    compaction: str | None
    tokens: Annotated[int, described("The prompt that would be forwarded.")]
    tokens_full: Annotated[int, described("The whole prompt, as if nothing was folded.")]
    window: WindowFields
    budget: BudgetFields
    explanation: Annotated[Explanation | None, described("Only with `explain`.")]


class ViewPartHead(TypedDict):
    """What is known of a message of a view."""

    kind: PartKind
    reason: str
    tokens: Tokens
    masked: bool
    id: MessageId | None
    compaction: NotRequired[Annotated[str, described("The compaction of a summary.")]]
    cost_per_turn: NotRequired[TurnCostFields]


class ViewPartFields(ViewPartHead):
    """A message of a view, with why it is there."""

    message: StoredMessage


class BranchView(ViewHead):
    """The view that the model would get now."""

    instructions: Annotated[Any, described("The field `instructions` of the Responses API, or null.")]
    parts: list[ViewPartFields]


class ContextFields(TypedDict):
    """What is known of a message or summary."""

    id: str
    session: str
    role: Annotated[str | None, described("Null for a summary.")]
    tokens: Annotated[int | None, described("In our own count; null for a summary.")]
    state: MessageState | Literal["undone"]
    format: Literal["text", "json"]


class ContextPage(ContextFields):
    """A part of the text of a message or summary; `offset` and `next_offset` count characters."""

    offset: int
    total_chars: int
    next_offset: Annotated[int | None, described("Where the rest begins; null at the end.")]
    text: str


class HandCompaction(PlaceFields):
    """The result of a compaction by hand: the `compaction`, or the `reason` why there is none."""

    compacted: bool
    compaction: MadeCompaction | None
    reason: NotMade | None


def _explanation(context: CompactionContext, view_tokens: int) -> Explanation:
    """The prices of a token, the cost of the prompt per turn, and the distances to the policy's marks.

    `view_tokens` are in our count, the returned tokens in the model's.
    """
    budget = context.budget
    marks = [(name.removesuffix("_tokens"), budget.for_model(getattr(budget, name))) for name in _MARKS]
    shown = budget.for_model(view_tokens)
    prices = context.prices.at(shown)
    return {
        "prices": shape_of(PricesFields, prices),
        "cost_per_turn": _turn_cost(prices, shown),
        "marks": [
            {
                "mark": name,
                "tokens": tokens,
                "share": tokens / budget.window.tokens,
                "distance_tokens": tokens - shown,
            }
            for name, tokens in sorted(marks, key=lambda mark: mark[1])
        ],
    }


def _turn_cost(prices: Prices, tokens: int) -> TurnCostFields:
    """The cost of the model's `tokens` in one turn: read from the upstream's cache, or uncached."""
    return {"cached": tokens * prices.cached, "uncached": tokens * prices.input}


# About 4,000 tokens: a model can read them in one go without filling its window again.
_PAGE_CHARS = 16_000
_MOST_CHARS = 1_000_000


api = api_router()


@api.get("/context/{ident}")
async def get_context(
    caller: Admitted,
    ident: Annotated[str, Path(description="Id of a message (`dcm_`) or of a summary (`dcs_`).")],
    offset: Annotated[int, Query(ge=0, description="Where the page begins, in characters.")] = 0,
    limit: Annotated[int, Query(ge=1, le=_MOST_CHARS, description="In characters.")] = _PAGE_CHARS,
    raw: Annotated[bool, Query(description="The stored bytes instead.")] = False,
) -> Reply[ContextPage] | Reply[StoredMessage] | Reply[str]:
    """Read the text of a message or summary.

    A page of `limit` characters from `offset`.
    `raw`: the stored bytes instead, a summary's as a JSON string. A message without text, such as tool
    calls alone, is paged as JSON.
    """
    # The digits of an id are more.
    if ident.isdecimal() and len(ident) <= 8:
        what = f"{ident} is the number of a message in its session"
        raise InvalidParameter(f"{what}: read it with POST /api/context/describe, which takes the session.")
    archive = caller.parts.archive
    fields: ContextFields
    if chain_digits_of(ident) is not None:
        session, row = await archive.message(caller.namespace, ident)
        stored, text = row.body, text_of(as_chat(decoded(row.body)))
        fields = shape_of(
            ContextFields,
            row,
            id=context_id(row.chain),
            session=session,
            format="text" if text else "json",
        )
        text = text or stored.decode("utf-8", "surrogatepass")
    else:
        session, found = await archive.summary(caller.namespace, ident)
        whole = found.compaction.summary
        stored, text = encoded(whole), summary_text(whole.encode("utf-8", "surrogatepass"))
        fields = {
            "id": summary_id(found.compaction.id),
            "session": session,
            "role": None,
            "tokens": None,
            "state": "live" if found.undone_at is None else "undone",
            "format": "text",
        }
    if raw:
        return raw_reply(stored)
    stop = min(len(text), offset + limit)
    page: ContextPage = {
        **fields,
        "offset": offset,
        "total_chars": len(text),
        "next_offset": stop if stop < len(text) else None,
        "text": text[offset:stop],
    }
    return reply(page)


class CompactOrder(BaseModel):
    """A compaction by hand (D25): `focus` is what the summary should pay attention to."""

    model_config = order_like(focus="the schema of the database")

    focus: Annotated[str, StringConstraints(max_length=2_000)] = ""
    branch: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None


@api.get("/sessions/{name:path}/view")
async def get_view(
    session: AskedSession,
    branch: Branch = None,
    explain: Annotated[bool, Query(description="With costs and the distances to the marks.")] = False,
) -> Reply[BranchView]:
    """Get the view that the model would get now, part by part, with its budget.

    `explain`: also the cost of each part per turn, and the distances to the marks.
    """
    place, context = await session.context(branch)
    shown, budget = await context.done(CompactionContext.under, context.current), context.budget
    marks = {name: budget.for_model(getattr(budget, name)) for name in _COUNTED}
    head: ViewHead = {
        **place_fields(place),
        "model": context.turn.model,
        "view": "original" if shown.is_original else "compacted",
        "compaction": context.current.id if context.current else None,
        "tokens": budget.for_model(shown.tokens),
        "tokens_full": budget.for_model(context.turn.tokens),
        "window": shape_of(WindowFields, budget.window, ratio=budget.ratio),
        "budget": shape_of(
            BudgetFields, budget, **marks, window_tokens=budget.window.tokens, policy=context.policy.name
        ),
        "explanation": _explanation(context, shown.tokens) if explain else None,
    }
    return raw_reply(await context.done(_page, head, shown, explain))


@api.post("/sessions/{name:path}/compact")
async def compact_session(session: AskedSession) -> Reply[HandCompaction]:
    """Compact a branch now.

    Answers with the compaction, or the reason why there is none (F35).
    """
    order = await session.order(CompactOrder)
    place = await session.place(order.branch)
    done = await session.parts.viewing.by_hand(await session.branch(place), order.focus)
    made = compaction_fields(done) if isinstance(done, Compaction) else None
    return reply(
        {
            **place_fields(place),
            "compacted": made is not None,
            "compaction": made,
            "reason": None if isinstance(done, Compaction) else done,
        }
    )


def _page(context: CompactionContext, head: ViewHead, shown: ForwardedView, explain: bool) -> bytes:
    names, parts, prices = context.conversation.names, [], context.prices.at(head["tokens"])
    for part in shown.view.parts:
        fields: ViewPartHead = {
            "kind": part.kind,
            "reason": part.reason,
            "tokens": context.budget.for_model(part.tokens),
            "masked": part.masked,
            "id": None if part.index is None else context_id(names[part.index]),
        }
        if part.kind == "summary" and context.current is not None:
            fields["compaction"] = context.current.id
        if explain:
            fields["cost_per_turn"] = _turn_cost(prices, fields["tokens"])
        parts.append(object_with(fields, message=part.raw))
    stated = context.turn.stated if isinstance(context.turn, ReadBranch) else ()
    field = next((encoded(said.fields["content"]) for said in stated), b"null")
    return object_with(head, instructions=field, parts=array_of(parts))
