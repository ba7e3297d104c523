"""Standing rules of a user, as opposed to narration, questions and one-time orders.

The cues that identify them are data: one table per language in `cues/`; `cues/en.txt` explains the format.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from palimpsest.core.notes.languages import Language, languages, languages_of, plain, triggers, words_in
from palimpsest.core.notes.sentences import MOST_READ, sentences_of

# Characters up to which a message in a language without a table counts as a rule.
_SHORT_MESSAGE = 200
# Fewer words are a name, an answer or a greeting in any language.
_LEAST_WORDS = 4


def rules_in(text: str) -> tuple[str, ...]:
    """The sentences of a user's message that forbid, demand, limit, prefer or wish for something.

    They are verbatim and in order, each once. The table of the sentence's language is applied, else that of
    the message's language, and the English one where the sentence has English words. Where no table fits, a
    message of up to 200 characters counts whole. Questions count only where they ask for standing
    behaviour. Only the first 20,000 characters are read.
    """
    text = text[:MOST_READ]
    low = plain(text)
    known = languages_of(low, words_in(low))
    if not known and _counts_whole(text, low):
        return (text.strip(),)
    return tuple(dict.fromkeys(sentence for sentence in sentences_of(text) if _binds(sentence, known)))


def _tables(known: tuple[Language, ...], words: frozenset[str]) -> tuple[Language, ...]:
    """The tables to apply: also English where the text has words that only the English table has."""
    english = languages()["en"]
    if english in known or words & english.identifying.difference(*(other.identifying for other in known)):
        return tuple({english: None, **dict.fromkeys(known)})
    return known


def _triggered(table: Language, low: str, words: frozenset[str]) -> Set[str]:
    if table.joined:
        return set() if low.isascii() else {trigger for trigger in table.by_trigger if trigger in low}
    return table.by_trigger.keys() & words


def _binds(sentence: str, of_message: tuple[Language, ...]) -> bool:
    low = plain(sentence)
    if "\n" in low or "\t" in low:
        low = " ".join(low.split())
    words = words_in(low)
    if low.isascii() and triggers().isdisjoint(words):
        return False
    tables = _tables(languages_of(low, words) or of_message, words)
    return any(_matches(low, words, table, _triggered(table, low, words)) for table in tables)


def _matches(low: str, words: frozenset[str], table: Language, hits: Iterable[str]) -> bool:
    for trigger in hits:
        if not table.matches(low, words, trigger, False):
            continue
        asks = low.rstrip("\"')»” ")[-1:] in ("?", "？") or table.asks(low)
        if not asks or table.matches(low, words, trigger, True):
            return not table.is_excluded(low)
    return False


def _counts_whole(text: str, low: str) -> bool:
    """True for a short message that reads as a sentence of a language without a table."""
    if len(text) > _SHORT_MESSAGE or "?" in text or sentences_of(text) == ():
        return False
    words = [word for word in low.split() if len(word) > 1]
    prose = [word for word in words if word.strip(".,;:!").isalpha()]
    written = sum(word[0].islower() or not word[0].isascii() for word in text.split())
    return len(prose) >= _LEAST_WORDS and len(prose) * 2 > len(words) and written >= _LEAST_WORDS - 1
