"""The working state: ten slots that code fills from the messages, without a model (D02 to D09).

It is computed when it is asked for, never stored. `notes.effects` reads what tool calls did,
`notes.sentences` what was said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from palimpsest.core.history.message import RESULT_ROLES, Message
from palimpsest.core.notes.effects import effects_in_text, effects_of, key_arguments
from palimpsest.core.notes.facts import stems_of
from palimpsest.core.notes.note import (
    COMMAND_CHARS,
    Command,
    Failure,
    FileChange,
    FileRead,
    TaskList,
    counted,
    merged,
    one_line,
    ranked_words,
)
from palimpsest.core.notes.reader import is_informative
from palimpsest.core.notes.results import result_of
from palimpsest.core.notes.sentences import decides, discovers, sentences_of
from palimpsest.core.notes.shell import line_of
from palimpsest.core.notes.tool_words import Tool, arguments_of, tool_named
from palimpsest.core.text.message_text import ToolCall, calls_of, cut_middle, headline, on_one_line, text_of
from palimpsest.core.text.secrets import clean

# Slots from which on no model is asked for what is missing (D12).
ENOUGH_SLOTS = 15
# Limits on the entries of a slot; the oldest goes. D04, D07 and D08 name 25.
_MOST, _MOST_STEPS = 25, 50
_MOST_FILES, _MOST_ACTIONS, _MOST_REQUIREMENTS, _MOST_NOTES, _MOST_FACTS = 100, 8, 100, 12, 20
# Characters of one entry (D05 to D09), and the least.
_TASK_CHARS, _REQUIREMENT_CHARS, _LEAST_REQUIREMENT = 400, 300, 5
_DECISION_CHARS, _DISCOVERY_CHARS, _LEAST_CAPTURE = 120, 150, 10
_NOTE_CHARS, _NOTE_SENTENCES, _LEAST_STEMS = 500, 5, 3
_OUTPUT_CHARS, _FAILED_OUTPUT_CHARS, _SEARCH_CHARS, _SEARCH_LINES = 800, 1_500, 600, 10
# Characters of a text that are read for facts about the environment.
_READ_CHARS = 20_000
_KINDS = {"created": "create", "edited": "edit", "deleted": "delete", "moved": "move"}
_STATUSES = {"done": "done", "doing": "active", "dropped": "dropped", "open": "pending"}
_BECAUSE = re.compile(r"\bbecause\b", re.IGNORECASE)
_COUNTED = re.compile(r"\s*found (\d+) (?:match|result|file|line)", re.IGNORECASE)
_NO_MATCH = re.compile(r"\s*(?:no (?:match|result|file)\w*(?: found)?\b|found 0 )", re.IGNORECASE)
# Blocks that clients add to user messages.
_CLIENTS = re.compile(
    r"<(env|environment_context|environment_details|system-reminder|user_instructions|user_info)>.*?</\1>",
    re.DOTALL,
)
# Languages, platforms, tools and databases that sentences name.
_TOOLS = ranked_words(
    "Python Node.js Node Deno Bun Java Kotlin Scala Golang Ruby PHP Perl TypeScript PostgreSQL Postgres "
    "MySQL MariaDB SQLite Redis Valkey MongoDB Elasticsearch Kafka RabbitMQ Docker Kubernetes Terraform "
    "Django Flask FastAPI React Vue Angular Rails Laravel Ubuntu Debian Fedora Alpine Windows macOS CUDA "
    "PyTorch npm Gradle"
)
_NAMED = re.compile(
    rf"(?<![\w./-])({'|'.join(map(re.escape, sorted(_TOOLS, key=len, reverse=True)))})"
    r"(?:\s+(?:version\s+)?v?(\d+(?:\.\d+){0,3}))?(?![\w/%]|\.\d)"
)
# A sentence that negates, asks, or tells of the past states no fact.
_DENIED = re.compile(
    r"\b(?:not|never|no longer|isn['’]t|aren['’]t|don['’]t|instead of|used to|if)\b|\?\s*$", re.IGNORECASE
)
_ASKS_VERSION = re.compile(r"\s*([\w.+-]+)\s+(?:--version|-v|-V|version)\s*(?:2>&1)?\s*\Z")
_VERSION = re.compile(r"(?<!\d)\d+(?:\.\d+)+")


@dataclass(frozen=True, slots=True)
class FileAction:
    """One action on a file; `detail`: the number of lines read or written, or the new path.

    `before` and `after` are the sides of an edit.
    """

    kind: str
    detail: str = ""
    before: str = ""
    after: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class FileNote:
    """A file by the path in the tool's arguments, and its newest actions, oldest first."""

    path: str
    actions: tuple[FileAction, ...]


