"""The selection of the notes that a block shows within its tokens.

Floors come first: binding notes stand in every block. The rest of the budget is spent by worth, and may be
left unspent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from palimpsest.core.notes.facts import Information, stems_of
from palimpsest.core.notes.note import Kind, Note, ranked_words
from palimpsest.core.notes.sentences import sentences_of
from palimpsest.core.text.message_text import LEFT_OUT, cut_middle

CountText = Callable[[str], int]

# The number of the newest folded notes of a kind that bind.
_NEWEST: dict[Kind, int] = {"command": 5, "outcome": 3}
# The order in which floors get room; the last kinds are left out first.
_FLOORS = ranked_words("rule open task change failure command request picture fact outcome")
# Shares of the room left: of older requests after the floors, then of facts.
_REQUEST_SHARE = 0.4
_FACT_SHARE = 0.85
# Limit on the facts of one message.
_MOST_A_MESSAGE = 3
# Stems that an answer must share with its question.
_LEAST_SHARED = 2
# Least worth of a fact or a request per token (see `facts.Information`).
_LEAST_WORTH = 0.12
# Characters of a binding request, of an older one that may be shown, and of a floor cut for lack of room.
_BOUND_CHARS = 1_200
_REQUEST_CHARS = 240
_SHORT_CHARS = 80
# Characters of a sentence; a shorter one ("Yes, do it.") depends on the words around it.
_LEAST_SENTENCE = 16
_LEFT = re.escape(LEFT_OUT)
# Marks of an item or a heading whose text is left out, with neighbouring omissions.
_NOTHING_LEFT = re.compile(rf"(?:(?:^[#\d.)(*+•\s-]*)?{_LEFT}\s*)+(?<=\S)", re.MULTILINE)
# Tokens of the line that names the files and pages that were read.
_READ_TOKENS = 60


@dataclass(slots=True)
class Choice:
    """The chosen notes. `left_out` counts floors that had no room."""

    count_text: CountText
    notes: list[Note] = field(default_factory=list)
    tokens: int = 0
    left_out: int = 0

    def of(self, *kinds: Kind) -> list[Note]:
        """The notes of these kinds, oldest first."""
        return sorted((note for note in self.notes if note.kind in kinds), key=lambda note: note.place)

    def cost(self, note: Note) -> int:
        """Tokens of the note's line."""
        return self.count_text(line_of(note)) + 1

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
    """Tokens for the notes of a block. Rules may take `rules` tokens, even at the cost of other notes."""

    tokens: int
    rules: int


def chosen_notes(
    notes: Iterable[Note],
    folded: Collection[int],
    room: NoteBudget,
    count_text: CountText,
    is_said: Callable[[Note], bool],
) -> Choice:
    """The notes on the messages `folded` (places) that a block shows.

    `is_said` is true of a note that the rest of the block contains already.
    """
    hidden = [note for note in notes if note.place in folded]
    rules = [note.text for note in hidden if note.kind == "rule"]
    # A fact that binds is shown behind what it corrects, although the block may have it further up.
    likely = (note for note in hidden if (note.binds if note.kind == "fact" else not is_said(note)))
    news = [note for note in (_unsaid(note, rules, is_said) for note in likely) if note.text]
    choice = Choice(count_text)
    _floors(choice, _bound(news), room)
    facts = [note for note in hidden if note.kind == "fact"]
    # The rest is spent by worth, one kind after the other; each leaves something to the next.
    _requests(choice, news, int(_REQUEST_SHARE * (room.tokens - choice.tokens)))
    _facts(choice, facts, is_said, int(_FACT_SHARE * (room.tokens - choice.tokens)))
    _reads(choice, news, min(_READ_TOKENS, room.tokens - choice.tokens))
    return choice


def _unsaid(note: Note, rules: Collection[str], is_said: Callable[[Note], bool]) -> Note:
    """A request without the sentences that the block has as rules or elsewhere; "" where nothing remains."""
    if note.kind != "request":
        return note
    text = note.text
    for rule in rules:
        text = text.replace(rule, LEFT_OUT)
    for sentence in sentences_of(text):
        if len(sentence) < _LEAST_SENTENCE:
            continue
        if is_said(replace(note, kind="fact", text=sentence)):
            text = text.replace(sentence, LEFT_OUT)
    text = _NOTHING_LEFT.sub(LEFT_OUT, text)
    return replace(note, text=text.strip() if text.replace(LEFT_OUT, "").strip(" .\n") else "")


