"""A summarizer of the presets' tests: answers as scripted and remembers what it was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from palimpsest.core.history.message import Message
from palimpsest.core.presets import PRESETS
from palimpsest.core.summary.prompt import SummaryLimits, SummaryReply, SummaryRequest
from palimpsest.core.summary.record import decoded
from palimpsest.core.summary.session_lists import Lists
from palimpsest.core.summary.source import SummarySource
from palimpsest.core.summary.styles import RecordStyle, WrittenBlock

from tests.core.summary.talk import ROOMY, count, source

LIMITS = SummaryLimits.of(PRESETS["rolling"], window_tokens=200_000, max_tokens=2_000)
Script = Callable[[SummaryRequest, int], str]


def style(preset: str, **numbers: object) -> RecordStyle:
    return RecordStyle(replace(PRESETS[preset], **numbers))  # type: ignore[arg-type]


def sections(facts: str = "-", flow: str = "-", threads: str = "-") -> str:
    return f"## KEY FACTS\n{facts}\n## CONVERSATION FLOW\n{flow}\n## OPEN THREADS\n{threads}"


def reply(summary: str, **delta: object) -> str:
    return f"{summary}\n\n```json\n{json.dumps(delta)}\n```"


def nth(request: SummaryRequest, number: int) -> str:
    flow = f"- what call {number} read, in order"
    return reply(sections(f"- fact of call {number}", flow, f"- open after {number}: nothing"))


def asked(
    of: RecordStyle,
    made_of: SummarySource,
    script: Script = nth,
    limits: SummaryLimits = LIMITS,
    focus: str = "",
) -> tuple[list[SummaryRequest], str | None]:
    """Every request, and the text accepted last; None when nothing was asked."""
    made: list[SummaryRequest] = []
    told: str | None = None
    requests = of.requests(made_of, limits, count, focus)
    try:
        request = next(requests)
        while True:
            made.append(request)
            answer = SummaryReply(script(request, len(made)), "stop")
            told = of.accepted(answer, request, 100_000, count)
            request = requests.send(told)
    except StopIteration:
        return made, told


def after(before: WrittenBlock | None, folded: Sequence[Message], fresh: Sequence[Message]) -> SummarySource:
    """The source of the next fold: `folded` stand in `before`."""
    made = source([*folded, *fresh], since=len(folded), previous=before.text if before else "")
    return replace(made, state=before.state if before else b"", room=ROOMY)


def compacted(
    of: RecordStyle, made_of: SummarySource, script: Script | None = nth, tokens: int = ROOMY
) -> WrittenBlock:
    """A whole compaction; no script: nobody can be asked."""
    told = asked(of, made_of, script)[1] if script else None
    return of.written(made_of, told, tokens, count)


def lists_of(written: WrittenBlock) -> Lists:
    record = decoded(written.state)
    assert record is not None
    return record.lists


def text_in(request: SummaryRequest, tag: str) -> str:
    return request.user.split(f"<{tag}>", 1)[1].split("\n", 1)[1].split(f"\n</{tag}>", 1)[0]
