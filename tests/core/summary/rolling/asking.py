"""A summarizer of the rolling style's tests: answers as scripted and remembers what it was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from palimpsest.core.history.message import Message
from palimpsest.core.presets import PRESETS
from palimpsest.core.summary.acceptance import Style, SummaryReply, WrittenBlock
from palimpsest.core.summary.prompt import SummaryLimits, SummaryRequest
from palimpsest.core.summary.rolling.record import decoded_record
from palimpsest.core.summary.rolling.state import SessionState
from palimpsest.core.summary.rolling.style import RollingStyle
from palimpsest.core.summary.source import SummarySource

from tests.core.summary.talk import ROOMY, count, source

LIMITS = SummaryLimits.of(PRESETS["rolling"], window_tokens=200_000, max_tokens=2_000)
Script = Callable[[SummaryRequest, int], str]


def sections(facts: str = "-", flow: str = "-", threads: str = "-") -> str:
    return f"## KEY FACTS\n{facts}\n## CONVERSATION FLOW\n{flow}\n## OPEN THREADS\n{threads}"


def reply(summary: str, **delta: object) -> str:
    return f"{summary}\n\n```json\n{json.dumps(delta)}\n```"


def nth(request: SummaryRequest, number: int) -> str:
    return reply(sections(f"fact of call {number}", f"what call {number} read, in order", "nothing is open"))


def asked(
    style: Style,
    made_of: SummarySource,
    script: Script = nth,
    limits: SummaryLimits = LIMITS,
    focus: str = "",
) -> tuple[list[SummaryRequest], str | None]:
    """Every request, and the text accepted last; None when nothing was asked."""
    made: list[SummaryRequest] = []
    told: str | None = None
    requests = style.requests(made_of, limits, count, focus)
    try:
        request = next(requests)
        while True:
            made.append(request)
            answer = SummaryReply(script(request, len(made)), "stop")
            told = style.accepted(answer, request, 100_000, count)
            request = requests.send(told)
    except StopIteration:
        return made, told


def after(
    before: WrittenBlock | None,
    folded: Sequence[Message],
    fresh: Sequence[Message],
    tail: Sequence[Message] = (),
) -> SummarySource:
    """The source of the next fold: `folded` stand in `before`."""
    made = source([*folded, *fresh], since=len(folded), previous=before.text if before else "", tail=tail)
    return replace(made, state=before.state if before else b"")


def compacted(
    style: Style, made_of: SummarySource, script: Script | None = nth, tokens: int = ROOMY
) -> WrittenBlock:
    """A whole compaction; no script: nobody can be asked."""
    told = asked(style, made_of, script)[1] if script else None
    return style.written(made_of, told, tokens, count)


def state_of(written: WrittenBlock) -> SessionState:
    return decoded_record(written.state).state


def text_in(request: SummaryRequest, tag: str) -> str:
    return request.user.split(f"<{tag}>\n", 1)[1].split(f"\n</{tag}>", 1)[0]


ROLLING = RollingStyle()
