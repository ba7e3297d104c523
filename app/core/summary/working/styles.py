"""The styles of two presets: `working_state`, slots filled by code, and `batch`, one summary by a model.

Both keep the working state, which is cumulative: what one compaction noted every later one knows.
Knows nothing of other styles nor of how a model is asked.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

from app.core.summary.acceptance import SummaryReply, accepted
from app.core.summary.prompt import SummaryLimits, SummaryRequest
from app.core.summary.source import CountText, SummarySource
from app.core.summary.styles.style import Written
from app.core.summary.tool_voice import attributed
from app.core.summary.working.batch import batch_chunks, batch_limits, batch_lines, batch_request
from app.core.summary.working.blocks import block_of, cumulative_state, request_lines
from app.core.summary.working.gap_fill import gap_accepted, gap_request, with_gap
from app.core.summary.working.limits import DEFAULT_LIMITS, SlotLimits
from app.core.summary.working.markdown import lines_of
from app.core.summary.working.state import encoded, needs_gap_fill
from app.core.text.fence import DEFAULT_TAG


@dataclass(frozen=True, slots=True)
class WorkingStateStyle:
    """See `Style`. `llm_extraction`: a model may be asked for what too few slots leave out (D16)."""

    tag: str = DEFAULT_TAG
    limits: SlotLimits = DEFAULT_LIMITS
    llm_extraction: bool = True

    def requests(
        self, source: SummarySource, limits: SummaryLimits, count_text: CountText, focus: str
    ) -> Generator[SummaryRequest, str, None]:
        """The gap-fill, once, where fewer than 15 slots are populated (D12); otherwise nothing."""
        state = cumulative_state(source, self.limits)
        if not needs_gap_fill(state, self.llm_extraction):
            return
        request = gap_request(source, state, limits, count_text, focus)
        if request is not None:
            yield request

    def accepted(
        self, reply: SummaryReply, request: SummaryRequest, replaced_tokens: int, count_text: CountText
    ) -> str:
        """What is missing, or "COMPLETE"; SummaryRejected for what is neither (D11)."""
        return gap_accepted(reply, request, replaced_tokens, count_text)

    def written(self, source: SummarySource, told: str | None, tokens: int, count_text: CountText) -> Written:
        """The state as markdown, with what models filled in; `told` None changes nothing else."""
        noted = cumulative_state(source, self.limits)
        state = with_gap(noted, _attributed(told, source, "\n".join(noted.gap)), self.limits)
        lines = [*lines_of(state), *request_lines(source, state)]
        return Written(block_of(lines, self.tag, tokens, count_text), encoded(state))


@dataclass(frozen=True, slots=True)
class BatchStyle:
    """See `Style`. Plan and requests are the state's, word for word, never a model's version of them."""

    tag: str = DEFAULT_TAG
    limits: SlotLimits = DEFAULT_LIMITS

    def requests(
        self, source: SummarySource, limits: SummaryLimits, count_text: CountText, focus: str
    ) -> Generator[SummaryRequest, str, None]:
        """One question; more where the input exceeds one, each continuing the answer before (F07)."""
        if not source.fresh:
            return
        bounds = batch_limits(limits)
        previous = source.previous
        for chunk in batch_chunks(source, bounds, count_text):
            previous = yield batch_request(chunk, previous, bounds, count_text, focus)

    def accepted(
        self, reply: SummaryReply, request: SummaryRequest, replaced_tokens: int, count_text: CountText
    ) -> str:
        """The text; SummaryRejected where it is plainly none or says too little (D21)."""
        return accepted(reply, request, replaced_tokens, count_text)

    def written(self, source: SummarySource, told: str | None, tokens: int, count_text: CountText) -> Written:
        """The plan and seven sections; without a model the state and the last summary's lines."""
        if told is None and not source.fresh and 0 < count_text(source.previous) <= tokens:
            return Written(source.previous, source.state)
        state = cumulative_state(source, self.limits)
        told = _attributed(told, source, source.previous)
        if told is None:
            lines = lines_of(state)
        else:
            lines = batch_lines(told, state)
            # The new summary stands for the one before: its lines are what a fallback would need.
            state = with_gap(replace(state, gap=()), told, self.limits)
        block = block_of([*lines, *request_lines(source, state)], self.tag, tokens, count_text)
        return Written(block, encoded(state))


def _attributed(told: str | None, source: SummarySource, record: str) -> str | None:
    return None if told is None else attributed(told, source, record)
