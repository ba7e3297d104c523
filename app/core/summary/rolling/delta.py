"""A summarizer's reply in this style: the summary, and the changes of the state behind it (B08, B09).

Tolerant: what cannot be read as changes is left out, the summary is kept. Knows nothing of states.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from app.core.summary.rolling.merging import Change
from app.core.summary.rolling.state import KINDS
from app.core.summary.source import stored_as
from app.core.text.secrets import clean
from app.core.text.wording import cut_to, on_one_line

_FENCED = re.compile(
    r"^[ \t]*```[ \t]*(?P<info>[\w-]*)[^\n]*\n(?P<body>.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.M | re.S
)
# What models write above the changes, bare of decoration.
_LABELS = frozenset({"state delta", "workstream state delta", "workstream state", "state"})
_BARE_OBJECT = re.compile(r"^\{", re.MULTILINE)
# Objects without a fence that are tried, from the first; more is a text full of them.
_BARE_TRIED = 20
# Names under which models put the lists into an object of their own.
_WRAPPERS = ("state_delta", "stateDelta", "delta", "state")
_OTHER_NAMES = {"agentContributions": "agent_contributions", "contributions": "agent_contributions"}
_TEXT_NAMES = ("text", "title", "description", "summary", "content", "name", "value", "path", "url")
_BY_NAMES = ("by", "agent", "owner", "author")
# Characters of an entry's text and of its short parts.
_TEXT_CHARS = 400
_SHORT_CHARS = 64
_STATUS_CHARS = 24
# Entries read of one list; no cap is near it.
_MOST_ENTRIES = 200


@dataclass(frozen=True, slots=True)
class Reply:
    """The summary without the changes; `is_broken` when these were missing or in part unreadable."""

    summary: str
    changes: tuple[Change, ...] = ()
    is_broken: bool = False


def reply_of(text: str) -> Reply:
    """The parts of a reply; a text that holds no changes is all summary."""
    for start, end, body in _candidates(text):
        delta = _lists(body)
        if delta is not None:
            summary = f"{_unlabelled(text[:start])}\n{text[end:]}".strip()
            changes, is_broken = _changes(delta)
            return Reply(summary, changes, is_broken)
    return Reply(_without_torn(text), is_broken=True)


def delta_text(changes: Sequence[Change]) -> str:
    """The changes as a reply says them, fenced; `reply_of` reads them back."""
    lists: dict[str, list[dict[str, str]]] = {}
    for change in changes:
        entry = {"id": change.id, "text": change.text, "status": change.status, "by": change.by}
        lists.setdefault(change.kind, []).append({name: value for name, value in entry.items() if value})
    return f"```json\n{msgspec.json.encode(lists).decode()}\n```"


def _candidates(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and content of what may hold the changes, the likeliest first."""
    for match in reversed(list(_FENCED.finditer(text))):
        yield match.start(), match.end(), match["body"]
    for match in list(_BARE_OBJECT.finditer(text))[:_BARE_TRIED]:
        yield match.start(), len(text), text[match.start() :]


def _lists(body: str) -> Mapping[str, Any] | None:
    """The object with the lists; None for anything else."""
    found = stored_as(object, body)
    if not isinstance(found, Mapping):
        return None
    inner = next((found[name] for name in _WRAPPERS if isinstance(found.get(name), Mapping)), found)
    named = {_OTHER_NAMES.get(name, name) for name in inner}
    return inner if not inner or named & set(KINDS) else None


def _changes(delta: Mapping[str, Any]) -> tuple[tuple[Change, ...], bool]:
    """The changes that can be read, and whether some could not."""
    read: list[Change] = []
    is_broken = False
    for name, items in delta.items():
        kind = _OTHER_NAMES.get(name, name)
        if kind not in KINDS:
            continue
        if not isinstance(items, list):
            is_broken = is_broken or items is not None
            continue
        changes = [_change(kind, item) for item in items[:_MOST_ENTRIES]]
        read += [change for change in changes if change is not None]
        is_broken = is_broken or None in changes
    return tuple(read), is_broken


def _change(kind: str, item: object) -> Change | None:
    if isinstance(item, str):
        item = {"text": item}
    if not isinstance(item, Mapping):
        return None
    # A list's own word for its text: {"decision": "..."}.
    text = _first(item, (*_TEXT_NAMES, kind.removesuffix("s"), "contribution"), _TEXT_CHARS)
    ident = _first(item, ("id", "key"), _SHORT_CHARS)
    if not text and not ident:
        return None
    status = _first(item, ("status",), _STATUS_CHARS).lower().replace(" ", "_")
    return Change(kind, ident, text, status, _first(item, _BY_NAMES, _SHORT_CHARS))


def _first(item: Mapping[str, Any], names: tuple[str, ...], limit_chars: int) -> str:
    """The first scalar under one of the names, on one line, without secrets."""
    for name in names:
        value = item.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            text = on_one_line(clean(str(value)))
            if text:
                return on_one_line(cut_to(text, limit_chars))
    return ""


def _without_torn(text: str) -> str:
    """`text` without a block at its end that was meant for the changes and is no JSON."""
    last = next(reversed(list(_FENCED.finditer(text))), None)
    if last is None or text[last.end() :].strip() or last["info"].lower() not in ("json", ""):
        return text.strip()
    if not last["body"].lstrip().startswith("{") or stored_as(object, last["body"]) is not None:
        return text.strip()
    return _unlabelled(text[: last.start()]).strip()


def _unlabelled(text: str) -> str:
    """`text` without a last line that only announces the changes."""
    text = text.rstrip()
    before, _, last = text.rpartition("\n")
    label = last.strip(" \t#*_:").lower().replace("_", " ").replace("-", " ")
    return before if label in _LABELS else text
