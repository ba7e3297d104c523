"""What every way of summarising must be able to do: ask a model, judge its answer, write the block.

Knows no style. A style is chosen by the policy; planning and views are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from app.core.summary.acceptance import SummaryReply
from app.core.summary.prompt import SummaryLimits, SummaryRequest
from app.core.summary.source import CountText, SummarySource


@dataclass(frozen=True, slots=True)
class Written:
    """A finished block and what goes with it.

    `text` is the whole user message as it stands in the view, fenced. `state` is stored with the
    compaction and given back as `source.state`. `notes` are codes of what deserves an event.
    """

    text: str
    state: bytes = b""
    notes: tuple[str, ...] = ()


class Style(Protocol):
    """One way of summarising. Pure: equal input gives equal bytes."""

    def requests(
        self, source: SummarySource, limits: SummaryLimits, count_text: CountText, focus: str
    ) -> Generator[SummaryRequest, str, None]:
        """The calls to a model, in order; each accepted text is sent back in. None: no model is needed."""

    def accepted(
        self, reply: SummaryReply, request: SummaryRequest, replaced_tokens: int, count_text: CountText
    ) -> str:
        """The text that may stand for history. SummaryRejected for one that may not."""

    def written(self, source: SummarySource, told: str | None, tokens: int, count_text: CountText) -> Written:
        """The block of at most `tokens`; `told` None: nobody could be asked. Never empty."""
