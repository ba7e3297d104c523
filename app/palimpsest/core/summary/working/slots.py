"""The working state after a conversation: a reduction over its full messages, without a model (D02).

`notes.effects` reads what tool calls did, `notes.sentences` what was said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from palimpsest.core.history.message import RESULT_ROLES, Message
from palimpsest.core.notes.actions import key_arguments
from palimpsest.core.notes.effects import effects_in_text, effects_of
from palimpsest.core.notes.facts import stems_of
from palimpsest.core.notes.note import (
    COMMAND_CHARS,
    Command,
    Effect,
    Failure,
    FileChange,
    FileRead,
    FileState,
    TaskList,
    TaskState,
    counted,
    merged,
    one_line,
)
from palimpsest.core.notes.reader import is_informative
from palimpsest.core.notes.results import result_of
from palimpsest.core.notes.sentences import decides, discovers, sentences_of
from palimpsest.core.notes.shell import line_of
from palimpsest.core.notes.tool_words import Arguments, Tool, arguments_of, tool_named
from palimpsest.core.policy import Policy
from palimpsest.core.summary.working.environment import (
    client_blocks,
    declared_facts,
    shell_facts,
    stated_facts,
    with_facts,
)
from palimpsest.core.summary.working.state import (
    EMPTY,
    ActionKind,
    FileAction,
    FileNote,
    PlanStep,
    StepStatus,
    ToolFailure,
    ToolNote,
    WorkingState,
)
from palimpsest.core.text.message_text import ToolCall, calls_of, cut_middle, headline, on_one_line, text_of
from palimpsest.core.text.secrets import clean

T = TypeVar("T")
# D05: the rolling window of tool results.
MAX_TOOL_RESULTS = Policy().max_tool_results
# Limits on the entries of a slot; the oldest goes, of files the one used longest ago. D04, D07 and D08 name
# 25, the others keep the state of a long session below a megabyte.
_MOST = {
    "user_requirements": 100,
    "plan": 50,
    "files": 100,
    "decisions": 25,
    "assistant_notes": 12,
    "failures": 25,
    "discoveries": 25,
}
_MOST_ACTIONS = 8
# Characters of one entry (D05 to D09), and the least.
_TASK_CHARS, _REQUIREMENT_CHARS, _LEAST_REQUIREMENT = 400, 300, 5
_DECISION_CHARS, _DISCOVERY_CHARS, _LEAST_CAPTURE = 120, 150, 10
_NOTE_CHARS, _NOTE_SENTENCES = 500, 5
# Stems of a note; "Answer 3." is a filler.
_LEAST_STEMS = 3
_OUTPUT_CHARS, _FAILED_OUTPUT_CHARS = 800, 1_500
_SEARCH_CHARS, _SEARCH_LINES = 600, 10
_READ_CHARS, _SHOWN_NAMES = 200, 12
# Messages before a result among which its call is searched.
_LOOKED_BACK = 200

_KINDS: Mapping[FileState, ActionKind] = {
    "created": "create",
    "edited": "edit",
    "deleted": "delete",
    "moved": "move",
}
_STATUSES: Mapping[TaskState, StepStatus] = {
    "done": "done",
    "doing": "active",
    "dropped": "dropped",
    "open": "pending",
}
_STATES: Mapping[StepStatus, TaskState] = {status: state for state, status in _STATUSES.items()}
_BECAUSE = re.compile(r"\bbecause\b", re.IGNORECASE)
_COUNTED = re.compile(r"\s*found (\d+) (?:match|result|file|line)", re.IGNORECASE)
_NO_MATCH = re.compile(r"\s*(?:no (?:match|result|file)\w*(?: found)?\b|found 0 )", re.IGNORECASE)
_DEFINED = re.compile(
    r"^[ \t]*(?:\d{1,7}[ \t]*[\t:|→][ \t]*)?"
    r"(?:(?:export|default|pub|public|static|async|abstract)[ \t]+)*"
    r"(?:def|class|function|func|fn|struct|enum|interface|trait|type|const)[ \t]+"
    r"(?:\([^)\n]{0,80}\)[ \t]*)?([A-Za-z_]\w*)",
    re.MULTILINE,
)


def state_of(
    messages: Sequence[Message],
    known: WorkingState = EMPTY,
    since: int = 0,
    max_tool_results: int = MAX_TOOL_RESULTS,
) -> WorkingState:
    """The state after `messages`; `known` is the state after the first `since` of them."""
    for place in range(since, len(messages)):
        known = _noted(known, messages, place, max_tool_results)
    return known


def _noted(state: WorkingState, messages: Sequence[Message], place: int, results: int) -> WorkingState:
    message = messages[place]
    text = clean(text_of(message))
    if message.role == "user":
        return _with_request(state, text)
    if message.role == "assistant":
        return _with_words(state, text)
    if message.role in RESULT_ROLES:
        call = _call_of(messages, place)
        return _with_result(
            state, call or ToolCall("", str(message.fields.get("name") or "tool"), ""), text, results
        )
    if message.is_instruction:
        return replace(state, environment=with_facts(state.environment, declared_facts(text)))
    return state


def _with_request(state: WorkingState, text: str) -> WorkingState:
    """The state with a user's text: the first is the task, later ones are requirements (D06)."""
    said, added = client_blocks(text)
    facts = [*declared_facts(added), *stated_facts(said)]
    state = replace(state, environment=with_facts(state.environment, facts))
    if not said or (state.task and len(said) < _LEAST_REQUIREMENT):
        return state
    if not state.task:
        return replace(state, task=cut_middle(said, _TASK_CHARS))
    wanted = cut_middle(on_one_line(said), _REQUIREMENT_CHARS)
    return replace(state, user_requirements=_newest("user_requirements", state.user_requirements, [wanted]))


