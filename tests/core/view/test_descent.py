"""Which compactions can be undone, and what is in force again then."""

from __future__ import annotations

from palimpsest.core.view.compaction import Compaction, builders, restored


def made(ident: str, *parents: str) -> Compaction:
    return Compaction(
        id=ident,
        kind="message_removal",
        watermark=b"w",
        kept=(),
        masks=(),
        summary="s",
        policy="auto",
        trigger="manual",
        author="model",
        model=None,
        tokens_before=2,
        tokens_after=1,
        messages_folded=1,
        parents=parents,
    )


FIRST, SECOND, THIRD = made("a"), made("b", "a"), made("c", "b")
SIBLING = made("d", "a")
EVERY = (FIRST, SECOND, THIRD, SIBLING)


def test_what_others_were_made_from_names_them() -> None:
    assert builders(FIRST, EVERY) == (SECOND, SIBLING)
    assert builders(SECOND, EVERY) == (THIRD,)
    assert builders(THIRD, EVERY) == builders(SIBLING, EVERY) == ()


def test_what_was_undone_holds_nothing_back() -> None:
    assert builders(FIRST, (FIRST, SIBLING)) == (SIBLING,)
    assert builders(SECOND, (FIRST, SECOND, SIBLING)) == ()


def test_the_nearest_ancestor_that_stands_is_in_force_again() -> None:
    assert restored(THIRD, EVERY, (FIRST, SECOND, SIBLING)) is SECOND
    assert restored(THIRD, EVERY, (FIRST, SIBLING)) is FIRST
    assert restored(THIRD, EVERY, (SIBLING,)) is None
    assert restored(FIRST, EVERY, (SIBLING,)) is None


def test_a_parent_that_is_gone_or_names_itself_ends_the_search() -> None:
    loop = made("x", "x", "gone")
    assert restored(loop, (loop,), ()) is None
