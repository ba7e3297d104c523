"""The one reader: from stored messages to typed notes.

Every note comes from the messages themselves, never from the text of an earlier block, so that fifty folds
lose no more than one. What later messages settle is settled here: a file's last state, a command that passed
after it failed, a rule said again, a question that was answered. Knows nothing of tokens or of blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import sha256

from app.core.history.message import Message
from app.core.notes.acts import (
    TASKS,
    Action,
    Command,
    Effect,
    Failure,
    FileChange,
    Read,
    TaskList,
    called,
    merged,
    same_file,
)
from app.core.notes.effects import effects_in_text, effects_of, opened_by
from app.core.notes.facts import put_aside, replaced, words_of
from app.core.notes.note import Kind, Note, Notes, Speaker
from app.core.notes.questions import (
    asks_for_something,
    closing_of,
    intends,
    is_assent,
    is_question,
    is_whole,
    names_picture,
    opens_as_answer,
    question_in,
)
from app.core.notes.rules import rules_in
from app.core.notes.sentences import sentences_of
from app.core.text.secrets import without_secrets
from app.core.text.wording import LEFT_OUT, Call, calls_of, cut_middle, on_one_line, text_of, without_data

_RESULTS = frozenset({"tool", "function"})
# Characters: of an assistant's closing words, of a call without a result.
_OUTCOME_CHARS = 240
_CALL_CHARS = 120
_PICTURE_CHARS = 240
# ... and of a sentence that tells what holds instead of another one.
_MARK_CHARS = 120
# Characters of a message that are read for requests: beyond it, head and tail.
_REQUEST_CHARS = 6_000
# Stems: a shorter sentence of an assistant narrates, or is an item that its list explains.
_LEAST_TOLD = 4
# Stems: a question with fewer asks for nothing in particular ("Could you provide those details?").
_LEAST_ASKED = 3
# Share of a question's stems that an answer takes up at least.
_LEAST_TAKEN_UP = 1 / 6
# Notes in all readings that are kept for the next fold: some 30 MB.
_MOST_KEPT = 100_000
# A shorter line may be said twice and mean two things ("yes").
_LEAST_LINE = 24
_PICTURE = re.compile(r"\[IMAGE (\S+)(?: (\d+) bytes)?[^\]]*\]")
_ASKED = 'asked of the user, no answer seen: "{}"'
_MARKS = {"done": "[x]", "doing": "[in progress]", "open": "[ ]", "dropped": "[dropped]"}


@dataclass(frozen=True, slots=True)
class _File:
    """What became of a file: its state and how often it was changed, newest last."""

    path: str
    state: str
    place: int
    turn: int
    times: int = 1
    to: str = ""
    detail: str = ""


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    turn: int = 0
    place: int = 0
    opened: str = ""
    asked: str = ""
    unanswered: Note | None = None
    running: int | None = None
    calls: dict[str, Call] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    rules: dict[str, Note] = field(default_factory=dict)
    files: list[_File] = field(default_factory=list)
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
        """One that goes its own way: what is in its lists is never changed."""
        held = {name: copy(getattr(self, name)) for name in self.__slots__}
        return _Reading(**held)

    def note(self, kind: Kind, text: str, by: Speaker, *, binds: bool = False, subject: str = "") -> Note:
        """A note of the message that is being read."""
        return Note(kind, text, self.place, self.turn, by, binds, subject)


def notes_of(messages: Sequence[Message]) -> Notes:
    """The notes of messages, the oldest first, echoes of ours taken out before."""
    reading = _Reading()
    _read(reading, messages)
    return _told(reading)


def notes_of_fold(
    folded: Sequence[tuple[bytes, Message]], tail: Sequence[Message], turns: int = 0
) -> tuple[Note, ...]:
    """The notes of a conversation of which `folded` (each with its chain digest) will not be shown.

    It is read to its end: what stands in the tail settles what was said before it. What an earlier fold read
    is not read again. `turns` of the user came before the first message.
    """
    reading = _earlier.of(folded, turns) or _Reading(turns)
    _read(reading, [message for _, message in folded[reading.read :]])
    _earlier.keep(folded, turns, reading)
    _read(reading, tail)
    return _told(reading).notes


def _read(reading: _Reading, messages: Iterable[Message]) -> None:
    for message in messages:
        reading.place = reading.read
        reading.read += 1
        if message.role in _RESULTS:
            _hear_result(reading, message)
        elif message.role == "assistant":
            _hear_assistant(reading, message)
        elif message.role == "user":
            _hear_user(reading, message)
        elif message.is_instruction and reading.turn:
            for rule in rules_in(_clean(message)):
                _add_rule(reading, rule, "system")


def _told(reading: _Reading) -> Notes:
    told = _holding([*reading.notes, *_settled(reading)])
    return Notes(tuple(sorted(told, key=lambda note: note.place)), reading.running)


class _Earlier:
    """Readings of what was folded last, by the digests of its messages.

    Threads share it: what is in force is never changed, only replaced. What one of them loses by that is
    read again.
    """

    def __init__(self) -> None:
        self._readings: dict[bytes, _Reading] = {}

    def of(self, folded: Sequence[tuple[bytes, Message]], turns: int) -> _Reading | None:
        """The longest one that `folded` begins with, to read on from; None where there is none."""
        readings = self._readings
        lengths = {reading.read for reading in readings.values()}
        digest = sha256(turns.to_bytes(8))
        found = None
        for place, (chain, _) in enumerate(folded, 1):
            digest.update(chain)
            if place in lengths:
                found = readings.get(digest.digest(), found)
        return found.copy() if found else None

    def keep(self, folded: Sequence[tuple[bytes, Message]], turns: int, reading: _Reading) -> None:
        """Keeps a copy; the oldest go where all have too many notes."""
        digest = sha256(turns.to_bytes(8))
        for chain, _ in folded:
            digest.update(chain)
        readings = {key: each for key, each in self._readings.items() if key != digest.digest()}
        readings[digest.digest()] = reading.copy()
        while sum(len(each.notes) + 1 for each in readings.values()) > _MOST_KEPT:
            del readings[next(iter(readings))]
        self._readings = readings


_earlier = _Earlier()


def _clean(message: Message) -> str:
    return without_secrets(without_data(text_of(message)))


def _hear_user(reading: _Reading, message: Message) -> None:
    text = _clean(message).strip()
    reading.turn += 1
    reading.running = reading.place
    # What the user did not wait for has no result any more.
    reading.calls.clear()
    pictures = _PICTURE.findall(text)
    text = _PICTURE.sub("", text).strip()
    words = _new_lines(reading, text)
    for mime, size in pictures:
        kind = f"{mime}, {int(size):,} bytes" if size else mime
        told = f"a picture ({kind}) was shown here; it is not visible now"
        about = f', with the words "{cut_middle(_on_picture(words or text), _PICTURE_CHARS)}"' if text else ""
        reading.notes.append(reading.note("picture", told + about, "user", binds=True))
    if not text:
        return
    for rule in rules_in(text):
        _add_rule(reading, rule, "user")
    if reading.asked and is_assent(text):
        words = f'{text} (asked: "{reading.asked}")'
    elif _is_passed_over(reading.asked, words):
        reading.unanswered = reading.note("open", _ASKED.format(reading.asked), "assistant", binds=True)
    reading.asked = ""
    if words:
        reading.notes.append(reading.note("request", words, "user"))
        reading.notes += [reading.note("fact", sentence, "user") for sentence in sentences_of(text)]


def _hear_assistant(reading: _Reading, message: Message) -> None:
    text = _clean(message).strip()
    calls = calls_of(message)
    reading.calls.update((call.id, call) for call in calls)
    if not text:
        return
    for effect in effects_in_text(text):
        _settle(reading, effect)
    reading.asked = question_in(text) if not calls else ""
    for sentence in sentences_of(text):
        if tells(sentence) and not (calls and intends(sentence)):
            reading.notes.append(reading.note("fact", sentence, "assistant"))
    if calls:
        return
    reading.running = None
    closing = closing_of(text, _OUTCOME_CHARS)
    if closing:
        reading.outcomes.append(reading.note("outcome", closing, "assistant"))


def _on_picture(text: str) -> str:
    """The sentence that speaks of a picture, else the last one, on one line."""
    sentences = sentences_of(text) or (text,)
    return on_one_line(next(filter(names_picture, sentences), sentences[-1]))


def _is_passed_over(asked: str, text: str) -> bool:
    """True when a user's words have next to nothing of a question that asks for something in particular."""
    about = words_of(asked)
    if not is_question(asked) or len(about) < _LEAST_ASKED or opens_as_answer(text):
        return False
    return len(about & words_of(text)) < _LEAST_TAKEN_UP * len(about)