def _with_words(state: WorkingState, text: str) -> WorkingState:
    """The state with an assistant's sentences: decisions (D07), discoveries (D08), informative ones (D09)."""
    decisions: list[str] = []
    discoveries: list[str] = []
    others: list[str] = []
    for sentence in (on_one_line(each.replace("**", "")) for each in sentences_of(text)):
        found = _captured(sentence, discovers(sentence), _DISCOVERY_CHARS)
        decided = _captured(sentence, decides(sentence), _DECISION_CHARS) or _reasoned(sentence)
        discoveries += [found] if found else []
        decisions += [decided] if decided else []
        if (
            sentence not in (found, decided)
            and is_informative(sentence)
            and len(stems_of(sentence)) >= _LEAST_STEMS
        ):
            others.append(sentence)
    notes = [cut_middle(" ".join(others[-_NOTE_SENTENCES:]), _NOTE_CHARS)] if others else []
    state = replace(
        state,
        environment=with_facts(state.environment, stated_facts(text)),
        decisions=_newest("decisions", state.decisions, decisions),
        discoveries=_newest("discoveries", state.discoveries, discoveries),
        assistant_notes=_newest("assistant_notes", state.assistant_notes, notes),
    )
    changes = (effect for effect in effects_in_text(text) if isinstance(effect, FileChange))
    return _with_files(state, [each for change in changes for each in _actions(change)])


def _captured(sentence: str, cue: re.Match[str] | None, most: int) -> str:
    """The sentence, or the part from the cue on when it is too long; "" when it says too little."""
    if cue is None or len(sentence[cue.end() :].strip(" .!,;:")) < _LEAST_CAPTURE:
        return ""
    return headline(sentence if len(sentence) <= most else sentence[cue.start() :], most)


def _reasoned(sentence: str) -> str:
    """A sentence with a reason, else "". A long one loses its middle: a reason alone says nothing."""
    reason = None if sentence.endswith("?") else _BECAUSE.search(sentence)
    return cut_middle(sentence, _DECISION_CHARS) if _captured(sentence, reason, len(sentence)) else ""


def _with_result(state: WorkingState, call: ToolCall, text: str, results: int) -> WorkingState:
    tool, arguments = tool_named(call.name), arguments_of(call.arguments)
    script = arguments.script if tool.runs_scripts or (tool.runs_commands and not arguments.path) else ""
    effects = effects_of(call, text) if call.arguments else ()
    label = _label(call, arguments, script)
    failure = next(filter(_is_failure, effects), None)
    changes = (effect for effect in effects if isinstance(effect, FileChange))
    actions = [each for change in changes for each in _actions(change)]
    handles_files = tool.edits is not None or tool.shows_files or tool.is_editor
    is_about_file = not script and bool(actions or tool.patches or (arguments.path and handles_files))
    if is_about_file:
        actions += _looked_or_failed(tool, arguments, effects, text)
    for tasks in (effect for effect in effects if isinstance(effect, TaskList)):
        state = replace(state, plan=_planned(state.plan, tasks))
    state = _with_files(state, actions)
    if isinstance(failure, Command | Failure):
        failed = ToolFailure(label, clean(failure.said))
        state = replace(state, failures=_last((*state.failures, failed), _MOST["failures"]))
    elif script:
        state = replace(state, environment=with_facts(state.environment, shell_facts(script, text)))
    if is_about_file or tool.keeps_tasks:
        return state
    note = ToolNote(label, _output(tool, text, failure is not None), failure is not None)
    return replace(state, tool_results=_last((*state.tool_results, note), results))


def _is_failure(effect: Effect) -> bool:
    return isinstance(effect, Failure) or (isinstance(effect, Command) and effect.ok is False)


def _looked_or_failed(
    tool: Tool, arguments: Arguments, effects: Iterable[Effect], text: str
) -> Iterator[tuple[str, FileAction]]:
    """(path, action) of the files that a call only read or could not change."""
    for effect in effects:
        if isinstance(effect, FileRead) and effect.what == arguments.path:
            yield effect.what, FileAction("read", _seen(arguments, text))
        elif isinstance(effect, Failure):
            kind: ActionKind = "read" if tool.shows_files else _KINDS[tool.edits or "edited"]
            paths = effect.about if kind != "read" else (arguments.path,)
            yield from ((path, FileAction(kind, failed=True)) for path in paths)


