"""Endpoints for a branch's view, for single messages and summaries, and for a compaction by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired, TypedDict

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, StringConstraints

from palimpsest.api.callers import Admitted, Branch, SessionName, credentials_of, order_of
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
)
from palimpsest.api.sessions import PlaceFields, place_fields
from palimpsest.core.history.stored_points import MessageState
from palimpsest.core.recall.searchable_text import summary_text
from palimpsest.core.recall.tool_results import chain_digits_of, summary_id
from palimpsest.core.view.compaction import context_id
from palimpsest.core.view.masking import text_of
from palimpsest.core.view.outcomes import PartKind, ViewPart
from palimpsest.core.wire.json_text import array_of, decoded, encoded
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.proxy.archive import Archive
from palimpsest.proxy.compacting.context_loader import ContextLoader
from palimpsest.proxy.compacting.viewing import ViewPlanner
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.proxy.turn import ForwardedView

# The policy's marks in the order in which a growing prompt reaches them.
_MARKS = ("target_tokens", "precompute_tokens", "trigger_tokens", "ceiling_tokens", "window_tokens")


class PricesFields(TypedDict):
    """The prices of one token; without known prices the unit is an uncached prompt token."""

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
    reason: Literal["nothing_to_fold"] | None


def explanation_fields(context: CompactionContext, view_tokens: int) -> Explanation:
    """The prices of a token, the cost of the prompt per turn, and the distances to the policy's marks.

    `view_tokens` are in our count, the returned tokens in the model's. `distance_tokens` is negative for a
    mark that was passed.
    """
    budget, prices = context.budget, context.prices
    marks = [(name.removesuffix("_tokens"), budget.for_model(getattr(budget, name))) for name in _MARKS]
    shown = budget.for_model(view_tokens)
    return {
        "prices": {
            "input": prices.input,
            "cached": prices.cached,
            "written": prices.written,
            "output": prices.output,
        },
        "cost_per_turn": turn_cost_fields(context, view_tokens),
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


def turn_cost_fields(context: CompactionContext, tokens: int) -> TurnCostFields:
    """The cost of `tokens` (our count) in one turn: read from the upstream's cache, or uncached."""
    prices = context.prices
    theirs = context.budget.for_model(tokens)
    return {"cached": theirs * prices.cached, "uncached": theirs * prices.input}


# About 4,000 tokens: a model can read them in one go without filling its window again.
_PAGE_CHARS = 16_000
_MOST_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class _Found:
    """A message or summary: its fields, its text, and its stored JSON."""

    fields: ContextFields
    text: str
    raw: bytes


class ContextPages:
    """Single messages and summaries."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def on(self, api: APIRouter) -> None:
        """Register the route."""
        api.add_api_route("/context/{ident}", self.get_context, methods=["GET"])

    async def get_context(
        self,
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
        is_message = chain_digits_of(ident) is not None
        found = await (self._message if is_message else self._summary)(caller.namespace, ident)
        if raw:
            return raw_reply(found.raw)
        stop = min(len(found.text), offset + limit)
        page: ContextPage = {
            **found.fields,
            "offset": offset,
            "total_chars": len(found.text),
            "next_offset": stop if stop < len(found.text) else None,
            "text": found.text[offset:stop],
        }
        return reply(page)

    async def _message(self, namespace: str, ident: str) -> _Found:
        session, row = await self._archive.message(namespace, ident)
        text = text_of(as_chat(decoded(row.body)))
        fields: ContextFields = {
            "id": context_id(row.chain),
            "session": session,
            "role": row.role,
            "tokens": row.tokens,
            "state": row.state,
            "format": "text" if text else "json",
        }
        return _Found(fields, text or row.body.decode("utf-8", "surrogatepass"), row.body)

    async def _summary(self, namespace: str, ident: str) -> _Found:
        session, stored = await self._archive.summary(namespace, ident)
        whole = stored.compaction.summary
        fields: ContextFields = {
            "id": summary_id(stored.compaction.id),
            "session": session,
            "role": None,
            "tokens": None,
            "state": "live" if stored.undone_at is None else "undone",
            "format": "text",
        }
        return _Found(fields, summary_text(whole.encode("utf-8", "surrogatepass")), encoded(whole))


class CompactOrder(BaseModel):
    """A compaction by hand (D25): `focus` is what the summary should pay attention to."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"focus": "the schema of the database"}]}
    )

    focus: Annotated[str, StringConstraints(max_length=2_000)] = ""
    branch: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None