def tells(sentence: str) -> bool:
    """True for what an assistant says that can be understood alone, and wants nothing of the user.

    A short item is explained by its list; a short sentence with a number in it tells that.
    """
    if asks_for_something(sentence) or sentence[-1:] in ":：":
        return False
    stems = words_of(sentence)
    if not any(map(str.isalpha, stems)):
        # Numbers without a word of what they count.
        return False
    things = len(stems)
    if not is_whole(sentence):
        return things >= 2 * _LEAST_TOLD
    return things >= _LEAST_TOLD or any(map(str.isdigit, sentence))


def _hear_result(reading: _Reading, message: Message) -> None:
    call = reading.calls.pop(message.answers or "", None)
    if call is None:
        return
    result = text_of(message)
    for effect in effects_of(call, result, reading.opened):
        _settle(reading, effect)
    reading.opened = opened_by(call, result) or reading.opened


def _settle(reading: _Reading, effect: Effect) -> None:
    """Takes an effect in: what is newer of the same file, command or list replaces what was there."""
    match effect:
        case FileChange():
            _cure(reading, effect.path)
            _add_file(reading, effect)
        case Command():
            _add_command(reading, effect)
        case Action():
            note = reading.note("change", _action(effect), "assistant", binds=True, subject=effect.name)
            # The same with another outcome is another change: two bookings, each with its id.
            reading.actions[note.text] = (*reading.actions.get(note.text, ()), note)
            _cure(reading, *called(effect.name, effect.arguments))
        case Failure():
            text = f"{effect.what}: failed{f', {effect.said}' if effect.said else ''}"
            _cure(reading, *effect.about[:1])
            reading.failed[effect] = reading.note("failure", text, "tool", binds=True, subject=effect.what)
        case TaskList():
            _cure(reading, TASKS)
            reading.todo = merged(reading.todo, effect)
            lines = [f"{_MARKS[state]} {item}" for item, state in reading.todo.items]
            reading.tasks = [reading.note("task", line, "assistant", binds=True) for line in lines]
        case Read():
            _cure(reading, effect.name)
            reading.reads.pop(effect.what, None)
            reading.reads[effect.what] = reading.note("read", effect.what, "assistant")


