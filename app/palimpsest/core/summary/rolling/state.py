"""A session's structured state, the changes that a model reports, and their merge (B09, B10).

Unreadable changes are left out, and the summary is kept. Merging the same changes twice is the same as once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgspec

from palimpsest.core.summary.source import stored_as
from palimpsest.core.text.message_text import cut_to, on_one_line
from palimpsest.core.text.secrets import clean

# Statuses of entries that need no more attention; any other word means an open one.
CLOSED = frozenset(
    {
        *("closed", "done", "completed", "complete", "resolved", "answered", "cancelled", "canceled"),
        *("superseded", "obsolete", "dropped", "rejected", "removed", "deleted", "mitigated", "merged"),
        "fixed",
    }
)
OPEN = "open"
_VALUE = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class StateEntry:
    """One entry of a list. `id` is unique in it, `text` one line, `status` a word, `by` an agent or ""."""

    id: str
    text: str
    status: str = OPEN
    by: str = ""

    @property
    def is_closed(self) -> bool:
        """True when nothing remains to be done about it."""
        return self.status in CLOSED


@dataclass(frozen=True, slots=True)
class StateCaps:
    """How many entries each list may hold (B10)."""

    decisions: int = 8
    constraints: int = 6
    tasks: int = 10
    questions: int = 5
    risks: int = 5
    artifacts: int = 10
    agent_contributions: int = 6


@dataclass(frozen=True, slots=True)
class SessionState:
    """The lists, each with its last changed entry at the end. `issued` counts the ids given by code."""

    decisions: tuple[StateEntry, ...] = ()
    constraints: tuple[StateEntry, ...] = ()
    tasks: tuple[StateEntry, ...] = ()
    questions: tuple[StateEntry, ...] = ()
    risks: tuple[StateEntry, ...] = ()
    artifacts: tuple[StateEntry, ...] = ()
    agent_contributions: tuple[StateEntry, ...] = ()
    issued: int = 0

    def entries(self, kind: str) -> tuple[StateEntry, ...]:
        """The list of that name, one of `KINDS`."""
        found: tuple[StateEntry, ...] = getattr(self, kind)
        return found

    def lists(self) -> Iterator[tuple[str, tuple[StateEntry, ...]]]:
        """(name, entries) of every list, in order."""
        return ((kind, self.entries(kind)) for kind in KINDS)

    @property
    def is_empty(self) -> bool:
        """True when all lists are empty."""
        return not any(entries for _, entries in self.lists())


KINDS = tuple(field.name for field in fields(StateCaps))


def state_lines(state: SessionState) -> list[str]:
    """One line per entry, lists in order: kind, status unless it is open, text, agent."""
    return [
        f"- {_singular(kind)}{'' if entry.status == OPEN else f' [{entry.status}]'}: {entry.text}"
        + (f" ({entry.by})" if entry.by else "")
        for kind, entries in state.lists()
        for entry in entries
    ]


def newest_entries(state: SessionState, share: float) -> SessionState:
    """`state` with a share (0 to 1, rounded down) of each list: open entries first, then the newest."""
    lists = {}
    for kind, entries in state.lists():
        ranked = sorted(range(len(entries)), key=lambda place: (entries[place].is_closed, -place))
        kept = set(ranked[: int(len(entries) * share)])
        lists[kind] = tuple(entry for place, entry in enumerate(entries) if place in kept)
    return SessionState(**lists, issued=state.issued)


def _singular(kind: str) -> str:
    return kind.removesuffix("s").replace("_", " ")


_FENCED = re.compile(
    r"^[ \t]*```[ \t]*(?P<info>[\w-]*)[^\n]*\n(?P<body>.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.M | re.S
)
# Labels that models write above the changes, without decoration.
_LABELS = frozenset({"state delta", "workstream state delta", "workstream state", "state"})
_BARE_OBJECT = re.compile(r"^\{", re.MULTILINE)
# Limit on the objects without a fence that are tried, from the first.
_BARE_TRIED = 20
# Keys under which models nest the lists.
_WRAPPERS = ("state_delta", "stateDelta", "delta", "state")
_OTHER_NAMES = {"agentContributions": "agent_contributions", "contributions": "agent_contributions"}
_TEXT_NAMES = ("text", "title", "description", "summary", "content", "name", "value", "path", "url")
_BY_NAMES = ("by", "agent", "owner", "author")
# Characters of an entry's text and of its short parts.
_TEXT_CHARS = 400
_SHORT_CHARS = 64
_STATUS_CHARS = 24
# Limit on the entries read of one list, far above any cap.
_MOST_ENTRIES = 200


@dataclass(frozen=True, slots=True)
class RollingReply:
    """A reply in its parts; `is_broken` when changes are missing or partly unreadable."""

    summary: str
    changes: tuple[Change, ...] = ()
    is_broken: bool = False


def reply_of(text: str) -> RollingReply:
    """The parts of a reply; a text without changes is all summary."""
    for start, end, body in _candidates(text):
        delta = _lists(body)
        if delta is not None:
            summary = f"{_unlabelled(text[:start])}\n{text[end:]}".strip()
            changes, is_broken = _changes(delta)
            return RollingReply(summary, changes, is_broken)
    return RollingReply(_without_torn(text), is_broken=True)


def delta_text(changes: Sequence[Change]) -> str:
    """The changes as a fenced JSON block, which `reply_of` parses."""
    lists: dict[str, list[dict[str, str]]] = {}
    for change in changes:
        entry = {"id": change.id, "text": change.text, "status": change.status, "by": change.by}
        lists.setdefault(change.kind, []).append({name: value for name, value in entry.items() if value})
    return f"```json\n{msgspec.json.encode(lists).decode()}\n```"


def _candidates(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, content) of what may be the changes, the likeliest first."""
    for match in reversed(list(_FENCED.finditer(text))):
        yield match.start(), match.end(), match["body"]
    for match in list(_BARE_OBJECT.finditer(text))[:_BARE_TRIED]:
        yield match.start(), len(text), text[match.start() :]


