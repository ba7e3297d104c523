"""The operator's key: recognized without being kept.

It is held as a digest, and never stored, logged or sent on.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from urllib.parse import unquote_to_bytes

# Between the words of a header, of cookies and of a query; the key has none of these.
_BETWEEN = re.compile(rb"[\s;,&\"']+")
_Headers = Sequence[tuple[bytes, bytes]]


class AdminKey:
    """The key; `repr` does not show it."""

    def __init__(self, key: str) -> None:
        self._size = len(key)
        self._digest = _digest(key.encode())

    def opens(self, headers: _Headers) -> bool:
        """True when the request presents the key as its one bearer token.

        It takes the same time for anything else, whatever its length.
        """
        given = [value for name, value in headers if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        is_same = hmac.compare_digest(_digest(token.strip()), self._digest)
        return is_same and scheme.lower() == b"bearer"

    def is_in(self, headers: _Headers, target: str) -> bool:
        """True when the key is a word of any header, cookie or query field. `target`: path and query."""
        words = [word for _, value in headers if len(value) >= self._size for word in _words(value)]
        if len(target) >= self._size:
            words += _words(unquote_to_bytes(target.partition("?")[2]))
        fitting = [word for word in words if len(word) == self._size]
        return any(hmac.compare_digest(_digest(word), self._digest) for word in fitting)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _words(value: bytes) -> Iterator[bytes]:
    scheme, _, coded = value.partition(b" ")
    if scheme.lower() == b"basic":
        with suppress(ValueError):
            yield from b64decode(coded).split(b":")
    for word in _BETWEEN.split(value):
        yield word
        # The value of a cookie or query field; the key may end with such signs itself.
        if b"=" in word:
            yield word.partition(b"=")[2]
