"""What counts as JSON here, and how to read JSON that strict decoders refuse.

A decoder of a type is made once, at import: msgspec builds what it knows of a type, and of all types within,
when the first decoder of it is made, and two threads that do so at the same time end the process (msgspec
0.22).
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from palimpsest.errors import InvalidJson, NestedTooDeep

# Digits. Python refuses to convert longer ones (CVE-2020-10735); such numbers are read as floats.
_INT_DIGITS = 4_000
# Decoding this many bytes takes some 0.1 ms.
_CHECKED_BYTES = 1 << 18
# Readers may ignore it (RFC 8259, 8.1), and some servers do; `verify` refuses it.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_RAW = msgspec.json.Decoder(msgspec.Raw)


def verify(body: bytes) -> None:
    """Raises InvalidJson unless `body` is one JSON text in UTF-8.

    Escapes of lone surrogates and numbers of any size are accepted. Refused: a byte order mark,
    UTF-16, NaN and Infinity, invalid UTF-8, anything after the value (RFC 8259, sections 8 and 6).
    """
    try:
        _RAW.decode(body)
        check_utf8(body)
    except RecursionError:
        raise NestedTooDeep("the JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        loads_with(body, str)


def check_utf8(body: bytes) -> None:
    """Raises UnicodeDecodeError when the bytes are not UTF-8: msgspec does not check strings inside a Raw.

    Decodes a part at a time: decoding the whole at once would hold the interpreter and a copy in memory.
    """
    if body.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(body), _CHECKED_BYTES):
        decoder.decode(body[start : start + _CHECKED_BYTES])
    decoder.decode(b"", final=True)


def decoded(body: bytes) -> Any:
    """The value of `body`; raises InvalidJson. Accepts what `verify` accepts.

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
    """The value of `body`, with `number(text)` for every number. Raises InvalidJson.

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


def plain_values(value: object) -> dict[str, Any]:
    """A struct as plain JSON values, lists for tuples."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return plain


def array_of(items: Iterable[bytes]) -> bytes:
    """A JSON array of encoded values."""
    return b"[" + b",".join(items) + b"]"


def _number(text: str) -> int | float:
    if len(text) <= _INT_DIGITS and text.lstrip("-").isdecimal():
        return int(text)
    return float(text)


def _refused_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
