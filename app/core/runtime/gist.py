"""The structured summary of a span, taken by code: decisions, open loops, next actions, key findings.

Deterministic, no model is asked (A39, A43). Reads statements as the summary block does; knows nothing
of checkpoints, budgets or times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from app.core.recall.echo import without_echoes
from app.core.runtime.entry import Entry
from app.core.summary.carry.spoken import Spoken, spoken_of
from app.core.summary.carry.statements import (
    LEAST_SCORE,
    Statement,
    is_stale,
    order_of,
    stale_values,
    statements_of,
)
from app.core.summary.carry.vocabulary import CHANGE, DECISIONS, RULES
from app.core.summary.carry.work_log import work_of
from app.core.summary.sections import TITLES, Sections
from app.core.text.fence import sendable
from app.core.text.wording import cut_to, headline, on_one_line

# Lines of one list, newest last; a checkpoint is read by people and by models.
LINES_KEPT = 8
# Characters of a line that is not a statement (those have a bound of their own).
_LINE_CHARS = 240
# Characters of one message that are read.
_READ_CHARS = 24_000
# What the assistant means to do is read from so many of its newest texts: older plans are done or dropped.
_PLANNING = 2
# How the work log marks a failure that did not last.
_OVERCOME = "[a later call succeeded]"

_NEXT = re.compile(
    r"\b(?:next(?:,|:| step| up| i| we)|to-?do\b|then (?:i|we)(?:'ll| will| should)|remaining\b|"
    r"still (?:need|have|has|must)|(?:needs?|have|has) to be|follow[- ]up|left to do|i(?:'ll| will)\b|"
    r"we (?:should|need to|must|will)\b)",
    re.IGNORECASE,
)
_FOUND = re.compile(
    r"\b(?:found (?:that|out)|turns? out|turned out|the (?:issue|problem|cause|bug|root cause) (?:is|was)|"
    r"because|caused by|discovered|noticed that|it seems|confirmed that|the reason)\b",
    re.IGNORECASE,
)


class Gist(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a span came to, a line an item, oldest first. Free of secrets, sendable as UTF-8."""

    decisions: tuple[str, ...] = ()
    open_loops: tuple[str, ...] = ()
    next_actions: tuple[str, ...] = ()
    key_findings: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to tell."""
        return not (self.decisions or self.open_loops or self.next_actions or self.key_findings)


def gist_of(entries: Sequence[Entry], lines_kept: int = LINES_KEPT) -> Gist:
    """The gist of `entries`, oldest first, at most `lines_kept` (>= 1) lines a list.

    A statement that a later one has overtaken is left out. A statement stands in one list only: a
    decision before a finding, a finding before a next action.
    """
    heard = [without_echoes(entry.message) for entry in entries]
    spoken = [spoken_of(place, e.chain, m) for place, (e, m) in enumerate(zip(entries, heard, strict=True))]
    # What a tool's result says is nobody's decision or finding.
    talking = [m for m in spoken if m.role in ("user", "assistant")]
    said = [s for m in talking for s in statements_of(cut_to(m.text, _READ_CHARS), m.role, m.order)]
    stale = stale_values(said)
    valid = [s for s in said if not is_stale(s, stale)]
    decisions = [s for s in valid if _decides(s)]
    others = [s for s in valid if not _decides(s)]
    pending = _pending(spoken)
    talk = [m.order for m in spoken if m.role == "assistant" and m.text.strip()]
    recent = order_of(talk[-_PLANNING:][0], 0) if talk else 0
    planned = [s for s in others if s.role == "assistant" and s.order >= recent and _plans(s)]
    findings = [s for s in others if _is_finding(s) and s not in planned]
    return Gist(
        decisions=_lines(_best(decisions, lines_kept), lines_kept),
        open_loops=_lines([*_failures(spoken), *_questions(spoken), *pending], lines_kept),
        next_actions=_lines(
            [*(s.text for s in planned), *(f"Answer: {each}" for each in pending)], lines_kept
        ),
        key_findings=_lines(_best(findings, lines_kept), lines_kept),
    )


def _decides(statement: Statement) -> bool:
    return statement.score >= LEAST_SCORE and bool(statement.low & (DECISIONS | RULES | CHANGE))


def _plans(statement: Statement) -> bool:
    return bool(_NEXT.search(statement.text)) and not statement.text.rstrip().endswith("?")


def _is_finding(statement: Statement) -> bool:
    if statement.text.rstrip().endswith("?"):
        return False
    found = statement.role != "user" and bool(_FOUND.search(statement.text))
    return found or statement.score >= LEAST_SCORE


def _best(statements: Sequence[Statement], most: int) -> list[str]:
    """At most `most`, in the order they were said: half of them the newest, the others the best.

    A marked discovery goes before others of its score.
    """
    newest = max(1, most // 2)
    earlier = sorted(statements[:-newest], key=lambda s: (-s.score - bool(_FOUND.search(s.text)), -s.order))
    kept = [*earlier[: most - newest], *statements[-newest:]]
    return [s.text for s in sorted(kept, key=lambda s: s.order)]


def _failures(spoken: Sequence[Spoken]) -> list[str]:
    """Calls that failed and were not seen to succeed later."""
    errors = work_of(Sections(tuple("" for _ in TITLES)), spoken).errors
    return [line.removeprefix("- ") for line in errors if not line.endswith(_OVERCOME)]


def _questions(spoken: Sequence[Spoken]) -> list[str]:
    """What the assistant asked last, when nobody has answered it."""
    last = next((m for m in reversed(spoken) if m.role in ("user", "assistant") and m.text.strip()), None)
    if last is None or last.role != "assistant":
        return []
    asked = [s.text for s in statements_of(last.text, last.role, last.order) if s.text.endswith("?")]
    return asked[-1:]


def _pending(spoken: Sequence[Spoken]) -> list[str]:
    """The newest request of the user's, when no answer without calls follows it."""
    for message in reversed(spoken):
        if message.role == "assistant" and not message.calls and message.text.strip():
            return []
        if message.role == "user" and message.text.strip():
            return [headline(message.text, _LINE_CHARS)]
    return []


def _lines(texts: Iterable[str], most: int) -> tuple[str, ...]:
    """The newest `most`, each once, on one line and short."""
    lines = dict.fromkeys(cut_to(on_one_line(sendable(text)), _LINE_CHARS * 2) for text in texts)
    return tuple(line for line in lines if line)[-most:]
