"""Words as both databases hold them, so that no word can be taken for anything but a word.

Pure. On SQLite a query is text in a language of its own, and a tokenizer splits what is stored. Spelled here,
a word is one bare word of that language and one token, whatever it was; in PostgreSQL's arrays too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

# More words are not looked for at once: a question's own, at most twelve, and those related to them.
MOST_WORDS = 96
# No entry holds it.
NO_WORD = "_x"
# FTS5's bare words: these, and whatever is not ASCII. Capitals would be folded, and AND and OR are operators.
_SPECIAL = re.compile(r"[^a-z0-9\x80-\U0010ffff]")
# Most words, looked at first.
_PLAIN = re.compile(r"[a-z0-9]{1,64}")
# Bytes: a longer word is held by its digest. PostgreSQL's index refuses keys of more than some 2,700.
_LONGEST = 200
# Bytes of a digest: 2**64 sessions have one in common by chance only.
_SCOPE_BYTES = 8


def spelled(word: str) -> str:
    """The word as it is held: equal for equal words only, not empty, at most 200 bytes, without spaces."""
    if _PLAIN.fullmatch(word):
        return word
    held = _SPECIAL.sub(lambda char: f"_{ord(char[0]):02x}", _encodable(word)) or "_e"
    if len(held.encode()) > _LONGEST:
        return f"_h{hashlib.sha256(held.encode()).hexdigest()}"
    return held


def words_of(words: Iterable[str]) -> str:
    """Different words, as one text with spaces between them."""
    return " ".join(dict.fromkeys(map(spelled, words)))


def scope_of(namespace: str, session: str | None) -> str:
    """The word that all entries of the session hold, or all of the namespace: no word is spelled like it."""
    if session is None:
        return f"_n{_digest(namespace)}"
    return f"_s{_digest(namespace, session)}"


def _encodable(word: str) -> str:
    """Half of a surrogate pair has no UTF-8: it is spelled out, and no word is spelled like that."""
    return word.replace("\\", "\\\\").encode("utf-8", "backslashreplace").decode()


def _digest(*names: str) -> str:
    """Names of different lengths cannot make the same text: each is told with its length."""
    parts = (f"{len(name)}:{name}".encode("utf-8", "surrogatepass") for name in names)
    return hashlib.sha256(b"".join(parts)).digest()[:_SCOPE_BYTES].hex()