def _lists(body: str) -> Mapping[str, Any] | None:
    """The object with the lists; None for other content."""
    found = stored_as(_VALUE, body)
    if not isinstance(found, Mapping):
        return None
    inner = next((found[name] for name in _WRAPPERS if isinstance(found.get(name), Mapping)), found)
    named = {_OTHER_NAMES.get(name, name) for name in inner}
    return inner if not inner or named & set(KINDS) else None


def _changes(delta: Mapping[str, Any]) -> tuple[tuple[Change, ...], bool]:
    """The readable changes, and whether some are unreadable."""
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
    # Some models name the text after the list: {"decision": "..."}.
    text = _first(item, (*_TEXT_NAMES, kind.removesuffix("s"), "contribution"), _TEXT_CHARS)
    ident = _first(item, ("id", "key"), _SHORT_CHARS)
    if not text and not ident:
        return None
    status = _first(item, ("status",), _STATUS_CHARS).lower().replace(" ", "_")
    return Change(kind, ident, text, status, _first(item, _BY_NAMES, _SHORT_CHARS))


def _first(item: Mapping[str, Any], names: tuple[str, ...], limit_chars: int) -> str:
    """The first scalar under one of the names, on one line, without secrets; "" for none."""
    for name in names:
        value = item.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            text = on_one_line(clean(str(value)))
            if text:
                return on_one_line(cut_to(text, limit_chars))
    return ""


def _without_torn(text: str) -> str:
    """`text` without a last block that was meant for the changes and is no valid JSON."""
    last = next(reversed(list(_FENCED.finditer(text))), None)
    if last is None or text[last.end() :].strip() or last["info"].lower() not in ("json", ""):
        return text.strip()
    if not last["body"].lstrip().startswith("{") or stored_as(_VALUE, last["body"]) is not None:
        return text.strip()
    return _unlabelled(text[: last.start()]).strip()


def _unlabelled(text: str) -> str:
    """`text` without a last line that is a label of the changes."""
    text = text.rstrip()
    before, _, last = text.rpartition("\n")
    label = last.strip(" \t#*_:").lower().replace("_", " ").replace("-", " ")
    return before if label in _LABELS else text


@dataclass(frozen=True, slots=True)
class Change:
    """One reported entry of the list `kind`; "" in each field that the report lacks."""

    kind: str
    id: str = ""
    text: str = ""
    status: str = ""
    by: str = ""


def merged(state: SessionState, changes: Sequence[Change], caps: StateCaps) -> SessionState:
    """`state` with `changes` applied in order and every list within its cap.

    A change with the id or the text of an entry updates that entry, which keeps its id and becomes the
    newest. Over a cap closed entries go first, then those not changed for longest. A change without text
    and without a known id is ignored.
    """
    lists = {kind: list(entries) for kind, entries in state.lists()}
    issued = state.issued
    for change in changes:
        issued = _applied(lists[change.kind], change, issued)
    capped = {kind: _capped(lists[kind], getattr(caps, kind)) for kind in KINDS}
    return SessionState(**capped, issued=issued)


def _applied(entries: list[StateEntry], change: Change, issued: int) -> int:
    """Applies the change to the list in place; returns the new count of issued ids."""
    named = next((entry for entry in entries if change.id and entry.id == change.id), None)
    alike = next((entry for entry in entries if change.text and _same(entry.text, change.text)), None)
    known = named or alike
    if known is None and not change.text:
        return issued
    if known is None:
        issued, ident = (issued, change.id) if change.id else _new_id(entries, change.kind, issued)
        known = StateEntry(ident, change.text)
    entries[:] = [entry for entry in entries if entry not in (named, alike)]
    entries.append(
        StateEntry(
            id=known.id,
            text=change.text or known.text,
            status=change.status or known.status or OPEN,
            by=change.by or known.by,
        )
    )
    return issued


def _new_id(entries: Sequence[StateEntry], kind: str, issued: int) -> tuple[int, str]:
    """The new count of issued ids, and an id that is and was used by no entry of the list."""
    taken = {entry.id for entry in entries}
    while True:
        issued += 1
        ident = f"{kind[0]}{issued}"
        if ident not in taken:
            return issued, ident


def _same(one: str, other: str) -> bool:
    return _bare(one) == _bare(other)


def _bare(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .;:!,\"'`*")


def _capped(entries: Sequence[StateEntry], cap: int) -> tuple[StateEntry, ...]:
    over = max(0, len(entries) - max(0, cap))
    # The sort is stable: closed and open entries stay in order of age.
    going = sorted(range(len(entries)), key=lambda place: not entries[place].is_closed)[:over]
    return tuple(entry for place, entry in enumerate(entries) if place not in going)
