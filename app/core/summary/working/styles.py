"""The styles of two presets: `working_state`, slots filled by code, and `batch`, one summary by a model.

Both keep the working state, which is cumulative: what one compaction noted every later one knows.
Knows nothing of other styles nor of how a model is asked.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

from app.core.summary.acceptance import SummaryReply, accepted
from app.core.summary.block import Frame
from app.core.summary.form import checked, written
from app.core.summary.prompt import SummaryLimits, SummaryRequest
from app.core.summary.source import CountText, SummarySource
from app.core.summary.styles.style import Written
from app.core.summary.working.batch import batch_requests, batch_sections
from app.core.summary.working.forms import BATCH, GAP_TITLE, WORKING, batch_lines, gap_lines, lines_of
from app.core.summary.working.gap_fill import COMPLETE, gap_accepted, gap_request, with_gap
from app.core.summary.working.slots import MAX_TOOL_RESULTS, state_of
from app.core.summary.working.state import EMPTY, WorkingState, decoded, encoded, needs_gap_fill
from app.core.text.fence import DEFAULT_TAG

# What models filled in, all rounds together (D11), characters.
GAP_CHARS = 8_000


@dataclass(frozen=True, slots=True)
class WorkingStateStyle:
    """See `Style`.

    `llm_extraction`: a model may be asked for what too few slots leave out; so many `max_tool_results` are
    kept (D16). `gap_chars`: what models filled in may take.
    """

    tag: str = DEFAULT_TAG
    llm_extraction: bool = True
    max_tool_results: int = MAX_TOOL_RESULTS
    gap_chars: int = GAP_CHARS

    def requests(
        self, source: SummarySource, limits: SummaryLimits, count_text: CountText, focus: str
    ) -> Generator[SummaryRequest, str, None]:
        """The gap-fill, once, where fewer than 15 slots are populated (D12); otherwise nothing."""
        state = _state(source, self.max_tool_results)
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
        """The slots, with what models filled in; `told` None changes nothing else."""
        state = _state(source, self.max_tool_results)
        if told is not None and told != COMPLETE:
            state = with_gap(state, checked(told, source, "\n".join(state.gap)), self.gap_chars)
        gap = {GAP_TITLE: "\n".join(gap_lines(state))}
        block = written(WORKING, source, gap, Frame(tokens, count_text, self.tag), lines_of(state))
        return Written(block, encoded(state))


@dataclass(frozen=True, slots=True)
class BatchStyle:
    """See `Style`. Plan and requests are code's, word for word, never a model's version of them."""

    tag: str = DEFAULT_TAG
    gap_chars: int = GAP_CHARS

    def requests(
        self, source: SummarySource, limits: SummaryLimits, count_text: CountText, focus: str
    ) -> Generator[SummaryRequest, str, None]:
        """One question; more where the input exceeds one, each continuing the answer before (F07)."""
        return batch_requests(source, limits, count_text, focus)

    def accepted(
        self, reply: SummaryReply, request: SummaryRequest, replaced_tokens: int, count_text: CountText
    ) -> str:
        """The text; SummaryRejected where it is plainly none or says too little (D21)."""
        return accepted(reply, request, replaced_tokens, count_text)

    def written(self, source: SummarySource, told: str | None, tokens: int, count_text: CountText) -> Written:
        """The plan and seven sections; without a model the slots and the last summary's lines."""
        if told is None:
            if not source.fresh and 0 < count_text(source.previous) <= tokens:
                return Written(source.previous, source.state)
            return WorkingStateStyle(self.tag, gap_chars=self.gap_chars).written(
                source, None, tokens, count_text
            )
        state = _state(source, MAX_TOOL_RESULTS)
        told = checked(told, source, source.previous)
        sections = batch_sections(told)
        block = written(
            BATCH, source, sections, Frame(tokens, count_text, self.tag), batch_lines(state, sections)
        )
        # The new summary stands for the one before: its lines are what a fallback would need.
        state = with_gap(replace(state, gap=()), "\n".join(sections.values()), self.gap_chars)
        return Written(block, encoded(state))


def _state(source: SummarySource, max_tool_results: int) -> WorkingState:
    """The state of everything in `source.folded`.

    It goes on from the stored one; where there is none, or it cannot be read, it is made anew from the first
    message on.
    """
    known = decoded(source.state)
    messages = [message for _, message in source.folded]
    return state_of(messages, known, source.since if known != EMPTY else 0, max_tool_results)
