"""Typed notes from stored messages, each at its place in the conversation.

Every note comes from the messages, never from the text of an earlier block, so that fifty folds lose no more
than one. Nothing is said to be done, answered or replaced; later messages only decide which note of a file, a
command or a failure every block must show. A question is open while no user message has followed it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType

import msgspec

from palimpsest.core.history.message import RESULT_ROLES, Message
from palimpsest.core.notes.effects import effects_in_text, effects_of, open_file_after
from palimpsest.core.notes.facts import forget_stems, newest_of_frames, stems_of
from palimpsest.core.notes.languages import entries, opening, plain
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
from palimpsest.core.notes.rules import rules_in
from palimpsest.core.notes.sentences import DATED, prose_of, sentences_of
from palimpsest.core.notes.tool_words import tool_named
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

# Characters of a call without a result, and of the words with a picture.
_CALL_CHARS, _PICTURE_CHARS = 120, 240
# Characters of a message that are read as a request; of a longer one head and tail.
_REQUEST_CHARS = 6_000
# Stems of an assistant's sentence; a shorter one narrates, or is a list item that depends on its list.
_LEAST_STEMS = 4
# Notes in all cached readings: some 6 MB.
_MOST_KEPT = 20_000
# Characters; a shorter line may be said twice and mean two things ("yes").
_LEAST_LINE = 24
_PICTURE = re.compile(r"\[IMAGE (\S+)(?: (\d+) bytes)?[^\]]*\]")
# A speaker of a group chat in the text itself: "[Ben]: I cannot come."
_SPEAKER = re.compile(r"^\[([^\[\]\n]{1,40})\]:\s+", re.MULTILINE)
# A command that an assistant wrote as text, for a client that answers in a user message.
_WRITTEN_CALL = re.compile(
    r"```(?:bash|sh|shell|console|mswea_bash_command)\s*\n(?P<script>.*?)\n```"
    r"|^Action:\s*(?P<name>[\w.-]+)(?:\[(?P<given>.*?)\]|\s*\n+Action Input:\s*(?P<input>.+?))\s*$"
    r"|<(?:execute_bash|execute|command)>\s*(?P<tagged>.*?)\s*</",
    re.DOTALL | re.MULTILINE,
)
_THOUGHT = re.compile(r"^thoughts?:\s*", re.IGNORECASE | re.MULTILINE)
_MARKS = {"done": "[x]", "doing": "[in progress]", "open": "[ ]", "dropped": "[dropped]"}
_OUTCOMES = {True: "ok", False: "failed", None: "no outcome yet"}


@dataclass(slots=True)
class _Reading:
    """The state of reading: what the messages read so far say.

    `notes` in the order of the conversation, by a key of what they are about: a note with a key that is
    known takes the older one's place, at the end. `files`, `commands`, `failed` have the keys of the notes
    that bind: a file's last change with its state, a command that failed last, failures not yet resolved.
    """

    turn: int = 0
    place: int = 0
    opened: str = ""
    asked: str = ""
    date: str = ""
    running: int | None = None
    written: ToolCall | None = None
    calls: dict[str, ToolCall] = field(default_factory=dict)
    notes: dict[object, Note] = field(default_factory=dict)
    rules: dict[str, Note] = field(default_factory=dict)
    files: dict[str, tuple[object, FileState]] = field(default_factory=dict)
    commands: dict[str, object] = field(default_factory=dict)
    failed: dict[Failure, object] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    todo: TaskList | None = None
    tasks: list[Note] = field(default_factory=list)
    seen_lines: set[str] = field(default_factory=set)
    read: int = 0

    def copy(self) -> _Reading:
        """An independent copy. The collections are copied, their immutable elements are shared."""
        held = {name: copy(getattr(self, name)) for name in self.__slots__}
        return _Reading(**held)

    def note(self, kind: Kind, text: str, by: Speaker, *, binds: bool = False, subject: str = "") -> Note:
        """A note of the current message."""
        return Note(kind, text, self.place, self.turn, by, binds, subject, date=self.date)

    def keep(self, note: Note, key: object = None) -> object:
        """Keeps the note at the end, in place of an older one with its key; gives the key."""
        key = key or (self.place, len(self.notes))
        self.notes.pop(key, None)
        self.notes[key] = note
        return key


def notes_of(messages: Sequence[Message]) -> Notes:
    """The notes of messages, oldest first. Copies of our own texts must be removed before."""
    reading = _Reading()
    _read(reading, messages)
    return _current_notes(reading)


class _Cache:
    """Readings of folded messages by a digest of these; replaced, never changed: threads share it."""

    readings: Mapping[bytes, _Reading] = MappingProxyType({})


_cache = _Cache()


def notes_of_fold(
    folded: Sequence[tuple[bytes, Message]], tail: Sequence[Message], turns: int = 0
) -> tuple[Note, ...]:
    """The notes of a conversation whose messages `folded` (each with its chain digest) leave the view.

    The tail is read too, because it decides what holds. Messages that an earlier fold read are taken from
    the cache. `turns` is the number of user turns before the first message.
    """
    digest, reading = sha256(turns.to_bytes(8)), _Reading(turns)
    for chain, _ in folded:
        digest.update(chain)
        reading = _cache.readings.get(digest.digest(), reading)
    reading = reading.copy()
    _read(reading, [message for _, message in folded[reading.read :]])
    kept = {**_cache.readings, digest.digest(): reading.copy()}
    # The oldest go. What is lost to a race between threads is read again.
    while sum(len(each.notes) + 1 for each in kept.values()) > _MOST_KEPT:
        del kept[next(iter(kept))]
    _cache.readings = kept
    _read(reading, tail)
    return _current_notes(reading).notes


def forget_conversations() -> None:
    """Forgets what was read of any conversation: readings, and the sentences and words in caches (P6)."""
    _cache.readings = {}
    sentences_of.cache_clear()
    forget_stems()
    tool_named.cache_clear()


def _read(reading: _Reading, messages: Iterable[Message]) -> None:
    for message in messages:
        reading.place = reading.read
        reading.read += 1
        if message.role in RESULT_ROLES:
            if call := reading.calls.pop(message.answers or "", None) or reading.written:
                _read_result(reading, call, text_of(message))
            reading.written = None
        elif message.role == "assistant":
            _read_assistant(reading, message)
        elif message.role == "user":
            _read_user(reading, _clean(message).strip(), str(message.fields.get("name") or ""))
            reading.written = None
        elif message.is_instruction and reading.turn:
            for rule in rules_in(_clean(message)):
                _add_rule(reading, rule, "system")


def _current_notes(reading: _Reading) -> Notes:
    """The notes; a user's newest sentence about a value binds where an earlier one had another value.

    So no block shows the earlier one alone. Which of them holds is the reader's to judge.
    """
    holding = {key for key, _ in reading.files.values()}
    holding.update(reading.failed.values(), reading.commands.values())
    notes = [
        replace(note, binds=True) if key in holding and not note.binds else note
        for key, note in reading.notes.items()
    ]
    facts = [note for note in notes if note.kind == "fact" and note.by == "user"]
    newest = {id(facts[index]) for index in newest_of_frames([note.text for note in facts])}
    notes = [replace(note, binds=True) if id(note) in newest else note for note in notes]
    waits = [
        *([f'asked of the user: "{reading.asked}"'] if reading.asked else []),
        *(
            f"no result yet: {c.name} {on_one_line(c.arguments)[:_CALL_CHARS]}"
            for c in reading.calls.values()
        ),
    ]
    notes += [*reading.rules.values(), *reading.tasks]
    notes += [reading.note("open", text, "assistant", binds=True) for text in waits]
    return Notes(tuple(sorted(notes, key=lambda note: note.place)), reading.running)


def _clean(message: Message) -> str:
    return without_secrets(without_data(text_of(message)))


def _read_user(reading: _Reading, text: str, name: str) -> None:
    """A user's message: pictures, rules, the request, its sentences; in a group chat a speaker's each."""
    reading.turn += 1
    reading.running = reading.place
    # A call that the user did not wait for will not get a result.
    reading.calls.clear()
    pictures = _PICTURE.findall(text)
    text = _PICTURE.sub("", text).strip()
    words = _new_lines(reading, text)
    for mime, size in pictures:
        kind = f"{mime}, {int(size):,} bytes" if size else mime
        # People write of a picture where they attach it: at the end.
        *_, last = ("", *(sentences_of(words or text) or (words or text,)))
        about = cut_middle(on_one_line(last), _PICTURE_CHARS)
        shown = f"a picture ({kind}) was shown here; it is not visible now"
        shown += f', with the words "{about}"' if about else ""
        reading.keep(reading.note("picture", shown, "user", binds=True))
    asked, reading.asked = reading.asked, ""
    _, *labelled = _SPEAKER.split(text) if "]:" in text else [""]
    spoken = [*zip(labelled[::2], labelled[1::2], strict=True)] or [(name, text)]
    for speaker, part in spoken:
        for rule in rules_in(part):
            _add_rule(reading, rule, "user", speaker)
    if not words:
        return
    if asked and is_short_answer(text):
        words = f'{words} (asked: "{asked}")'
    reading.keep(replace(reading.note("request", words, "user"), name=name))
    for speaker, part in spoken:
        for sentence in sentences_of(part):
            if DATED.fullmatch(sentence):
                reading.date = sentence
            else:
                reading.keep(replace(reading.note("fact", sentence, "user"), name=speaker))


def _read_assistant(reading: _Reading, message: Message) -> None:
    """An assistant's message: edits written as text, its question, what it states; a thought counts too."""
    text = _THOUGHT.sub("", _clean(message)).strip()
    calls = calls_of(message)
    reading.calls.update((call.id, call) for call in calls)
    for effect in effects_in_text(text) if text else ():
        _add_effect(reading, effect)
    reading.written = None if calls else _written_call(text)
    works = bool(calls or reading.written)
    if not works:
        reading.running = None
    if text:
        reading.asked = "" if works else question_in(text)
    thoughts = [" ".join(call.values()) for call in calls if tool_named(call.name).verb == "silent"]
    for said in filter(None, (text, *map(without_secrets, thoughts))):
        every = sentences_of(said)
        reading.date = next(filter(DATED.fullmatch, every), reading.date)
        # An answer of one sentence stands as it is: "David has one brother."
        sentences = [
            each
            for each in every
            if not DATED.fullmatch(each) and _is_news(each, works=works, is_all=len(every) == 1)
        ]
        for sentence in sentences:
            # An answer states its result at its beginning or at its end.
            is_result = not works and sentence in (sentences[0], sentences[-1])
            subject = "result" if is_result else ""
            reading.keep(reading.note("fact", sentence, "assistant", subject=subject))


