"""The three sections made by code alone: for when no model can be asked, and for what one left out.

What an earlier summary said is kept as prose; user wording, statements, work and identifiers are read
out of the messages and stand behind marks of their own, so that the next round can renew them.
Knows nothing of fences or of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.core.summary.carry.identifiers import Sighting, ranked
from app.core.summary.carry.material import FACT, REPORT, Material, material_of
from app.core.summary.carry.statements import LEAST_SCORE
from app.core.summary.carry.user_wording import ENTRY, user_section
from app.core.summary.rolling.digest import Digest, clipped, fitted, lines_within
from app.core.summary.rolling.extraction import ToolAllowList, readable
from app.core.summary.sections import TITLES, Sections, rendered
from app.core.summary.source import CountText, SummaryBudget, SummarySource
from app.core.text.wording import headline, on_one_line

NEWEST = "Newest request "
_MORE = "("
_MORE_END = "kept in the archive)"
_RAN = "Ran: "
_FAILED = "Failed: "
_SAID = "Last said: "
_NAMES = "Identifiers: "
_MARKS = (FACT, REPORT, ENTRY, _RAN, _FAILED, _SAID, _NAMES, NEWEST)
# What an earlier summary said may take this share; then shares of what is left at each step.
_KEPT_SHARE = 0.5
_WORDING_SHARE = 0.35
_FACT_SHARE = 0.55
_WORK_SHARE = 0.6
# Identifiers are sure of one part in so many.
_NAMES_PART = 6
# Characters of the assistant's last words.
_SAID_CHARS = 280
# The newest request whole costs at most this much; else head and tail, or its first line (characters).
_REQUEST_CHARS = 200
# So many identifiers that do not fit, and the rest is not tried.
_PATIENCE = 40


@dataclass(frozen=True, slots=True)
class Reading:
    """What code read: the earlier summary, its own words alone, and what the messages say.

    `has_news` is true when there are messages that no summary has seen.
    """

    earlier: Digest
    prose: Digest
    material: Material
    has_news: bool


def reading_of(source: SummarySource, kept: Digest, tools: ToolAllowList) -> Reading:
    """Everything there is to write from: the earlier summary and the messages, results by list only (B14)."""
    kept = _without_newest(kept)
    marked = [line for body in kept.bodies for line in body.split("\n")]
    earlier = Sections(
        bodies=tuple(_earlier(number, marked) for number in range(len(TITLES))),
        added="\n".join("- " + line.removeprefix(_NAMES) for line in marked if line.startswith(_NAMES)),
    )
    material = material_of(replace(readable(source, tools), previous=rendered(earlier)))
    return Reading(kept, Digest(*(_prose(body) for body in kept.bodies)), material, bool(source.fresh))


def newest_of(source: SummarySource) -> SummarySource:
    """The newest folded user message and what follows it, the tail too: all that `newest_line` looks at.

    A long history takes a second to read; where a model told the rest it need not be.
    """
    users = (at for at in reversed(range(len(source.folded))) if source.folded[at][1].role == "user")
    first = next(users, len(source.folded))
    return replace(source, folded=source.folded[first:], since=max(0, source.since - first))


def digest_to_keep(
    reading: Reading, tokens: int, most_tokens: int, budget: SummaryBudget, count_text: CountText
) -> Digest:
    """What stands for the whole past when nobody could be asked; the earlier summary if nothing is new.

    It has at most `tokens`, or up to `most_tokens` when the earlier summary's own words need them: a view
    too small for them for a while must not cost them.
    """
    if not reading.has_news and not reading.earlier.is_empty:
        return reading.earlier
    needed = int(sum(count_text(body) for body in reading.prose.bodies) / _KEPT_SHARE) + _headings(count_text)
    return digest_by_code(reading, max(tokens, min(most_tokens, needed)), budget, count_text)


def digest_by_code(reading: Reading, tokens: int, budget: SummaryBudget, count_text: CountText) -> Digest:
    """Three sections of at most `tokens`, the newest request apart (`newest_line`).

    `budget` bounds the wording and what identifiers are sure of within them.
    """
    material = reading.material
    prose = fitted(reading.prose, int(tokens * _KEPT_SHARE), count_text)
    reserve = min(budget.identifier_tokens, tokens // _NAMES_PART)
    spent = sum(count_text(body) for body in prose.bodies) + _headings(count_text) + reserve
    purse = _Purse(tokens - spent, count_text)
    said = [(chain, on_one_line(text)) for chain, text in material.users]
    wording = user_section(said, purse.limit(_WORDING_SHARE, budget.user_tokens), count_text)
    purse.pay(wording)
    facts = purse.lines(_fact_lines(material, wording), purse.limit(_FACT_SHARE))
    work = [_RAN + line.removeprefix("- ") for line in material.work.done]
    work += [_FAILED + line.removeprefix("- ") for line in material.work.errors]
    done = lines_within(work, purse.limit(_WORK_SHARE), count_text, 0.0)
    purse.pay("\n".join(done))
    before = (line for line in reading.earlier.flow.split("\n") if line.startswith(_SAID))
    last = _SAID + headline(material.state, _SAID_CHARS) if material.state else next(before, "")
    closing = purse.lines([last] if last else [], purse.limit(1.0))
    shown = "\n".join((*prose.bodies, wording, *facts, *done))
    # What all the others left is theirs too.
    names = _name_line(material, shown, purse.limit(1.0) + reserve, count_text)
    return fitted(
        Digest(
            facts=_joined(prose.facts, *facts, names),
            flow=_joined(prose.flow, wording, *done, *closing),
            threads=prose.threads,
        ),
        tokens,
        count_text,
    )


def newest_line(material: Material, shown: str, tokens: int, count_text: CountText) -> str:
    """The newest request and whether it is answered, at most `tokens`; "" when it was not folded (F18)."""
    if not material.request:
        return ""
    text = on_one_line(material.request)
    if text in shown:
        text = headline(text, _REQUEST_CHARS)
    return clipped(f"{NEWEST}[{'done' if material.answered else 'pending'}]: {text}", tokens, count_text)


@dataclass(slots=True)
class _Purse:
    """Tokens left to spend."""

    left: int
    count_text: CountText

    def limit(self, share: float, most: int | None = None) -> int:
        """That share of what is left, never below 0, at most `most`."""
        room = int(max(0, self.left) * share)
        return room if most is None else min(room, most)

    def pay(self, text: str) -> None:
        if text:
            self.left -= self.count_text(text) + 1

    def lines(self, lines: Sequence[str], limit: int) -> list[str]:
        """The lines that fit, tried in their order, the best first."""
        kept: list[str] = []
        for line in lines:
            cost = self.count_text(line) + 1
            if cost <= min(limit, self.left):
                limit -= cost
                self.left -= cost
                kept.append(line)
        return kept


def _earlier(number: int, marked: Sequence[str]) -> str:
    """The section of that number as `material_of` reads back what code carried: reports, work, errors."""
    marks = {2: (_RAN, "- "), 3: (_FAILED, "- "), 4: (REPORT, REPORT)}
    if number not in marks:
        return ""
    mark, written = marks[number]
    return "\n".join(written + line.removeprefix(mark) for line in marked if line.startswith(mark))


def _prose(body: str) -> str:
    lines = (line for line in body.split("\n") if not line.startswith(_MARKS))
    return "\n".join(line for line in lines if not (line.startswith(_MORE) and line.endswith(_MORE_END)))


def _without_newest(digest: Digest) -> Digest:
    # It was the newest of its time.
    lines = digest.threads.split("\n")
    return replace(digest, threads="\n".join(line for line in lines if not line.startswith(NEWEST)))


def _headings(count_text: CountText) -> int:
    return count_text("## KEY FACTS\n## CONVERSATION FLOW\n## OPEN THREADS\n") + 3


def _fact_lines(material: Material, wording: str) -> list[str]:
    """Statements worth carrying that the wording does not hold, the best first."""
    worth = [fact for fact in material.facts if fact.score >= LEAST_SCORE]
    worth.sort(key=lambda fact: (-fact.score / (1 + len(fact.text) / 100), -fact.order))
    lines = ((FACT if fact.role == "user" else REPORT, on_one_line(fact.text)) for fact in worth)
    return [mark + text for mark, text in lines if text not in wording]


def _name_line(material: Material, shown: str, tokens: int, count_text: CountText) -> str:
    """Identifiers nobody has shown yet on one line, best value first, then in the order they were seen."""
    chosen: list[Sighting] = []
    left = tokens - count_text(_NAMES) - 2
    refused = 0
    for seen in ranked((seen for seen in material.sightings if seen.text not in shown), material.newest):
        cost = count_text(" " + seen.text) + 1
        if refused >= _PATIENCE:
            break
        if cost > left:
            refused += 1
            continue
        chosen.append(seen)
        left -= cost
    chosen.sort(key=lambda seen: (seen.last, seen.text))
    return _NAMES + " ".join(seen.text for seen in chosen) if chosen else ""


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
