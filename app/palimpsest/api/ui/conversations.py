"""What the pages of a conversation and of a compaction show: their messages, cut to size, and the seams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from palimpsest.api.compactions import stored_fields
from palimpsest.api.ui.turns import About, Cut, TextRow, text_row
from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.utc import moment
from palimpsest.core.view.compaction import context_id
from palimpsest.core.view.view import applies, cut_in, folded_in
from palimpsest.proxy.archive import Folding
from palimpsest.proxy.compaction_context import in_force
from palimpsest.storage.history import MessageRow
from palimpsest.storage.journal import StoredCompaction

# Messages on one page, the characters of all of them, so that it stays below 300 kB, and of one.
MOST_ROWS = 50
_ALL_CHARS, _MOST_CHARS = 60_000, 100_000
# Messages shown before one that was asked for.
_BEFORE = 5


@dataclass(frozen=True, slots=True)
class Asked:
    """The messages to show: `limit` from `start` on, a place or an id; None: the newest.

    `raw`: as they are stored.
    """

    start: int | str | None
    limit: int = MOST_ROWS
    raw: bool = False

    def shown(self, total: int, ids: Sequence[str] = ()) -> range:
        """The places that are shown, of `total`; `ids` are those of the last ones."""
        start = self.start
        if isinstance(start, str):
            place = ids.index(start) + total - len(ids) if start in ids else total
            start = max(0, place - _BEFORE)
        begin = max(0, total - self.limit) if start is None else min(start, total)
        return range(begin, min(total, begin + self.limit))

    @property
    def cut(self) -> Cut:
        """How much of one message is shown: a message alone is shown whole."""
        return Cut(_MOST_CHARS if self.limit == 1 else _ALL_CHARS // self.limit, self.raw)


@dataclass(frozen=True, slots=True)
class TalkRow:
    """A message at `place` of the transcript, and the `turn` that it was the newest message of.

    `number`: its number in the conversation, from 1; None for instructions and for what the client dropped.
    `seams` are the compactions that fold up to here and no further.
    """

    place: int
    number: int | None
    message: TextRow
    at: datetime | None = None
    turn: int | None = None
    seams: Sequence[Mapping[str, Any]] = ()


def talk_facts(
    instructions: Sequence[Message],
    told: Sequence[MessageRow],
    talk: Conversation,
    made: Sequence[StoredCompaction],
    turns: Mapping[bytes, int],
    asked: Asked,
) -> dict[str, Any]:
    """The page of a conversation. `turns`: the turn's number by the message that was its newest."""
    total = len(instructions) + len(told)
    shown = asked.shown(total, [context_id(one.chain) for one in told])
    folded, seams = {talk.names[at] for at in folded_in(in_force(made, talk), talk)}, _seams(talk, made)
    numbers = {name: number for number, name in enumerate(talk.names, 1)}
    rows = []
    for place in shown:
        if place < len(instructions):
            said = instructions[place]
            about = About("", said.tokens, "instructions", "instruction")
            rows.append(TalkRow(place, None, text_row(said.raw, about, asked.cut)))
            continue
        stored = told[place - len(instructions)]
        about = About(context_id(stored.chain), stored.tokens, *_state(stored, folded))
        rows.append(
            TalkRow(
                place,
                numbers.get(stored.chain),
                text_row(stored.body, about, asked.cut),
                moment(stored.created_at),
                turns.get(stored.chain),
                seams.get(stored.chain, ()),
            )
        )
    return {
        "rows": rows,
        "total": total,
        "begin": shown.start,
        "end": shown.stop,
        "limit": asked.limit,
        "raw": asked.raw,
    }


def _seams(
    talk: Conversation, made: Sequence[StoredCompaction]
) -> Mapping[bytes, Sequence[Mapping[str, Any]]]:
    """The compactions by the last message that they fold."""
    seams: dict[bytes, list[Mapping[str, Any]]] = {}
    for one in made:
        if one.compaction.watermark and applies(one.compaction, talk):
            name = talk.names[cut_in(one.compaction, talk) - 1]
            seams.setdefault(name, []).append(stored_fields(one))
    return seams


def _state(stored: MessageRow, folded: set[bytes]) -> tuple[str, str]:
    """What became of a message, in words and as a kind; "" for one that is sent as it is."""
    if not stored.in_path:
        return "dropped by the client", "gone"
    if stored.state != "live":
        return stored.state, "gone"
    return ("folded now", "folded") if stored.chain in folded else ("", "whole")


def folding_facts(found: Folding, start: int | None) -> dict[str, Any]:
    """The page of a compaction.

    `lines`: the number of each line of its summary, the line, and the numbers of messages that it comes from,
    each with the page that shows it. `rows`: the number of each folded message in the conversation, the
    message, and the lines written from it.
    """
    places = {place: at for at, place in enumerate(found.folded)}
    begin = next((at for at, place in enumerate(found.folded) if place >= found.since), 0)
    asked = Asked(begin if start is None else start, MOST_ROWS)
    shown = asked.shown(len(found.folded))
    lines = [
        (number, line, [(place + 1, _page_of(places[place], shown)) for place in line.sources])
        for number, line in enumerate(found.lines, 1)
    ]
    of: dict[int, list[int]] = {}
    for number, line, _ in lines:
        for place in line.sources:
            of.setdefault(place, []).append(number)
    return {
        "lines": lines,
        "rows": [_folded(found.talk, found.folded[at], of) for at in shown] if found.talk else [],
        "begin": shown.start,
        "end": shown.stop,
        "before": max(0, shown.start - MOST_ROWS),
    }


def _page_of(at: int, shown: range) -> int:
    """Where the page begins that shows the folded message `at`: the present one, if it does."""
    return shown.start if at in shown else at - at % MOST_ROWS


def _folded(talk: Conversation, place: int, lines: Mapping[int, Sequence[int]]) -> tuple[Any, ...]:
    message = talk.messages[place]
    about = About(context_id(talk.names[place]), message.tokens, kind="folded")
    row = text_row(message.raw, about, Cut(_ALL_CHARS // MOST_ROWS))
    return place + 1, row, lines.get(place, ())