def _is_news(sentence: str, *, works: bool, is_all: bool) -> bool:
    """True for an assistant's sentence that says something, or asks the user to confirm a value.

    Whoever works announces; that says nothing.
    """
    if asks_for_something(sentence):
        return any(map(str.isdigit, sentence))
    if works:
        return is_informative(sentence) and not is_intention(sentence)
    return is_informative(sentence) or (is_all and not is_small_talk(sentence) and not is_offer(sentence))


def _written_call(text: str) -> ToolCall | None:
    """The last command that an assistant wrote as text, as the call that it stands for."""
    may_hold = "```" in text or "ction:" in text or "</" in text
    *_, found = (None, *_WRITTEN_CALL.finditer(text)) if may_hold else (None,)
    if found is None:
        return None
    script = found["script"] or found["tagged"]
    given = {"command": script} if script else {"input": found["given"] or found["input"] or ""}
    return ToolCall("", "bash" if script else found["name"] or "", msgspec.json.encode(given).decode())


def is_informative(sentence: str) -> bool:
    """True for an assistant's sentence that can be understood alone and asks nothing of the user.

    A short sentence counts when it has a number; a list item must be twice as long as a sentence.
    """
    if asks_for_something(sentence) or is_offer(sentence) or sentence[-1:] in ":：":
        return False
    stems = stems_of(sentence)
    if not any(map(str.isalpha, stems)):
        # Numbers without a word for what they count.
        return False
    length = len(stems)
    if not is_whole(sentence):
        return length >= 2 * _LEAST_STEMS
    return length >= _LEAST_STEMS or any(map(str.isdigit, sentence))


