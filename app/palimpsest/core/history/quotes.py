"""Requests that quote a conversation instead of continuing it (rule 47); texts that differ only in wording.

A request that continues no conversation belongs to the session that it quotes: parts of two of its messages,
one of them an answer; or, within ten minutes, the beginning of one, in a prompt that speaks of a chat.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from palimpsest.core.history.message import Message

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
    """The text contents of messages given as raw JSON, joined by newlines; their first 20,000 characters."""
    return all_words_of(bodies)[:_COMPARED_CHARS]


def all_words_of(bodies: Iterable[bytes]) -> str:
    """As `words_of`, whole."""
    texts: list[str] = []
    for body in bodies:
        try:
            texts += _texts(json.loads(body, parse_int=str, parse_float=str))
        except (ValueError, RecursionError):
            # Not JSON that can be read: its bytes are compared instead.
            texts.append(body.decode("utf-8", "replace"))
    return "\n".join(texts)


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        content = value.get("content", value.get("text"))
        return [content] if isinstance(content, str) else _texts(content)
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []


def _shared(a: str, b: str) -> float:
    one, other = set(_WORD.findall(a.lower())), set(_WORD.findall(b.lower()))
    return len(one & other) / max(1, len(one | other))


# How a program quotes: a tagged block, or messages as JSON.
_BLOCK = re.compile(
    r"<(?P<tag>chat_history|conversation_history|conversation|transcript|messages|history)\b"
    r"|\"role\"\s*:\s*\"(?:user|assistant)\"",
    re.IGNORECASE,
)
# A line that names the speaker of a quoted message.
_SPEAKER = re.compile(r"^\W{0,4}(?:user|human|assistant|ai|model|bot)\b\W{1,4}", re.IGNORECASE | re.MULTILINE)
# What a front end asks for beside a chat, and what it calls the chat.
_NAME = r"\b(?:tit(?:le|el|re|olo|ulo)|título|names?\b|topic|headline)|заголов|标题|命名|タイトル|제목"
_TITLE = (
    rf"{_NAME}|\b(?:tags?\b|thema|tema|sujet|summar|recap|zusammenfass|résum|resum|riassun|schlagw|stichw|etiquet"
    r"|étiquet|memor|тем)|标签|摘要|总结|主题|概括|要約|요약"
)
_WANTED = re.compile(rf"{_TITLE}|\b(?:follow|facts?\b|keyword|quer)", re.IGNORECASE)
_TITLE_WANTED, _NAME_WANTED = re.compile(_TITLE, re.IGNORECASE), re.compile(_NAME, re.IGNORECASE)
_TALK = (
    r"\b(?:chat|conversa|dialog|discussion|gespräch|unterhaltung|messag|mensa|nachricht|разговор|диалог)"
    r"|对话|会話|会话|聊天|대화"
)
_CHAT = re.compile(rf"{_TALK}|\buser\b", re.IGNORECASE)
_NAMED_TALK = re.compile(_TALK, re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.\n。]")
# Bytes of letters and digits, UTF-8, by which the beginning or the end of a message is recognized: some six
# words, or eleven Chinese characters. A shorter message must be quoted whole, on a line or in a string.
_PIECE_BYTES = 32
# Together the pieces of two messages have at least these, and a whole message that is quoted alone these.
_END_CHARS = 8 * _PIECE_BYTES
_LEAST_BYTES = 16
_ALONE_BYTES = 8
# Seconds between a message and a request that quotes only its beginning.
_NEAR_SECONDS = 600.0
# Characters of a request that is compared; no prompt for a title is longer, and no instructions for one.
_MOST_CHARS = 400_000
_TITLING_CHARS = 4_000
# Characters of one whose form suggests no quotation.
_MOST_PLAIN_CHARS = 40_000
_ESCAPE = re.compile(r"(?<!\\)\\++(?:u([0-9a-fA-F]{4})|[nrtbf])")
_NO_LETTERS = re.compile(r"[\W_]+")
_LINE_END = re.compile(r"\\+n|[\n\"<>]")
_COLON = re.compile("[:：]")
# A summary found verbatim in a message is no coincidence from this many characters on: among all answers of
# a namespace, and among those of the session that the client named.
_LEAST_SUMMARY_CHARS = 100
_LEAST_NAMED_CHARS = 20


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a session as text; `at` is when it was stored (UTC seconds), `chain` its digest.

    `relayed`: an answer that we relayed.
    """

    session: str
    text: str
    is_answer: bool
    at: float
    chain: bytes = b""
    relayed: bool = False


