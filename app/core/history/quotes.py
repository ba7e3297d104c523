"""Requests that quote a conversation inside one message: titles, tags, follow-ups (rule 33).

Pure recognition by how they are built, not by their words. Knows nothing of where what they quote is stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from app.core.history.conversation import Conversation
from app.core.history.message import Message

# How a line of a quoted conversation begins, or a quoted message as JSON says whose it is.
_ASKED = re.compile(r"^\W{0,4}(?:user|human)\b\W{1,4}|\"role\"\s*:\s*\"user\"", re.IGNORECASE | re.MULTILINE)
_ANSWERED = re.compile(
    r"^\W{0,4}(?:assistant|ai|model|bot)\b\W{1,4}|\"role\"\s*:\s*\"assistant\"", re.IGNORECASE | re.MULTILINE
)
# A block of its own around it: then nobody else's words are needed to know it for a quotation.
_BLOCK = re.compile(
    r"<(?P<tag>chat_history|conversation_history|conversation|messages|history)>(.*?)</(?P=tag)>", re.S
)
# Characters. A question and its answer may be short, a quotation of both is not; above the most no prompt for
# a title is looked at.
_LEAST_CHARS = 40
_MOST_CHARS = 400_000
# Between a quoted question and its answer stands a label at most.
_LABEL_CHARS = 80
# A summary that is found word for word in a message is no coincidence from so many characters on: among all
# of a namespace's answers, and among those of the session that the client named.
_LEAST_SUMMARY_CHARS = 100
_LEAST_NAMED_CHARS = 20


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A question and its answer in words, and the session and the place of the answer."""

    session: str
    chain: bytes
    answers: int
    question: str
    answer: str


def quotation_in(conversation: Conversation) -> str | None:
    """The text of a request that is one user message and quotes both sides of a conversation; else None."""
    if len(conversation.messages) != 1 or conversation.messages[0].role != "user":
        return None
    text = text_of(conversation.messages[0])
    if text is None or not _LEAST_CHARS <= len(text) <= _MOST_CHARS:
        return None
    return text if _ASKED.search(text) and _ANSWERED.search(text) else None


def quoted_session(text: str, exchanged: Iterable[Exchanged]) -> str | None:
    """The one session whose newest question and answer the text quotes, one after the other.

    None where no session fits, or more than one: of twins none is meant for certain.
    """
    newest: dict[str, Exchanged] = {}
    for each in exchanged:
        newest.setdefault(each.session, each)
    fitting = [each.session for each in newest.values() if _quotes(text, each)]
    return fitting[0] if len(fitting) == 1 else None


def is_set_off(text: str) -> bool:
    """True where the quotation stands in a block of its own, as programs write it and people do not."""
    blocks = [block[2] for block in _BLOCK.finditer(text)]
    return any(_ASKED.search(block) and _ANSWERED.search(block) for block in blocks)


def summed_up(message: Message, exchanged: Iterable[Exchanged], session: str | None) -> Exchanged | None:
    """The answer that the message holds word for word, of the one session that gave it; None for none.

    `session` is the one that the client named, None where it named none.
    """
    text = text_of(message)
    if text is None:
        return None
    least = _LEAST_SUMMARY_CHARS if session is None else _LEAST_NAMED_CHARS
    found = [
        each
        for each in exchanged
        if session in (None, each.session) and len(said := each.answer.strip()) >= least and said in text
    ]
    return found[0] if len({each.session for each in found}) == 1 else None


def text_of(message: Message) -> str | None:
    """The words of a message that holds nothing else; None for any other."""
    content = message.fields.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [part.get("text") if isinstance(part, dict) else None for part in content]
    said = [text for text in texts if isinstance(text, str)]
    return "\n".join(said) if said and len(said) == len(texts) else None


def _quotes(text: str, exchanged: Exchanged) -> bool:
    question, answer = exchanged.question.strip(), exchanged.answer.strip()
    if not question or not answer:
        return False
    return _follows(text, question, answer) or _follows(text, _as_json(question), _as_json(answer))


def _follows(text: str, question: str, answer: str) -> bool:
    """The answer stands behind the question, with no more than a label that names the assistant between."""
    at = text.rfind(question)
    while at >= 0:
        behind = at + len(question)
        place = text.find(answer, behind, behind + _LABEL_CHARS + len(answer))
        if place >= 0 and _ANSWERED.search(text[behind:place]):
            return True
        at = text.rfind(question, 0, at)
    return False


def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
