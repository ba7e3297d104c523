"""Typed notes from stored messages.

Every note comes from the messages, never from the text of an earlier block, so that fifty folds lose no more
than one. Later messages update earlier notes: a file's last state, a command that passed after it failed, a
repeated rule. A question is open while no user message has followed it. Nothing is said to be replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import sha256

from palimpsest.core.history.message import RESULT_ROLES, Message
from palimpsest.core.notes.actions import forget_keys
from palimpsest.core.notes.effects import effects_in_text, effects_of, open_file_after
from palimpsest.core.notes.facts import forget_stems, newest_of_frames, stems_of
from palimpsest.core.notes.languages import forget_openings
from palimpsest.core.notes.note import (
    TASKS,
    Action,
    Command,
    Effect,
    Failure,
    FileChange,
    FileRead,
    FileState,
    Kind,
    Note,
    Notes,
    Speaker,
    TaskList,
    called,
    merged,
    same_file,
)
from palimpsest.core.notes.questions import (
    asks_for_something,
    closing_sentences,
    is_intention,
    is_short_answer,
    is_whole,
    mentions_picture,
    question_in,
)
from palimpsest.core.notes.rules import rules_in
from palimpsest.core.notes.sentences import sentences_of
from palimpsest.core.notes.tool_words import forget_tools
from palimpsest.core.text.message_text import (
    LEFT_OUT,
    ToolCall,
    calls_of,
    cut_middle,
    on_one_line,
    text_of,
    without_data,
)
from palimpsest.core.text.secrets import without_secrets

# Characters of an assistant's closing words, of a call without a result, of the words with a picture.
_OUTCOME_CHARS = 240
_CALL_CHARS = 120
_PICTURE_CHARS = 240
# Characters of a message that are read as a request; of a longer one head and tail.
_REQUEST_CHARS = 6_000
# Stems of an assistant's sentence; a shorter one narrates, or is a list item that depends on its list.
_LEAST_STEMS = 4
# Notes in all cached readings: some 6 MB.
_MOST_KEPT = 20_000
# Characters; a shorter line may be said twice and mean two things ("yes").
_LEAST_LINE = 24
_PICTURE = re.compile(r"\[IMAGE (\S+)(?: (\d+) bytes)?[^\]]*\]")
_MARKS = {"done": "[x]", "doing": "[in progress]", "open": "[ ]", "dropped": "[dropped]"}


@dataclass(slots=True)
class _Reading:
    """The state of reading: what the messages read so far say."""

    turn: int = 0
    place: int = 0
    opened: str = ""
    asked: str = ""
    running: int | None = None
    calls: dict[str, ToolCall] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    rules: dict[str, Note] = field(default_factory=dict)
    # The note of each file's last change, the file's state, and the number of changes.
    files: list[tuple[Note, FileState, int]] = field(default_factory=list)
    actions: dict[str, tuple[Note, ...]] = field(default_factory=dict)
    commands: dict[str, Note] = field(default_factory=dict)
    failed: dict[Failure, Note] = field(default_factory=dict)
    reads: dict[str, Note] = field(default_factory=dict)
    todo: TaskList | None = None
    tasks: list[Note] = field(default_factory=list)
    outcomes: list[Note] = field(default_factory=list)
    seen_lines: set[str] = field(default_factory=set)
    read: int = 0

    def copy(self) -> _Reading:
        """An independent copy. The collections are copied, their immutable elements are shared."""
        held = {name: copy(getattr(self, name)) for name in self.__slots__}
        return _Reading(**held)

    def note(self, kind: Kind, text: str, by: Speaker, *, binds: bool = False, subject: str = "") -> Note:
        """A note of the current message."""
        return Note(kind, text, self.place, self.turn, by, binds, subject)


def notes_of(messages: Sequence[Message]) -> Notes:
    """The notes of messages, oldest first. Copies of our own texts must be removed before."""
    reading = _Reading()
    _read(reading, messages)
    return _current_notes(reading)


def notes_of_fold(
    folded: Sequence[tuple[bytes, Message]], tail: Sequence[Message], turns: int = 0
) -> tuple[Note, ...]:
    """The notes of a conversation whose messages `folded` (each with its chain digest) leave the view.

    The tail is read too, because it updates earlier notes. Messages that an earlier fold read are taken from
    the cache. `turns` is the number of user turns before the first message.
    """
    reading = _cache.of(folded, turns) or _Reading(turns)
    _read(reading, [message for _, message in folded[reading.read :]])
    _cache.keep(folded, turns, reading)
    _read(reading, tail)
    return _current_notes(reading).notes


def _read(reading: _Reading, messages: Iterable[Message]) -> None:
    for message in messages:
        reading.place = reading.read
        reading.read += 1
        if message.role in RESULT_ROLES:
            _read_result(reading, message)
        elif message.role == "assistant":
            _read_assistant(reading, message)
        elif message.role == "user":
            _read_user(reading, message)
        elif message.is_instruction and reading.turn:
            for rule in rules_in(_clean(message)):
                _add_rule(reading, rule, "system")


def _current_notes(reading: _Reading) -> Notes:
    """The notes; a user's newest sentence about a value binds where an earlier one had another value.

    So no block shows the earlier one alone. Which of them holds is the reader's to judge.
    """
    notes = [*reading.notes, *_updated_notes(reading)]
    facts = [note for note in notes if note.kind == "fact" and note.by == "user"]
    newest = {id(facts[index]) for index in newest_of_frames([note.text for note in facts])}
    notes = [replace(note, binds=True) if id(note) in newest else note for note in notes]
    return Notes(tuple(sorted(notes, key=lambda note: note.place)), reading.running)


def _digests(folded: Sequence[tuple[bytes, Message]], turns: int) -> Iterator[bytes]:
    """The digest of each beginning of the folded messages, the empty one first."""
    digest = sha256(turns.to_bytes(8))
    yield digest.digest()
    for chain, _ in folded:
        digest.update(chain)
        yield digest.digest()


class _ReadingCache:
    """A cache of readings of folded messages, by the chain digests of these.

    Threads share it: the dictionary is never changed, only replaced. An entry lost to a race between them is
    read again.
    """

    def __init__(self) -> None:
        self._readings: dict[bytes, _Reading] = {}

    def of(self, folded: Sequence[tuple[bytes, Message]], turns: int) -> _Reading | None:
        """A copy of the longest reading of a prefix of `folded`; None without any."""
        readings = self._readings
        lengths = {reading.read for reading in readings.values()}
        found = None
        for place, digest in enumerate(_digests(folded, turns)):
            if place in lengths:
                found = readings.get(digest, found)
        return found.copy() if found else None

    def forget(self) -> None:
        """Forgets all readings."""
        self._readings = {}

    def keep(self, folded: Sequence[tuple[bytes, Message]], turns: int, reading: _Reading) -> None:
        """Stores a copy; the oldest entries go when the cache has too many notes."""
        *_, digest = _digests(folded, turns)
        readings = {key: each for key, each in self._readings.items() if key != digest}
        readings[digest] = reading.copy()
        while sum(len(each.notes) + 1 for each in readings.values()) > _MOST_KEPT:
            del readings[next(iter(readings))]
        self._readings = readings


_cache = _ReadingCache()


def forget_conversations() -> None:
    """Forgets what was read of any conversation: readings, and the sentences and words in caches (P6)."""
    _cache.forget()
    sentences_of.cache_clear()
    forget_keys()
    forget_stems()
    forget_openings()
    forget_tools()


def _clean(message: Message) -> str:
    return without_secrets(without_data(text_of(message)))


def _read_user(reading: _Reading, message: Message) -> None:
    text = _clean(message).strip()
    reading.turn += 1
    reading.running = reading.place
    # A call that the user did not wait for will not get a result.
    reading.calls.clear()
    pictures = _PICTURE.findall(text)
    text = _PICTURE.sub("", text).strip()
    words = _new_lines(reading, text)
    for mime, size in pictures:
        kind = f"{mime}, {int(size):,} bytes" if size else mime
        shown = f"a picture ({kind}) was shown here; it is not visible now"
        if text:
            # The sentence that mentions a picture, else the last one.
            sentences = sentences_of(words or text) or (words or text,)
            about = on_one_line(next(filter(mentions_picture, sentences), sentences[-1]))
            shown += f', with the words "{cut_middle(about, _PICTURE_CHARS)}"'
        reading.notes.append(reading.note("picture", shown, "user", binds=True))
    if not text:
        return
    for rule in rules_in(text):
        _add_rule(reading, rule, "user")
    if reading.asked and is_short_answer(text):
        words = f'{text} (asked: "{reading.asked}")'
    reading.asked = ""
    if words:
        reading.notes.append(reading.note("request", words, "user"))
        reading.notes += [reading.note("fact", sentence, "user") for sentence in sentences_of(text)]


def _read_assistant(reading: _Reading, message: Message) -> None:
    text = _clean(message).strip()
    calls = calls_of(message)
    reading.calls.update((call.id, call) for call in calls)
    if not text:
        return
    for effect in effects_in_text(text):
        _add_effect(reading, effect)
    reading.asked = question_in(text) if not calls else ""
    for sentence in sentences_of(text):
        if is_informative(sentence) and not (calls and is_intention(sentence)):
            reading.notes.append(reading.note("fact", sentence, "assistant"))
    if calls:
        return
    reading.running = None
    closing = closing_sentences(text, _OUTCOME_CHARS)
    if closing:
        reading.outcomes.append(reading.note("outcome", closing, "assistant"))


def is_informative(sentence: str) -> bool:
    """True for an assistant's sentence that can be understood alone and asks nothing of the user.

    A short sentence counts when it has a number; a list item must be twice as long as a sentence.
    """
    if asks_for_something(sentence) or sentence[-1:] in ":：":
        return False
    stems = stems_of(sentence)
    if not any(map(str.isalpha, stems)):
        # Numbers without a word for what they count.
        return False
    length = len(stems)
    if not is_whole(sentence):
        return length >= 2 * _LEAST_STEMS
    return length >= _LEAST_STEMS or any(map(str.isdigit, sentence))


def _read_result(reading: _Reading, message: Message) -> None:
    call = reading.calls.pop(message.answers or "", None)
    if call is None:
        return
    result = text_of(message)
    for effect in effects_of(call, result, reading.opened):
        _add_effect(reading, effect)
    reading.opened = open_file_after(call, result) or reading.opened


def _add_effect(reading: _Reading, effect: Effect) -> None:
    """Adds an effect; a newer one of the same file, command or list replaces the older one."""
    match effect:
        case FileChange():
            _resolve_failures(reading, effect.path)
            _add_file(reading, effect)
        case Command():
            _add_command(reading, effect)
        case Action():
            text = f"{effect.name} {effect.arguments}".rstrip() + f": {effect.outcome or 'ok'}"
            note = reading.note("change", text, "assistant", binds=True, subject=effect.name)
            # The same call with another outcome is another change: two bookings, each with its id.
            reading.actions[text] = (*reading.actions.get(text, ()), note)
            _resolve_failures(reading, *called(effect.name, effect.arguments))
        case Failure():
            text = f"{effect.what}: failed{f', {effect.said}' if effect.said else ''}"
            _resolve_failures(reading, *effect.about[:1])
            reading.failed[effect] = reading.note("failure", text, "tool", binds=True, subject=effect.what)
        case TaskList():
            _resolve_failures(reading, TASKS)
            reading.todo = merged(reading.todo, effect)
            lines = [f"{_MARKS[state]} {item}" for item, state in reading.todo.items]
            reading.tasks = [reading.note("task", line, "assistant", binds=True) for line in lines]
        case FileRead():
            _resolve_failures(reading, effect.name)
            reading.reads.pop(effect.what, None)
            reading.reads[effect.what] = reading.note("read", effect.what, "assistant")


def _resolve_failures(reading: _Reading, *names: str) -> None:
    """Removes the failures about these names: one of them succeeded or failed again."""
    resolved = [
        failure
        for failure in reading.failed
        if any(same_file(name, about) for name in names for about in failure.about)
    ]
    for failure in resolved:
        del reading.failed[failure]


def _add_rule(reading: _Reading, rule: str, by: Speaker) -> None:
    """A repeated rule counts once, in its newest spelling and at its newest place."""
    key = " ".join(re.findall(r"\w+", rule.lower()))
    reading.rules[key] = reading.note("rule", rule, by, binds=True)


def _add_command(reading: _Reading, command: Command) -> None:
    said = f", {command.said}" if command.said else ""
    outcome = {True: "ok", False: "failed", None: "no outcome yet"}[command.ok]
    note = reading.note(
        "command",
        f"`{command.line}`: {outcome}{said}",
        "tool",
        subject="" if command.only_files else command.line,
    )
    # The newest run of a command counts, at its own position.
    reading.commands.pop(command.line, None)
    reading.commands[command.line] = replace(note, binds=command.ok is False)


def _add_file(reading: _Reading, change: FileChange) -> None:
    files, state = reading.files, change.state
    known = (at for at in reversed(range(len(files))) if same_file(files[at][0].subject, change.path))
    at = next(known, len(files))
    path, times = change.path, 1
    if at < len(files):
        note, before, changes = files[at]
        path, times = note.subject, changes + 1
        state = before if before == "created" and state == "edited" else state
    counted = f" ({times} times)" if times > 1 and state == "edited" else ""
    where = f" -> {change.to}" if change.to else ""
    detail = f": {change.detail}" if change.detail and change.state in ("created", "edited") else ""
    text = f"{state} {path}{where}{counted}{detail}"
    note = reading.note("change", text, "assistant", binds=True, subject=path)
    files[at : at + 1] = [(note, state, times)]


def _new_lines(reading: _Reading, text: str) -> str:
    """The text without lines of the user's earlier messages, so that boilerplate is kept once."""
    if len(text) > _REQUEST_CHARS:
        text = f"{text[: _REQUEST_CHARS * 2 // 3]}\n{LEFT_OUT}\n{text[-_REQUEST_CHARS // 3 :]}"
    kept = []
    for line in text.split("\n"):
        key = " ".join(line.split())
        if key not in reading.seen_lines or len(key) < _LEAST_LINE:
            kept.append(line)
        reading.seen_lines.add(key)
    return "\n".join(kept).strip()


def _updated_notes(reading: _Reading) -> Iterator[Note]:
    yield from reading.rules.values()
    yield from reading.tasks
    yield from (note for note, _, _ in reading.files)
    for notes in reading.actions.values():
        times = f" (x{len(notes)})" if len(notes) > 1 else ""
        yield replace(notes[-1], text=notes[-1].text + times)
    yield from reading.commands.values()
    yield from reading.failed.values()
    yield from reading.reads.values()
    yield from reading.outcomes
    if reading.asked:
        yield reading.note("open", f'asked of the user: "{reading.asked}"', "assistant", binds=True)
    for call in reading.calls.values():
        text = f"no result yet: {call.name} {' '.join(call.arguments.split())[:_CALL_CHARS]}"
        yield reading.note("open", text, "assistant", binds=True)