@dataclass(frozen=True, slots=True)
class ToolNote:
    """A call in short: the command or call, and its outcome or the line that states the error."""

    label: str
    text: str
    failed: bool = False


@dataclass(slots=True)
class WorkingState:
    """The ten slots, each oldest first, `files` by their last use."""

    task: str = ""
    user_requirements: list[str] = field(default_factory=list)
    plan: list[dict[str, str]] = field(default_factory=list)
    environment: list[dict[str, str]] = field(default_factory=list)
    files: list[FileNote] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    assistant_notes: list[str] = field(default_factory=list)
    tool_results: list[ToolNote] = field(default_factory=list)
    failures: list[ToolNote] = field(default_factory=list)
    discoveries: list[str] = field(default_factory=list)

    @property
    def populated(self) -> int:
        """The number of filled slots: each entry of the ten categories counts (D12)."""
        slots = [getattr(self, each.name) for each in fields(self)[1:]]
        return bool(self.task) + sum(map(len, slots))


def working_state(messages: Sequence[Message], max_tool_results: int) -> WorkingState:
    """The state after `messages`, with the newest `max_tool_results` results (D16)."""
    state, tasks = WorkingState(), TaskList(())
    calls: dict[str, ToolCall] = {}
    versions: dict[str, str] = {}
    files: dict[str, tuple[FileAction, ...]] = {}
    for message in messages:
        text = clean(text_of(message))
        if message.role == "user":
            said = _CLIENTS.sub("", text[:_READ_CHARS]).strip()
            if said and (name := message.fields.get("name")):
                said = f"{clean(str(name))}: {said}"
            if not state.task:
                state.task = cut_middle(said, _TASK_CHARS)
            elif len(said) >= _LEAST_REQUIREMENT:
                wanted = cut_middle(on_one_line(said), _REQUIREMENT_CHARS)
                _add(state.user_requirements, wanted, _MOST_REQUIREMENTS)
            stated = " ".join(each for each in sentences_of(said) if not _DENIED.search(each))
            versions |= {name: number or versions.get(name, "") for name, number in _NAMED.findall(stated)}
        elif message.role == "assistant":
            # An id may be reused (F02).
            calls |= {call.id: call for call in calls_of(message)}
            _add_words(state, text)
            for effect in effects_in_text(text):
                if isinstance(effect, FileChange):
                    _add_change(files, effect)
        elif message.role in RESULT_ROLES:
            name = str(message.fields.get("name") or "tool")
            call = calls.get(message.answers or "") or ToolCall("", name, "")
            tasks = _add_result(state, files, versions, tasks, call, text)
    state.files = [FileNote(path, done) for path, done in files.items()][-_MOST_FILES:]
    state.tool_results = state.tool_results[-max_tool_results:] if max_tool_results else []
    state.environment = [{"name": name, "value": value} for name, value in versions.items()][-_MOST_FACTS:]
    items = tasks.items[:_MOST_STEPS]
    ids = tasks.ids[:_MOST_STEPS] or ("",) * len(items)
    state.plan = [
        {"id": clean(ident) or str(place), "label": clean(label), "status": _STATUSES[done]}
        for place, ((label, done), ident) in enumerate(zip(items, ids, strict=True), 1)
    ]
    return state


def _add(entries: list[str], entry: str, most: int) -> None:
    """Adds the entry at the end, once; the oldest goes."""
    if entry in entries:
        entries.remove(entry)
    entries.append(entry)
    del entries[: max(0, len(entries) - most)]


def _add_words(state: WorkingState, text: str) -> None:
    """Adds an assistant's decisions (D07), discoveries (D08) and other informative sentences (D09)."""
    others: list[str] = []
    for sentence in (on_one_line(each.replace("**", "")) for each in sentences_of(text)):
        found = _captured(sentence, discovers(sentence), _DISCOVERY_CHARS)
        decided = _captured(sentence, decides(sentence), _DECISION_CHARS)
        if (
            not decided
            and sentence[-1:] != "?"
            and _captured(sentence, _BECAUSE.search(sentence), len(sentence))
        ):
            # A long one loses its middle: a reason alone says nothing.
            decided = cut_middle(sentence, _DECISION_CHARS)
        if found:
            _add(state.discoveries, found, _MOST)
        if decided:
            _add(state.decisions, decided, _MOST)
        is_other = sentence not in (found, decided) and is_informative(sentence)
        if is_other and len(stems_of(sentence)) >= _LEAST_STEMS:
            others.append(sentence)
    if others:
        _add(state.assistant_notes, cut_middle(" ".join(others[-_NOTE_SENTENCES:]), _NOTE_CHARS), _MOST_NOTES)