def line_of(note: Note) -> str:
    """The note as a line, with speaker and turn where the kind does not imply them."""
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
    """The floors: binding notes, the newest commands and outcomes, the first and the newest request."""
    newest = set()
    for kind, most in _NEWEST.items():
        # A repeated text counts at its last place.
        said = {note.text: note for note in hidden if note.kind == kind}
        newest |= {id(note) for note in sorted(said.values(), key=lambda note: note.place)[-most:]}
    # Many small file commands must not push out the newest test.
    ran = [note for note in hidden if note.kind == "command" and note.subject]
    newest |= {id(note) for note in ran[-_NEWEST["command"] :]}
    requests = [note for note in hidden if note.kind == "request"]
    newest |= {id(note) for note in (*requests[:1], *requests[-1:])}
    return [replace(note, binds=True) for note in hidden if note.binds or id(note) in newest]


def _floors(choice: Choice, bound: Sequence[Note], room: NoteBudget) -> None:
    """Each floor whole, else shortened, else left out and counted; the oldest of a kind loses first."""
    for kind in _FLOORS:
        most = max(room.tokens, room.rules) if kind == "rule" else room.tokens
        lengths = (_BOUND_CHARS if kind == "request" else None, _SHORT_CHARS)
        before = len(choice.notes)
        asked = "\n".join(note.text for note in choice.notes if note.kind == "request")
        for note in reversed([note for note in bound if note.kind == kind]):
            if kind == "fact" and note.text in asked:
                continue
            if not any(choice.take(note, most, length) for length in lengths):
                choice.left_out += 1
        choice.notes[before:] = choice.notes[before:][::-1]


def _requests(choice: Choice, hidden: Sequence[Note], room: int) -> None:
    """Adds older short requests by their information; facts stand for long ones."""
    said = "\n".join(note.text for note in choice.notes)
    asked = [note for note in hidden if note.kind == "request" and note.text not in said]
    news = (_unsaid(note, (), lambda each: each.text in said) for note in asked)
    requests = [note for note in news if note.text and len(note.text) <= _REQUEST_CHARS]
    costs = [choice.cost(note) for note in requests]
    information = Information([note.text for note in requests], are_requests=True)
    for index in information.best(None, costs.__getitem__, room, _LEAST_WORTH):
        choice.take(requests[index], choice.tokens + costs[index])


def _facts(choice: Choice, facts: Sequence[Note], is_said: Callable[[Note], bool], room: int) -> None:
    """Adds sentences of either speaker by their information, at most three of a message.

    Those of one message are one note, in their order, with omissions marked.
    """
    if not facts or room <= 0:
        return
    most = choice.tokens + room
    said = "\n".join(note.text for note in choice.notes)
    information = Information([note.text for note in facts], _answers(facts))
    # A long text must not displace all others.
    taken = Counter[int]()
    allowed = set()
    for index in sorted(range(len(facts)), key=information.worths.__getitem__, reverse=True):
        taken[facts[index].place] += 1
        if taken[facts[index].place] <= _MOST_A_MESSAGE:
            allowed.add(index)
    best = information.best(
        lambda index: index in allowed and facts[index].text not in said and not is_said(facts[index]),
        lambda index: choice.cost(facts[index]),
        room,
        _LEAST_WORTH,
    )
    for _, group in groupby(sorted(best), key=lambda index: facts[index].place):
        before, *others = group
        note = facts[before]
        for index in others:
            between = " " if index == before + 1 else f" {LEFT_OUT} "
            note, before = replace(note, text=f"{note.text}{between}{facts[index].text}"), index
        choice.take(note, most)


def _answers(facts: Sequence[Note]) -> frozenset[int]:
    """The last sentence of each turn's answers, where it has a value and shares words with the question."""
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
        and len(stems_of(facts[index].text) & stems_of(asked.get(turn, ""))) >= _LEAST_SHARED
    )


def _reads(choice: Choice, hidden: Sequence[Note], room: int) -> None:
    """Adds one line that names the newest files, pages and searches that were only read."""
    most, names = choice.tokens + room, []
    for note in reversed(hidden):
        if note.kind == "read":
            room -= choice.count_text(note.text) + 2
            if room < 0:
                break
            names.append(note)
    if names:
        text = ", ".join(note.text for note in reversed(names))
        choice.take(replace(names[0], text=text), most)
