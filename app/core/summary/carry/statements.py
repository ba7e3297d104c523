"""Statements worth carrying over, and which of them a later one has overtaken.

Works on sentences by tables of cue words, in English; what it does not understand it neither
carries nor hides. Knows nothing of blocks or budgets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from app.core.summary.carry.identifiers import kind_of
from app.core.summary.carry.vocabulary import (
    CHANGE,
    CHANGE_PHRASES,
    CUES,
    DECISIONS,
    FILLER,
    PROHIBITED,
    PROHIBITIONS,
    REMINDERS,
    REPORTED_CHANGES,
    RULES,
    SETTINGS,
    STOP,
)

# "Dr. Who" and "e.g. This" do not end a sentence.
_SENTENCE = re.compile(
    r"(?<=[.!?])(?<!\b[DMS]r\.)(?<!\bM[rs]s\.)(?<!\bMs\.)(?<!\bSt\.)(?<!\bNo\.)(?<!\bvs\.)(?<!\b[A-Zei]\.)(?<!\.[ge]\.)"
    r"[\"')\]]*\s+(?=[A-Z0-9\"'(\[$*-])|\n+"
)
_WORD = re.compile(r"[$€£]?\d[\w,.:/%-]*[\w%]|[^\W_][\w'’./:@#+-]*\w|[$€£]?\w")
_QUOTED = re.compile(r"[\"“'`]([^\"”'`\n]{2,60})[\"”'`]")
_JSON_TEXT = re.compile(r'"((?:[^"\\]|\\.){24,300})"')
_ERROR = re.compile(r"\b\w*(?:Error|Exception)\b|\berror\b|\bfail(?:s|ed)\b")
_COPULA = re.compile(
    r"\s*(?:\b(?:is|are|was|were|will be|should be|must be|be|equals|to|uses?|using|as|at|prefers?|with)\b"
    r"|=|:\s)\s*",
    re.IGNORECASE,
)
_ASSERTION = re.compile(
    r"(?:\w+, )?(?:my|our|the|this|your|its|their|his|her)\s[^,;:?]{1,60}?\s"
    r"(?:is|are|was|were|will be|should be)\s",
    re.IGNORECASE,
)
_NOT = re.compile(r"\b(?:do|must|may|should|shall|can) ?not\b", re.IGNORECASE)
# Behind these words stands what no longer holds.
_GIVEN_UP = re.compile(r"\b(?:instead of|rather than|in place of)\s", re.IGNORECASE)
_GIVEN_UP_WORDS = 4
_CODE_BLOCK = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# Characters that prose has few of.
_CODE = re.compile(r"[{}<>;|\\=()\[\]_]")
_MOST_CODE = 4
# More sentences of one message than this share the last place.
_SENTENCES = 1_000
# Words; a longer sentence says more than one thing.
_LONGEST_ASSERTION = 14
# A statement below this says too little to be carried over.
LEAST_SCORE = 1.2
# From here on it is worth more than identifiers.
STRONG_SCORE = 1.5
# Words; what others than the user say in fewer is a label and a value, which identifiers hold.
_SHORTEST_REPORT = 5
# A word in more earlier statements than this does not tell what a sentence is about.
_COMMON = 5
# Characters: shorter says nothing, longer is prose that a summary should not copy.
SHORTEST = 8
LONGEST = 320

# One of these makes a sentence worth keeping even when it names no value.
_STRONG = RULES | REMINDERS | DECISIONS
# What a value adds by its shape. Assistants explain with numbers and names; ids they report.
_WORTH = {"number": 1.0, "id": 1.2, "name": 1.0, "quote": 1.0}
_WORTH_TOLD = {"number": 0.4, "id": 1.2, "name": 0.4, "quote": 0.3}
_SHARE = {"user": 1.0, "assistant": 0.5, "tool": 0.5}


@dataclass(frozen=True)
class Statement:
    """One sentence. `order` grows with its place in the conversation: 1,000 a message, 1 a sentence."""

    text: str
    role: str
    order: int

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words as written, punctuation around them gone."""
        return tuple(_WORD.findall(self.text))

    @cached_property
    def low(self) -> frozenset[str]:
        """The words in lower case."""
        return frozenset(word.lower() for word in self.words)

    @cached_property
    def values(self) -> dict[str, str]:
        """What the sentence asserts, in lower case, with its shape: number, id, name, quote or word."""
        found = {match.lower(): "quote" for match in _QUOTED.findall(self.text)}
        for place, word in enumerate(self.words):
            shape = _shape(word, place)
            if shape:
                found.setdefault(word.lower(), shape)
        if not found:
            found = dict.fromkeys(self._predicate(), "word")
        return {value: shape for value, shape in found.items() if value not in self.given_up}

    @cached_property
    def given_up(self) -> frozenset[str]:
        """The values it names as replaced, in lower case: "a" in "b instead of a"."""
        behind = (self.text[match.end() :] for match in _GIVEN_UP.finditer(self.text))
        named = (enumerate(_WORD.findall(text)[:_GIVEN_UP_WORDS], 1) for text in behind)
        first = (next((word for at, word in words if _shape(word, at)), "") for words in named)
        return frozenset(word.lower() for word in first if word)

    @cached_property
    def key(self) -> frozenset[str]:
        """What the sentence is about: its content words, stems of them, values apart."""
        values = {word for value in (*self.values, *self.given_up) for word in value.split()}
        return frozenset(
            _stem(word) for word in self.low if len(word) > 2 and word not in STOP and word not in values
        )

    @cached_property
    def changes(self) -> bool:
        """True when it announces a new value for something said before."""
        if self.role != "user":
            return any(phrase in self.text.lower() for phrase in REPORTED_CHANGES)
        low = self.text.lower()
        return (
            bool(self.low & CHANGE)
            or low.removeprefix("please ").startswith(SETTINGS)
            or any(phrase in low for phrase in CHANGE_PHRASES)
        )

    @cached_property
    def forbids(self) -> bool:
        """True when it says what must not be done: what it names is no new value for anything."""
        return bool(self.low & PROHIBITED) or bool(_NOT.search(self.text))

    @cached_property
    def asserts(self) -> bool:
        """True for a short "my x is y" with its value behind the verb, which a later y overtakes.

        "Step 1: do x" is none: it is numbered, not changed.
        """
        match = _ASSERTION.match(self.text)
        if match is None or len(self.words) > _LONGEST_ASSERTION or self.text.rstrip().endswith("?"):
            return False
        subject = {word.lower() for word in _WORD.findall(match.group(0))}
        return subject.isdisjoint(self.values)

    @cached_property
    def score(self) -> float:
        """How much it is worth carrying over; below `LEAST_SCORE` it is not."""
        cues = sum(weight for weight, words in CUES if self.low & words)
        cues += 2.0 if self.text.lower().startswith(PROHIBITIONS) else 0.0
        # What tools report as errors stands in a section of its own.
        cues += 1.0 if self.role == "user" and _ERROR.search(self.text) else 0.0
        told = [shape for shape in self.values.values() if shape != "word"]
        if not told and not self.low & _STRONG:
            return 0.0
        if self.role != "user" and (not cues or len(self.words) < _SHORTEST_REPORT):
            return 0.0
        worth = _WORTH if self.role == "user" else _WORTH_TOLD
        score = (
            cues + min(2.0, sum(worth[shape] for shape in told)) + (0.7 if _COPULA.search(self.text) else 0.0)
        )
        score -= 2.5 if self.text.rstrip().endswith("?") else 0.0
        score -= 2.0 if self.words and self.words[0].lower() in FILLER else 0.0
        return (score - len(self.text) / 150) * _SHARE.get(self.role, 0.5)

    def _predicate(self) -> list[str]:
        """What a sentence without names and numbers asserts: the words after "is", else the last one."""
        parts = _COPULA.split(self.text, maxsplit=1)
        told = _WORD.findall(parts[-1])
        words = [word.lower() for word in told if len(word) > 2 and word.lower() not in STOP]
        if len(told) > _LONGEST_ASSERTION:
            return []
        return words[:6] if len(parts) == 2 else words[-1:]


