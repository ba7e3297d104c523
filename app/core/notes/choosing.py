"""The one budget: which notes a block shows in so many tokens.

Floors first: what binds stands in every block. What is left is spent by worth, and need not be used up.
Knows nothing of headings, nor of who wrote the rest of the block.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from app.core.notes.facts import Information, words_of
from app.core.notes.note import Kind, Note
from app.core.notes.sentences import sentences_of
from app.core.text.wording import LEFT_OUT, cut_middle

CountText = Callable[[str], int]

# Of each of these the newest so many folded ones bind.
_NEWEST: dict[Kind, int] = {"command": 5, "outcome": 3}
# In this order floors are given room, and lose it from the end.
_FLOORS: tuple[Kind, ...] = (
    "rule",
    "open",
    "task",
    "change",
    "failure",
    "command",
    "request",
    "picture",
    "fact",
    "outcome",
)
# Of what floors leave, older requests may take so much; of what is left then facts.
_REQUEST_SHARE = 0.4
_FACT_SHARE = 0.85
# So many facts of one message at most.
_MOST_A_MESSAGE = 3
# Words of a question that its answer takes up at least.
_LEAST_SHARED = 2
# A fact must say at least so much a token (see `facts.Information`).
_LEAST_WORTH = 0.12
# Characters of a bound request, of one that is shown whole, and of lines shortened because room is short.
_BOUND_CHARS = 1_200
_REQUEST_CHARS = 240
_SHORT_CHARS = 80
# Characters: a shorter sentence ("Yes, do it.") means something else beside other words.
_LEAST_SENTENCE = 16
_LEFT = re.escape(LEFT_OUT)
# Marks of an item or a heading that nothing is left of, and what is left out beside it.
_NOTHING_LEFT = re.compile(rf"(?:(?:^[#\d.)(*+•\s-]*)?{_LEFT}\s*)+(?<=\S)", re.MULTILINE)
# Files and pages that were read, by name, in one line (tokens).
_READ_TOKENS = 60


@dataclass(slots=True)
class Choice:
    """What a block shows, each kind oldest first. `left_out` counts floors that had no room."""

    notes: list[Note] = field(default_factory=list)
    tokens: int = 0
    left_out: int = 0

    def of(self, *kinds: Kind) -> list[Note]:
        """Those of these kinds, oldest first."""
        return sorted((note for note in self.notes if note.kind in kinds), key=lambda note: note.place)


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens for the notes of a block; `rules` is what those of the user may take, whatever else must go."""

    tokens: int
    rules: int


def chosen(
    notes: Iterable[Note],
    folded: Collection[int],
    room: Room,
    count_text: CountText,
    told: Callable[[Note], bool],
) -> Choice:
    """The notes of the messages `folded` (places) that a block shows.

    `told` is true of a note that the rest of the block says already.
    """
    hidden = [note for note in notes if note.place in folded]
    rules = [note.text for note in hidden if note.kind == "rule"]
    # Of the many facts only those are judged that may be told.
    likely = (note for note in hidden if (note.kind != "fact" or note.binds) and not told(note))
    news = [note for note in (_untold(note, rules, told) for note in likely) if note.text]
    choice = _floors(_bound(news), room, count_text)
    facts = [note for note in hidden if note.kind == "fact"]
    # What is left is spent by worth, a kind after the other, each leaving something to the next.
    _requests(choice, news, int(_REQUEST_SHARE * (room.tokens - choice.tokens)), count_text)
    _facts(choice, facts, told, int(_FACT_SHARE * (room.tokens - choice.tokens)), count_text)
    _reads(choice, news, min(_READ_TOKENS, room.tokens - choice.tokens), count_text)
    return choice


def _untold(note: Note, rules: Collection[str], told: Callable[[Note], bool]) -> Note:
    """A request without its sentences that stand by themselves, as rules or in the rest of the block.

    Its text is "" where it says nothing else.
    """
    if note.kind != "request":
        return note
    text = note.text
    for rule in rules:
        text = text.replace(rule, LEFT_OUT)
    for sentence in sentences_of(text):
        # One that is marked stays: the record may tell it as if it held.
        is_marked = f"{sentence} [" in text
        if len(sentence) < _LEAST_SENTENCE or is_marked:
            continue
        if told(replace(note, kind="fact", text=sentence)):
            text = text.replace(sentence, LEFT_OUT)
    text = _NOTHING_LEFT.sub(LEFT_OUT, text)
    return replace(note, text=text.strip() if text.replace(LEFT_OUT, "").strip(" .\n") else "")


def line_of(note: Note) -> str:
    """The note as a line: who said it and when, where the kind does not tell."""
    text = note.text
    match note.kind:
        case "rule":
            who = "" if note.by == "user" else f" ({note.by})"
            return f'- "{" ".join(text.split())}"{who}'
        case "request" | "fact":
            return f"- turn {note.turn}, {note.by}: {text}"
        case "outcome":
            return f"- turn {note.turn}, assistant: {text}"
        case "picture":
            return f"- turn {note.turn}: {text}"
        case "read":
            return f"- read: {text}"
        case "task":
            return text if text.startswith("[") else f"- {text}"
    return f"- {text}"


