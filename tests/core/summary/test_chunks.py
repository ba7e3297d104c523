"""Pieces of a transcript: bounded, in order, complete."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palimpsest.core.summary.fitting import Line, PieceBounds, chunks

from tests.core.summary.talk import count

MARKER = re.compile(r"(?:\A|\n\n)USER \[\d+(?:, continued)?\]: ")
ROOMY = PieceBounds(chars=120_000, tokens=1_000_000, counts_markers=False)


def said(piece: str) -> int:
    """Characters of a piece without markers."""
    return len(MARKER.sub("", piece))


def cut(texts: list[str], room: PieceBounds = ROOMY) -> list[str]:
    return list(chunks([Line(n, "user", text) for n, text in enumerate(texts, 1)], room, count))


@pytest.mark.spec("B11")
def test_what_fits_is_one_piece() -> None:
    assert cut(["one", "two"]) == ["USER [1]: one\n\nUSER [2]: two"]
    assert cut([]) == []


@pytest.mark.spec("B11")
@pytest.mark.parametrize("size", [3_000, 30_000, 300_000])
def test_three_hundred_thousand_characters_are_three_pieces(size: int) -> None:
    pieces = cut(["word " * (size // 5)] * (300_000 // size))
    assert [said(piece) <= 120_000 for piece in pieces] == [True] * 3


@pytest.mark.spec("B11")
def test_a_message_longer_than_a_piece_is_divided_before_a_word_and_goes_on() -> None:
    long = " ".join(f"word{n}" for n in range(30_000))
    pieces = cut(["before", long, "after"])
    assert len(pieces) == 3
    assert pieces[0].startswith("USER [1]: before\n\nUSER [2]: word0 ")
    assert all(piece.startswith("USER [2, continued]: word") for piece in pieces[1:])
    assert pieces[-1].endswith("USER [3]: after")
    assert [word for piece in pieces for word in MARKER.sub(" ", piece).split()] == [
        "before",
        *long.split(),
        "after",
    ]


@pytest.mark.spec("B11")
def test_the_window_bounds_a_piece_as_well() -> None:
    pieces = cut(["word " * 4_000], PieceBounds(chars=120_000, tokens=500, counts_markers=False))
    assert len(pieces) >= 10
    assert max(count(piece) for piece in pieces) <= 500


WORDS = st.lists(st.text("abcdefgh", min_size=1, max_size=60), min_size=1, max_size=120).map(" ".join)


@pytest.mark.spec("B11")
@settings(max_examples=80)
@given(st.lists(WORDS, max_size=12), st.integers(300, 3_000), st.integers(100, 600), st.booleans())
def test_pieces_keep_their_bounds_and_hold_every_word_in_order(
    texts: list[str], chars: int, tokens: int, counts_markers: bool
) -> None:
    pieces = cut(texts, PieceBounds(chars, tokens, counts_markers))
    words = [word for piece in pieces for word in MARKER.sub(" ", piece).split()]
    assert words == [word for text in texts for word in text.split()]
    size = len if counts_markers else said
    assert all(size(piece) <= chars and count(piece) <= tokens for piece in pieces)


@settings(max_examples=60)
@given(st.text(min_size=1, max_size=4_000).filter(str.strip), st.integers(-50, 700))
def test_any_text_comes_through_whole(text: str, bound: int) -> None:
    pieces = list(chunks([Line(0, "", text)], PieceBounds(bound, bound), count))
    assert "".join(pieces) == text