@dataclass(frozen=True, slots=True)
class Stale:
    """A value that no longer holds: shown in no sentence about `key` said before `before`, an order."""

    value: str
    shape: str
    key: frozenset[str]
    before: int


def sentences(text: str) -> list[str]:
    """`text` in sentences and lines, in order, code blocks left out, white space at the ends gone."""
    parts = _SENTENCE.split(_CODE_BLOCK.sub("\n", text))
    return [part.strip() for part in parts if part and part.strip()]


def order_of(message: int, sentence: int) -> int:
    """The order of a sentence by the places of its message and itself."""
    return message * _SENTENCES + min(sentence, _SENTENCES - 1)


def statements_of(text: str, role: str, message: int) -> list[Statement]:
    """The sentences of a message as statements; of structured tool output only its longer strings."""
    structured = role == "tool" and text.lstrip()[:1] in ("{", "[")
    parts: Iterable[str] = _JSON_TEXT.findall(text) if structured else sentences(text)
    return [
        Statement(part.replace("**", "").lstrip("-*#>• ").strip(), role, order_of(message, place))
        for place, part in enumerate(parts)
        if SHORTEST <= len(part) <= LONGEST and " " in part and len(_CODE.findall(part)) < _MOST_CODE
    ]


def stale_values(statements: Sequence[Statement]) -> tuple[Stale, ...]:
    """Every value that a later statement about the same thing replaced, `statements` being in order.

    A user's word is overtaken only by a user's. The later sentence must say that something changes,
    or both must be short assertions about exactly the same thing. Words that many statements share
    do not count as the same thing.
    """
    found: list[Stale] = []
    by_word: dict[str, list[Statement]] = {}
    for place, statement in enumerate(statements):
        if not statement.values:
            continue
        if statement.role == "user" or (statement.role == "assistant" and statement.changes):
            for old, shared, most in _earlier(statement, statements[max(0, place - 12) : place], by_word):
                if _overtakes(statement, old, shared, most):
                    found.extend(_stale(statement, old, shared))
        for word in statement.key if statement.role != "tool" else ():
            by_word.setdefault(word, []).append(statement)
    return tuple(found)


