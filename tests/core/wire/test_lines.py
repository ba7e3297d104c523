from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.wire.streams import LineSplitter
from palimpsest.errors import UpstreamError

PARTS = st.lists(st.sampled_from([b"\n", b"\r\n", b"{}", b'{"a":1}', b" ", b"\r"]), max_size=12)


@given(PARTS, st.lists(st.integers(1, 9), max_size=12))
def test_lines_do_not_depend_on_how_the_stream_was_cut(parts: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(parts)
    splitter, lines, rest = LineSplitter(100), [], stream
    for size in sizes:
        lines += splitter.feed(rest[:size])
        rest = rest[size:]
    lines += splitter.feed(rest)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    held = splitter.rest_bytes
    last = splitter.finish()
    assert held == sum(map(len, last))
    assert splitter.rest_bytes == 0
    assert [*lines, *last] == stream.splitlines(keepends=True) or b"\r" in stream
    assert b"".join([*lines, *last]) == stream


def test_a_line_longer_than_the_limit_is_not_held() -> None:
    assert LineSplitter(4).feed(b"abc\nabc\nabcd") == [b"abc\n", b"abc\n"]
    with pytest.raises(UpstreamError):
        LineSplitter(4).feed(b"abcde")
    splitter = LineSplitter(4)
    splitter.feed(b"ab")
    with pytest.raises(UpstreamError):
        splitter.feed(b"cd\n")
