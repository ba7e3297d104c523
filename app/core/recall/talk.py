"""What a message is as a part of a talk: who speaks, which of its sentences ask, what a question asks for.

Only what punctuation and a few words tell. Knows nothing of ranks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from app.core.recall.entry import Entry

Asked = Literal["time", "number", "name"]

# Characters: what is longer is a document, in which a question mark asks nobody.
_TALK_CHARS = 4_000
_SENTENCE = re.compile(r"[^.!?\n。！？؟]+[.!?。！？؟]*")
_ASKS = re.compile(r"[?？؟][\s\"'”’»)]*$")
# "Nora: ...", also behind a date in brackets.
_SPEAKER = re.compile(r"(?:[\[(][^\])\n]{3,60}[\])]\s*)?([^\W\d_][\w .'’-]{0,30}):\s")
# A chat tells who speaks in most of its messages, of a few people; "Error: ..." is nobody.
_LABELLED = 0.6
_SPEAKERS = 8
_TALKING = frozenset({"user", "assistant"})
# "Hey Nora!", "Thanks, Nora.", "..., Nora!": who is called so is who listens.
_CALLED = re.compile(r"(?<= )[A-Z][^\W\d_]+(?=[ !?.,])")
_CALLING = re.compile(
    r"(?<![^\W_])(?:hey|hi|hello|dear|thanks|thank you|morning|evening|night|bye|cheers|sorry|congrats"
    r"|congratulations|wow|oh|yes|yeah|no)[, ]+$",
    re.IGNORECASE,
)
# Characters of a message that are read for it: people are called by name where a message begins.
_CALLED_WITHIN = 240
# So often at least, and so many times as often as the other calls it.
_CALLED_OFTEN = 2
_CALLED_MORE = 4
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


def asked_for(question: str) -> frozenset[Asked]:
    """What a question in one case asks for; English only, and nothing of most."""
    return frozenset(kind for kind, pattern in _QUESTIONS.items() if pattern.search(question))


def tells(text: str, asked: frozenset[Asked]) -> bool:
    """True when a text has a time, a number or a name, whichever is asked for."""
    return any(_ANSWERS[kind].search(text) for kind in asked)


def questions_in(entry: Entry) -> str:
    """The sentences of a message that ask; "" of what is not said in a talk, or is too long for one."""
    text = entry.text
    if not is_talk(entry) or not re.search("[?？؟]", text):
        return ""
    return " ".join(sentence for sentence in _SENTENCE.findall(text) if _ASKS.search(sentence))


@dataclass(frozen=True, slots=True)
class Speakers:
    """Who speaks in a talk of a few people: each message says so, or its role does; in most nobody."""

    named: frozenset[str] = frozenset()
    by_role: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """Those who speak."""
        return self.named or frozenset(self.by_role.values())

    def of(self, entry: Entry) -> str:
        """Who speaks in a message; "" when that is not known."""
        speaker = _label_of(entry) if self.named else self.by_role.get(entry.role, "")
        return speaker if speaker in self.names else ""


def is_talk(entry: Entry) -> bool:
    """True for what somebody says, in a length that people talk in."""
    return entry.role in _TALKING and len(entry.text) <= _TALK_CHARS


def speakers_in(entries: Sequence[Entry]) -> Speakers:
    """Who speaks in these: as most of them tell, else as two call each other by name; else nobody."""
    talk = [entry for entry in entries if entry.role in _TALKING]
    labels = Counter(label for label in map(_label_of, talk) if label)
    most = labels.most_common(_SPEAKERS)
    if sum(count for _, count in most) >= max(2.0, _LABELLED * len(talk)):
        return Speakers(named=frozenset(label for label, _ in most))
    called = {role: _called_by(role, talk) for role in _TALKING}
    names = {role: _listener(called[other], called[role]) for role, other in _TURNS}
    return Speakers(by_role=names) if all(names.values()) and len(set(names.values())) > 1 else Speakers()


def _label_of(entry: Entry) -> str:
    """Who a message says is speaking; "" of most messages but those of chats between people."""
    said = _SPEAKER.match(entry.text) if entry.role in _TALKING else None
    return said[1] if said else ""


def _called_by(role: str, talk: Sequence[Entry]) -> Counter[str]:
    """In how many messages of a role each name is called."""
    return Counter(name for entry in talk if entry.role == role for name in _called_in(entry.text))


def _called_in(text: str) -> set[str]:
    begun = text[:_CALLED_WITHIN]
    return {found[0] for found in _CALLED.finditer(begun) if _is_called(begun, found.start(), found.end())}


def _is_called(text: str, start: int, end: int) -> bool:
    """Behind a word one calls with, or behind a comma where a sentence ends."""
    if text[max(0, start - 2) : start] == ", " and text[end] in "!?.":
        return True
    return _CALLING.search(text, max(0, start - 20), start) is not None


def _listener(called: Counter[str], by_listener: Counter[str]) -> str:
    """The name that one calls most and the other hardly ever: his own; "" when there is none."""
    own = (
        (count, name)
        for name, count in called.items()
        if count >= max(_CALLED_OFTEN, _CALLED_MORE * by_listener[name])
    )
    return max(own, default=(0, ""))[1]
