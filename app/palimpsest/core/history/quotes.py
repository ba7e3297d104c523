"""Requests that quote a conversation inside one message (rule 33), and texts that differ only in wording."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest.core.history.message import Conversation, Message

# Two texts that begin or end with this many equal characters come from one template.
_TEMPLATE_CHARS = 40
# Words that two texts have in common, as a share of the words of either.
_SAME_INSTRUCTIONS = 0.5
_SAME_QUESTION = 1 / 3
_WORD = re.compile(r"\w+")
# Characters compared; prompts that agree up to here count as equal.
_COMPARED_CHARS = 20_000


def are_same_instructions(texts: Mapping[bytes, str], one: bytes, other: bytes) -> bool:
    """True for instructions that are equal or differ in details only; unknown texts count as the same.

    They share their beginning or their end, as a template does, or half of their words. An empty text equals
    only an empty one.
    """
    a, b = texts.get(one), texts.get(other)
    if a is None or b is None:
        return True
    if not a or not b:
        return a == b
    least = min(_TEMPLATE_CHARS, len(a), len(b))
    return a[:least] == b[:least] or a[-least:] == b[-least:] or _shared(a, b) >= _SAME_INSTRUCTIONS


def are_alike(words: Mapping[bytes, str], one: bytes, other: bytes) -> bool:
    """True for two questions that share a third of their words; unknown texts are not alike."""
    a, b = words.get(one), words.get(other)
    return a is not None and b is not None and _shared(a, b) >= _SAME_QUESTION


def words_of(bodies: Iterable[bytes]) -> str:
    """The text contents of messages given as raw JSON, joined by newlines."""
    texts: list[str] = []
    for body in bodies:
        try:
            texts += _texts(json.loads(body, parse_int=str, parse_float=str))
        except (ValueError, RecursionError):
            # Not JSON that can be read: its bytes are compared instead.
            texts.append(body.decode("utf-8", "replace"))
    return "\n".join(texts)[:_COMPARED_CHARS]


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        content = value.get("content", value.get("text"))
        return [content] if isinstance(content, str) else _texts(content)
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []


def _shared(a: str, b: str) -> float:
    one, other = set(_WORD.findall(a.lower())), set(_WORD.findall(b.lower()))
    return len(one & other) / max(1, len(one | other))


# A line that names the speaker of a quoted message, or the role of one quoted as JSON.
_ASKED = re.compile(r"^\W{0,4}(?:user|human)\b\W{1,4}|\"role\"\s*:\s*\"user\"", re.IGNORECASE | re.MULTILINE)
_ANSWERED = re.compile(
    r"^\W{0,4}(?:assistant|ai|model|bot)\b\W{1,4}|\"role\"\s*:\s*\"assistant\"", re.IGNORECASE | re.MULTILINE
)
# A tagged block around a conversation: it is recognised as a quotation by itself.
_BLOCK = re.compile(
    r"<(?P<tag>chat_history|conversation_history|conversation|messages|history)>(.*?)</(?P=tag)>", re.S
)
# Characters. A quotation of a question and its answer is at least this long; no prompt for a title is longer
# than the most.
_LEAST_CHARS = 40
_MOST_CHARS = 400_000
# Characters between a quoted question and its answer: at most a label.
_LABEL_CHARS = 80
# A summary found verbatim in a message is no coincidence from this many characters on: among all answers of
# a namespace, and among those of the session that the client named.
_LEAST_SUMMARY_CHARS = 100
_LEAST_NAMED_CHARS = 20


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A question and its answer as text, with the answer's session, chain digest and number."""

    session: str
    chain: bytes
    answers: int
    question: str
    answer: str


def quotation_in(conversation: Conversation) -> str | None:
    """The text of a request of one user message that quotes both sides of a conversation; else None."""
    if len(conversation.messages) != 1 or conversation.messages[0].role != "user":
        return None
    text = text_of(conversation.messages[0])
    if text is None or not _LEAST_CHARS <= len(text) <= _MOST_CHARS:
        return None
    return text if _ASKED.search(text) and _ANSWERED.search(text) else None


def quoted_session(text: str, exchanged: Iterable[Exchanged]) -> str | None:
    """The session whose newest question and answer the text quotes, one after the other.

    None where no session fits, or more than one.
    """
    newest: dict[str, Exchanged] = {}
    for each in exchanged:
        newest.setdefault(each.session, each)
    fitting = [each.session for each in newest.values() if _quotes(text, each)]
    return fitting[0] if len(fitting) == 1 else None


def is_tagged_quotation(text: str) -> bool:
    """True where the quotation stands in a tagged block, as programs write it and people do not."""
    blocks = [block[2] for block in _BLOCK.finditer(text)]
    return any(_ASKED.search(block) and _ANSWERED.search(block) for block in blocks)


def summarized_answer(
    message: Message, exchanged: Iterable[Exchanged], session: str | None
) -> Exchanged | None:
    """The answer that the message contains verbatim; None where there is none, or several sessions gave it.

    `session` is the one that the client named, None where it named none.
    """
    text = text_of(message)
    if text is None:
        return None
    least = _LEAST_SUMMARY_CHARS if session is None else _LEAST_NAMED_CHARS
    found = [
        each
        for each in exchanged
        if session in (None, each.session) and len(answer := each.answer.strip()) >= least and answer in text
    ]
    return found[0] if len({each.session for each in found}) == 1 else None


def text_of(message: Message) -> str | None:
    """The text of a message without other content; None for any other message."""
    content = message.fields.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [part.get("text") if isinstance(part, dict) else None for part in content]
    strings = [text for text in texts if isinstance(text, str)]
    return "\n".join(strings) if strings and len(strings) == len(texts) else None


def _quotes(text: str, exchanged: Exchanged) -> bool:
    question, answer = exchanged.question.strip(), exchanged.answer.strip()
    if not question or not answer:
        return False
    return _follows(text, question, answer) or _follows(text, _as_json(question), _as_json(answer))


def _follows(text: str, question: str, answer: str) -> bool:
    """True where the answer follows the question, with only a label naming the assistant between them."""
    at = text.rfind(question)
    while at >= 0:
        end = at + len(question)
        place = text.find(answer, end, end + _LABEL_CHARS + len(answer))
        if place >= 0 and _ANSWERED.search(text[end:place]):
            return True
        at = text.rfind(question, 0, at)
    return False


def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
