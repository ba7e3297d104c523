"""What the pages of turns show: rows of messages and of a prompt's parts, cut to size, and bars of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, islice
from typing import Any, NamedTuple

from palimpsest.api.compactions import compaction_fields
from palimpsest.api.exchanges import exchange_fields
from palimpsest.api.ui.entries import Bar
from palimpsest.core.utc import moment
from palimpsest.core.view.anatomy import Category, SeenMessage, difference
from palimpsest.core.view.compaction import context_id
from palimpsest.core.view.masking import text_of
from palimpsest.core.view.outcomes import ViewPart
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.request import tools_in
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.proxy.archive import SeenExchange
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.storage.exchange_log import LoggedExchange

# Characters and lines of a message on a page, and its calls: so that a page stays below 300 kB.
_TEXT_CHARS, _TEXT_LINES, _MOST_CALLS = 500, 12, 3
# A longer text has a line for so many of its characters.
_LINE_CHARS = 25
# A longer run of folded messages is one row, which opens to the first of them.
_FOLDED_AT_ONCE, _FOLDED_SHOWN = 4, 12
# Rows on one page; older ones are a link away.
MOST_ROWS = 100
# Messages shown of each side of a difference.
_MOST_CHANGES = 6
FATES = {
    "whole": "sent whole",
    "masked": "shortened",
    "kept": "kept",
    "again": "told again",
    "folded": "folded",
}
_LABELS: Mapping[Category, str] = {
    "instructions": "Instructions",
    "tools": "Tools",
    "rules": "Rules",
    "task": "Task",
    "kept": "Kept and pinned",
    "summary": "Summary",
    "memory": "Memory",
    "lookups": "Look-ups",
    "pictures": "Pictures",
    "tail": "Newest messages",
    "framing": "Framing",
}


class Cut(NamedTuple):
    """How much of a message is shown; `as_stored`: of its JSON."""

    chars: int
    as_stored: bool = False


_BRIEF = Cut(_TEXT_CHARS)


class About(NamedTuple):
    """What a page says of a message beside its text. `kind` is of `label`, `reason` why it has it."""

    id: str = ""
    tokens: int = 0
    label: str = ""
    kind: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TextRow:
    """A message, or a part of a prompt: `text` is its beginning, `more` how many characters follow."""

    id: str
    role: str
    text: str
    more: int
    tokens: int
    label: str
    kind: str
    reason: str
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoldedRun:
    """Messages in a row that a summary stands for; `rows` are the first of them."""

    count: int
    tokens: int
    rows: Sequence[TextRow]


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A turn of the rail: the fields of its exchange, when it was, and its bars in percent of the widest."""

    fields: Mapping[str, Any]
    at: datetime
    full: float
    sent: float
    begins: str | None


def turns_of(page: Sequence[tuple[int, LoggedExchange, float]]) -> list[TurnRow]:
    """The rail, newest first; `begins` is the compaction whose first turn this is."""
    fields = [exchange_fields(*one) for one in page]
    widest = max([one["tokens_full"] or 0 for one in fields], default=0) or 1
    before: list[str | None] = [*[one["compaction"] for one in fields], None][1:]
    return [
        TurnRow(
            one,
            moment(exchange.started_at),
            round(100 * (one["tokens_full"] or 0) / widest, 1),
            round(100 * (one["tokens"] or 0) / widest, 1),
            one["compaction"] if one["compaction"] != earlier else None,
        )
        for one, earlier, (_, exchange, *_) in zip(fields, before, page, strict=True)
    ]


def turn_facts(
    seen: SeenExchange,
    shares: Mapping[Category, int],
    context: CompactionContext,
    before: Sequence[bytes] | None,
    start: int | None,
) -> dict[str, Any]:
    """The page of a turn. `before`: the prompt of the turn before; `start`: the first message shown.

    `context` is the conversation's now, for the marks.
    """
    fields = exchange_fields(seen.number, seen.exchange, seen.ratio)
    most = max(fields["tokens_full"] or 0, fields["tokens"] or 0, context.budget.window.tokens, 1)
    messages = len(seen.talk.messages)
    begin = min(messages, max(0, messages - MOST_ROWS) if start is None else start)
    parts = seen.view.parts[-MOST_ROWS:] if start is None else seen.view.parts[:MOST_ROWS]
    return {
        "turn": fields,
        "at": moment(seen.exchange.started_at),
        "total": seen.branch.row.exchanges,
        "bars": share_bars(shares, most),
        "marks": marks_of(context, most),
        "force": compaction_fields(seen.force) if seen.force else None,
        "said": list(islice(said_rows(seen, begin), MOST_ROWS)),
        "begin": begin,
        "messages": messages,
        "parts": [_part(seen, part) for part in parts],
        "parts_total": len(seen.view.parts),
        "fates": {label: sum(fate.fate == name for fate in seen.fates) for name, label in FATES.items()},
        "differs": None if before is None else _change(before, seen.shown),
        "has_body": seen.body is not None,
        "is_exact": seen.is_exact,
        "tools": list(islice(_tools(tools_in(seen.envelope)), MOST_ROWS)),
    }


