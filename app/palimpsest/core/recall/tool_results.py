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
from palimpsest.core.recall.quotes import Hit, Quote
from palimpsest.core.recall.tool_calls import DESCRIBE, GREP, PAGE_CHARS
from palimpsest.core.recall.words import SearchEntry
from palimpsest.core.view.compaction import context_id, reference_to
from palimpsest.core.view.json_results import cut
from palimpsest.core.view.masking import shown
from palimpsest.core.wire.json_text import encoded

_CONVERSATION, _SUMMARY, _PAYLOAD = "dcc_", "dcs_", "dcp_"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_DIGITS = re.compile(r"([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})")
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
    found = _UUID_DIGITS.fullmatch(digits.lower())
    return "-".join(found.groups()) if found else digits


# Characters of a large payload shown among hits (C11), and when it is described (C05).
REFERENCE_CHARS = 1_200
PREVIEW_CHARS = 4_000
_LINE_CHARS = 160

Json = dict[str, Any]


def time_of(at: float) -> str:
    """UTC seconds as ISO 8601."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def grep_result(
    session: str, hits: Sequence[Hit], lineages: Mapping[str, Lineage], found: int, *, is_counted: bool
) -> Json:
    """The result of a search that `found` so many entries, or more unless `is_counted`.

    `lineages`: of summaries, by their ids. Messages beside the hits are hits of their own, in order.
    """
    sides = {place: quote for hit in hits for place, quote in hit.sides.items()}
    for hit in hits:
        sides.pop(hit.quote.entry.place, None)
    return {
        "tool": GREP,
        "session": session,
        "conversation": conversation_id(session),
        "totalFound": found,
        **({} if is_counted else {"totalFoundIsAtLeast": True}),
        "results": [_hit(hit.quote, session, lineages.get(hit.quote.entry.id)) for hit in hits],
        # On one line each: number, turn, date, speaker and text.
        "beside": [
            "{}, turn {}, {}, {}: {}".format(place, *_place(quote.entry).values(), quote.text)
            for place, quote in sorted(sides.items())
        ],
    }


def _hit(quote: Quote, session: str, lineage: Lineage | None) -> Json:
    """A hit; a message on the path is named by its number."""
    entry, is_message = quote.entry, quote.entry.kind == "message"
    about: Json = {
        "id": str(entry.place) if is_message and entry.turn else entry.id,
        "kind": "" if is_message else entry.kind,
        "message": 0 if is_message else entry.place,
        "session": "" if entry.session == session else entry.session,
        **_place(entry),
        "head": quote.head,
    }
    if lineage:
        about |= {"depth": lineage.depth, "sourceMessageCount": len(lineage.sources)}
    elif entry.kind == "payload":
        about |= reference(entry)
    return {name: said for name, said in about.items() if said or name == "depth"} | {"snippet": quote.text}


def _place(entry: SearchEntry) -> Json:
    """Where a message stands, and whose it is."""
    return {"turn": entry.turn, "date": time_of(entry.at)[:10], "speaker": entry.name or entry.role}


def reference(entry: SearchEntry) -> Json:
    """The short form of a large payload: its size, and its head and tail with its id."""
    return {
        "tokens": entry.tokens,
        "totalChars": len(entry.text),
        "summary": cut(entry.text, REFERENCE_CHARS, entry.id),
    }


def messages_result(
    entries: Sequence[SearchEntry], last: int, session: str, page: tuple[int, int] | None
) -> Json:
    """As many of the messages as a page holds, in order, and which are next; `last` is the last one wanted.

    The page's first message begins at the offset; one that is cut goes on there in the next page.
    """
    offset, room = page or (0, PAGE_CHARS)
    said: list[Json] = []
    following: Json | None = None
    for entry in entries:
        text, rest = entry.text[offset:], {"id": f"{entry.place}-{last}"}
        if said and len(text) > room:
            following = rest
            break
        said.append({"id": str(entry.place), **_place(entry), "text": text[:room]})
        if len(text) > room:
            following = rest | {"offset": offset + room}
            break
        room, offset = max(0, room - len(text) - len(encoded(_place(entry)))), 0
    if following is None and entries[-1].place < last:
        following = {"id": f"{entries[-1].place + 1}-{last}"}
    return {"tool": DESCRIBE, "session": session, "messages": said, "next": following}


def summary_result(
    entry: SearchEntry, lineage: Lineage, sources: Sequence[SearchEntry], page: tuple[int, int] | None
) -> Json:
    """A page of a summary, without its fence, and the first messages that it was made from, in order."""
    return {
        **_head(entry),
        "depth": lineage.depth,
        "node": lineage.kind,
        "parents": [summary_id(parent) for parent in lineage.parents],
        **_page(entry.text, page),
        "sourceMessageCount": len(lineage.sources),
        "sources": [
            {
                **{"id": one.id, "role": one.role, "time": time_of(one.at)},
                "firstLine": one.text.strip().partition("\n")[0][:_LINE_CHARS],
            }
            for one in sources
        ],
    }


def message_result(entry: SearchEntry, count: int, page: tuple[int, int] | None) -> Json:
    """A page of a message, and which is next; without a `page` a payload's head and tail.

    `count`: the messages of its path. The first page begins with the message's role.
    """
    known: Json = {**_head(entry), "role": entry.role}
    if here := entry.turn and entry.place:
        known |= {"message": here, "turn": entry.turn, "next": str(here + 1) if here < count else None}
    if entry.kind == "payload" and page is None:
        return {
            **known,
            "tokens": entry.tokens,
            "preview": shown(entry.text, PREVIEW_CHARS, reference_to(DESCRIBE, entry.id))[:PREVIEW_CHARS],
            "totalChars": len(entry.text),
            "nextOffset": 0,
            "howToRead": f"{DESCRIBE} with this id, offset 0 and a limit of up to 16000 gives the first "
            "page; each page says the offset of the next.",
        }
    chosen = _page(entry.text, page)
    if not chosen["offset"]:
        chosen["text"] = f"{entry.role}: {chosen['text']}"
    return known | chosen


def error_result(code: str, message: str) -> str:
    """The result, as JSON text, of a call that could not be read or carried out."""
    return encoded({"error": {"code": code, "message": message}}).decode()


def _head(entry: SearchEntry) -> Json:
    return {
        "tool": DESCRIBE,
        "id": entry.id,
        "kind": entry.kind,
        "session": entry.session,
        "conversation": conversation_id(entry.session),
        "time": time_of(entry.at),
    }


def _page(text: str, page: tuple[int, int] | None) -> Json:
    offset, size = page or (0, PAGE_CHARS)
    start, stop = min(offset, len(text)), min(len(text), offset + size)
    return {
        "text": text[start:stop],
        "offset": start,
        "totalChars": len(text),
        "nextOffset": stop if stop < len(text) else None,
    }