def is_stale(statement: Statement, stale: Sequence[Stale]) -> bool:
    """True when it asserts a value that was replaced after it was said."""
    return any(
        statement.order < old.before
        and (old.value in statement.low or old.value in statement.values)
        and old.value not in statement.given_up
        and (bool(old.key & statement.key) or not old.key)
        for old in stale
    )


def gone_values(stale: Sequence[Stale], statements: Sequence[Statement]) -> tuple[Stale, ...]:
    """Those of `stale` that nobody has asserted again since: a text of unknown age must not show them."""
    return tuple(
        old
        for old in stale
        if not any(
            said.order >= old.before and old.value in said.values and (not old.key or old.key & said.key)
            for said in statements
        )
    )


def without_gone(text: str, gone: Sequence[Stale]) -> str:
    """`text` without the sentences that assert a value of `gone`; those that tell of the change stay."""
    low = text.lower()
    if not any(old.value in low for old in gone):
        return text
    for sentence in sentences(text):
        said = Statement(sentence, "assistant", order_of(-1, 0))
        if is_stale(said, gone) and not said.changes:
            text = text.replace(sentence, "")
    return "\n".join(line for line in text.split("\n") if line.strip(" -*#>\u2022"))


def _earlier(
    statement: Statement, before: Sequence[Statement], by_word: dict[str, list[Statement]]
) -> list[tuple[Statement, frozenset[str], int]]:
    """Candidates, the telling words they share, and how many they could at most.

    For "make it 5" the newest statement with a value of that shape.
    """
    if statement.key:
        common = {word for word in statement.key if len(by_word.get(word, ())) > _COMMON}
        telling = statement.key - common
        found = {id(old): old for word in telling for old in by_word.get(word, ())}
        return [(old, old.key & telling, min(len(telling), len(old.key - common))) for old in found.values()]
    if not statement.changes:
        return []
    shapes = set(statement.values.values()) - {"word"}
    recent = (old for old in reversed(before) if old.role == statement.role == "user")
    return next(([(old, old.key, 0)] for old in recent if shapes & set(old.values.values())), [])


def _overtakes(new: Statement, old: Statement, shared: frozenset[str], most: int) -> bool:
    if old.role == "user" and new.role != "user":
        return False
    if new.forbids and old.forbids:
        # Two things that must not be done: both hold.
        return False
    if not set(new.values.values()) & set(old.values.values()):
        return False
    # One shared word is enough between two short sentences of the user's only.
    least = min(2, most) if old.role == "user" else 2
    if (new.key and len(shared) < least) or len(shared) < 0.5 * most:
        return False
    return new.changes or (new.asserts and old.asserts and new.key == old.key and new.role == old.role)


def _stale(new: Statement, old: Statement, shared: frozenset[str]) -> list[Stale]:
    shapes = {shape for value, shape in new.values.items() if value not in old.values}
    return [
        Stale(value, shape, shared, new.order)
        for value, shape in old.values.items()
        if shape in shapes and (value in new.given_up or (value not in new.low and value not in new.values))
    ]


def _shape(word: str, place: int) -> str | None:
    if word[0].isdigit() or word[0] in "$€£":
        return "number"
    if not word.isalpha() and kind_of(word):
        return "id"
    named = place and len(word) > 2 and word[0].isupper() and word[1] not in "'’"
    return "name" if named and word.lower() not in STOP else None


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
