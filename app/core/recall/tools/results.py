"""What a recall tool answers, as plain JSON values. The first member is `tool`: echoes are known by it.

Pure. Knows nothing of where entries are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from app.core.recall.entry import Entry, Kind
from app.core.recall.lineage import Lineage
from app.core.recall.quotes import Hit, Quote
from app.core.recall.tool_schemas import DESCRIBE, GREP
from app.core.recall.tools.arguments import PAGE_CHARS, Unreadable
from app.core.recall.tools.ids import conversation_id, summary_id
from app.core.view.compaction import reference_to
from app.core.view.masking import shown
from app.core.view.results.marker import cut

# C11: what stands for a large payload among hits, and what is shown at once of it (C05), in characters.
REFERENCE_CHARS = 1_200
PREVIEW_CHARS = 4_000
_LINE_CHARS = 160
# The same in every locale.
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """A message that a summary was made from. `at` is UTC seconds."""

    id: str
    role: str
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Told:
    """Where an entry stands: its id, its session, and when it was stored in UTC seconds; and what it is."""

    id: str
    session: str
    at: float
    kind: Kind = "message"


@dataclass(frozen=True, slots=True)
class Stored:
    """What is known of a hit beside its text: its session, a message's tokens, a summary's compaction."""

    session: str
    tokens: int = 0
    compaction: str = ""


@dataclass(frozen=True, slots=True)
class Many:
    """How many entries match; where not all could be counted, at least so many."""

    found: int
    is_counted: bool = True


def time_of(at: float) -> str:
    """UTC seconds as ISO 8601."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def month_of(at: float) -> str:
    """Month and year of UTC seconds, as people say them: "May 2026"."""
    day = datetime.fromtimestamp(at, UTC)
    return f"{_MONTHS[day.month - 1]} {day.year}"


def first_line(text: str) -> str:
    """The first line that is not blank, cut where it is long."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - 1] + "\u2026"


def grep_result(
    session: str,
    many: Many,
    hits: Sequence[Hit],
    stored: Mapping[str, Stored],
    lineages: Mapping[str, Lineage],
) -> Json:
    """The hits; `stored` is what is known of them by their ids, `lineages` are those of compactions.

    A message has neither depth nor sources; of a large payload its head and tail stand for it.
    """
    return {
        "tool": GREP,
        "session": session,
        "conversation": conversation_id(session),
        "totalFound": many.found,
        **({} if many.is_counted else {"totalFoundIsAtLeast": True}),
        "results": [_item(hit, stored[hit.quote.entry.id], lineages) for hit in hits],
    }


def reference(entry: Entry, tokens: int) -> Json:
    """What stands for a large payload: how large it is, and its head and tail, which name its id."""
    return {
        "tokens": tokens,
        "totalChars": len(entry.text),
        "summary": cut(entry.text, REFERENCE_CHARS, entry.id),
    }


def summary_result(
    told: Told, text: str, lineage: Lineage, sources: Sequence[Source], page: tuple[int, int] | None
) -> Json:
    """A summary without its fence, and the first of the messages it was made from, in order."""
    return {
        **_head(told),
        "depth": lineage.depth,
        "node": lineage.kind,
        "parents": [summary_id(parent) for parent in lineage.parents],
        **_page(text, page or (0, PAGE_CHARS)),
        "sourceMessageCount": len(lineage.sources),
        "sources": [
            {"id": one.id, "role": one.role, "time": time_of(one.at), "firstLine": first_line(one.text)}
            for one in sources
        ],
    }


def message_result(told: Told, role: str, text: str, page: tuple[int, int] | None) -> Json:
    """A page of a message; its beginning says whose it is."""
    chosen = _page(text, page or (0, PAGE_CHARS))
    if not chosen["offset"]:
        chosen["text"] = f"{role}: {chosen['text']}"
    return {**_head(told), "role": role, **chosen}


def payload_result(told: Told, role: str, text: str, tokens: int) -> Json:
    """Head and tail of what is too large to be shown, and how the rest is read."""
    return {
        **_head(told),
        "role": role,
        "tokens": tokens,
        "preview": shown(text, PREVIEW_CHARS, reference_to(DESCRIBE, told.id))[:PREVIEW_CHARS],
        "totalChars": len(text),
        "nextOffset": 0,
        "howToRead": f"{DESCRIBE} with this id, offset 0 and a limit of up to 16000 gives the first page; "
        "each page says the offset of the next.",
    }


def error_result(error: Unreadable) -> Json:
    """Why a call came to nothing."""
    return {"error": {"code": error.code, "message": error.message}}


def _head(told: Told) -> Json:
    return {
        "tool": DESCRIBE,
        "id": told.id,
        "kind": told.kind,
        "session": told.session,
        "conversation": conversation_id(told.session),
        "time": time_of(told.at),
    }


def _page(text: str, page: tuple[int, int]) -> Json:
    start = min(page[0], len(text))
    stop = min(len(text), start + page[1])
    return {
        "text": text[start:stop],
        "offset": start,
        "totalChars": len(text),
        "nextOffset": stop if stop < len(text) else None,
    }


def _item(hit: Hit, stored: Stored, lineages: Mapping[str, Lineage]) -> Json:
    entry = hit.quote.entry
    lineage = lineages.get(stored.compaction)
    item: Json = {
        "id": entry.id,
        "kind": entry.kind,
        "role": entry.role or None,
        "session": stored.session,
        "time": time_of(entry.at),
        "month": month_of(entry.at),
        "snippet": hit.quote.text,
        "depth": lineage.depth if lineage else None,
        "sourceMessageCount": len(lineage.sources) if lineage else None,
    }
    if entry.kind == "payload":
        item |= reference(entry, stored.tokens)
    if hit.before:
        item["before"] = [_beside(quote) for quote in hit.before]
    if hit.after:
        item["after"] = [_beside(quote) for quote in hit.after]
    return item


def _beside(quote: Quote) -> str:
    return f"{quote.entry.role}: {quote.text}"
