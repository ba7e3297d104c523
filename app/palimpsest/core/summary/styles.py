"""How a policy's summaries are asked for, accepted and written: one writer, with the preset's form."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy
from palimpsest.core.summary.acceptance import ATTRIBUTION, accepted, checked_answer, tool_lines
from palimpsest.core.summary.asking import (
    COMPLETE,
    RecordRequest,
    accepted_record,
    gaps_request,
    record_requests,
)
from palimpsest.core.summary.block import Frame, record_block
from palimpsest.core.summary.forms import (
    DECISIONS,
    DISCOVERIES,
    ENVIRONMENT,
    FILES,
    LISTS_TITLE,
    Form,
    form_of,
)
from palimpsest.core.summary.prompt import SummaryLimits, SummaryReply, as_read
from palimpsest.core.summary.record import Entry, Record, cut_to_room, decoded, record_of
from palimpsest.core.summary.session_lists import CAPS, DELTA_INVALID, list_lines, merged, reply_of
from palimpsest.core.summary.source import CountText, SummarySource, lines_within
from palimpsest.core.summary.working import ENOUGH_SLOTS, WorkingState, working_state
from palimpsest.core.text.fence import unfenced
from palimpsest.core.wire.json_text import plain_values

# Tokens of a block by code that a question for gaps quotes.
_KNOWN_TOKENS = 1_000
# The share of a block for lines of the preset's own.
_OWN_SHARE = 1 / 6


@dataclass(frozen=True, slots=True)
class WrittenBlock:
    """A finished block.

    `text` is the whole fenced user message as it stands in the view. `state` is stored with the compaction
    and returns as `source.state`. `notes` are codes of events to be recorded.
    """

    text: str
    state: bytes = b""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordStyle:
    """The writer of records under a policy. Equal input gives equal bytes."""

    policy: Policy = field(default_factory=Policy)

    def form(self, source: SummarySource) -> Form:
        """The form of the block that replaces these messages."""
        return form_of(self.policy, source)

    def requests(
        self, source: SummarySource, limits: SummaryLimits, count_text: CountText, focus: str
    ) -> Generator[RecordRequest, str, None]:
        """The requests to a model, in order; send each accepted text back. None when no model is needed.

        A question for each piece of the messages without an entry (A21, B11, F07), then those that settle
        (B12). Where code writes, one question at most, for what few slots leave out (D12).
        """
        form, policy = self.form(source), self.policy
        if form.is_by_code:
            state = self.state(source)
            if policy.llm_extraction and state.populated < ENOUGH_SLOTS:
                frame, record = Frame(_KNOWN_TOKENS, count_text, policy.summary_tag), Record(())
                known = record_block(source, record, frame, form, _own_lines(form, record, state, frame))
                request = gaps_request(_of_code(source), unfenced(known), limits, count_text, focus)
                if request is not None:
                    yield request
            return
        if policy.style == "rolling":
            source = as_read(source, policy.read_tools, policy.read_tool_prefixes)
            source = replace(source, room=min(source.room, policy.rollup_tokens))
        elif form.template:
            source = as_read(source)
        yield from record_requests(source, limits, count_text, focus, form)

    def accepted(
        self, reply: SummaryReply, request: RecordRequest, replaced_tokens: int, count_text: CountText
    ) -> str:
        """The whole record with the reply in it, as JSON; SummaryRejected where that is none (F09 to F12)."""
        so_far, source = request.so_far, request.source
        if request.conversation:
            # A worker's answer continues the summary so far, and takes its place.
            text = accepted(reply, request, replaced_tokens, count_text)
            text = checked_answer(text, replace(source, since=0), so_far.text)
            return Record((Entry(1, request.last, text),)).encoded()
        is_for_gaps = request.is_final and request.last > 0
        if is_for_gaps and not reply.has_tool_calls and reply.text.strip(" \n*`\"'.!-").upper() == COMPLETE:
            return so_far.without_entry(request.first, request.last).encoded()
        if not self.form(source).has_lists or not request.last:
            return accepted_record(reply, request, replaced_tokens, count_text).encoded()
        # A broken delta leaves the lists unchanged (B09).
        text, changes, is_broken = reply_of(reply.text)
        record = accepted_record(replace(reply, text=text), request, replaced_tokens, count_text)
        tools = tool_lines([change.text for _, change in changes], source, so_far.text)
        lists = merged(
            so_far.lists,
            [
                (kind, structs.replace(each, text=f"{ATTRIBUTION * (each.text in tools)}{each.text}"))
                for kind, each in changes
            ],
        )
        notes = (*so_far.notes, *([DELTA_INVALID] if is_broken else []))
        return structs.replace(record, lists=lists, notes=tuple(dict.fromkeys(notes))).encoded()

    def written(
        self, source: SummarySource, answer: str | None, tokens: int, count_text: CountText
    ) -> WrittenBlock:
        """The block in at most `tokens`, never empty: the record, and what code adds from the messages.

        `answer` is None when no model answered.
        """
        form, frame = self.form(source), Frame(tokens, count_text, self.policy.summary_tag)
        state = self.state(source) if form.is_by_code else None
        before = record_of(_of_code(source) if state else source)
        record = before if answer is None else decoded(answer)
        assert record is not None
        text = record_block(source, record, frame, form, _own_lines(form, record, state, frame))
        # A record that nobody settles keeps half as much again as is shown of it.
        kept = structs.replace(
            cut_to_room(record, max(tokens, source.room) * 3 // 2, count_text),
            slots=state.populated if state else None,
            notes=(),
        )
        return WrittenBlock(text, kept.encoded().encode(), record.notes)

    def state(self, source: SummarySource) -> WorkingState:
        """The working state after the folded messages."""
        return working_state([message for _, message in source.folded], self.policy.max_tool_results)


def _own_lines(form: Form, record: Record, state: WorkingState | None, frame: Frame) -> list[tuple[str, str]]:
    """The lines that a form has beside entries and notes, in a sixth of the block: (title, line)."""
    room, count = int(frame.tokens * _OWN_SHARE), frame.count_text
    if form.has_lists:
        return [(LISTS_TITLE, line) for line in lines_within(list_lines(record.lists), room, count)]
    if state is None:
        return []
    reads = [note.path for note in state.files if {action.kind for action in note.actions} == {"read"}]
    lines = {
        ENVIRONMENT: [f"- {fact['name']} {fact['value']}".rstrip() for fact in state.environment],
        DECISIONS: [f"- {each}" for each in state.decisions],
        DISCOVERIES: [f"- {each}" for each in state.discoveries],
        FILES: [f"- read: {', '.join(reads)}"] if reads else [],
    }
    return [
        (title, line)
        for title, each in lines.items()
        for line in lines_within(each, room if title == FILES else room // 4, count)
    ]


def _of_code(source: SummarySource) -> SummarySource:
    """The source without another preset's block: code writes from the messages (D17)."""
    return replace(source, previous="")


def state_fields(policy: Policy, stored: bytes, messages: Sequence[Message]) -> dict[str, Any]:
    """The state of a session under the policy as JSON values; empty for a preset that keeps none.

    `stored` is what the compaction in force keeps. Code's slots are filled from each message (D02), whatever
    has been compacted.
    """
    if policy.style in ("working_state", "by_content"):
        return plain_values(working_state(messages, policy.max_tool_results)) if messages else {}
    lists = record.lists if (record := decoded(stored)) else {}
    return plain_values({kind: lists.get(kind, ()) for kind in CAPS}) if lists else {}


def slot_count_label(slots: int | None) -> str | None:
    """The number of filled slots of a working state, as `v2:N` (D23); None without one."""
    return None if slots is None else f"v2:{slots}"


def slots_in(state: Mapping[str, Any]) -> int | None:
    """The number of filled slots in the fields of a state (D12); None where they are no working state."""
    if "task" not in state:
        return None
    return bool(state["task"]) + sum(len(value) for name, value in state.items() if name != "task")
