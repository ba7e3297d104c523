"""What became of each message of a conversation in the view of one turn, and what the view is made of. Pure.

For people who ask what the model saw: every message of the client has exactly one fate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.notes.note import Kind
from palimpsest.core.notes.reader import notes_of
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.masking import text_of
from palimpsest.core.view.outcomes import PartKind, View, ViewPart
from palimpsest.core.view.view import cut_in
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.responses.items import as_chat

# whole: sent as it is. masked: sent shortened. kept: sent word for word though messages around it are folded.
# again: folded, and told once more behind the summary. folded: not sent, a summary stands for it.
Fate = Literal["whole", "masked", "kept", "again", "folded"]
Category = Literal[
    "instructions",
    "tools",
    "rules",
    "task",
    "kept",
    "summary",
    "memory",
    "lookups",
    "pictures",
    "tail",
    "framing",
]
_CATEGORIES: Mapping[PartKind, Category] = {
    "preamble": "instructions",
    "instruction": "rules",
    "task": "task",
    "pin": "kept",
    "summary": "summary",
    "memory": "memory",
    "acknowledgement": "framing",
    "tail": "tail",
}
# What a reader of a view would miss first.
_MISSED: tuple[Kind, ...] = ("rule", "change", "command", "failure", "fact")
_NUMBER = re.compile(r"\d[\d.,:/-]*\d|\d")
_PICTURES = ("image_url", "input_image", "image")


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message at `index` of the conversation. `tokens`: as sent, 0 for one that is not.

    `summary`: the id of the compaction that folded it, None while it was never folded.
    """

    index: int
    fate: Fate
    tokens: int
    reason: str
    summary: str | None = None


def fates_of(talk: Conversation, view: View, lineage: Sequence[Compaction]) -> list[SeenMessage]:
    """What became of each message; `lineage` is the compaction in force and its ancestors, oldest first."""
    places = {part.index: place for place, part in enumerate(view.parts) if part.index is not None}
    block = next((place for place, part in enumerate(view.parts) if part.kind == "summary"), len(view.parts))
    cuts = [(cut_in(made, talk), made.id) for made in lineage]
    seen = []
    for index in range(len(talk.messages)):
        summary = next((made for cut, made in cuts if index < cut), None)
        place = places.get(index)
        if place is None:
            seen.append(SeenMessage(index, "folded", 0, "a summary stands for it", summary))
            continue
        part = view.parts[place]
        fate: Fate = "again" if place > block else "kept"
        if part.masked or summary is None:
            fate = "masked" if part.masked else "whole"
        seen.append(SeenMessage(index, fate, part.tokens, part.reason, summary))
    return seen


def lineage_of(force: Compaction | None, every: Iterable[Compaction]) -> list[Compaction]:
    """The compaction and its ancestors, oldest first; `every` are the session's."""
    known = {made.id: made for made in every}
    found: list[Compaction] = []
    while force is not None and force not in found:
        found.append(force)
        force = known.get(force.parents[0]) if force.parents else None
    return found[::-1]


def shares_of(
    parts: Sequence[ViewPart], fixed_tokens: int, count: Callable[[Mapping[str, Any]], int]
) -> dict[Category, int]:
    """Tokens of the prompt by what they are for.

    `fixed_tokens` are tools and framing; `count` counts a message.
    """
    shares: dict[Category, int] = {"tools": fixed_tokens}
    for part in parts:
        pictures = picture_tokens(part.raw, part.tokens, count)
        shares["pictures"] = shares.get("pictures", 0) + pictures
        category = _CATEGORIES[part.kind]
        shares[category] = shares.get(category, 0) + part.tokens - pictures
    return {category: tokens for category, tokens in shares.items() if tokens > 0}


def picture_tokens(raw: bytes, tokens: int, count: Callable[[Mapping[str, Any]], int]) -> int:
    """How many of a message's tokens its pictures take."""
    if b"image" not in raw:
        return 0
    fields = as_chat(decoded(raw))
    content = fields.get("content")
    if not isinstance(content, list):
        return 0
    others = [part for part in content if not (isinstance(part, dict) and part.get("type") in _PICTURES)]
    if len(others) == len(content):
        return 0
    return max(0, tokens - count({**fields, "content": others}))


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between two lists of messages: of each, those between the common beginning and end."""

    same_before: int
    gone: Sequence[bytes]
    new: Sequence[bytes]
    same_after: int


def difference(before: Sequence[bytes], after: Sequence[bytes]) -> Difference:
    """How `after` differs from `before`; the upstream's cache can serve the common beginning."""
    most = min(len(before), len(after))
    start = next((at for at in range(most) if before[at] != after[at]), most)
    room = most - start
    end = next((at for at in range(room) if before[-1 - at] != after[-1 - at]), room)
    return Difference(start, before[start : len(before) - end], after[start : len(after) - end], end)


@dataclass(frozen=True, slots=True)
class Lost:
    """Something that folded messages say and the view does not; `index` is the message that said it."""

    kind: Kind
    text: str
    index: int


def lost_in(talk: Conversation, seen: Sequence[SeenMessage], parts: Sequence[ViewPart]) -> list[Lost]:
    """Rules, files, commands, failures and numbers of the folded messages that no part of the view names.

    A note counts as shown when its subject, or else each of its numbers, or else its text, is in the view.
    """
    folded = [one.index for one in seen if one.fate == "folded"]
    notes = notes_of([talk.messages[index] for index in folded]).of(*_MISSED) if folded else ()
    fields = [as_chat(decoded(part.raw)) for part in parts]
    texts = (f"{text_of(each)} {each.get('tool_calls') or ''}" for each in fields)
    shown = " ".join(" ".join(texts).split()).casefold()
    lost: list[Lost] = []
    for note in notes:
        if note.subject and note.kind != "fact":
            is_shown = note.subject.casefold() in shown
        elif note.kind == "fact" and (numbers := _NUMBER.findall(note.text)):
            is_shown = all(number in shown for number in numbers)
        else:
            is_shown = " ".join(note.text.split()).casefold().rstrip(".") in shown
        if not is_shown:
            lost.append(Lost(note.kind, note.text, folded[note.place]))
    return lost


def said_messages(talk: Conversation, said: int | None) -> tuple[Sequence[Message], int]:
    """The messages that the client's request contained, and the index of the first of the conversation's."""
    start = len(talk.messages) - min(len(talk.messages), said if said is not None else len(talk.messages))
    return talk.messages[start:], start