def _captured(sentence: str, cue: re.Match[str] | None, most: int) -> str:
    """The sentence, or the part from the cue on when it is too long; "" when it says too little."""
    if cue is None or len(sentence[cue.end() :].strip(" .!,;:")) < _LEAST_CAPTURE:
        return ""
    return headline(sentence if len(sentence) <= most else sentence[cue.start() :], most)


def _add_result(
    state: WorkingState,
    files: dict[str, tuple[FileAction, ...]],
    versions: dict[str, str],
    tasks: TaskList,
    call: ToolCall,
    text: str,
) -> TaskList:
    """Adds what a call did, failed or showed (D03 to D05); returns the task list after it."""
    tool, arguments = tool_named(call.name), arguments_of(call.arguments)
    script = arguments.script if tool.runs_scripts or (tool.runs_commands and not arguments.path) else ""
    effects = effects_of(call, text) if call.arguments else ()
    label = one_line(clean(f"{call.name} {key_arguments(arguments)}".strip()), COMMAND_CHARS)
    label = clean(line_of(script)) if script else label
    failure = next(
        (e for e in effects if isinstance(e, Failure) or (isinstance(e, Command) and e.ok is False)), None
    )
    handles_files = tool.edits is not None or tool.shows_files or tool.is_editor
    is_change = any(isinstance(effect, FileChange) for effect in effects)
    is_about_file = not script and bool(is_change or tool.patches or (arguments.path and handles_files))
    for effect in effects:
        if isinstance(effect, FileChange):
            _add_change(files, effect)
        elif isinstance(effect, TaskList):
            tasks = merged(tasks, effect)
        elif is_about_file and isinstance(effect, FileRead) and effect.what == arguments.path:
            _add_action(files, effect.what, FileAction("read", counted(text)))
        elif is_about_file and isinstance(effect, Failure):
            kind = "read" if tool.shows_files else _KINDS[tool.edits or "edited"]
            for path in effect.about if kind != "read" else (arguments.path,):
                _add_action(files, path, FileAction(kind, failed=True))
    if isinstance(failure, Command | Failure):
        state.failures = [*state.failures, ToolNote(label, clean(failure.said), failed=True)][-_MOST:]
    elif (asked := _ASKS_VERSION.match(script)) and (number := _VERSION.search(text)):
        versions[asked[1]] = number[0]
    if not (is_about_file or tool.keeps_tasks):
        shown = _output(tool, text, failure is not None)
        state.tool_results.append(ToolNote(label, shown, failure is not None))
    return tasks


def _add_change(files: dict[str, tuple[FileAction, ...]], change: FileChange) -> None:
    kind = _KINDS[change.state]
    if kind == "edit" and change.edits:
        for before, after in change.edits[-_MOST_ACTIONS:]:
            _add_action(files, change.path, FileAction("edit", before=clean(before), after=clean(after)))
    else:
        detail = clean(f"-> {change.to}" if change.to else change.detail)
        _add_action(files, change.path, FileAction(kind, detail))


def _add_action(files: dict[str, tuple[FileAction, ...]], path: str, action: FileAction) -> None:
    """Adds an action once, at the end of its file, and the file at the end. Of many, reads go first."""
    known = [each for each in files.pop(path, ()) if each != action]
    while len(known) >= _MOST_ACTIONS:
        known.remove(next((each for each in known if each.kind == "read"), known[0]))
    files[path] = (*known, action)


def _output(tool: Tool, text: str, failed: bool) -> str:
    """The result in short: of a search the count and first lines, of other tools head and tail (D05)."""
    seen = result_of(text)
    shown = seen.text if seen.said is not None and not seen.is_data else text
    if not tool.searches or failed:
        return cut_middle(shown.strip("\n").rstrip(), _FAILED_OUTPUT_CHARS if failed else _OUTPUT_CHARS)
    lines = [line.rstrip() for line in shown.splitlines() if line.strip()]
    said = _COUNTED.match(shown)
    number = 0 if not lines or _NO_MATCH.match(shown) else int(said[1]) if said else len(lines)
    found = (lines[1:] if said else lines)[:_SEARCH_LINES] if number else []
    return cut_middle("\n".join((f"{number} match{'' if number == 1 else 'es'}", *found)), _SEARCH_CHARS)
