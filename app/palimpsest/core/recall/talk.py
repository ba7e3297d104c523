"""Search queries, and what a message is in a dialogue: its speaker and its questions.

Judged by punctuation and a few English words only. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from palimpsest.core.recall.words import SearchEntry, Words, beginnings_of, plain

Asked = Literal["time", "number", "name"]

# Characters. A longer message is a document, whose question marks ask nobody.
_TALK_CHARS = 4_000
_SENTENCE = re.compile(r"[^.!?\n。！？؟]+[.!?。！？؟]*")
_QUESTION_END = re.compile(r"[?？؟][\s\"'”’»)]*$")
# "Nora: ...", also after a date in brackets.
_SPEAKER = re.compile(r"(?:[\[(][^\])\n]{3,60}[\])]\s*)?([^\W\d_][\w .'’-]{0,30}):\s")
# Labels name speakers only if most messages have one, of at most so many names: "Error: ..." is no speaker.
_LABELLED_SHARE = 0.6
_MOST_SPEAKERS = 8
_TALK_ROLES = frozenset({"user", "assistant"})
# "Hey Nora!", "Thanks, Nora.", "..., Nora!": the listener is addressed by name.
_ADDRESSED = re.compile(r"(?<= )[A-Z][^\W\d_]+(?=[ !?.,])")
_ADDRESS_WORD = re.compile(
    r"(?<![^\W_])(?:hey|hi|hello|dear|thanks|thank you|morning|evening|night|bye|cheers|sorry|congrats"
    r"|congratulations|wow|oh|yes|yeah|no)[, ]+$",
    re.IGNORECASE,
)
# Characters searched: people are addressed by name at the beginning of a message.
_ADDRESS_CHARS = 240
# A listener's name occurs at least so often, and so many times as often as the listener says it.
_LEAST_ADDRESSES = 2
_LEAST_ADDRESS_RATIO = 4
_TURNS = (("user", "assistant"), ("assistant", "user"))
_QUESTIONS: Mapping[Asked, re.Pattern[str]] = {
    "time": re.compile(
        r"\b(?:when|(?:what|which) (?:date|day|month|year|time|weekend)|how long (?:ago|since|before)"
        r"|since when|until when|how (?:recently|soon|often))\b"
    ),
    "number": re.compile(r"\bhow (?:many|much|long|old|far|fast|often)\b"),
    "name": re.compile(r"\b(?:who|whom|whose|where|which|names?|called)\b"),
}
_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|(?:mon|tues|wednes|thurs|fri|satur|sun)day|weekend|ago"
    r"|(?:last|next|this|past|coming|few) (?:\w+ )?(?:week|month|year|night|morning|evening|spring|summer"
    r"|fall|autumn|winter)s?|january|february|march|april|may|june|july|august|september|october|november|december"
    r"|(?:19|20)\d\d|\d{1,2}(?:st|nd|rd|th)|since|birthday|anniversary)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|half|twice|once)\b",
    re.IGNORECASE,
)
# A capital inside a sentence.
_NAME = re.compile(r"[^\W\d_A-Z,;][,;]? [A-Z][^\W\d_A-Z]{2}")
_ANSWERS: Mapping[Asked, re.Pattern[str]] = {"time": _TIME, "number": _NUMBER, "name": _NAME}


def tells(text: str, asked: frozenset[Asked]) -> bool:
    """True when a text contains a time, a number or a name that is `asked` for."""
    return any(_ANSWERS[kind].search(text) for kind in asked)


def questions_in(entry: SearchEntry) -> str:
    """The questions in a message; "" if it is not part of a dialogue (see `is_talk`)."""
    text = entry.text
    if not is_talk(entry) or not re.search("[?？؟]", text):
        return ""
    return " ".join(sentence for sentence in _SENTENCE.findall(text) if _QUESTION_END.search(sentence))


def is_talk(entry: SearchEntry) -> bool:
    """True for a user's or assistant's message of at most 4,000 characters."""
    return entry.role in _TALK_ROLES and len(entry.text) <= _TALK_CHARS


def speakers_in(entries: Sequence[SearchEntry]) -> dict[str, str]:
    """The speakers of a dialogue's messages, by the entries' ids; in most conversations none.

    By label ("Nora: ...") if most messages have one, else by how user and assistant address each other.
    """
    talk = [entry for entry in entries if entry.role in _TALK_ROLES]
    labels = {entry.id: said[1] for entry in talk if (said := _SPEAKER.match(entry.text))}
    most = Counter(labels.values()).most_common(_MOST_SPEAKERS)
    if sum(count for _, count in most) >= max(2.0, _LABELLED_SHARE * len(talk)):
        named = {label for label, _ in most}
        return {ident: label for ident, label in labels.items() if label in named}
    called = {role: _names_addressed_by(role, talk) for role in _TALK_ROLES}
    names = {}
    for role, other in _TURNS:
        # The listener's name is said often by the other side, hardly ever by the listener.
        own = (
            (count, name)
            for name, count in called[other].items()
            if count >= max(_LEAST_ADDRESSES, _LEAST_ADDRESS_RATIO * called[role][name])
        )
        names[role] = max(own, default=(0, ""))[1]
    if not all(names.values()) or len(set(names.values())) < 2:
        return {}
    return {entry.id: names[entry.role] for entry in talk}


def _names_addressed_by(role: str, talk: Sequence[SearchEntry]) -> Counter[str]:
    """For each name, the number of messages of a role that address it."""
    counts: Counter[str] = Counter()
    for begun in (entry.text[:_ADDRESS_CHARS] for entry in talk if entry.role == role):
        names = set()
        for found in _ADDRESSED.finditer(begun):
            start = found.start()
            # It follows a greeting or the like, or a comma at the end of a sentence.
            is_end = begun[max(0, start - 2) : start] == ", " and begun[found.end()] in "!?."
            if is_end or _ADDRESS_WORD.search(begun, max(0, start - 20), start):
                names.add(found[0])
        counts.update(names)
    return counts


# C15: the most words of a query that are searched.
MOST_WORDS = 12
# The same with related words.
MOST_LOOKED_FOR = 96
# Characters of a query that are read.
_READ_CHARS = 2_000
_QUOTED = re.compile(r"[\"“”]([^\"“”\n]{2,200})[\"“”]")


@dataclass(frozen=True, slots=True)
class Query:
    """At most twelve distinct `words` to search; `phrases` were in quotation marks, now in lower case.

    `related` has the related words of each, which count less. `asked`: what an answer should contain.
    """

    text: str
    words: tuple[str, ...]
    related: tuple[frozenset[str], ...]
    phrases: tuple[str, ...]
    asked: frozenset[Asked]

    @property
    def every(self) -> tuple[str, ...]:
        """Its words, then the related ones: at most `MOST_LOOKED_FOR`, distinct."""
        related_words = (other for others in self.related for other in sorted(others))
        return tuple(dict.fromkeys((*self.words, *related_words)))[:MOST_LOOKED_FOR]

    @property
    def beginnings(self) -> frozenset[str]:
        """The beginnings of all its words, for `Words.of`, which then skips other words."""
        return beginnings_of((*self.words, *(other for others in self.related for other in others)))


def query_of(text: str, words: Words) -> Query:
    """Parses a query. A text of stop words alone has no words; it can only be found as a substring."""
    read = text[:_READ_CHARS]
    found = tuple(dict.fromkeys(words.of(read)))
    # Of too many words the longest are kept: they are the most specific.
    longest = set(sorted(found, key=lambda word: (-len(word), found.index(word)))[:MOST_WORDS])
    chosen = tuple(word for word in found if word in longest)
    low = plain(read)
    return Query(
        text=read.strip(),
        words=chosen,
        related=tuple(words.related(word) - set(chosen) for word in chosen),
        phrases=tuple(phrase.strip() for phrase in _QUOTED.findall(low) if phrase.strip()),
        asked=frozenset(kind for kind, pattern in _QUESTIONS.items() if pattern.search(low)),
    )
