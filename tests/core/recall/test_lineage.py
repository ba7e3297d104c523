"""What summaries are made from: parents, depths, and the messages that each alone took up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.recall.lineage import MOST_PARENTS, FoldedSummary, folded_on, lineages_of
from palimpsest.core.view.compaction import Compaction


def messages(first: int, last: int) -> tuple[bytes, ...]:
    return tuple(b"m%d" % number for number in range(first, last + 1))


A = FoldedSummary("A", messages(1, 4), made_at=1.0)


@pytest.mark.spec("C12")
def test_a_summary_of_messages_alone_is_a_leaf() -> None:
    found = lineages_of([A])["A"]
    assert (found.depth, found.kind, found.parents, found.sources) == (0, "leaf", (), messages(1, 4))


@pytest.mark.spec("C12")
def test_one_that_covers_an_earlier_one_too_stands_on_it() -> None:
    found = lineages_of([A, FoldedSummary("B", messages(1, 8), made_at=2.0)])["B"]
    assert (found.depth, found.kind, found.parents) == (1, "node", ("A",))
    assert found.sources == messages(5, 8)


def test_what_was_undone_before_is_no_parent_unless_the_record_says_so() -> None:
    undone = FoldedSummary("A", messages(1, 4), made_at=1.0, until=1.5)
    assert lineages_of([undone, FoldedSummary("B", messages(1, 8), made_at=2.0)])["B"].parents == ()
    named = FoldedSummary("B", messages(1, 8), ("A",), made_at=2.0)
    assert lineages_of([undone, named])["B"].parents == ("A",)


@pytest.mark.spec("C12")
def test_there_are_twelve_parents_at_most_the_newest() -> None:
    many = [FoldedSummary(f"p{n}", messages(n, n), made_at=float(n)) for n in range(20)]
    found = lineages_of([*many, FoldedSummary("all", messages(0, 30), made_at=99.0)])["all"]
    assert found.parents == tuple(f"p{n}" for n in range(19, 19 - MOST_PARENTS, -1))
    assert found.sources == (*messages(0, 7), *messages(20, 30))


@pytest.mark.spec("C12")
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=12))
def test_there_is_no_cycle_and_a_depth_is_one_more_than_the_deepest_parents(
    spans: list[tuple[int, int]],
) -> None:
    covered = [
        FoldedSummary(str(n), messages(min(span), max(span)), made_at=float(n))
        for n, span in enumerate(spans)
    ]
    found = lineages_of(covered)
    for ident, lineage in found.items():
        assert all(int(parent) < int(ident) for parent in lineage.parents)
        deepest = max((found[parent].depth for parent in lineage.parents), default=-1)
        assert lineage.depth == deepest + 1


@pytest.mark.spec("C13")
def test_what_was_kept_is_not_among_what_was_removed() -> None:
    made = compaction(watermark=b"m3", kept=(b"m2",))
    assert folded_on(made, messages(1, 5)) == (b"m1", b"m3")
    assert folded_on(made, messages(4, 5)) is None
    assert folded_on(compaction(watermark=b"", kept=()), messages(1, 5)) is None


def compaction(watermark: bytes, kept: tuple[bytes, ...]) -> Compaction:
    return Compaction(
        id="c", kind="message_removal", watermark=watermark, kept=kept, masks=(), summary="",
        policy="auto", trigger="manual", author="model", model=None, tokens_before=0, tokens_after=0,
        messages_folded=2,
    )  # fmt: skip