def _bound(hidden: Sequence[Note]) -> list[Note]:
    """Floors: what binds by itself, the newest commands and outcomes, the first and newest request."""
    newest = set()
    for kind, most in _NEWEST.items():
        # What was said again counts where it was said last.
        said = {note.text: note for note in hidden if note.kind == kind}
        newest |= {id(note) for note in sorted(said.values(), key=lambda note: note.place)[-most:]}
    # Many small steps with files must not push out the newest test.
    ran = [note for note in hidden if note.kind == "command" and note.subject]
    newest |= {id(note) for note in ran[-_NEWEST["command"] :]}
    requests = [note for note in hidden if note.kind == "request"]
    newest |= {id(note) for note in (*requests[:1], *requests[-1:])}
    return [replace(note, binds=True) for note in hidden if note.binds or id(note) in newest]


def _floors(bound: Sequence[Note], room: Room, count_text: CountText) -> Choice:
    """Each floor whole, then shortened, then left out and counted; of a kind the oldest goes first."""
    choice = Choice()
    for kind in _FLOORS:
        most = max(room.tokens, room.rules) if kind == "rule" else room.tokens
        lengths = (_BOUND_CHARS if kind == "request" else None, _SHORT_CHARS)
        before = len(choice.notes)
        for note in reversed([note for note in bound if note.kind == kind]):
            if not any(_take(choice, note, most, count_text, length) for length in lengths):
                choice.left_out += 1
        choice.notes[before:] = choice.notes[before:][::-1]
    return choice


def _take(choice: Choice, note: Note, room: int, count_text: CountText, limit: int | None = None) -> bool:
    """True when the note, in at most `limit` characters, is in the choice."""
    shown = note if limit is None else replace(note, text=cut_middle(note.text, limit))
    cost = count_text(line_of(shown)) + 1
    if choice.tokens + cost > room:
        return False
    choice.notes.append(shown)
    choice.tokens += cost
    return True


def _requests(choice: Choice, hidden: Sequence[Note], room: int, count_text: CountText) -> None:
    """Older short requests by what they say that the others do not; of long ones facts tell what matters."""
    said = "\n".join(note.text for note in choice.notes)
    asked = [note for note in hidden if note.kind == "request" and note.text not in said]
    news = (_untold(note, (), lambda each: each.text in said) for note in asked)
    requests = [note for note in news if note.text and len(note.text) <= _REQUEST_CHARS]
    costs = [count_text(line_of(note)) + 1 for note in requests]
    information = Information([note.text for note in requests], are_requests=True)
    best = information.best(None, costs.__getitem__, room, _LEAST_WORTH)
    for index in best:
        _take(choice, requests[index], choice.tokens + costs[index], count_text)


def _facts(
    choice: Choice, facts: Sequence[Note], told: Callable[[Note], bool], room: int, count_text: CountText
) -> None:
    """Sentences of either speaker by what they say that the others do not."""
    if not facts or room <= 0:
        return
    most = choice.tokens + room
    said = "\n".join(note.text for note in choice.notes)
    information = Information([note.text for note in facts], _answers(facts))
    telling = _telling(facts, information.worths)
    best = information.best(
        lambda index: index in telling and not _is_said(facts[index], said, told),
        lambda index: count_text(line_of(facts[index])) + 1,
        most - choice.tokens,
        _LEAST_WORTH,
    )
    for note in _by_message(facts, sorted(best)):
        _take(choice, note, most, count_text)


def _by_message(facts: Sequence[Note], indexes: Sequence[int]) -> Iterator[Note]:
    """The sentences of a message as one note, in their order; what stands between them is marked."""
    for _, group in groupby(indexes, key=lambda index: facts[index].place):
        before, *others = group
        text = facts[before].text
        for index in others:
            text += f"{' ' if index == before + 1 else f' {LEFT_OUT} '}{facts[index].text}"
            before = index
        yield replace(facts[before], text=text)


def _answers(facts: Sequence[Note]) -> frozenset[int]:
    """The last sentence of each answer, where it has a value and takes up words of the question."""
    asked: dict[int, str] = {}
    last: dict[int, int] = {}
    for index, note in enumerate(facts):
        if note.by == "user":
            asked[note.turn] = f"{asked.get(note.turn, '')} {note.text}"
        else:
            last[note.turn] = index
    return frozenset(
        index
        for turn, index in last.items()
        if any(map(str.isdigit, facts[index].text))
        and len(words_of(facts[index].text) & words_of(asked.get(turn, ""))) >= _LEAST_SHARED
    )


def _telling(facts: Sequence[Note], worths: Sequence[float]) -> frozenset[int]:
    """Of each message the few sentences that say most: a long text must not crowd out all others."""
    ranked = sorted(range(len(facts)), key=worths.__getitem__, reverse=True)
    taken = Counter[int]()
    telling = set()
    for index in ranked:
        taken[facts[index].place] += 1
        if taken[facts[index].place] <= _MOST_A_MESSAGE:
            telling.add(index)
    return frozenset(telling)


def _is_said(note: Note, said: str, told: Callable[[Note], bool]) -> bool:
    return note.text in said or told(note)


def _reads(choice: Choice, hidden: Sequence[Note], room: int, count_text: CountText) -> None:
    """Names of what was only looked at, newest first, in one line."""
    names = _fitting((note for note in reversed(hidden) if note.kind == "read"), room, count_text)
    if names:
        first = names[0]
        text = ", ".join(note.text for note in reversed(names))
        _take(choice, replace(first, text=text), choice.tokens + room, count_text)


def _fitting(notes: Iterable[Note], room: int, count_text: CountText) -> list[Note]:
    taken: list[Note] = []
    for note in notes:
        room -= count_text(note.text) + 2
        if room < 0:
            break
        taken.append(note)
    return taken