def _cure(reading: _Reading, *names: str) -> None:
    """A failure holds until one of the things that it was about succeeds, or fails anew."""
    cured = [
        failure
        for failure in reading.failed
        if any(same_file(name, about) for name in names for about in failure.about)
    ]
    for failure in cured:
        del reading.failed[failure]


def _action(action: Action) -> str:
    return f"{action.name} {action.arguments}".rstrip() + f": {action.outcome or 'ok'}"


def _add_rule(reading: _Reading, rule: str, by: Speaker) -> None:
    """Said again, the newest spelling counts, where it was said first."""
    key = " ".join(re.findall(r"\w+", rule.lower()))
    reading.rules[key] = reading.note("rule", rule, by, binds=True)


def _add_command(reading: _Reading, command: Command) -> None:
    said = f", {command.said}" if command.said else ""
    outcome = {True: "ok", False: "failed", None: "no outcome yet"}[command.ok]
    note = reading.note(
        "command",
        f"`{command.line}`: {outcome}{said}",
        "tool",
        subject="" if command.is_told else command.line,
    )
    # The newest run of a command counts, at its new place.
    reading.commands.pop(command.line, None)
    reading.commands[command.line] = replace(note, binds=command.ok is False)


def _add_file(reading: _Reading, change: FileChange) -> None:
    files = reading.files
    at = next((at for at in reversed(range(len(files))) if same_file(files[at].path, change.path)), None)
    known = _File(change.path, change.state, 0, 0, 0) if at is None else files[at]
    stays_new = known.state == "created" and change.state == "edited" and known.times
    now = _File(
        known.path,
        known.state if stays_new else change.state,
        reading.place,
        reading.turn,
        known.times + 1,
        change.to,
        change.detail if change.state in ("created", "edited") else "",
    )
    if at is None:
        files.append(now)
    else:
        files[at] = now


