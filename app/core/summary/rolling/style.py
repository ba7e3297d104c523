"""The style `rolling`: a summary that is replaced each time, and a structured state beside it.

Knows nothing of when it is used, of the role its block gets, nor of who is asked.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace

from app.core.summary.acceptance import SummaryReply, accepted
from app.core.summary.block import Frame
from app.core.summary.form import checked, written
from app.core.summary.prompt import SummaryLimits, SummaryRequest
from app.core.summary.rolling.delta import delta_text, reply_of
from app.core.summary.rolling.digest import FORM, STATE_TITLE, digest_of, rendered
from app.core.summary.rolling.extraction import ToolAllowList, judged, transcript
from app.core.summary.rolling.merging import merged
from app.core.summary.rolling.prompt import Asking, RollingRequest, rolling_requests
from app.core.summary.rolling.record import (
    Kept,
    Told,
    encoded,
    kept_before,
    record_before,
    told_of,
    told_text,
)
from app.core.summary.rolling.state import SessionState, StateCaps, state_lines
from app.core.summary.source import CountText, SummarySource
from app.core.summary.styles.style import Written
from app.core.summary.tool_voice import tool_lines
from app.core.text.fence import DEFAULT_TAG
from app.errors import SummaryRejected

# Codes of what deserves an event.
DELTA_INVALID = "state_delta_invalid"
ROLLUP_REJECTED = "rollup_rejected"


@dataclass(frozen=True, slots=True)
class RollingStyle:
    """See `Style`.

    `chunk_chars`: characters of new messages in one request (B11). `rollup_tokens`: a longer summary is
    shortened by a request of its own (B12). `tools`: whose calls and results are read (B14). `caps`: of
    the state's lists (B10). `tag`: the fence's.
    """

    tag: str = DEFAULT_TAG
    chunk_chars: int = 120_000
    rollup_tokens: int = 80_000
    tools: ToolAllowList = field(default_factory=ToolAllowList)
    caps: StateCaps = field(default_factory=StateCaps)

    def requests(
        self, source: SummarySource, limits: SummaryLimits, count_text: CountText, focus: str
    ) -> Generator[SummaryRequest, str, None]:
        """A request a chunk, each with the result of the one before; none when nothing new can be read."""
        lines = transcript(source, self.tools, limits)
        asking = Asking(limits, count_text, self.chunk_chars, self.rollup_tokens, focus)
        return rolling_requests(kept_before(source), lines, asking)

    def accepted(
        self, reply: SummaryReply, request: SummaryRequest, replaced_tokens: int, count_text: CountText
    ) -> str:
        """The summary, checked, with the whole state behind it; SummaryRejected for what is no summary.

        A broken delta leaves the state as it was (B09). A rollup that is none leaves the summary as long
        as it was: what was summarised before is valid.
        """
        if isinstance(request, RollingRequest) and request.rollup:
            return told_text(self._rolled_up(reply, request, count_text))
        parts = reply_of(reply.text)
        summary = accepted(replace(reply, text=parts.summary), request, replaced_tokens, count_text)
        if not isinstance(request, RollingRequest):
            # Nobody knows what it continues: `written` merges the changes.
            return f"{summary}\n{delta_text(parts.changes)}" if parts.changes else summary
        so_far = request.so_far
        notes = dict.fromkeys((*so_far.notes, *([DELTA_INVALID] if parts.is_broken else [])))
        return told_text(Told(summary, merged(so_far.state, parts.changes, self.caps), tuple(notes)))

    def written(self, source: SummarySource, told: str | None, tokens: int, count_text: CountText) -> Written:
        """Heading, state and three sections; what a model left out, or everything, is filled by code."""
        before = record_before(source)
        said = self._said(before, told)
        record = before.summary if told is None else checked(said.summary, source, before.summary)
        digest = digest_of(record)
        state = _without_tools_voice(said.state, before, source)
        frame = Frame(tokens, count_text, self.tag)
        text = written(FORM, judged(source, self.tools), digest, frame, [(STATE_TITLE, state_lines(state))])
        return Written(text, encoded(Kept(rendered(digest) if record else "", state)), said.notes)

    def _said(self, before: Kept, told: str | None) -> Told:
        """What was told, with the whole state."""
        if told is None:
            return Told("", merged(before.state, (), self.caps))
        whole = told_of(told)
        if whole is not None:
            return whole
        parts = reply_of(told)
        notes = (DELTA_INVALID,) if parts.is_broken else ()
        return Told(parts.summary, merged(before.state, parts.changes, self.caps), notes)

    def _rolled_up(self, reply: SummaryReply, request: RollingRequest, count_text: CountText) -> Told:
        so_far = request.so_far
        replaced = count_text(so_far.summary) + count_text(request.rollup)
        try:
            shorter = replace(reply, text=reply_of(reply.text).summary)
            return replace(so_far, summary=accepted(shorter, request, replaced, count_text))
        except SummaryRejected:
            whole = "\n".join(part for part in (so_far.summary, request.rollup) if part)
            notes = dict.fromkeys((*so_far.notes, ROLLUP_REJECTED))
            return Told(whole, so_far.state, tuple(notes))


def _without_tools_voice(state: SessionState, before: Kept, source: SummarySource) -> SessionState:
    """The state without new decisions and constraints that only a tool said."""
    known = {entry.text for _, entries in before.state.lists() for entry in entries}
    new = {entry.text for entry in (*state.decisions, *state.constraints) if entry.text not in known}
    tools = tool_lines(new, source, before.summary)
    return replace(
        state,
        decisions=tuple(entry for entry in state.decisions if entry.text not in tools),
        constraints=tuple(entry for entry in state.constraints if entry.text not in tools),
    )