@dataclass(frozen=True, slots=True)
class _Piece:
    """The message that a piece is of, by its first piece; `begins` it, or is all of it."""

    message: bytes
    is_answer: bool
    begins: bool
    at: float


Pieces = Mapping[bytes, _Piece]


def pieces_of(said: Iterable[Said]) -> Pieces:
    """The beginnings and the ends of messages, short ones whole; of equal ones the newest."""
    pieces: dict[bytes, _Piece] = {}
    for one in sorted(said, key=lambda one: one.at):
        # Of a long text the ends alone are read.
        first = _letters(one.text[:_END_CHARS])[:_PIECE_BYTES]
        last = _letters(one.text[-_END_CHARS:])[-_PIECE_BYTES:]
        if last:
            pieces[last] = _Piece(first, one.is_answer, last == first, one.at)
            pieces[first] = _Piece(first, one.is_answer, True, one.at)
    return pieces


@dataclass(frozen=True, slots=True)
class Quotation:
    """The texts of a request without answers; `about_chat`: it asks for something about a chat.

    `opening` is how its first user message begins: a message that begins alike is of one template with it,
    unless the instructions ask for the title or the like of what they are given (`is_titling`).
    """

    texts: tuple[str, ...]
    opening: bytes
    about_chat: bool
    is_titling: bool

    @property
    def may_quote(self) -> bool:
        """True where the form alone suggests a quotation."""
        return self.about_chat or any(_SPEAKER.search(text) for text in self.texts)

    @property
    def is_short(self) -> bool:
        """True where it is compared whatever its form."""
        return sum(map(len, self.texts)) <= _MOST_PLAIN_CHARS

    @property
    def is_tagged(self) -> bool:
        """True where the quotation stands in a tagged block, as programs write it and people do not."""
        blocks = [(text, block) for text in self.texts for block in _BLOCK.finditer(text) if block["tag"]]
        return any(
            _SPEAKER.search(text, block.end()) or _BLOCK.search(text, block.end()) for text, block in blocks
        )


def quotation_of(instructions: Sequence[Message], messages: Sequence[Message]) -> Quotation | None:
    """What the request may quote; None for one with answers, results of tools, or no text."""
    if any(message.role != "user" and not message.is_instruction for message in messages):
        return None
    words = ["\n".join(_texts(message.fields)) for message in (*instructions, *messages)]
    return quotation(words[: len(instructions)], words[len(instructions) :])


def quotation(instructions: Sequence[str], asked: Sequence[str]) -> Quotation | None:
    """As `quotation_of`, by texts; None where they are too long."""
    texts = tuple(filter(None, (*instructions, *asked)))
    if not any(asked) or sum(map(len, texts)) > _MOST_CHARS:
        return None
    speaks = any(_CHAT.search(text) or _SPEAKER.search(text) for text in texts)
    wants = any(_WANTED.search(text) for text in texts)
    about = any(_BLOCK.search(text) for text in texts) or (speaks and wants)
    is_titling = _asks(_TITLE_WANTED, _CHAT, instructions)
    opening = _letters(next(filter(None, asked))[: 8 * _PIECE_BYTES])[:_PIECE_BYTES]
    return Quotation(texts, opening, about or is_titling, is_titling)


def _asks(wanted: re.Pattern[str], talk: re.Pattern[str], texts: Sequence[str]) -> bool:
    """True where a sentence of short texts asks for something of a chat."""
    if sum(map(len, texts)) > _TITLING_CHARS:
        return False
    sentences = [sentence for text in texts for sentence in _SENTENCE_END.split(text)]
    return any(wanted.search(each) and talk.search(each) for each in sentences)


# Characters of a title, and what stands around it or in its place.
_TITLE_CHARS = 80
_TITLE_MEMBER = re.compile(r'"\w*(?:title|name|topic)"\s*:\s*"([^"]+)"', re.IGNORECASE)
_AROUND_TITLE = re.compile(r"\A(?:<think>.*?</think>|[\s\"'`*#“”„«»]|\btitle:)*", re.DOTALL | re.IGNORECASE)
_NO_TITLE = frozenset({"none", "no_name", "null", "n/a", "ok"})


