"""The session's lists of `rolling`: what a model reports of changes, and their merge (B09, B10).

Unreadable changes are left out, and the summary is kept. Merging the same changes twice is the same as once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from palimpsest.core.notes.note import word_set
from palimpsest.core.summary.source import stored_as
from palimpsest.core.text.message_text import cut_to, on_one_line
from palimpsest.core.text.secrets import clean

# How many entries each list may have (B10).
CAPS = {
    "decisions": 8,
    "constraints": 6,
    "tasks": 10,
    "questions": 5,
    "risks": 5,
    "artifacts": 10,
    "agent_contributions": 6,
}
# The event of an answer whose changes are missing or unreadable.
DELTA_INVALID = "state_delta_invalid"
# Statuses of entries that need no more attention; any other word means an open one.
_CLOSED = word_set(
    "closed done completed complete resolved answered cancelled canceled superseded obsolete dropped "
    "rejected removed deleted mitigated merged fixed"
)
_FENCED = re.compile(r"^[ \t]*```[^\n]*\n(?P<body>.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.M | re.S)
# A line that only names the changes.
_LABEL = re.compile(r"[ \t#*_]*(?:state[ _-]delta|changes)[ \t*_:]*", re.IGNORECASE)
# Characters of an entry's text, of an id or author, of a status; most entries that are read of one list.
_TEXT_CHARS, _SHORT_CHARS, _STATUS_CHARS, _MOST_ENTRIES = 400, 64, 24, 200
_VALUE = msgspec.json.Decoder()


class ListEntry(msgspec.Struct, frozen=True):
    """An entry of a list. `id` is unique in it, `text` one line, `status` a word, `by` an agent or ""."""

    id: str
    text: str
    status: str = "open"
    by: str = ""


Lists: TypeAlias = dict[str, tuple[ListEntry, ...]]


def list_lines(lists: Lists) -> list[str]:
    """One line for each entry: its list, its status unless it is open, its text, its agent."""
    return [
        f"- {kind.removesuffix('s').replace('_', ' ')}"
        f"{'' if entry.status == 'open' else f' [{entry.status}]'}: {entry.text}"
        f"{f' ({entry.by})' if entry.by else ''}"
        for kind in CAPS
        for entry in lists.get(kind, ())
    ]


def reply_of(text: str) -> tuple[str, list[tuple[str, ListEntry]], bool]:
    """A reply as the text without the changes, the changes (list, entry), and whether any is unreadable.

    The changes are the last fenced block that is an object of lists, or empty; or such an object at the end.
    """
    fenced = [(block.start(), block.end(), block["body"]) for block in _FENCED.finditer(text)][::-1]
    bare = text.find("\n{") if "\n{" in text else len(text)
    for start, end, body in (*fenced, (bare, len(text), text[bare:])):
        found = stored_as(_VALUE, body)
        if not isinstance(found, Mapping) or (found and not found.keys() & CAPS.keys()):
            continue
        changes: list[tuple[str, ListEntry]] = []
        is_broken = False
        for kind in (name for name in found if name in CAPS):
            items = found[kind]
            read = [_entry(item) for item in items[:_MOST_ENTRIES]] if isinstance(items, list) else []
            changes += [(kind, entry) for entry in read if entry]
            is_broken |= None in read or not isinstance(items, list | None)
        return f"{_unlabelled(text[:start])}\n{text[end:]}".strip(), changes, is_broken
    if fenced and not text[fenced[0][1] :].strip() and fenced[0][2].lstrip().startswith("{"):
        # It was meant for the changes and is no valid JSON.
        text = _unlabelled(text[: fenced[0][0]])
    return text.strip(), [], True


def _unlabelled(text: str) -> str:
    """The text before a block of changes, without a last line that names them."""
    before, _, last = text.rstrip().rpartition("\n")
    return before if _LABEL.fullmatch(last) else text.rstrip()


def _entry(item: object) -> ListEntry | None:
    """The reported entry, "" in each field that the report lacks; None without a text and an id."""
    given = {"text": item} if isinstance(item, str) else item
    if not isinstance(given, Mapping):
        return None

    def said(name: str, limit_chars: int) -> str:
        value = given.get(name)
        is_scalar = isinstance(value, str | int | float) and not isinstance(value, bool)
        return on_one_line(cut_to(on_one_line(clean(str(value))), limit_chars)) if is_scalar else ""

    ident, text = said("id", _SHORT_CHARS), said("text", _TEXT_CHARS)
    status = said("status", _STATUS_CHARS).lower().replace(" ", "_")
    return ListEntry(ident, text, status, said("by", _SHORT_CHARS)) if text or ident else None


def merged(lists: Lists, changes: Sequence[tuple[str, ListEntry]]) -> Lists:
    """The lists with the changes applied in order, every list within its cap.

    A change with the id or the text of an entry updates that entry, which keeps its id and becomes the
    newest. Over a cap closed entries go first, then those not changed for longest. A change without text and
    without a known id is ignored.
    """
    whole = {kind: list(lists.get(kind, ())) for kind in CAPS}
    for kind, change in changes:
        entries = whole[kind]
        named = next((entry for entry in entries if change.id and entry.id == change.id), None)
        alike = next((entry for entry in entries if change.text and _same(entry.text, change.text)), None)
        known = named or alike
        if known is None and not change.text:
            continue
        ident = known.id if known else change.id
        if not ident:
            numbers = [int(n) for entry in entries if (n := entry.id.removeprefix(kind[0])).isdecimal()]
            ident = f"{kind[0]}{max(numbers, default=0) + 1}"
        before = known or ListEntry(ident, change.text)
        status, by = change.status or before.status, change.by or before.by
        entries[:] = [entry for entry in entries if entry not in (named, alike)]
        entries.append(ListEntry(ident, change.text or before.text, status, by))
    for kind, cap in CAPS.items():
        # The sort is stable: closed and open entries stay in order of age.
        order = sorted(whole[kind], key=lambda entry: entry.status not in _CLOSED)
        going = order[: max(0, len(order) - cap)]
        whole[kind] = [entry for entry in whole[kind] if entry not in going]
    return {kind: tuple(entries) for kind, entries in whole.items()}


def _same(one: str, other: str) -> bool:
    bare = [" ".join(text.casefold().split()).strip(" .;:!,\"'`*") for text in (one, other)]
    return bare[0] == bare[1]
