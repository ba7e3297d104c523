"""The selection of the notes that a block shows within its tokens.

Floors come first: binding notes stand in every block. The rest of the room is spent on whole sentences, calls
and outcomes by their information per token, and each part of the conversation gets its share of it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf

from palimpsest.core.notes.facts import Information, details_in, share_of, stems_of
from palimpsest.core.notes.note import Kind, Note, ranked_words
from palimpsest.core.notes.sentences import sentences_of
from palimpsest.core.text.message_text import LEFT_OUT, cut_middle

CountText = Callable[[str], int]

# The newest commands, and results of answers, that bind.
_NEWEST_COMMANDS, _NEWEST_RESULTS = 5, 2
# The order in which floors get room; the last kinds are left out first.
_FLOORS = ranked_words("rule open task change failure command request picture fact")
# Worth of a piece by its kind, relative to a user's sentence: who goes on needs what was asked and what came
# of it before what was looked at.
_WORTH: Mapping[Kind, float] = {
    **{"request": 1.2, "fact": 0.8, "change": 1.0, "failure": 1.0, "command": 0.8},
    **{"read": 0.6},
}
# Of an assistant's sentences: of the first and the last of an answer, and of others.
_RESULT, _ASIDE = 2.0, 0.6
# Of two people who talk the assistant's part says no more than so many times what the user does.
_TALK = 2.0
# Characters of a binding request, of an older one that may be shown whole, of a floor that lacks room.
_BOUND_CHARS, _REQUEST_CHARS, _SHORT_CHARS = 1_200, 240, 80
# Words of what was read that somebody else must have said.
_LEAST_KNOWN = 2
# Outcomes of one command that are told, the newest.
_RUNS = 3
# Characters of a sentence; a shorter one ("Yes, do it.") depends on the words around it.
_LEAST_SENTENCE = 16
# Tokens of a line's number and speaker, and the rooms that are ranked.
_SPEAKER_TOKENS, _RANKED = 5, 1.3
# Messages of a part of the conversation that has its share of the room.
_PART_MESSAGES = 6
_LEFT = re.escape(LEFT_OUT)
# Marks of an item or a heading whose text is left out, with neighbouring omissions.
_NOTHING_LEFT = re.compile(rf"(?:(?:^[#\d.)(*+•\s-]*)?{_LEFT}\s*)+(?<=\S)", re.MULTILINE)
# Tokens of the line that names the files and pages that were read, and names of one folder in it.
_READ_TOKENS, _READ_NAMES = 60, 8


@dataclass(slots=True)
class Choice:
    """The chosen notes, each shown as `line` has it. `left_out` counts floors that had no room."""

    count_text: CountText
    line: Callable[[Note], str]
    notes: list[Note] = field(default_factory=list)
    tokens: int = 0
    left_out: int = 0

    def of(self, *kinds: Kind) -> list[Note]:
        """The notes of these kinds, oldest first."""
        return sorted((note for note in self.notes if note.kind in kinds), key=lambda note: note.place)

    def cost(self, note: Note) -> int:
        """Tokens of the note's line."""
        return self.count_text(self.line(note)) + 1

    def take(self, note: Note, room: int, limit: int | None = None) -> bool:
        """Adds the note, in at most `limit` characters, to the choice; False beyond `room` tokens."""
        shown = note if limit is None else replace(note, text=cut_middle(note.text, limit))
        tokens = self.tokens + self.cost(shown)
        if tokens > room:
            return False
        self.notes.append(shown)
        self.tokens = tokens
        return True


@dataclass(frozen=True, slots=True)
class NoteBudget:
    """Tokens for the notes of a block, beside the user's rules; with these they take at most `whole`.

    Rules may take `rules` tokens, even at the cost of other notes. What was said, and what is no floor, takes
    at most `pieces` tokens beside floors.
    """

    tokens: int
    rules: int
    pieces: float = inf
    whole: int = 0