def title_in(instructions: str, asked: str, answer: str) -> str:
    """The title that an answer gives to a request that asked for one; "" for any other."""
    if not any(_asks(_NAME_WANTED, _NAMED_TALK, [text]) for text in (instructions, asked)):
        return ""
    if given := _TITLE_MEMBER.search(answer):
        answer = given[1]
    title = _AROUND_TITLE.sub("", answer, count=1).strip("\"'`*#“”„«». \n")
    is_one = len(title) <= _TITLE_CHARS and "\n" not in title and title[:1] not in ("[", "{")
    return title if is_one and title.lower() not in _NO_TITLE else ""


def quoted_bytes(quoting: Quotation, pieces: Pieces, at: float, parts: Set[bytes] | None = None) -> int:
    """How much of a session the request of time `at` quotes, bytes; 0 where it does not belong to it.

    `parts` are those of its texts, where they are known.
    """
    found = pieces.keys() & (_parts(quoting.texts) if parts is None else parts)
    is_alone = quoting.is_titling and len(quoting.opening) == _PIECE_BYTES
    hits = {piece: pieces[piece] for piece in found if is_alone or pieces[piece].message != quoting.opening}
    total = sum(map(len, hits))
    if len({hit.message for hit in hits.values()}) > 1 and any(hit.is_answer for hit in hits.values()):
        return total if total >= _LEAST_BYTES else 0
    begins = any(
        hit.begins and len(piece) >= _ALONE_BYTES and abs(hit.at - at) <= _NEAR_SECONDS
        for piece, hit in hits.items()
    )
    return total if begins and quoting.about_chat else 0


def quoted_session(quoting: Quotation, said: Iterable[Said], at: float) -> str | None:
    """The session of which the request quotes most; None where it quotes none, or several as much."""
    sessions: dict[str, list[Said]] = {}
    for one in said:
        sessions.setdefault(one.session, []).append(one)
    parts = _parts(quoting.texts)
    sizes = {name: quoted_bytes(quoting, pieces_of(each), at, parts) for name, each in sessions.items()}
    most = max(sizes.values(), default=0)
    fitting = [session for session, size in sizes.items() if size == most]
    return fitting[0] if most and len(fitting) == 1 else None


def summarized_answer(message: Message, said: Iterable[Said], session: str | None) -> Said | None:
    """The relayed answer that the message contains verbatim; None where several sessions gave it.

    `session` is the one that the client named, None where it named none.
    """
    text = text_of(message)
    if text is None:
        return None
    least = _LEAST_SUMMARY_CHARS if session is None else _LEAST_NAMED_CHARS
    found = [
        one
        for one in said
        if one.relayed
        and session in (None, one.session)
        and least <= len(answer := one.text.strip())
        and answer in text
    ]
    return found[0] if len({one.session for one in found}) == 1 else None


def text_of(message: Message) -> str | None:
    """The text of a message without other content; None for any other message."""
    return text_of_fields(message.fields)


def text_of_fields(fields: Mapping[str, Any]) -> str | None:
    """As `text_of`, of a message's fields."""
    content = fields.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [part.get("text") if isinstance(part, dict) else None for part in content]
    strings = [text for text in texts if isinstance(text, str)]
    return "\n".join(strings) if strings and len(strings) == len(texts) else None


def _letters(text: str) -> bytes:
    """The letters and digits of a text: what remains of it whatever a quotation escapes, joins or indents."""
    text = html.unescape(text) if "&" in text else text
    text = (
        _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else " ", text) if "\\" in text else text
    )
    return _NO_LETTERS.sub("", text.casefold()).encode()


def _parts(texts: Iterable[str]) -> set[bytes]:
    """Every run of so many letters, and every shorter line or string, with and without a label before it."""
    parts: set[bytes] = set()
    for text in texts:
        letters = _letters(text)
        parts.update(letters[at : at + _PIECE_BYTES] for at in range(len(letters) - _PIECE_BYTES + 1))
        for line in _LINE_END.split(text):
            if len(line) < 4 * _PIECE_BYTES:
                parts.update(_letters(part) for part in (line, *_COLON.split(line, maxsplit=1)[1:]))
    return parts
