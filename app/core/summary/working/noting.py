"""How a working state grows: one message at a time, on full data, without any model (D02).

A pure reduction. Knows nothing of how the state is stored or shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from app.core.history.message import Message
from app.core.summary.working.arguments import Arguments, arguments_of, clean, label_of
from app.core.summary.working.clipping import clipped, clipped_line
from app.core.summary.working.environment import (
    client_blocks,
    said_facts,
    shell_facts,
    told_facts,
    with_facts,
)
from app.core.summary.working.files import actions_of, file_kind, with_actions, with_outcome
from app.core.summary.working.limits import (
    DEFAULT_LIMITS,
    FILE_KINDS,
    SlotLimits,
    ToolKind,
    kind_of,
)
from app.core.summary.working.outcomes import failure_in, shell_text, tool_note
from app.core.summary.working.phrases import phrases_of
from app.core.summary.working.plan import planned
from app.core.summary.working.state import EMPTY, Failure, OpenCall, WorkingState
from app.core.text.wording import Call, calls_of, text_of


def state_of(
    messages: Iterable[Message],
    previous: WorkingState = EMPTY,
    limits: SlotLimits = DEFAULT_LIMITS,
) -> WorkingState:
    """The state after `messages`, in order, `previous` being the state before the first of them."""
    for message in messages:
        previous = noted(previous, message, limits)
    return previous


def noted(
    state: WorkingState,
    message: Message,
    limits: SlotLimits = DEFAULT_LIMITS,
) -> WorkingState:
    """The state after one more message. Results are known by the call they answer, whenever it was made."""
    text = clean(text_of(message))
    if message.role == "user":
        return _with_request(state, text, limits)
    if message.role == "assistant":
        spoken = _with_phrases(state, text, limits)
        for call in calls_of(message):
            spoken = _with_call(spoken, call, limits)
        return spoken
    if message.role in ("tool", "function"):
        return _with_result(state, message, text, limits)
    if message.is_instruction:
        return replace(state, environment=with_facts(state.environment, told_facts(text), limits))
    return state


def _with_request(state: WorkingState, text: str, limits: SlotLimits) -> WorkingState:
    """The first thing a user says is the task, everything later a requirement (D06)."""
    said, added = client_blocks(text)
    if added:
        state = replace(state, environment=with_facts(state.environment, told_facts(added), limits))
    if not said:
        return state
    state = replace(state, environment=with_facts(state.environment, said_facts(said), limits))
    if not state.task:
        return replace(state, task=clipped(said, limits.task_chars))
    if len(said) < limits.least_requirement_chars:
        return state
    added_one = (clipped_line(said, limits.requirement_chars),)
    return replace(
        state, user_requirements=_newest(state.user_requirements, added_one, limits.max_user_requirements)
    )


def _with_phrases(state: WorkingState, text: str, limits: SlotLimits) -> WorkingState:
    if not text.strip():
        return state
    said = phrases_of(text, limits)
    notes = (said.note,) if said.note else ()
    return replace(
        state,
        environment=with_facts(state.environment, said_facts(text), limits),
        decisions=_newest(state.decisions, said.decisions, limits.max_decisions),
        discoveries=_newest(state.discoveries, said.discoveries, limits.max_discoveries),
        assistant_notes=_newest(state.assistant_notes, notes, limits.max_assistant_notes),
    )


def _with_call(state: WorkingState, call: Call, limits: SlotLimits) -> WorkingState:
    arguments = arguments_of(call)
    kind = file_kind(kind_of(call.name), arguments)
    ident = clean(call.id)
    if kind == "plan":
        plan = planned(state.plan, call.name, arguments, limits)
        state = state if plan is None else replace(state, plan=plan)
    actions = actions_of(kind, arguments, ident, limits) if kind in FILE_KINDS or kind == "shell" else []
    if actions:
        state = replace(state, files=with_actions(state.files, actions, limits))
    elif kind in FILE_KINDS:
        # A "delete" of something that is no file: a tool like any other.
        kind = "other"
    opened = _opened(call, kind, arguments, ident, limits)
    # An id that comes again means the newer call (F02).
    others = tuple(each for each in state.open_calls if each.id != ident)
    return replace(state, open_calls=(*others, opened)[-limits.max_open_calls :])


def _opened(call: Call, kind: ToolKind, arguments: Arguments, ident: str, limits: SlotLimits) -> OpenCall:
    command = arguments.command if kind == "shell" else ""
    label = command or label_of(call, arguments)
    if kind in FILE_KINDS:
        label = " ".join((clean(call.name), *arguments.paths))
    return OpenCall(
        ident,
        kind,
        clipped_line(label, limits.label_chars),
        clipped_line(command, limits.failed_shell_chars),
    )


def _with_result(state: WorkingState, message: Message, text: str, limits: SlotLimits) -> WorkingState:
    ident = clean(message.answers or "")
    unknown = OpenCall(ident, "other", clipped_line(clean(str(message.fields.get("name") or "tool")), 80))
    call = next((each for each in reversed(state.open_calls) if each.id == ident), unknown)
    if call.kind == "shell":
        text = shell_text(text)
    failure = failure_in(text, call, limits)
    files = with_outcome(state.files, ident, text, bool(failure), limits)
    state = replace(
        state, files=files, open_calls=tuple(each for each in state.open_calls if each is not call)
    )
    if failure:
        failures = (*state.failures, Failure(call.label, failure))
        state = replace(state, failures=failures[-limits.max_failures :])
    elif call.kind == "shell":
        facts = shell_facts(call.command, text)
        state = replace(state, environment=with_facts(state.environment, facts, limits))
    if call.kind in FILE_KINDS or call.kind == "plan":
        return state
    notes = (*state.tool_results, tool_note(call, text, bool(failure), limits))
    return replace(state, tool_results=notes[-limits.max_tool_results :])


def _newest(known: tuple[str, ...], said: Iterable[str], most: int) -> tuple[str, ...]:
    """The newest `most`, each once, where it was said last."""
    distinct = dict.fromkeys(known)
    for each in said:
        distinct.pop(each, None)
        distinct[each] = None
    return tuple(distinct)[-most:]