def _actions(change: FileChange) -> Iterator[tuple[str, FileAction]]:
    kind = _KINDS[change.state]
    if kind == "edit" and change.edits:
        for before, after in change.edits[-_MOST_ACTIONS:]:
            yield change.path, FileAction("edit", before=clean(before), after=clean(after))
    else:
        yield change.path, FileAction(kind, clean(f"-> {change.to}" if change.to else change.detail))


def _with_files(state: WorkingState, actions: Sequence[tuple[str, FileAction]]) -> WorkingState:
    """The state with these actions; each file among them moves to the end."""
    notes = {note.path: note.actions for note in state.files}
    for path, action in actions:
        known = notes.pop(path, ())
        if action.kind == "create" and any(each.kind != "delete" and not each.failed for each in known):
            action = replace(action, kind="rewrite")
        # A repeated action is kept once, at its newest place.
        notes[path] = _kept((*(each for each in known if each != action), action))
    files = tuple(FileNote(path, done) for path, done in notes.items())
    return replace(state, files=_last(files, _MOST["files"])) if actions else state


def _kept(actions: tuple[FileAction, ...]) -> tuple[FileAction, ...]:
    """The newest actions; reads are dropped first, because changes matter longer."""
    excess = len(actions) - _MOST_ACTIONS
    reads = [place for place, action in enumerate(actions[:-1]) if action.kind == "read"][: max(0, excess)]
    return _last(tuple(action for place, action in enumerate(actions) if place not in reads), _MOST_ACTIONS)


def _seen(arguments: Arguments, shown: str) -> str:
    """The part of a file that was read, its number of lines, and the names that they define."""
    given = arguments.keyed
    start, end = given.get("offset", given.get("startline")), given.get("endline")
    if isinstance(count := given.get("limit"), int) and end is None:
        end = (start if isinstance(start, int) else 1) + count - 1
    part = f"lines {start or 1}-{end or ''}; " if isinstance(start or end, int) else ""
    names = dict.fromkeys(_DEFINED.findall(shown))
    defines = f"; defines {', '.join([*names][:_SHOWN_NAMES])}" if names else ""
    return headline(f"{part}{counted(shown)}{defines}", _READ_CHARS)


def _planned(plan: tuple[PlanStep, ...], tasks: TaskList) -> tuple[PlanStep, ...]:
    """The plan after a call of a plan tool; a step without an id gets its number, from 1."""
    before = TaskList(
        tuple((step.label, _STATES[step.status]) for step in plan), ids=tuple(step.id for step in plan)
    )
    found = merged(before, tasks)
    ids = found.ids or ("",) * len(found.items)
    steps = (
        PlanStep(clean(ident) or str(place), clean(label), _STATUSES[state])
        for place, ((label, state), ident) in enumerate(zip(found.items, ids, strict=True), 1)
    )
    return tuple(step for step in steps if step.label)[: _MOST["plan"]]


def _label(call: ToolCall, arguments: Arguments, script: str) -> str:
    if script:
        return clean(line_of(script))
    return one_line(clean(f"{call.name} {key_arguments(arguments)}".strip()), COMMAND_CHARS)


def _output(tool: Tool, text: str, failed: bool) -> str:
    """The result in short: of a search the count and first lines, of other tools head and tail (D05)."""
    seen = result_of(text)
    shown = seen.text if seen.said is not None and not seen.is_data else text
    if not tool.searches or failed:
        return cut_middle(shown.strip("\n").rstrip(), _FAILED_OUTPUT_CHARS if failed else _OUTPUT_CHARS)
    lines = [line.rstrip() for line in shown.splitlines() if line.strip()]
    said = _COUNTED.match(shown)
    number = 0 if not lines or _NO_MATCH.match(shown) else int(said[1]) if said else len(lines)
    count = f"{number} match{'' if number == 1 else 'es'}"
    found = lines[1:] if said else lines
    shown = "\n".join((count, *found[:_SEARCH_LINES])) if number else count
    return cut_middle(shown, _SEARCH_CHARS)


def _call_of(messages: Sequence[Message], place: int) -> ToolCall | None:
    """The newest call before a result with its id; ids may be reused (F02)."""
    ident = messages[place].answers or ""
    for earlier in reversed(messages[max(0, place - _LOOKED_BACK) : place]):
        for call in reversed(calls_of(earlier)):
            if call.id == ident:
                return call
    return None


def _newest(slot: str, known: tuple[str, ...], said: Iterable[str]) -> tuple[str, ...]:
    """The newest entries, each once, at its last place."""
    distinct = dict.fromkeys(known)
    for each in said:
        distinct.pop(each, None)
        distinct[each] = None
    return _last(tuple(distinct), _MOST[slot])


def _last(entries: tuple[T, ...], most: int) -> tuple[T, ...]:
    return entries[max(0, len(entries) - most) :]
