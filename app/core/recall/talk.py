"""What a message is as a part of a talk: who speaks, which of its sentences ask, what a question asks for.

Only what punctuation and a few words tell. Knows nothing of ranks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
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
    if entry.role not in _TALKING or len(text) > _TALK_CHARS or not re.search("[?？؟]", text):
        return ""
    return " ".join(sentence for sentence in _SENTENCE.findall(text) if _ASKS.search(sentence))


def speaker_of(entry: Entry) -> str:
    """Who a message says is speaking; "" of most messages but those of chats between people."""
    said = _SPEAKER.match(entry.text) if entry.role in _TALKING else None
    return said[1] if said else ""


def speakers_in(entries: Sequence[Entry]) -> frozenset[str]:
    """Who speaks in these, where most of them tell; else nobody."""
    talk = [entry for entry in entries if entry.role in _TALKING]
    named = Counter(speaker for speaker in map(speaker_of, talk) if speaker)
    most = named.most_common(_SPEAKERS)
    if sum(count for _, count in most) < max(2.0, _LABELLED * len(talk)):
        return frozenset()
    return frozenset(speaker for speaker, _ in most)