def _read_result(reading: _Reading, call: ToolCall, result: str) -> None:
    for effect in effects_of(call, result, reading.opened):
        _add_effect(reading, effect)
    reading.opened = open_file_after(call, result) or reading.opened


def _add_effect(reading: _Reading, effect: Effect) -> None:
    """Adds an effect; a success resolves the failures with one of its names."""
    match effect:
        case FileChange():
            _resolve_failures(reading, effect.path)
            _add_file(reading, effect)
        case Command():
            said = f", {effect.said}" if effect.said else ""
            text = f"`{effect.line}`: {_OUTCOMES[effect.ok]}{said}"
            subject = "" if effect.does == "files" else effect.line
            note = reading.note("command", text, "tool", binds=effect.does == "more", subject=subject)
            key = reading.keep(note, ("command", text))
            # The newest run counts; a failed one binds.
            reading.commands[effect.line] = key if effect.ok is False else None
        case Action():
            text = f"{effect.name} {effect.arguments}".rstrip() + f": {effect.outcome or 'ok'}"
            # The same call with another outcome is another change: two bookings, each with its id.
            reading.times[text] = times = reading.times.get(text, 0) + 1
            said = f"{text} (x{times})" if times > 1 else text
            note = reading.note("change", said, "assistant", binds=True, subject=effect.name)
            reading.keep(note, ("change", text))
            _resolve_failures(reading, *called(effect.name, effect.arguments))
        case Failure():
            text = f"{effect.what}: failed{f', {effect.said}' if effect.said else ''}"
            _resolve_failures(reading, *effect.about[:1])
            note = reading.note("failure", text, "tool", subject=effect.what)
            reading.failed[effect] = reading.keep(note, ("failure", text))
        case TaskList():
            _resolve_failures(reading, TASKS)
            reading.todo = merged(reading.todo, effect)
            lines = [f"{_MARKS[state]} {item}" for item, state in reading.todo.items]
            reading.tasks = [reading.note("task", line, "assistant", binds=True) for line in lines]
        case FileRead():
            _resolve_failures(reading, effect.name)
            for said in ("", *effect.said):
                note = reading.note("read", without_secrets(said), "tool", subject=effect.what)
                reading.keep(note, ("read", effect.what, said))


