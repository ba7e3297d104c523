"""The flush before a compaction (A43): a short durable note of what stands, made by code.

No model is asked, so it costs no time where there is none. Times and sizes come in; knows nothing
of where the note is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from app.core.runtime.entry import Entry
from app.core.runtime.gist import Gist, gist_of
from app.core.summary.source import CountText
from app.core.text.wording import headline

TITLES = ("Decisions", "Open loops", "Next actions", "Key findings")
_NOTHING = "None."
# Lines of one section that are tried, newest first, and characters of a line.
_LINES = 6
_LINE_CHARS = 200


@dataclass(frozen=True, slots=True)
class FlushLimits:
    """When a flush is made and how large it may be."""

    # Tokens left before the window is full; a flush is made below it.
    slack_tokens: int = 1_200
    # Messages that are neither pinned nor a summary.
    least_messages: int = 4
    # Between two flushes of one branch.
    cooldown_seconds: float = 120.0
    # What must have come since the last flush.
    growth_tokens: int = 250
    # The whole note, headings included.
    output_tokens: int = 220


@dataclass(frozen=True, slots=True)
class LastFlush:
    """The flush before this one: UTC seconds, and the tokens of the path then."""

    at: float
    path_tokens: int


@dataclass(frozen=True, slots=True)
class Pressure:
    """The moment of asking: UTC seconds, tokens left in the window, and tokens of the whole path.

    `path_tokens` counts the messages as stored, not as shown, so that it does not fall when the view
    is compacted. `slack_tokens` may be negative.
    """

    at: float
    slack_tokens: int
    path_tokens: int


def flushable(entries: Sequence[Entry], ignored: frozenset[bytes]) -> list[Entry]:
    """The entries a flush reads: no instructions, and none of `ignored`, chains of pins and blocks."""
    return [e for e in entries if e.chain not in ignored and not e.message.is_instruction]


def flush_due(messages: int, pressure: Pressure, last: LastFlush | None, limits: FlushLimits) -> bool:
    """True when a flush is to be made; `messages` are the flushable ones.

    All must hold: slack below the limit, enough messages, the cooldown over, enough growth. The
    cooldown is over at exactly its length; growth suffices at exactly its size.
    """
    if pressure.slack_tokens >= limits.slack_tokens or messages < limits.least_messages:
        return False
    if last is None:
        return True
    rested = pressure.at - last.at >= limits.cooldown_seconds
    return rested and pressure.path_tokens - last.path_tokens >= limits.growth_tokens


def flush_of(entries: Sequence[Entry], limits: FlushLimits, count_text: CountText) -> str:
    """The note of flushable `entries`, at most `limits.output_tokens` tokens; "" when nothing fits.

    Four sections, each with its newest lines as room allows, in turn, so that no section takes the
    room of another. `entries` need not reach back beyond the last flush. The same entries give the same
    note; no key-shaped string is in it.
    """
    gist = gist_of(entries, _LINES)
    columns = _columns(gist)
    kept: tuple[list[str], ...] = ([], [], [], [])
    for row in zip_longest(*(reversed(column) for column in columns)):
        for section, line in zip(kept, row, strict=True):
            if line is not None:
                section.insert(0, headline(line, _LINE_CHARS))
                if count_text(_rendered(kept)) > limits.output_tokens:
                    section.pop(0)
    return _rendered(kept) if any(kept) else ""


def _columns(gist: Gist) -> tuple[tuple[str, ...], ...]:
    return gist.decisions, gist.open_loops, gist.next_actions, gist.key_findings


def _rendered(sections: Sequence[Sequence[str]]) -> str:
    blocks = (
        "\n".join([f"## {title}", *(f"- {line}" for line in lines)] if lines else [f"## {title}", _NOTHING])
        for title, lines in zip(TITLES, sections, strict=True)
    )
    return "\n".join(blocks)
