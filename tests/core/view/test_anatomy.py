"""What became of each message, what a prompt is made of, how two differ, and what a view does not name."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.view.anatomy import difference, fates_of, lineage_of, lost_in, picture_tokens, shares_of
from palimpsest.core.view.compaction import Compaction, Mask
from palimpsest.core.view.view import rendered

from tests.core.histories import assistant, calls, conversation, count_text, prose, result, system, user

TALK = conversation(
    [
        system("be exact"),
        user("The task: never touch /srv/payroll.csv. We use port 48123."),
        calls("a"),
        result("a", prose(400)),
        assistant("It is done."),
        user("And now?"),
        calls("b"),
        result("b", prose(400)),
        user("Go on."),
    ]
)


def made(cut: int, *kept: int, name: str = "c1", parent: str = "", masks: tuple[int, ...] = ()) -> Compaction:
    return Compaction(
        id=name,
        kind="message_removal",
        watermark=TALK.chains[cut - 1],
        kept=tuple(TALK.chains[at] for at in kept),
        masks=tuple(Mask(TALK.chains[at], 40) for at in masks),
        summary="what was said",
        policy="auto",
        trigger="proactive",
        author="model",
        model=None,
        tokens_before=0,
        tokens_after=0,
        messages_folded=cut - len(kept),
        parents=(parent,) if parent else (),
    )


def test_every_message_has_one_fate_and_the_compaction_that_folded_it_first() -> None:
    first, second = made(3, 0), made(5, 0, 4, name="c2", parent="c1", masks=(6,))
    view = rendered(TALK, second, count_text)
    lineage = lineage_of(second, [second, first])
    assert [one.id for one in lineage] == ["c1", "c2"]
    seen = fates_of(TALK, view, lineage)
    assert [one.index for one in seen] == list(range(8))
    assert [one.fate for one in seen] == [
        "kept",
        "folded",
        "folded",
        "folded",
        "kept",
        "whole",
        "masked",
        "whole",
    ]
    assert [one.summary for one in seen] == ["c1", "c1", "c1", "c2", "c2", None, None, None]
    assert [one.tokens == 0 for one in seen] == [one.fate == "folded" for one in seen]
    assert {one.fate for one in fates_of(TALK, rendered(TALK, None, count_text), [])} == {"whole"}


def test_the_shares_of_a_prompt_are_all_of_it() -> None:
    view = rendered(TALK, made(5, 0), count_text)
    shares = shares_of(view.parts, 70, lambda _: 4)
    assert sum(shares.values()) == 70 + sum(part.tokens for part in view.parts)
    assert shares["tools"] == 70
    assert shares.keys() == {"tools", "instructions", "task", "summary", "tail"}


def test_pictures_are_told_apart_from_the_words_beside_them() -> None:
    def count(fields: Any) -> int:
        return 10 * len(fields["content"])

    raw = b'{"role":"user","content":[{"type":"text","text":"an image"},{"type":"image_url","image_url":{}}]}'
    assert picture_tokens(raw, 100, count) == 90
    assert picture_tokens(b'{"role":"user","content":"an image"}', 100, count) == 0
    assert picture_tokens(b'{"role":"user","content":[{"type":"text","text":"image"}]}', 9, count) == 0


def test_what_the_view_does_not_name_is_lost_and_what_it_names_is_not() -> None:
    fold = made(5)
    view = rendered(TALK, fold, count_text)
    lost = lost_in(TALK, fates_of(TALK, view, [fold]), view.parts)
    assert any("/srv/payroll.csv" in one.text for one in lost)
    assert {one.index for one in lost} <= set(range(5))
    told = made(5, 0)
    shown = rendered(TALK, told, count_text)
    assert not any("payroll" in one.text for one in lost_in(TALK, fates_of(TALK, shown, [told]), shown.parts))
    whole = rendered(TALK, None, count_text)
    assert lost_in(TALK, fates_of(TALK, whole, []), whole.parts) == []


SOME = st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=8)


@given(SOME, SOME)
def test_a_difference_gives_back_both_sides(before: list[bytes], after: list[bytes]) -> None:
    found = difference(before, after)
    start, end = found.same_before, found.same_after
    assert before[:start] == after[:start]
    assert [*before[:start], *found.gone, *before[len(before) - end :]] == before
    assert [*after[:start], *found.new, *after[len(after) - end :]] == after
    assert not (found.gone and found.new and found.gone[0] == found.new[0])