def _new_lines(reading: _Reading, text: str) -> str:
    """The text without lines that an earlier message of the user already had: boilerplate stands once."""
    if len(text) > _REQUEST_CHARS:
        text = f"{text[: _REQUEST_CHARS * 2 // 3]}\n{LEFT_OUT}\n{text[-_REQUEST_CHARS // 3 :]}"
    kept = []
    for line in text.split("\n"):
        key = " ".join(line.split())
        if key not in reading.seen_lines or len(key) < _LEAST_LINE:
            kept.append(line)
        reading.seen_lines.add(key)
    return "\n".join(kept).strip()


def _settled(reading: _Reading) -> Iterator[Note]:
    yield from reading.rules.values()
    yield from reading.tasks
    yield from (_file_note(file) for file in reading.files)
    for notes in reading.actions.values():
        times = f" (x{len(notes)})" if len(notes) > 1 else ""
        yield replace(notes[-1], text=notes[-1].text + times)
    yield from reading.commands.values()
    yield from reading.failed.values()
    yield from reading.reads.values()
    yield from reading.outcomes
    yield from _open(reading)


def _holding(notes: Sequence[Note]) -> list[Note]:
    """The notes without facts whose value was replaced later; in a request or a rule it is marked."""
    facts = [note for note in notes if note.kind == "fact"]
    marks = {id(facts[index]): (facts[index], mark) for index, mark in _replacements(facts).items()}
    told: dict[int, list[tuple[str, str]]] = {}
    for fact, mark in marks.values():
        told.setdefault(fact.place, []).append((fact.text, mark))
    kept = []
    for note in notes:
        if id(note) in marks:
            continue
        for sentence, mark in told.get(note.place, ()) if note.kind in ("request", "rule") else ():
            note = replace(note, text=note.text.replace(sentence, f"{sentence} {mark}"))
        kept.append(note)
    return kept


def _replacements(facts: Sequence[Note]) -> dict[int, str]:
    """Of each replaced sentence what holds now: the same speaker's value, or the user's "X instead of Y"."""
    found: dict[int, str] = {}
    for speaker in ("user", "assistant"):
        places = [index for index, note in enumerate(facts) if note.by == speaker]
        newer = replaced([facts[index].text for index in places])
        found |= {places[old]: f"[later: {value}]" for old, (_, value) in newer.items()}
    said = [note.text.lower() for note in facts]
    for new, note in enumerate(facts):
        for value in put_aside(note.text) if note.by == "user" else ():
            named = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)")
            mark = f"[turn {note.turn}: {cut_middle(note.text, _MARK_CHARS)}]"
            found |= {old: mark for old in range(new) if value in said[old] and named.search(said[old])}
    return found


def _file_note(file: _File) -> Note:
    times = f" ({file.times} times)" if file.times > 1 and file.state == "edited" else ""
    where = f" -> {file.to}" if file.to else ""
    detail = f": {file.detail}" if file.detail else ""
    text = f"{file.state} {file.path}{where}{times}{detail}"
    return Note("change", text, file.place, file.turn, "assistant", True, file.path)


def _open(reading: _Reading) -> Iterator[Note]:
    if reading.asked:
        yield reading.note("open", _ASKED.format(reading.asked), "assistant", binds=True)
    elif reading.unanswered:
        yield reading.unanswered
    for call in reading.calls.values():
        text = f"no result yet: {call.name} {' '.join(call.arguments.split())[:_CALL_CHARS]}"
        yield reading.note("open", text, "assistant", binds=True)
