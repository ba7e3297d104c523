"""The exact numbers of the guesses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.summary.rolling.estimate import chars3, chars4


@pytest.mark.parametrize(
    ("length", "three", "four"),
    [(0, 0, 0), (1, 1, 1), (3, 1, 1), (4, 2, 1), (7, 3, 2), (8, 3, 2), (9, 3, 3), (12_000, 4_000, 3_000)],
)
def test_characters_by_three_and_by_four_are_rounded_up(length: int, three: int, four: int) -> None:
    assert (chars3("x" * length), chars4("x" * length)) == (three, four)


def test_characters_are_code_points() -> None:
    assert (chars3("日本語でも"), chars4("😀" * 5)) == (2, 2)


@given(st.text(), st.text())
def test_a_whole_is_never_guessed_larger_than_its_parts(one: str, other: str) -> None:
    for guess in (chars3, chars4):
        assert guess(one + other) <= guess(one) + guess(other)