def _resolve_failures(reading: _Reading, *names: str) -> None:
    """Forgets the failures about these names: one of them succeeded or failed again."""
    reading.failed = {
        failure: key
        for failure, key in reading.failed.items()
        if not any(same_file(name, about) for name in names for about in failure.about)
    }


def _add_rule(reading: _Reading, rule: str, by: Speaker, name: str = "") -> None:
    """A repeated rule counts once, in its newest spelling and at its newest place."""
    key = " ".join(re.findall(r"\w+", rule.lower()))
    reading.rules[key] = replace(reading.note("rule", rule, by, binds=True), name=name)


def _add_file(reading: _Reading, change: FileChange) -> None:
    """The change as a line of its own; every block shows the file's last one."""
    path = next((known for known in reading.files if same_file(known, change.path)), change.path)
    was_made = path in reading.files and reading.files[path][1] == "created"
    is_made = was_made and change.state == "edited"
    # What was made here and then edited is told as made, with the edit.
    state: FileState = "created" if is_made and not change.detail else change.state
    made = " (created here)" if is_made and change.detail else ""
    where = f" -> {change.to}" if change.to else ""
    detail = f": {change.detail}" if change.detail and state in ("created", "edited") else ""
    note = reading.note("change", f"{state} {path}{where}{made}{detail}", "assistant", subject=path)
    key = reading.keep(note, ("change", path, change.detail, state))
    reading.files[path] = (key, "created" if is_made else state)


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


