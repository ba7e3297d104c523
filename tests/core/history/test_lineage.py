"""The order of everything that was said, whatever a client kept of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.history.stored_points import Point, Rebase, bases_of, lineage_of, merged, path_of


def _names(text: str) -> list[bytes]:
    return [letter.encode() for letter in text]


def _rebase(base: str, members: str) -> Rebase:
    return Rebase(b"R", base.encode(), tuple(_names(members)))


def test_a_path_goes_through_the_members_of_a_rebase() -> None:
    points: list[Point] = [b"a", b"b", _rebase("b", "xy"), b"c"]
    assert path_of(points) == _names("abxyc")


def test_dropped_messages_stay_and_new_ones_stand_before_the_next_kept() -> None:
    assert merged(_names("abcdef"), _names("bXYeZf")) == _names("abcdXYeZf")
    assert merged(_names("abc"), _names("XabcY")) == _names("XabcY")


def test_a_lineage_goes_through_anchors() -> None:
    points: list[Point] = [b"a", b"b", b"c", _rebase("", "Xc"), b"d"]
    assert list(bases_of(points)) == []
    assert lineage_of(points, {}) == _names("abXcd")


def test_the_path_of_a_base_elsewhere_is_merged_in() -> None:
    points: list[Point] = [b"a", b"b", _rebase("q", "b"), b"d"]
    assert list(bases_of(points)) == [b"q"]
    assert lineage_of(points, {b"q": _names("aq")}) == _names("aqbd")


@given(st.lists(st.binary(min_size=1), unique=True), st.data())
def test_merging_keeps_every_message_once_in_order(line: list[bytes], data: st.DataObject) -> None:
    new = data.draw(st.lists(st.binary(min_size=1).filter(lambda b: b not in line), unique=True))
    kept = data.draw(st.sets(st.sampled_from(line))) if line else set()
    listed = data.draw(st.permutations([*kept, *new]))
    result = merged(line, listed)
    assert sorted(result) == sorted([*line, *new])
    assert [chain for chain in result if chain in set(line)] == line


@given(st.lists(st.binary(min_size=1), unique=True, min_size=1), st.data())
def test_a_list_in_the_line_s_order_keeps_its_own(line: list[bytes], data: st.DataObject) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=len(line), max_size=len(line)))
    listed: list[bytes] = []
    for i, (chain, keep) in enumerate(zip(line, flags, strict=True)):
        if keep:
            fresh = b"new %d" % i
            listed += [chain] if fresh in line else [fresh, chain]
    result = merged(line, listed)
    assert [chain for chain in result if chain in set(listed)] == listed