def _tools(raw: bytes | None) -> Iterator[tuple[str, str]]:
    """Names and descriptions, cut to size; tools of a provider's own have a type alone."""
    tools = decoded(raw) if raw else ()
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            inner = tool.get("function")
            about: Mapping[str, Any] = inner if isinstance(inner, Mapping) else tool
            name, does = about.get("name") or tool.get("type"), about.get("description")
            yield str(name)[:_TEXT_CHARS], does[:_TEXT_CHARS] if isinstance(does, str) else ""


def _change(before: Sequence[bytes], after: Sequence[bytes]) -> dict[str, Any]:
    """How a prompt differs from the one before, with the first messages of both sides."""
    found = difference(before, after)
    gone = [text_row(raw, About(label="gone", kind="gone")) for raw in found.gone[:_MOST_CHANGES]]
    new = [text_row(raw, About(label="new", kind="new")) for raw in found.new[:_MOST_CHANGES]]
    return {
        "same": found.same_before,
        "gone": len(found.gone),
        "new": len(found.new),
        "rows": [*gone, *new],
    }


def said_rows(seen: SeenExchange, start: int) -> Iterator[TextRow | FoldedRun]:
    """The conversation from the message `start` on; a long run of folded messages is one row."""
    for is_folded, run in groupby(seen.fates[start:], key=lambda fate: fate.fate == "folded"):
        fates = list(run)
        if is_folded and len(fates) > _FOLDED_AT_ONCE:
            tokens = sum(seen.for_model(seen.talk.messages[fate.index].tokens) for fate in fates)
            yield FoldedRun(len(fates), tokens, [_said(seen, fate) for fate in fates[:_FOLDED_SHOWN]])
        else:
            yield from (_said(seen, fate) for fate in fates)


def share_bars(shares: Mapping[Category, int], most: int) -> list[tuple[Bar, float]]:
    """The bars of a prompt's parts side by side, each with where it begins, in percent of `most` tokens."""
    bars, at = [], 0.0
    for category, label in _LABELS.items():
        tokens = shares.get(category, 0)
        if tokens:
            width = 100 * tokens / max(most, 1)
            bars.append((Bar(category, label, tokens, round(width, 1), round(width, 2)), round(at, 2)))
            at += width
    return bars


def marks_of(context: CompactionContext, most: int) -> list[Bar]:
    """Target, trigger, ceiling (none while the policy is off) and window, on a bar of `most` tokens."""
    budget = context.budget
    names = () if context.policy.is_off else ("target", "trigger", "ceiling")
    marks = {name: budget.for_model(getattr(budget, f"{name}_tokens")) for name in names}
    marks["window"] = budget.window.tokens
    return [
        Bar(
            name,
            name.capitalize(),
            tokens,
            round(100 * tokens / budget.window.tokens, 1),
            round(100 * tokens / most, 2),
        )
        for name, tokens in marks.items()
    ]


def _said(seen: SeenExchange, fate: SeenMessage) -> TextRow:
    message = seen.talk.messages[fate.index]
    ident = context_id(seen.talk.names[fate.index])
    tokens = seen.for_model(message.tokens)
    return text_row(message.raw, About(ident, tokens, FATES[fate.fate], fate.fate, fate.reason))


def _part(seen: SeenExchange, part: ViewPart) -> TextRow:
    ident = "" if part.index is None else context_id(seen.talk.names[part.index])
    kind = "masked" if part.masked else part.kind
    return text_row(part.raw, About(ident, seen.for_model(part.tokens), kind, kind, part.reason))


def text_row(raw: bytes, about: About, cut: Cut = _BRIEF) -> TextRow:
    """A message, or a part of a prompt, cut to size."""
    fields = as_chat(decoded(raw))
    text = raw.decode("utf-8", "surrogatepass") if cut.as_stored else text_of(fields)
    shown = "\n".join(text[: cut.chars].split("\n")[: max(_TEXT_LINES, cut.chars // _LINE_CHARS)])
    role = fields.get("role")
    said = () if cut.as_stored else islice(calls_in(fields), _MOST_CALLS)
    calls = tuple(f"{name}({arguments})"[:_TEXT_CHARS] for name, arguments in said)
    return TextRow(
        about.id,
        role if isinstance(role, str) else "message",
        shown,
        len(text) - len(shown),
        about.tokens,
        about.label,
        about.kind,
        about.reason,
        calls,
    )


def calls_in(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and arguments of each call of a chat message, as the model wrote them."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list | tuple) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield str(function.get("name")), str(function.get("arguments"))
