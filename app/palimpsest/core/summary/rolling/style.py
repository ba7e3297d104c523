"""The style `rolling`: a summary that each fold replaces, and a structured state beside it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace

from palimpsest.core.policy import Policy
from palimpsest.core.summary.acceptance import SummaryReply, WrittenBlock, accepted
from palimpsest.core.summary.block import Frame
from palimpsest.core.summary.form import checked_answer, section_block
from palimpsest.core.summary.grounding import ATTRIBUTION, tool_lines
from palimpsest.core.summary.prompt import SummaryLimits, SummaryRequest
from palimpsest.core.summary.rolling.digest import FORM, STATE_TITLE, digest_of, rendered
from palimpsest.core.summary.rolling.prompt import (
    QuestionBounds,
    RollingRequest,
    ToolAllowList,
    rolling_requests,
    transcript,
    with_outcomes_only,
)
from palimpsest.core.summary.rolling.record import (
    AcceptedReply,
    RollingRecord,
    decoded_reply,
    encoded,
    encoded_reply,
    previous_record,
    record_to_continue,
)
from palimpsest.core.summary.rolling.state import (
    SessionState,
    StateCaps,
    StateEntry,
    delta_text,
    merged,
    reply_of,
    state_lines,
)
from palimpsest.core.summary.source import CountText, SummarySource
from palimpsest.core.text.fence import DEFAULT_TAG
from palimpsest.errors import SummaryRejected

_POLICY = Policy()
# Codes of events.
DELTA_INVALID = "state_delta_invalid"
ROLLUP_REJECTED = "rollup_rejected"


@dataclass(frozen=True, slots=True)
class RollingStyle:
    """See `Style`.

    `rollup_tokens`: a longer summary is shortened by a request of its own (B12). `tools`: those whose calls
    and results are read (B14). `caps`: the limits of the state's lists (B10). `tag`: that of the fence.
    """

    tag: str = DEFAULT_TAG
    rollup_tokens: int = _POLICY.rollup_tokens
    tools: ToolAllowList = field(default_factory=ToolAllowList)
    caps: StateCaps = field(default_factory=StateCaps)

    def requests(
        self, source: SummarySource, limits: SummaryLimits, count_text: CountText, focus: str
    ) -> Generator[SummaryRequest, str, None]:
        """One request per chunk, each with the result of the one before; none without new text."""
        lines = transcript(source, self.tools, limits)
        asking = QuestionBounds(limits, count_text, self.rollup_tokens, focus)
        return rolling_requests(record_to_continue(source), lines, asking)

    def accepted(
        self, reply: SummaryReply, request: SummaryRequest, replaced_tokens: int, count_text: CountText
    ) -> str:
        """The checked summary with the whole state after it; SummaryRejected for what is no summary.

        A broken delta leaves the state unchanged (B09). A rejected rollup leaves the summary at its length,
        because the summary before is valid.
        """
        if isinstance(request, RollingRequest) and request.rollup:
            return encoded_reply(self._rolled_up(reply, request, count_text))
        parts = reply_of(reply.text)
        summary = accepted(replace(reply, text=parts.summary), request, replaced_tokens, count_text)
        if not isinstance(request, RollingRequest):
            # The reply that it continues is unknown: `written` merges the changes.
            return f"{summary}\n{delta_text(parts.changes)}" if parts.changes else summary
        so_far = request.so_far
        notes = dict.fromkeys((*so_far.notes, *([DELTA_INVALID] if parts.is_broken else [])))
        return encoded_reply(
            AcceptedReply(summary, merged(so_far.state, parts.changes, self.caps), tuple(notes))
        )

    def written(
        self, source: SummarySource, answer: str | None, tokens: int, count_text: CountText
    ) -> WrittenBlock:
        """Heading, state and three sections; notes fill in what a model left out, or everything."""
        before = previous_record(source)
        reply = self._reply(before, answer)
        record = before.summary if answer is None else checked_answer(reply.summary, source, before.summary)
        digest = digest_of(record)
        state = _with_tools_named(reply.state, before, source)
        frame = Frame(tokens, count_text, self.tag)
        text = section_block(
            FORM,
            with_outcomes_only(source, self.tools),
            digest,
            frame,
            [(STATE_TITLE, state_lines(state))],
        )
        return WrittenBlock(
            text, encoded(RollingRecord(rendered(digest) if record else "", state)), reply.notes
        )

    def _reply(self, before: RollingRecord, answer: str | None) -> AcceptedReply:
        """The answer with the whole state; without one the state before."""
        if answer is None:
            return AcceptedReply("", merged(before.state, (), self.caps))
        whole = decoded_reply(answer)
        if whole is not None:
            return whole
        parts = reply_of(answer)
        notes = (DELTA_INVALID,) if parts.is_broken else ()
        return AcceptedReply(parts.summary, merged(before.state, parts.changes, self.caps), notes)

    def _rolled_up(
        self, reply: SummaryReply, request: RollingRequest, count_text: CountText
    ) -> AcceptedReply:
        so_far = request.so_far
        replaced = count_text(so_far.summary) + count_text(request.rollup)
        try:
            shorter = replace(reply, text=reply_of(reply.text).summary)
            return replace(so_far, summary=accepted(shorter, request, replaced, count_text))
        except SummaryRejected:
            whole = "\n".join(filter(None, (so_far.summary, request.rollup)))
            notes = dict.fromkeys((*so_far.notes, ROLLUP_REJECTED))
            return AcceptedReply(whole, so_far.state, tuple(notes))


def _with_tools_named(state: SessionState, before: RollingRecord, source: SummarySource) -> SessionState:
    """The state; new decisions and constraints in a tool's words say so."""
    known = {entry.text for _, entries in before.state.lists() for entry in entries}
    new = {entry.text for entry in (*state.decisions, *state.constraints) if entry.text not in known}
    tools = tool_lines(new, source, before.summary)

    def named(entry: StateEntry) -> StateEntry:
        return replace(entry, text=ATTRIBUTION + entry.text) if entry.text in tools else entry

    return replace(
        state,
        decisions=tuple(map(named, state.decisions)),
        constraints=tuple(map(named, state.constraints)),
    )