# Words, and characters of a text without spaces. A longer answer can be understood without its question.
_SHORT_WORDS, _SHORT_CHARS = 8, 20
# Words beside a filler from which on a sentence says something: "Great, the refund went out".
_LEAST_WORDS = 2
# Characters at the end of a text in which its last paragraph is searched.
_END_READ = 4_000
_QUESTION_MARKS = ("?", "？")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_ITEM = re.compile(r"\s*(?:[-*+•–]|\(?\w{1,2}[.)])\s")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
# Where a clause begins: "If so, please confirm", "Passengers: please provide".
_CLAUSE = re.compile(r"^|[,:;，：；]\s?")
_CLOSING = "\"'”’»)*_` "


def question_in(text: str) -> str:
    """The last question with which an assistant's text ends, verbatim; "" when it asks nothing.

    It stands in the last paragraph, or before a list of choices that ends the text. Offers ("Is there
    anything else I can help with?") do not count; requests ("Please provide your order number.") do.
    """
    asked = ""
    for sentence in sentences_of(_last_paragraph(text)):
        low = plain(sentence)
        wants = is_question(sentence) or (not is_question(asked) and opening("request").match(low))
        if wants and not is_offer(sentence):
            asked = sentence
    return asked


def is_whole(sentence: str) -> bool:
    """True for a sentence with an end mark; list items have none and depend on their list."""
    return sentence.rstrip(_CLOSING)[-1:] in (".", "!", "。", "！", *_QUESTION_MARKS)


def is_question(sentence: str) -> bool:
    """True for a sentence that ends with a question mark."""
    return sentence.rstrip(_CLOSING).endswith(_QUESTION_MARKS)


def asks_for_something(sentence: str) -> bool:
    """True for an assistant's sentence that asks the user for something, with no value before the request."""
    if is_question(sentence):
        return True
    low = plain(sentence)
    clauses = (match.end() for match in _CLAUSE.finditer(low))
    return any(opening("request").match(low, at) and not any(map(_is_value, low[:at])) for at in clauses)


def is_offer(sentence: str) -> bool:
    """True for a sentence with an offer to help further."""
    low = plain(sentence)
    return any(offer in low for offer in entries("offer"))


def is_intention(sentence: str) -> bool:
    """True for a sentence that opens with an intention or a guess."""
    return opening("intends").match(plain(sentence)) is not None


def is_short_answer(text: str) -> bool:
    """True for a short answer that cannot be understood without the question before it.

    It has at most 8 words, or 20 characters where a language has no spaces, and is not a question. It opens
    like an answer in one of the tables ("yes", "no", "the second one", "it's"), or it is a single word,
    or it is made of numbers and ids alone.
    """
    low = plain(text).strip()
    if not low or "?" in low or "？" in low:
        return False
    if _UNSPACED.search(low):
        return len(low) <= _SHORT_CHARS and opening("assent").match(low) is not None
    words = low.split()
    if len(words) > _SHORT_WORDS:
        return False
    if opening("assent").match(low) or all(map(_is_value, words)):
        return True
    return len(words) == 1 and not is_small_talk(low)


def _last_paragraph(text: str) -> str:
    paragraphs = [part for part in _PARAGRAPH.split(prose_of(text[-_END_READ:])) if part.strip()]
    if not paragraphs:
        return ""
    first = len(paragraphs) - 1
    while first and all(_ITEM.match(line) for line in paragraphs[first].strip("\n").split("\n")):
        first -= 1
    return "\n\n".join(paragraphs[first:])


def is_small_talk(text: str) -> bool:
    """True for a filler followed by fewer than two words that are no function words."""
    low = plain(text)
    match = opening("filler").match(low)
    if match is None:
        return False
    return len(stems_of(low[match.end() :])) < _LEAST_WORDS


def _is_value(word: str) -> bool:
    return any(map(str.isdigit, word))
