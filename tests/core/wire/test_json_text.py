from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.wire.json_text import decoded, loads_with, verify
from palimpsest.errors import InvalidJson

REFUSED = [
    pytest.param(b"", id="empty"),
    pytest.param(b"  \n", id="blank"),
    pytest.param(b"\xef\xbb\xbf{}", id="byte order mark"),
    pytest.param('{"a":1}'.encode("utf-16"), id="UTF-16"),
    pytest.param('{"a":1}'.encode("utf-16-le"), id="UTF-16 without mark"),
    pytest.param('{"a":1}'.encode("utf-32"), id="UTF-32"),
    pytest.param(b'{"a":NaN}', id="NaN"),
    pytest.param(b'{"a":Infinity}', id="Infinity"),
    pytest.param(b'{"a":-Infinity}', id="-Infinity"),
    pytest.param(b'{"a":NaN,"b":"\\ud83d"}', id="NaN beside a lone surrogate"),
    pytest.param(b'{"a":"\xff"}', id="no UTF-8"),
    pytest.param(b'{"\xff":1}', id="no UTF-8 in a key"),
    pytest.param(b'{"a":"\xed\xa0\xbd"}', id="surrogate in UTF-8"),
    pytest.param(b'{"a":"\xc0\x80"}', id="overlong NUL"),
    pytest.param(b'{"a":"\x00"}', id="bare NUL"),
    pytest.param(b'{"a":"\n"}', id="bare line end in a string"),
    pytest.param(b"{}\x00", id="NUL after the value"),
    pytest.param(b"{} {}", id="two values"),
    pytest.param(b'{"a":1,}', id="trailing comma"),
    pytest.param(b"{'a':1}", id="single quotes"),
    pytest.param(b'{"a":01}', id="leading zero"),
    pytest.param(b'{"a":.5}', id="no whole part"),
    pytest.param(b'{"a":1.}', id="no fraction"),
    pytest.param(b'{"a":"\\x"}', id="unknown escape"),
    pytest.param(b'{"a":"\\ud8"}', id="short escape"),
    pytest.param(b'{"a":"b', id="cut in a string"),
    pytest.param(b'{"a":"' + b'\\"' * 300_000, id="cut in a string of quotes"),
    pytest.param(b"[" * 100_000 + b"]" * 100_000, id="100,000 levels"),
    pytest.param(b"[" * 100_000, id="100,000 levels, open"),
    pytest.param(b'{"a":' * 100_000 + b'"\\ud83d"' + b"}" * 100_000, id="100,000 levels, lone surrogate"),
]
ACCEPTED = [
    pytest.param(b'{"a":"\\ud83d"}', id="lone surrogate escape"),
    pytest.param(b'{"a":"\\ude00\\ud83d \\ud83d\\u0041"}', id="surrogates in the wrong order"),
    pytest.param(b'{"\\ud83d":1}', id="lone surrogate in a key"),
    pytest.param(b'{"a":1e400}', id="beyond a float"),
    pytest.param(b'{"a":' + b"9" * 5_000 + b"}", id="5,000 digits"),
    pytest.param(b'{"a":1234567890123456789012345}', id="25 digits"),
    pytest.param(b'{"a":"\\u0000"}', id="escaped NUL"),
    pytest.param(b'{"a":1,"a":2}', id="repeated key, which is for the caller to judge"),
    pytest.param(b" \r\n\t{} ", id="blanks"),
    pytest.param(b"7", id="a bare number"),
]


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidJson):
        verify(body)
    with pytest.raises(InvalidJson):
        decoded(body)


@pytest.mark.parametrize("body", ACCEPTED)
def test_odd_json_is_accepted(body: bytes) -> None:
    verify(body)
    decoded(body)


@given(st.binary(max_size=40))
def test_bytes_are_accepted_or_refused_and_nothing_else(body: bytes) -> None:
    try:
        verify(body)
    except InvalidJson:
        with pytest.raises(InvalidJson):
            loads_with(body, str)
    else:
        loads_with(body, str)
