"""Questions and short answers: what an assistant waits for, what only its question explains, what it said.

Knows nothing of messages, turns or budgets.
"""

from __future__ import annotations

import re
from functools import lru_cache

from app.core.notes.languages import languages, languages_of, plain, words_in
from app.core.notes.sentences import prose_of, sentences_of
from app.core.text.wording import LEFT_OUT

# Words, and characters of a text without spaces: a longer answer says by itself what it is about.
_SHORT_WORDS, _SHORT_CHARS = 8, 20
# Words that are told beside a filler in a sentence that says something: "Great, the refund went out".
_LEAST_TOLD = 2
# Of a longer list its first and last item say nothing of the others.
_MOST_ITEMS = 2
# Characters of the end of a text in which its last paragraph is looked for.
_END_READ = 4_000
_QUESTION_MARKS = ("?", "？")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_ITEM = re.compile(r"\s*(?:[-*+•–]|\(?\w{1,2}[.)])\s")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
# Where a clause begins: "If so, please confirm", "Passengers: please provide".
_CLAUSE = re.compile(r"^|[,:;，：；]\s?")
_CLOSING = "\"'”’»)*_` "


def question_in(text: str) -> str:
    """The last question that an assistant's text ends with and waits for, verbatim; "" when it asks nothing.

    It stands in the last paragraph, or before a list of choices that ends the text. Offers ("Is there
    anything else I can help with?") are none; "Please provide your order number." asks without a mark.
    """
    asked = ""
    for sentence in sentences_of(_last_paragraph(text)):
        low = plain(sentence)
        wants = is_question(sentence) or (not is_question(asked) and _opens("request").match(low))
        if wants and not any(offer in low for offer in _entries("offer")):
            asked = sentence
    return asked


def is_whole(sentence: str) -> bool:
    """True for one that ends as sentences do; the items of a list are explained by their list."""
    return sentence.rstrip(_CLOSING)[-1:] in (".", "!", "。", "！", *_QUESTION_MARKS)


def is_question(sentence: str) -> bool:
    """True for a sentence that ends with a question mark."""
    return sentence.rstrip(_CLOSING).endswith(_QUESTION_MARKS)


def asks_for_something(sentence: str) -> bool:
    """True for an assistant's sentence that wants something of the user, and tells no value before."""
    if is_question(sentence):
        return True
    low = plain(sentence)
    clauses = (match.end() for match in _CLAUSE.finditer(low))
    return any(_opens("request").match(low, at) and not any(map(_is_value, low[:at])) for at in clauses)


def intends(sentence: str) -> bool:
    """True for a sentence that opens by what its speaker is about to do, or guesses."""
    return _opens("intends").match(plain(sentence)) is not None


def names_picture(sentence: str) -> bool:
    """True for a sentence with a word for a picture."""
    low = plain(sentence)
    return any(language.pictures.search(low) for language in languages().values())


def opens_as_answer(text: str) -> bool:
    """True for words that begin as an answer to a question does: "yes", "no", "that sounds good"."""
    return _opens("assent").match(plain(text)) is not None


def is_assent(text: str) -> bool:
    """True for a short answer that cannot be understood without the question before it.

    At most 8 words, or 20 characters of a text without spaces; no question; it opens as answers do in
    one of the tables ("yes", "no", "the second one", "it's"), or it is a single word or nothing but
    numbers and ids.
    """
    low = plain(text).strip()
    if not low or "?" in low or "？" in low:
        return False
    if _UNSPACED.search(low):
        return len(low) <= _SHORT_CHARS and _opens("assent").match(low) is not None
    words = low.split()
    if len(words) > _SHORT_WORDS:
        return False
    if _opens("assent").match(low) or all(map(_is_value, words)):
        return True
    return len(words) == 1 and not _is_small_talk(low)


def closing_of(text: str, most_chars: int) -> str:
    """The first and the last sentence of an assistant's closing words that say something.

    Whole sentences in at most `most_chars` characters, what stands between them marked: an answer begins with
    what was done, or ends with it. Without filler ("Great!"), questions and announcements that end in a
    colon; of items of a list two at most, where there is nothing else. "" when there is none that fits.
    """
    sentences = [each for each in sentences_of(text) if len(each) <= most_chars and not _says_nothing(each)]
    places = [place for place, each in enumerate(sentences) if is_whole(each)]
    if not places and len(sentences) <= _MOST_ITEMS:
        places = [*range(len(sentences))]
    if not places:
        return ""
    first, last = places[0], places[-1]
    between = " " if last - first == 1 else f" {LEFT_OUT} "
    both = f"{sentences[first]}{between}{sentences[last]}"
    says_more = sentences[last] != sentences[first]
    return both if says_more and len(both) <= most_chars else sentences[first]


def _last_paragraph(text: str) -> str:
    paragraphs = [part for part in _PARAGRAPH.split(prose_of(text[-_END_READ:])) if part.strip()]
    if not paragraphs:
        return ""
    first = len(paragraphs) - 1
    while first and all(_ITEM.match(line) for line in paragraphs[first].strip("\n").split("\n")):
        first -= 1
    return "\n\n".join(paragraphs[first:])


def _says_nothing(sentence: str) -> bool:
    low = plain(sentence)
    is_announcement = sentence.rstrip(_CLOSING)[-1:] in (":", "：")
    is_offer = any(offer in low for offer in _entries("offer"))
    return is_announcement or is_offer or asks_for_something(sentence) or _is_small_talk(low)


def _is_small_talk(low: str) -> bool:
    """True when nothing but an opening that says nothing stands there, and function words."""
    match = _opens("filler").match(low)
    if match is None:
        return False
    rest = words_in(low[match.end() :])
    known = {word for language in languages_of(low, words_in(low)) for word in language.betraying}
    return len(rest - known) < _LEAST_TOLD


def _is_value(word: str) -> bool:
    return any(map(str.isdigit, word))


@lru_cache(maxsize=16)
def _entries(key: str) -> tuple[str, ...]:
    return tuple(entry for language in languages().values() for entry in language[key])


@lru_cache(maxsize=16)
def _opens(key: str) -> re.Pattern[str]:
    parts = [language.opens(key) for language in languages().values()]
    return re.compile("|".join(f"(?:{part.pattern})" for part in parts if part))
