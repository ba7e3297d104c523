"""The results of recall tools, as plain JSON values, and the ids in them.

An id is derived from the key under which the thing is stored, so that it survives restarts and being recorded
again.

| id | of | derived from |
|---|---|---|
| `dcc_` | a conversation | the session's id, a UUID |
| `dcm_` | a message | its chain digest (`context_id`) |
| `dcp_` | a message that is a large payload | the same |
| `dcs_` | a summary | the compaction's id, a UUID |

Pure. The first member of a result is `tool`: `recall.reading` recognizes results by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from palimpsest.core.recall.lineage import Lineage
from palimpsest.core.recall.quotes import Hit
from palimpsest.core.recall.tool_calls import DESCRIBE, GREP, PAGE_CHARS
from palimpsest.core.recall.words import SearchEntry
from palimpsest.core.view.compaction import context_id, reference_to
from palimpsest.core.view.json_results import cut
from palimpsest.core.view.masking import shown
from palimpsest.core.wire.json_text import encoded

_CONVERSATION, _SUMMARY, _PAYLOAD = "dcc_", "dcs_", "dcp_"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_DIGITS = re.compile(r"[0-9a-f]{32}")
_MESSAGE = re.compile(r"(?:dc[mp]_)?([0-9a-f]{4,64})")


def conversation_id(session: str) -> str:
    """The id of a conversation, from its session's id."""
    return _CONVERSATION + _without_dashes(session)


def summary_id(compaction: str) -> str:
    """The id of a summary, from its compaction's id."""
    return _SUMMARY + _without_dashes(compaction)


def payload_id(chain: bytes) -> str:
    """The id of a large payload, from its message's chain digest; the digits equal the message's."""
    return _PAYLOAD + context_id(chain).removeprefix("dcm_")


def session_of(name: str) -> str | None:
    """The session's id in a conversation's id; None for any other text."""
    return _with_dashes(name.removeprefix(_CONVERSATION)) if name.startswith(_CONVERSATION) else None


def compaction_of(ident: str) -> str:
    """The compaction's id in a summary's id; any other text is taken for a compaction's id itself."""
    return _with_dashes(ident.removeprefix(_SUMMARY))


def chain_digits_of(ident: str) -> str | None:
    """The leading digits of a chain digest, from a message's id or the digits alone; else None."""
    match = _MESSAGE.fullmatch(ident.lower())
    return match.group(1) if match else None


def _without_dashes(ident: str) -> str:
    """A UUID without dashes. Ids that are not UUIDs, as imports may bring them, stay unchanged."""
    return ident.replace("-", "") if _UUID.fullmatch(ident) else ident


def _with_dashes(digits: str) -> str:
    low = digits.lower()
    if not _UUID_DIGITS.fullmatch(low):
        return digits
    return "-".join((low[:8], low[8:12], low[12:16], low[16:20], low[20:]))


# Characters of a large payload shown among hits (C11), and when it is described (C05).
REFERENCE_CHARS = 1_200
PREVIEW_CHARS = 4_000
_LINE_CHARS = 160
# Not from `calendar`, whose names depend on the locale.
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)

Json = dict[str, Any]


def time_of(at: float) -> str:
    """UTC seconds as ISO 8601."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def month_of(at: float) -> str:
    """Month and year of UTC seconds: "May 2026"."""
    day = datetime.fromtimestamp(at, UTC)
    return f"{_MONTHS[day.month - 1]} {day.year}"


def first_line(text: str) -> str:
    """The first line that is not blank, cut where it is long."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - 1] + "\u2026"


def grep_result(
    session: str,
    hits: Sequence[Hit],
    facts: Mapping[str, tuple[str, int, Lineage | None]],
    found: int,
    *,
    is_counted: bool,
) -> Json:
    """The result of a search that `found` so many entries, or more unless `is_counted`.

    `facts`: by a hit's id its session, a message's tokens, and a summary's lineage. A message has neither
    depth nor sources; a large payload is shown by its head and tail.
    """
    return {
        "tool": GREP,
        "session": session,
        "conversation": conversation_id(session),
        "totalFound": found,
        **({} if is_counted else {"totalFoundIsAtLeast": True}),
        "results": [_item(hit, *facts[hit.quote.entry.id]) for hit in hits],
    }


def reference(entry: SearchEntry, tokens: int) -> Json:
    """The short form of a large payload: its size, and its head and tail with its id."""
    return {
        "tokens": tokens,
        "totalChars": len(entry.text),
        "summary": cut(entry.text, REFERENCE_CHARS, entry.id),
    }


def summary_result(
    entry: SearchEntry,
    session: str,
    lineage: Lineage,
    sources: Sequence[SearchEntry],
    page: tuple[int, int] | None,
) -> Json:
    """A page of a summary, without its fence, and the first messages that it was made from, in order."""
    return {
        **_head(entry, session),
        "depth": lineage.depth,
        "node": lineage.kind,
        "parents": [summary_id(parent) for parent in lineage.parents],
        **_page(entry.text, page or (0, PAGE_CHARS)),
        "sourceMessageCount": len(lineage.sources),
        "sources": [
            {"id": one.id, "role": one.role, "time": time_of(one.at), "firstLine": first_line(one.text)}
            for one in sources
        ],
    }


def message_result(entry: SearchEntry, session: str, page: tuple[int, int] | None) -> Json:
    """A page of a message; the first page begins with its role."""
    chosen = _page(entry.text, page or (0, PAGE_CHARS))
    if not chosen["offset"]:
        chosen["text"] = f"{entry.role}: {chosen['text']}"
    return {**_head(entry, session), "role": entry.role, **chosen}


def payload_result(entry: SearchEntry, session: str, tokens: int) -> Json:
    """Head and tail of a large payload, and how to read the rest."""
    return {
        **_head(entry, session),
        "role": entry.role,
        "tokens": tokens,
        "preview": shown(entry.text, PREVIEW_CHARS, reference_to(DESCRIBE, entry.id))[:PREVIEW_CHARS],
        "totalChars": len(entry.text),
        "nextOffset": 0,
        "howToRead": f"{DESCRIBE} with this id, offset 0 and a limit of up to 16000 gives the first page; "
        "each page says the offset of the next.",
    }


def error_result(code: str, message: str) -> str:
    """The result, as JSON text, of a call that could not be read or carried out."""
    return encoded({"error": {"code": code, "message": message}}).decode()


def _head(entry: SearchEntry, session: str) -> Json:
    return {
        "tool": DESCRIBE,
        "id": entry.id,
        "kind": entry.kind,
        "session": session,
        "conversation": conversation_id(session),
        "time": time_of(entry.at),
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


def _item(hit: Hit, session: str, tokens: int, lineage: Lineage | None) -> Json:
    entry = hit.quote.entry
    item: Json = {
        "id": entry.id,
        "kind": entry.kind,
        "role": entry.role or None,
        "session": session,
        "time": time_of(entry.at),
        "month": month_of(entry.at),
        "snippet": hit.quote.text,
        "depth": lineage.depth if lineage else None,
        "sourceMessageCount": len(lineage.sources) if lineage else None,
    }
    if entry.kind == "payload":
        item |= reference(entry, tokens)
    for name, quotes in (("before", hit.before), ("after", hit.after)):
        if quotes:
            item[name] = [f"{quote.entry.role}: {quote.text}" for quote in quotes]
    return item
