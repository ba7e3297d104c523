"""Questions of an assistant, short answers of a user, and the closing words of an answer."""

from __future__ import annotations

import re

from palimpsest.core.notes.facts import stems_of
from palimpsest.core.notes.languages import entries, opening, plain
from palimpsest.core.notes.sentences import prose_of, sentences_of

# Words, and characters of a text without spaces. A longer answer can be understood without its question.
_SHORT_WORDS, _SHORT_CHARS = 8, 20
# Words beside a filler from which on a sentence says something: "Great, the refund went out".
_LEAST_WORDS = 2
# Characters at the end of a text in which its last paragraph is searched.
_END_READ = 4_000
_QUESTION_MARKS = ("?", "？")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_ITEM = re.compile(r"\s*(?:[-*+•–]|\(?\w{1,2}[.)])\s")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
# Where a clause begins: "If so, please confirm", "Passengers: please provide".
_CLAUSE = re.compile(r"^|[,:;，：；]\s?")
_CLOSING = "\"'”’»)*_` "


def question_in(text: str) -> str:
    """The last question with which an assistant's text ends, verbatim; "" when it asks nothing.

    It stands in the last paragraph, or before a list of choices that ends the text. Offers ("Is there
    anything else I can help with?") do not count; requests ("Please provide your order number.") do.
    """
    asked = ""
    for sentence in sentences_of(_last_paragraph(text)):
        low = plain(sentence)
        wants = is_question(sentence) or (not is_question(asked) and opening("request").match(low))
        if wants and not is_offer(sentence):
            asked = sentence
    return asked


def is_whole(sentence: str) -> bool:
    """True for a sentence with an end mark; list items have none and depend on their list."""
    return sentence.rstrip(_CLOSING)[-1:] in (".", "!", "。", "！", *_QUESTION_MARKS)


def is_question(sentence: str) -> bool:
    """True for a sentence that ends with a question mark."""
    return sentence.rstrip(_CLOSING).endswith(_QUESTION_MARKS)


def asks_for_something(sentence: str) -> bool:
    """True for an assistant's sentence that asks the user for something, with no value before the request."""
    if is_question(sentence):
        return True
    low = plain(sentence)
    clauses = (match.end() for match in _CLAUSE.finditer(low))
    return any(opening("request").match(low, at) and not any(map(_is_value, low[:at])) for at in clauses)


def is_offer(sentence: str) -> bool:
    """True for a sentence with an offer to help further."""
    low = plain(sentence)
    return any(offer in low for offer in entries("offer"))


def is_intention(sentence: str) -> bool:
    """True for a sentence that opens with an intention or a guess."""
    return opening("intends").match(plain(sentence)) is not None


def is_short_answer(text: str) -> bool:
    """True for a short answer that cannot be understood without the question before it.

    It has at most 8 words, or 20 characters where a language has no spaces, and is not a question. It opens
    like an answer in one of the tables ("yes", "no", "the second one", "it's"), or it is a single word,
    or it is made of numbers and ids alone.
    """
    low = plain(text).strip()
    if not low or "?" in low or "？" in low:
        return False
    if _UNSPACED.search(low):
        return len(low) <= _SHORT_CHARS and opening("assent").match(low) is not None
    words = low.split()
    if len(words) > _SHORT_WORDS:
        return False
    if opening("assent").match(low) or all(map(_is_value, words)):
        return True
    return len(words) == 1 and not is_small_talk(low)


def _last_paragraph(text: str) -> str:
    paragraphs = [part for part in _PARAGRAPH.split(prose_of(text[-_END_READ:])) if part.strip()]
    if not paragraphs:
        return ""
    first = len(paragraphs) - 1
    while first and all(_ITEM.match(line) for line in paragraphs[first].strip("\n").split("\n")):
        first -= 1
    return "\n\n".join(paragraphs[first:])


def is_small_talk(text: str) -> bool:
    """True for a filler followed by fewer than two words that are no function words."""
    low = plain(text)
    match = opening("filler").match(low)
    if match is None:
        return False
    return len(stems_of(low[match.end() :])) < _LEAST_WORDS


def _is_value(word: str) -> bool:
    return any(map(str.isdigit, word))