class ViewPages:
    """The endpoints that plan a view."""

    def __init__(self, archive: Archive, contexts: ContextLoader, viewing: ViewPlanner) -> None:
        self._archive = archive
        self._contexts = contexts
        self._viewing = viewing

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/sessions/{name:path}/view", self.get_view, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/compact", self.compact_session, methods=["POST"])

    async def get_view(
        self,
        request: Request,
        caller: Admitted,
        name: SessionName,
        branch: Branch = None,
        explain: Annotated[bool, Query(description="With costs and the distances to the marks.")] = False,
    ) -> Reply[BranchView]:
        """Get the view that the model would get now, part by part, with its budget.

        `explain`: also the cost of each part per turn, and the distances to the marks.
        """
        place = await self._archive.place(caller.namespace, name, branch)
        subject = await self._archive.branch(place, credentials_of(request))
        context = await self._contexts.of(subject)
        shown = await context.done(CompactionContext.under, context.current)
        head: ViewHead = {
            **place_fields(place),
            "model": subject.model,
            "view": "original" if shown.is_original else "compacted",
            "compaction": context.current.id if context.current else None,
            "tokens": context.budget.for_model(shown.tokens),
            "tokens_full": context.budget.for_model(subject.tokens),
            "window": _window_fields(context),
            "budget": _budget_fields(context),
            "explanation": explanation_fields(context, shown.tokens) if explain else None,
        }
        return raw_reply(await context.done(_page, head, shown, explain))

    async def compact_session(
        self, request: Request, caller: Admitted, name: SessionName
    ) -> Reply[HandCompaction]:
        """Compact a branch now.

        Answers with the compaction, or the reason why there is none (F35).
        """
        order = await order_of(request, CompactOrder)
        place = await self._archive.place(caller.namespace, name, order.branch)
        subject = await self._archive.branch(place, credentials_of(request), caller.quota)
        done = await self._viewing.by_hand(subject, order.focus)
        return reply(
            {
                **place_fields(place),
                "compacted": done is not None,
                "compaction": None if done is None else compaction_fields(done),
                "reason": "nothing_to_fold" if done is None else None,
            }
        )


def _window_fields(context: CompactionContext) -> WindowFields:
    budget = context.budget
    return {"tokens": budget.window.tokens, "source": budget.window.source, "ratio": budget.ratio}


def _budget_fields(context: CompactionContext) -> BudgetFields:
    budget = context.budget
    return {
        "window_tokens": budget.window.tokens,
        "fixed_tokens": budget.for_model(budget.fixed_tokens),
        "available_tokens": budget.for_model(budget.available_tokens),
        "precompute_tokens": budget.for_model(budget.precompute_tokens),
        "trigger_tokens": budget.for_model(budget.trigger_tokens),
        "target_tokens": budget.for_model(budget.target_tokens),
        "ceiling_tokens": budget.for_model(budget.ceiling_tokens),
        "summary_tokens": budget.for_model(budget.summary_tokens),
        "policy": context.policy.name,
    }


def _page(context: CompactionContext, head: ViewHead, shown: ForwardedView, explain: bool) -> bytes:
    parts = [_part(part, context, explain) for part in shown.view.parts]
    return object_with(head, parts=array_of(parts))


def _part(part: ViewPart, context: CompactionContext, explain: bool) -> bytes:
    fields: ViewPartHead = {
        "kind": part.kind,
        "reason": part.reason,
        "tokens": context.budget.for_model(part.tokens),
        "masked": part.masked,
        "id": None if part.index is None else context_id(context.conversation.names[part.index]),
    }
    if part.kind == "summary" and context.current is not None:
        fields["compaction"] = context.current.id
    if explain:
        fields["cost_per_turn"] = turn_cost_fields(context, part.tokens)
    return object_with(fields, message=part.raw)
