"""Endpoints for a branch's view, for single messages and summaries, and for a compaction by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, StringConstraints

from palimpsest.api.callers import Admitted, credentials_of, order_of
from palimpsest.api.replies import array_of, object_with, raw_reply, reply
from palimpsest.api.sessions import compaction_fields, place_fields
from palimpsest.core.recall.searchable_text import summary_text
from palimpsest.core.recall.tool_results import chain_digits_of, summary_id
from palimpsest.core.view.compaction import context_id
from palimpsest.core.view.masking import text_of
from palimpsest.core.view.outcomes import ViewPart
from palimpsest.core.wire.json_text import decoded, encoded
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.proxy.archive import Archive
from palimpsest.proxy.compacting.context_loader import ContextLoader
from palimpsest.proxy.compacting.viewing import ViewPlanner
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.proxy.turn import ForwardedView

# The policy's marks in the order in which a growing prompt reaches them.
_MARKS = ("target_tokens", "precompute_tokens", "trigger_tokens", "ceiling_tokens", "window_tokens")


def explanation_fields(context: CompactionContext, view_tokens: int) -> dict[str, Any]:
    """The prices of a token, the cost of the prompt per turn, and the distances to the policy's marks.

    `view_tokens` are in our count, the returned tokens in the model's. `distance_tokens` is negative for a
    mark that was passed.
    """
    budget, prices = context.budget, context.costs.prices
    marks = [(name.removesuffix("_tokens"), budget.for_model(getattr(budget, name))) for name in _MARKS]
    shown = budget.for_model(view_tokens)
    return {
        "prices": {
            "input": prices.input,
            "cached": prices.cached,
            "written": prices.written,
            "output": prices.output,
        },
        "cost_per_turn": cost_fields(context, view_tokens),
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


def cost_fields(context: CompactionContext, tokens: int) -> dict[str, float]:
    """The cost of `tokens` (our count) in one turn: read from the upstream's cache, or uncached."""
    prices = context.costs.prices
    theirs = context.budget.for_model(tokens)
    return {"cached": theirs * prices.cached, "uncached": theirs * prices.input}


# About 4,000 tokens: a model can read them in one go without filling its window again.
_PAGE_CHARS = 16_000
_MOST_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class _Found:
    """A message or summary: its fields, its text, and its stored JSON."""

    fields: dict[str, Any]
    text: str
    raw: bytes


class ContextPages:
    """Single messages and summaries."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def on(self, api: APIRouter) -> None:
        """Register the route."""
        api.add_api_route("/context/{ident}", self.read, methods=["GET"])

    async def read(
        self,
        caller: Admitted,
        ident: str,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=_MOST_CHARS)] = _PAGE_CHARS,
        raw: bool = False,
    ) -> Response:
        """A page of a message's or summary's text; `offset` and `limit` are in characters.

        `raw`: the stored bytes instead, a summary's as a JSON string. A message without text, such as tool
        calls alone, is paged as JSON.
        """
        is_message = chain_digits_of(ident) is not None
        found = await (self._message if is_message else self._summary)(caller.namespace, ident)
        if raw:
            return raw_reply(found.raw)
        stop = min(len(found.text), offset + limit)
        return reply(
            {
                **found.fields,
                "offset": offset,
                "total_chars": len(found.text),
                "next_offset": stop if stop < len(found.text) else None,
                "text": found.text[offset:stop],
            }
        )

    async def _message(self, namespace: str, ident: str) -> _Found:
        session, row = await self._archive.message(namespace, ident)
        text = text_of(as_chat(decoded(row.body)))
        fields = {
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
        fields = {
            "id": summary_id(stored.compaction.id),
            "session": session,
            "role": None,
            "tokens": None,
            "state": "live" if stored.undone_at is None else "undone",
            "format": "text",
        }
        return _Found(fields, summary_text(whole.encode("utf-8", "surrogatepass")), encoded(whole))


# Fields of a budget that are shown in the model's tokens.
_SIZES = (
    "fixed_tokens",
    "available_tokens",
    "precompute_tokens",
    "trigger_tokens",
    "target_tokens",
    "ceiling_tokens",
    "summary_tokens",
)
_NOTHING_TO_FOLD = "nothing_to_fold"


class CompactOrder(BaseModel):
    """A compaction by hand (D25): `focus` is what the summary should pay attention to."""

    model_config = ConfigDict(extra="forbid")

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
        api.add_api_route("/sessions/{name:path}/view", self.view, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/compact", self.compact, methods=["POST"])

    async def view(
        self,
        request: Request,
        caller: Admitted,
        name: str,
        branch: str | None = None,
        explain: bool = False,
    ) -> Response:
        """The view that would be forwarded now, part by part, with its budget.

        `explain`: also the cost of each part per turn, and the distances to the marks.
        """
        place = await self._archive.place(caller.namespace, name, branch)
        subject = await self._archive.branch(place, credentials_of(request))
        context = await self._contexts.of(subject)
        shown = await context.done(CompactionContext.under, context.current)
        head = {
            **place_fields(place),
            "model": subject.model,
            "view": "original" if shown.is_original else "compacted",
            "compaction": context.current.id if context.current else None,
            "tokens": context.budget.for_model(shown.tokens),
            "tokens_full": context.budget.for_model(subject.tokens),
            **_budget_fields(context),
        }
        if explain:
            head["explanation"] = explanation_fields(context, shown.tokens)
        return raw_reply(await context.done(_page, head, shown, explain))

    async def compact(self, request: Request, caller: Admitted, name: str) -> Response:
        """Compact a branch; the compaction, or the reason why there is none (F35)."""
        order = await order_of(request, CompactOrder)
        place = await self._archive.place(caller.namespace, name, order.branch)
        subject = await self._archive.branch(place, credentials_of(request))
        done = await self._viewing.by_hand(subject, order.focus)
        if done is None:
            return reply({**place_fields(place), "compacted": False, "reason": _NOTHING_TO_FOLD})
        return reply({**place_fields(place), "compacted": True, "compaction": compaction_fields(done)})


def _budget_fields(context: CompactionContext) -> dict[str, Any]:
    """Window and marks in the model's tokens; `ratio` is the model's tokens per token of our count."""
    budget = context.budget
    return {
        "window": {
            "tokens": budget.window.tokens,
            "source": budget.window.source,
            "ratio": budget.ratio,
        },
        "budget": {
            "window_tokens": budget.window.tokens,
            **{name: budget.for_model(getattr(budget, name)) for name in _SIZES},
            "policy": context.policy.name,
        },
    }


def _page(context: CompactionContext, head: dict[str, Any], shown: ForwardedView, explain: bool) -> bytes:
    parts = [_part(part, context, explain) for part in shown.view.parts]
    return object_with(head, "parts", array_of(parts))


def _part(part: ViewPart, context: CompactionContext, explain: bool) -> bytes:
    fields: dict[str, Any] = {
        "kind": part.kind,
        "reason": part.reason,
        "tokens": context.budget.for_model(part.tokens),
        "masked": part.masked,
        "id": None if part.index is None else context_id(context.conversation.names[part.index]),
    }
    if part.kind == "summary" and context.current is not None:
        fields["compaction"] = context.current.id
    if explain:
        fields["cost_per_turn"] = cost_fields(context, part.tokens)
    return object_with(fields, "message", part.raw)
