"""The session's lists of `rolling`: what a model reports of changes, and their merge (B09, B10).

Unreadable changes are left out, and the summary is kept. Merging the same changes twice is the same as once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

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
_FENCED = re.compile(
    r"^[ \t]*```[ \t]*(?P<info>[\w-]*)[^\n]*\n(?P<body>.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.M | re.S
)
_BARE_OBJECT = re.compile(r"^\{", re.MULTILINE)
# Limit on the objects without a fence that are tried, from the first.
_BARE_TRIED = 20
# A last line that only names the changes.
_LABEL = re.compile(
    r"\n?[ \t#*_]*(?:(?:workstream[ _-])?state(?:[ _-]delta)?|changes)[ \t*_:]*\Z", re.IGNORECASE
)
# Keys under which models nest the lists, and the keys of an entry's text and author.
_WRAPPERS = ("state_delta", "stateDelta", "delta", "state")
_OTHER_NAMES = {"agentContributions": "agent_contributions", "contributions": "agent_contributions"}
_TEXT_NAMES = ("text", "title", "description", "summary", "content", "name", "value", "path", "url")
_BY_NAMES = ("by", "agent", "owner", "author")
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
    """A reply as the text without the changes, the changes (list, entry), and whether any is unreadable."""
    for start, end, body in _candidates(text):
        found = stored_as(_VALUE, body)
        if not isinstance(found, Mapping):
            continue
        inner = next((found[name] for name in _WRAPPERS if isinstance(found.get(name), Mapping)), found)
        named = {_OTHER_NAMES.get(name, name): items for name, items in inner.items()}
        if inner and not named.keys() & CAPS.keys():
            continue
        changes: list[tuple[str, ListEntry]] = []
        is_broken = False
        for kind in (name for name in named if name in CAPS):
            items = named[kind]
            read = [_entry(kind, item) for item in items[:_MOST_ENTRIES]] if isinstance(items, list) else []
            changes += [(kind, entry) for entry in read if entry]
            is_broken |= None in read or not isinstance(items, list | None)
        return f"{_LABEL.sub('', text[:start].rstrip())}\n{text[end:]}".strip(), changes, is_broken
    # A last block that was meant for the changes and is no valid JSON.
    last = next(reversed(list(_FENCED.finditer(text))), None)
    if last and not text[last.end() :].strip() and last["body"].lstrip().startswith("{"):
        text = _LABEL.sub("", text[: last.start()].rstrip())
    return text.strip(), [], True


def _candidates(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, content) of what may be the changes, the likeliest first."""
    for match in reversed(list(_FENCED.finditer(text))):
        yield match.start(), match.end(), match["body"]
    for match in list(_BARE_OBJECT.finditer(text))[:_BARE_TRIED]:
        yield match.start(), len(text), text[match.start() :]


def _entry(kind: str, item: object) -> ListEntry | None:
    """The reported entry, "" in each field that the report lacks."""
    if isinstance(item, str):
        item = {"text": item}
    if not isinstance(item, Mapping):
        return None
    # Some models name the text after the list: {"decision": "..."}.
    text = _first(item, (*_TEXT_NAMES, kind.removesuffix("s"), "contribution"), _TEXT_CHARS)
    ident = _first(item, ("id", "key"), _SHORT_CHARS)
    status = _first(item, ("status",), _STATUS_CHARS).lower().replace(" ", "_")
    return ListEntry(ident, text, status, _first(item, _BY_NAMES, _SHORT_CHARS)) if text or ident else None


def _first(item: Mapping[str, Any], names: tuple[str, ...], limit_chars: int) -> str:
    """The first scalar under one of the names, on one line, without secrets; "" for none."""
    for name in names:
        value = item.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            text = on_one_line(clean(str(value)))
            if text:
                return on_one_line(cut_to(text, limit_chars))
    return ""


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
        entries[:] = [entry for entry in entries if entry not in (named, alike)]
        entries.append(
            ListEntry(
                ident, change.text or before.text, change.status or before.status, change.by or before.by
            )
        )
    for kind, cap in CAPS.items():
        # The sort is stable: closed and open entries stay in order of age.
        order = sorted(whole[kind], key=lambda entry: entry.status not in _CLOSED)
        going = order[: max(0, len(order) - cap)]
        whole[kind] = [entry for entry in whole[kind] if entry not in going]
    return {kind: tuple(entries) for kind, entries in whole.items()}


def _same(one: str, other: str) -> bool:
    bare = [" ".join(text.casefold().split()).strip(" .;:!,\"'`*") for text in (one, other)]
    return bare[0] == bare[1]
