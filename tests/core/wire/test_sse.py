from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.wire.streams import FrameSplitter, LineSplitter, data_of
from palimpsest.errors import UpstreamError

LIMIT = 1_000_000
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
LINES = st.sampled_from([
    b"data: {}", b"data:x", b"data", b"data: ", b": comment", b"event: error", b"id: 7", b"",
    "data: é😀".encode(), "data: 漢字".encode(), b"retry: 10", b"nonsense",
    b"\xef\xbb\xbfdata: y", b"data: \xff",
])  # fmt: skip


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Lines of any kind with ends of any kind, mixed, perhaps cut off at the end."""
    lines = draw(
        st.lists(st.tuples(LINES, ENDS, st.sampled_from([b"", b"", b"\n", b"\r", b"\r\n"])), max_size=10)
    )
    return b"".join(line + end + blank for line, end, blank in lines) + draw(
        st.sampled_from([b"", b"data: cut"])
    )


def frames_of(chunks: list[bytes], limit: int = LIMIT) -> tuple[list[bytes], bytes]:
    splitter = FrameSplitter(limit)
    frames = [frame for chunk in chunks for frame in splitter.feed(chunk)]
    return frames + splitter.finish(), splitter.rest


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(stream)) for place in places), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


@pytest.mark.spec("W11")
def test_a_stream_cut_at_every_byte_gives_the_same_frames() -> None:
    stream = (
        b'data: {"a":"' + "é😀".encode() + b'"}\n\n: keep-alive\r\n\r\nevent: x\rdata: 1\rdata: 2\r\r'
        b"data: [DONE]\n\r\n\n\n\r\rdata: \r\n\r\n\n"
    )
    whole, rest = frames_of([stream])
    for place in range(len(stream) + 1):
        assert frames_of([stream[:place], stream[place:]]) == (whole, rest)


@given(streams(), st.integers(1, 40), st.lists(st.integers(0, 120), max_size=12))
def test_a_frame_above_the_limit_is_refused_after_all_before_it(
    stream: bytes, limit: int, places: list[int]
) -> None:
    whole, rest = frames_of([stream])
    allowed = next((at for at, frame in enumerate(whole) if len(frame) > limit), len(whole))
    must_raise = allowed < len(whole) or len(rest) > limit
    splitter = FrameSplitter(limit)
    given_out: list[bytes] = []
    try:
        for chunk in cut(stream, places):
            given_out += splitter.feed(chunk)
        while frames := splitter.finish():
            given_out += frames
    except UpstreamError:
        assert must_raise
        assert stream.startswith(b"".join(given_out) + splitter.rest)
    else:
        assert not must_raise
        assert splitter.rest == rest
    assert given_out == whole[:allowed]


@pytest.mark.parametrize(
    ("frame", "data"),
    [
        (b"data: {}\n\n", b"{}"),
        (b"data:{}\r\n\r\n", b"{}"),
        (b"data:  {}\r\r", b" {}"),
        (b"event: error\ndata: {}\nid: 1\n\n", b"{}"),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b"data: a\rid: 1\n\n", b"a"),
        (b"data: a\rdata\r\ndata: \n\n", b"a\n\n"),
        (b"data:\n\n", b""),
        (b": comment\n\n", None),
        (b"event: ping\n\n", None),
        (b"\n\n", None),
        (b"\n: x\ndata: a\n\n", b"a"),
        (b"\xef\xbb\xbfdata: a\n\n", b"a"),
        (b"database: a\n\n", None),
        (b" data: a\n\n", None),
        (b"data: [DONE]\n\n", b"[DONE]"),
    ],
)
def test_data_of_an_event(frame: bytes, data: bytes | None) -> None:
    assert data_of(frame) == data


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
