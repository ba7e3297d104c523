"""The handoff: nine sections, with the user's words, facts and identifiers carried over by code.

Knows nothing of other styles. It needs no state of its own: everything is read from the block before.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from app.core.summary.acceptance import SummaryReply, accepted
from app.core.summary.block import deterministic_block, model_block
from app.core.summary.fence import DEFAULT_TAG
from app.core.summary.prompt import SummaryLimits, SummaryRequest, summary_requests
from app.core.summary.source import CountText, SummaryBudget, SummarySource, SummaryStyle
from app.core.summary.styles.style import Written


@dataclass(frozen=True, slots=True)
class HandoffStyle:
    """See `Style`. `tag` is the fence's (A31)."""

    tag: str = DEFAULT_TAG

    def requests(
        self, source: SummarySource, limits: SummaryLimits, count_text: CountText, focus: str
    ) -> Generator[SummaryRequest, str, None]:
        """As many calls as the input needs, each continuing the record of the one before (A21, F07)."""
        return summary_requests(source, limits, count_text, focus)

    def accepted(
        self, reply: SummaryReply, request: SummaryRequest, replaced_tokens: int, count_text: CountText
    ) -> str:
        """The text; SummaryRejected where it is plainly none (F09 to F12)."""
        return accepted(reply, request, replaced_tokens, count_text)

    def written(
        self, source: SummarySource, told: str | None, budget: SummaryBudget, count_text: CountText
    ) -> Written:
        """Nine sections, repaired by code; by code alone without a model's text."""
        style = SummaryStyle(self.tag)
        if told is None:
            return Written(deterministic_block(source, budget, count_text, style))
        return Written(model_block(source, told, budget, count_text, style))
