from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.history.rebase import places_of
from palimpsest.core.history.stored_points import PathEntry


def path(letters: str) -> list[PathEntry]:
    """One message a letter; capitals are answers we relayed."""
    return [
        PathEntry(bytes([n]), letter.encode(), b"", "", letter.isupper()) for n, letter in enumerate(letters)
    ]


def digests(letters: str) -> list[bytes]:
    return [letter.encode() for letter in letters]


def places(sent: str, stored: str) -> Sequence[int | None]:
    return places_of(digests(sent), path(stored))


def test_a_window_names_the_stored_messages() -> None:
    assert places("cDeF", "aBcDeF") == (2, 3, 4, 5)


def test_what_is_not_stored_is_new() -> None:
    assert places("xcDyF", "aBcDeF") == (None, 2, 3, None, 5)


def test_the_order_is_kept_and_as_many_as_possible_are_named() -> None:
    assert places("cDaF", "abcDeF") == (2, 3, None, 5)


def test_equal_messages_are_paired_from_the_end() -> None:
    assert places("yByD", "yAyByD") == (2, 3, 4, 5)


def test_of_equal_answers_the_one_with_the_same_past_is_the_anchor() -> None:
    assert places("cOdO", "aOcOdOeO") == (2, 3, 4, 5)


def test_an_anchor_that_is_not_on_the_path_gives_nothing() -> None:
    assert places("aX", "aB") == ()


@given(st.text("abcdEFGH", max_size=30), st.text("abcdEFGH", max_size=30))
def test_places_ascend_and_agree(sent: str, stored: str) -> None:
    found = places(sent + "Z", stored + "Z")
    named = [place for place in found if place is not None]
    assert named == sorted(set(named))
    assert all(place is None or (sent + "Z")[i] == (stored + "Z")[place] for i, place in enumerate(found))
    assert found[-1] == len(stored)


@given(st.lists(st.integers(0, 60), unique=True, max_size=40), st.sets(st.integers(0, 60)))
def test_a_selection_of_distinct_messages_is_named_completely(stored: list[int], dropped: set[int]) -> None:
    letters = "".join(chr(0x4E00 + n) for n in stored) + "Z"
    kept = "".join(c for c in letters if c == "Z" or ord(c) - 0x4E00 not in dropped)
    assert places(kept, letters) == tuple(letters.index(c) for c in kept)
