"""What counts as JSON here, and how it is read without losing what strict decoders refuse.

Knows nothing of chat, fields or messages; it never writes JSON.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from typing import Any

import msgspec

from app.errors import InvalidJson, NestedTooDeep

# Python refuses to convert longer digit strings (CVE-2020-10735); such numbers are read as floats.
_INT_DIGITS = 4_000
# A part as large is made text in some 0.1 ms.
_CHECKED_BYTES = 1 << 18
# A reader may ignore it (RFC 8259, 8.1), and some servers do; `verify` does not.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def verify(body: bytes) -> None:
    """`body` is one JSON text in UTF-8, or InvalidJson is raised.

    Escapes of lone surrogates and numbers of any size are accepted. Refused: a byte order mark,
    UTF-16, NaN and Infinity, invalid UTF-8, anything after the value (RFC 8259, sections 8 and 6).
    """
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
        check_utf8(body)
    except RecursionError:
        raise NestedTooDeep("the JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        loads_with(body, str)


def check_utf8(body: bytes) -> None:
    """UnicodeDecodeError when the bytes are not UTF-8: msgspec does not look at that of strings in a Raw.

    A part at a time: the whole would be made a text only to be thrown away, and nobody else runs meanwhile.
    """
    if body.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(body), _CHECKED_BYTES):
        decoder.decode(body[start : start + _CHECKED_BYTES])
    decoder.decode(b"", final=True)


def decoded(body: bytes) -> Any:
    """The value of `body`, or InvalidJson. Accepts what `verify` accepts.

    Numbers beyond a float become infinite: use `loads_with` where the spelling of numbers matters.
    """
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise NestedTooDeep("the JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return loads_with(body, _number)


def loads_with(
    body: bytes | str,
    number: Callable[[str], Any],
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """The value of `body`, every number being `number(its text)`; InvalidJson when it is not JSON.

    `pairs`, when given, makes each object from its members in order, repeated keys included.
    """
    try:
        text = body if isinstance(body, str) else body.decode()
        return json.loads(
            text,
            parse_int=number,
            parse_float=number,
            parse_constant=_refused_constant,
            object_pairs_hook=pairs,
        )
    except RecursionError:
        raise NestedTooDeep("the JSON is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the body is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise InvalidJson(f"the body is not valid JSON: {error.msg} (character {error.pos})") from None
    except ValueError as error:
        raise InvalidJson(f"the body is not valid JSON: {error}") from None


def encoded(value: Any) -> bytes:
    """`value` as compact JSON; lone surrogates become escapes, which JSON permits."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _number(text: str) -> int | float:
    if len(text) <= _INT_DIGITS and text.lstrip("-").isdecimal():
        return int(text)
    return float(text)


def _refused_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