def chosen_notes(
    notes: Iterable[Note],
    folded: Collection[int],
    room: NoteBudget,
    count_text: CountText,
    is_said: Callable[[Note], bool],
    line: Callable[[Note], str] | None = None,
) -> Choice:
    """The notes on the messages `folded` (places) that a block shows, each as `line` writes it.

    `is_said` is true of a note that the rest of the block contains already.
    """
    hidden = _with_runs_joined([note for note in notes if note.place in folded])
    # What the newest answers came to stands whatever the room, and what was said last on the way.
    facts = [note for note in hidden if note.kind == "fact" and not is_said(note)]
    spoken = [note for note in facts if note.by == "assistant"]
    results = [note for note in facts if note.subject]
    newest = {id(note) for note in (*results[-_NEWEST_RESULTS:], *spoken[-1:])}
    hidden = [replace(note, binds=True) if id(note) in newest else note for note in hidden]
    rules = [note.text for note in hidden if note.kind == "rule"]
    # A fact that binds is shown behind what it corrects, although the block may have it further up.
    likely = (note for note in hidden if (note.binds if note.kind == "fact" else not is_said(note)))
    news = [note for note in (_unsaid(note, rules, is_said) for note in likely) if note.text or note.subject]
    choice = Choice(count_text, line or line_of)
    limit = _floors(choice, _bound(news), room)
    facts = [note for note in facts if id(note) not in newest and not note.binds]
    has_reads = any(note.kind == "read" and not note.text for note in news)
    for_reads = max(0, min(_READ_TOKENS, (limit - choice.tokens) // 4)) if has_reads else 0
    most = int(min(limit - for_reads, choice.tokens + room.pieces))
    _pieces(choice, [*(note for note in news if note.kind != "fact"), *facts], most)
    told = {note.subject for note in choice.notes}
    _reads(choice, [note for note in news if note.subject not in told], most + for_reads, for_reads)
    return choice


def _with_runs_joined(hidden: Sequence[Note]) -> list[Note]:
    """The notes with all runs of a command as one, at the newest place: its outcomes in their order.

    So what failed stands with what came of it.
    """
    runs: dict[str, list[Note]] = {}
    for note in hidden:
        if note.kind == "command":
            runs.setdefault(note.text.partition("`: ")[0], []).append(note)
    joined = {
        id(each[-1]): replace(
            each[-1], text=f"{line}`: " + ", then ".join(n.text.partition("`: ")[2] for n in each[-_RUNS:])
        )
        for line, each in runs.items()
    }
    return [joined.get(id(note), note) for note in hidden if note.kind != "command" or id(note) in joined]


def _unsaid(note: Note, rules: Collection[str], is_said: Callable[[Note], bool]) -> Note:
    """A request without the sentences that the block has as rules or elsewhere; "" where nothing remains."""
    if note.kind != "request":
        return note
    text = note.text
    for rule in rules:
        text = text.replace(rule, LEFT_OUT)
    for sentence in sentences_of(text):
        if len(sentence) >= _LEAST_SENTENCE and is_said(replace(note, kind="fact", text=sentence)):
            text = text.replace(sentence, LEFT_OUT)
    text = _NOTHING_LEFT.sub(LEFT_OUT, text)
    return replace(note, text=text.strip() if text.replace(LEFT_OUT, "").strip(" .\n") else "")


def line_of(note: Note) -> str:
    """The note as a line, with its speaker where the kind does not imply one."""
    text = note.text
    match note.kind:
        case "rule":
            who = note.name or ("" if note.by == "user" else note.by)
            return f'- "{" ".join(text.split())}"{who and f" ({who})"}'
        case "request" | "fact":
            return f"- {note.name or note.by}: {note.date and note.date + ' '}{text}"
        case "read":
            return f"- {note.subject} -> {text}" if text else f"- read: {note.subject}"
        case "task":
            return text if text.startswith("[") else f"- {text}"
    return f"- {text}"


def _bound(hidden: Sequence[Note]) -> list[Note]:
    """The floors: binding notes, the newest commands, the first and the newest request."""
    commands = [note for note in hidden if note.kind == "command"]
    # Many small file commands must not push out the newest test.
    ran = [note for note in commands if note.subject]
    requests = [note for note in hidden if note.kind == "request"]
    newest = {
        id(note)
        for note in (*commands[-_NEWEST_COMMANDS:], *ran[-_NEWEST_COMMANDS:], *requests[:1], *requests[-1:])
    }
    short = {note.place: note for note in requests if len(note.text) <= _REQUEST_CHARS}
    # A sentence that binds stands in its request where that is short.
    newest |= {id(short[note.place]) for note in hidden if _is_bound_fact(note) and note.place in short}
    bound = (note for note in hidden if note.binds or id(note) in newest)
    every = (note for note in bound if not (_is_bound_fact(note) and note.place in short))
    return [replace(note, binds=True, date="") for note in every]


def _is_bound_fact(note: Note) -> bool:
    return note.kind == "fact" and note.binds


def _floors(choice: Choice, bound: Sequence[Note], room: NoteBudget) -> int:
    """Each floor whole, else shortened, else left out and counted; the oldest of a kind loses first.

    Returns the tokens that all notes may take: the rules do not take the room of others.
    """
    limit = room.tokens
    for kind in _FLOORS:
        is_said = kind in ("request", "fact")
        most = max(limit, room.rules) if kind == "rule" else limit
        most = int(min(most, choice.tokens + room.pieces)) if is_said else most
        lengths = (_BOUND_CHARS if kind == "request" else None, _SHORT_CHARS)
        before = len(choice.notes)
        asked = "\n".join(note.text for note in choice.notes if note.kind == "request")
        for note in reversed([note for note in bound if note.kind == kind]):
            if kind == "fact" and note.text in asked:
                continue
            if not any(choice.take(note, most, length) for length in lengths):
                choice.left_out += not is_said or room.pieces >= room.tokens
        choice.notes[before:] = choice.notes[before:][::-1]
        if kind == "rule":
            limit = max(limit, min(room.whole, limit + choice.tokens))
    return limit


def _is_talk(notes: Sequence[Note]) -> bool:
    """True where two people talk: nobody works, and the assistant says at most twice what the user does."""
    said: Counter[str] = Counter()
    for note in notes:
        said[note.by] += len(note.text) if note.kind in ("fact", "request") else 0
    works = any(note.kind in ("change", "command", "failure", "read") for note in notes)
    return not works and 0 < said["assistant"] <= _TALK * said["user"]


def _worth(note: Note, is_talk: bool) -> float:
    if note.kind not in ("fact", "request"):
        return _WORTH[note.kind]
    worth = 1.0 + details_in(note.text)
    if note.kind == "request":
        # A request is a question, and small talk only opens it.
        return worth * (1.0 if is_talk else _WORTH["request"])
    if is_talk or note.by == "user":
        return worth * share_of(note.text) * (1.0 if is_talk else _WORTH["fact"])
    # A question of the assistant's with a value in it may wait for the user.
    share = 1.0 if note.text[-1:] in "?\uff1f" else share_of(note.text)
    return worth * share * (_RESULT if note.subject else _ASIDE)


def _pieces(choice: Choice, notes: Sequence[Note], room: int) -> None:
    """Adds short requests, sentences, calls and outcomes by their information per token.

    Those of one message are one note, in their order, with omissions marked. A part of the conversation that
    has had its share of the room pays more for what it adds.
    """
    said = "\n".join(note.text for note in choice.notes)
    # Sentences of a request that may stand whole are part of it.
    whole = {n.place: n.text for n in notes if n.kind == "request" and len(n.text) <= _REQUEST_CHARS}
    shown = {note.place for note in choice.of("request")}
    known = stems_of(" ".join(f"{note.text} {note.subject}" for note in notes if note.kind != "read"))
    pieces = sorted(
        (
            note
            for note in notes
            if note.text
            and note.kind in _WORTH
            and note.text not in said
            and not (note.kind == "read" and len(stems_of(note.text) & known) < _LEAST_KNOWN)
            and not (note.kind == "command" and not note.subject)
            and not (note.kind == "request" and note.place not in whole)
            and not (note.kind == "fact" and (note.place in shown or note.text in whole.get(note.place, "")))
        ),
        key=lambda note: note.place,
    )
    if not pieces or room <= choice.tokens:
        return
    is_talk = _is_talk(notes)
    information = Information(
        [note.text for note in pieces],
        [_worth(note, is_talk) for note in pieces],
        [known if note.kind == "read" else None for note in pieces],
    )
    costs = [choice.count_text(note.text) + _SPEAKER_TOKENS for note in pieces]
    # Pieces of one message share a speaker: more are ranked than fit, and the best that do are taken.
    spare = room - choice.tokens
    best = information.best(
        costs.__getitem__,
        int(_RANKED * spare),
        lambda index: (pieces[index].turn, pieces[index].place // _PART_MESSAGES),
    )

    def lines(count: int) -> list[Note]:
        joined = _joined(pieces, sorted(best[:count]))
        dates = ["", *(note.date for note in joined)]
        return [
            replace(n, date="" if n.date == date else n.date) for n, date in zip(joined, dates, strict=False)
        ]

    count = bisect_right(range(len(best) + 1), spare, key=lambda count: sum(map(choice.cost, lines(count))))
    for line in lines(count - 1):
        choice.take(line, room)


def _joined(pieces: Sequence[Note], chosen: Sequence[int]) -> list[Note]:
    """The chosen pieces, those of one message as one note with omissions marked."""
    lines: list[Note] = []
    for _, group in groupby(chosen, lambda at: (pieces[at].place, line_of(replace(pieces[at], text=" ")))):
        before, *others = group
        note = pieces[before]
        for index in others:
            between = "; " if note.kind == "read" else " " if index == before + 1 else f" {LEFT_OUT} "
            note, before = replace(note, text=f"{note.text}{between}{pieces[index].text}"), index
        lines.append(note)
    return lines


def _reads(choice: Choice, hidden: Sequence[Note], most: int, room: int) -> None:
    """Adds a line that names the newest files, pages and searches that were only read, by folder.

    `room`: tokens of their names; the line as a whole stays within `most` of the choice.
    """
    folders: dict[str, list[str]] = {}
    newest = None
    for note in reversed(hidden):
        if note.kind == "read" and not note.text and room > 0:
            newest = newest or note
            folder, slash, name = note.subject.rpartition("/")
            room -= choice.count_text(name if folder in folders else note.subject) + 2
            folders.setdefault(folder + slash, []).append(name)
    if newest:
        said = []
        for folder, names in reversed(folders.items()):
            more = f"{len(names)} files, the newest " if len(names) > _READ_NAMES else ""
            shown = ", ".join(reversed(names[:_READ_NAMES]))
            said.append(f"{folder}: {more}{shown}" if folder and len(names) > 1 else f"{folder}{shown}")
        choice.take(replace(newest, subject="; ".join(said)), most)
