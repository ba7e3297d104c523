from __future__ import annotations

import gzip
import importlib
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.upstream.decoding import Decoder, decoder_for

brotli: Any = importlib.import_module("brotli")

ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: bytes(brotli.compress(data, quality=2)),
    "zstd": zstandard.compress,
}
MIB = 1024 * 1024


def opened(coding: str, limit: int = 10 * MIB) -> Decoder:
    decoder = decoder_for([(b"Content-Encoding", coding.encode())] if coding else [], limit)
    assert decoder is not None
    return decoder


@given(
    st.sampled_from([*ENCODERS, ""]),
    st.one_of(st.binary(max_size=2000), st.text(max_size=500).map(lambda text: text.encode() * 300)),
    st.lists(st.integers(1, 5000), max_size=20),
)
def test_every_chunking_decodes_alike(coding: str, data: bytes, cuts: list[int]) -> None:
    coded = ENCODERS[coding](data) if coding else data
    decoder, got = opened(coding), b""
    for size in cuts:
        got += decoder.feed(coded[:size])
        coded = coded[size:]
    assert got + decoder.feed(coded) == data
    assert decoder.failure is None


def test_raw_deflate_is_understood() -> None:
    raw = zlib.compressobj(wbits=-15)
    coded = raw.compress(b"some text") + raw.flush()
    decoder = opened("deflate")
    assert b"".join(decoder.feed(coded[at : at + 1]) for at in range(len(coded))) == b"some text"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_members_in_a_row_are_one_body(coding: str) -> None:
    coded = ENCODERS[coding](b"one ") + ENCODERS[coding](b"two")
    assert opened(coding).feed(coded) == b"one two"


def test_codings_are_undone_in_reverse() -> None:
    assert opened("gzip, br").feed(ENCODERS["br"](gzip.compress(b"text"))) == b"text"
    assert opened("identity").feed(b"text") == b"text"


@pytest.mark.parametrize("coding", ["dcb", "gzip, gzip, gzip", "compress"])
def test_what_we_cannot_undo_is_not_tried(coding: str) -> None:
    assert decoder_for([(b"content-encoding", coding.encode())], 1000) is None


def test_flushed_frames_come_out_at_once() -> None:
    deflate = zlib.compressobj(wbits=31)
    decoder = opened("gzip")
    for frame in (b"data: 1\n\n", b"data: 2\n\n"):
        assert decoder.feed(deflate.compress(frame) + deflate.flush(zlib.Z_SYNC_FLUSH)) == frame


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_is_stopped_at_the_limit(coding: str) -> None:
    bomb = ENCODERS[coding](bytes(128 * MIB))
    decoder = opened(coding, MIB)
    tracemalloc.start()
    got = decoder.feed(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoder.failure == "too_large"
    assert len(got) <= MIB
    assert peak < 16 * MIB
    assert decoder.feed(b"more") == b""


def test_a_bomb_in_a_bomb_is_stopped_too() -> None:
    decoder = opened("gzip, gzip", MIB)
    decoder.feed(gzip.compress(gzip.compress(bytes(256 * MIB), 1), 1))
    assert decoder.failure == "too_large"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_garbage_is_called_corrupt(coding: str) -> None:
    decoder = opened(coding)
    assert decoder.feed(b"\xff\xfe certainly not coded \x00" * 20) == b""
    assert decoder.failure == "corrupt"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_body_is_complete_where_its_coding_ends(coding: str) -> None:
    coded = ENCODERS[coding](b"some words and some more words")
    decoder = opened(coding)
    said = []
    for at in range(len(coded)):
        decoder.feed(coded[at : at + 1])
        said.append(decoder.is_complete)
    assert said == [False] * (len(coded) - 1) + [True]
    decoder.feed(b"garbage")
    assert not decoder.is_complete
