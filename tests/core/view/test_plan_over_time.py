import math

import pytest
from palimpsest.core.policy import Policy
from palimpsest.core.view.outcomes import Fold, MaskOnly, Refuse, Send
from palimpsest.core.view.record import adopts, folded_indexes, summary_room

from tests.core.histories import assistant, count_text, prose, user
from tests.core.view.planning import chat


@pytest.mark.spec("A29")
def test_each_overflow_comes_lower_until_nothing_is_left() -> None:
    talk = chat(20, window=200_000)
    sizes = [talk.tokens]
    while isinstance(plan := talk.plan_overflow(), Fold | MaskOnly):
        assert plan.trigger == "overflow"
        talk.carry_out(plan, summary="short")
        sizes.append(talk.tokens)
    assert isinstance(plan, Refuse)
    assert "Nothing is left that compaction could fold." in plan.message
    assert sizes[1] <= sizes[0] // 2
    assert sizes == sorted(sizes, reverse=True)
    assert talk.view.parts[-1].raw == talk.conversation.messages[-1].raw


@pytest.mark.spec("F35")
def test_a_second_compaction_by_hand_finds_nothing_to_do() -> None:
    talk = chat(10)
    plan = talk.plan_manual()
    assert isinstance(plan, Fold)
    talk.carry_out(plan)
    assert isinstance(talk.plan_manual(), Send)


@pytest.mark.spec("D21")
@pytest.mark.parametrize("turns", [0, 1])
def test_by_hand_there_is_nothing_to_do_with_hardly_anything_to_fold(turns: int) -> None:
    assert isinstance(chat(turns).plan_manual(), Send)


def test_a_background_fold_is_asked_for_below_the_trigger_and_lands_near_the_target_at_it() -> None:
    talk = chat(38, policy=Policy(precompute_ratio=0.75))
    plan = talk.plan()
    assert isinstance(plan, Send)
    assert plan.precompute is not None
    assert plan.precompute.trigger == "background"
    before = list(talk.compactions)
    ready = talk.carry_out(plan.precompute)
    assert ready is not None
    talk.compactions = before
    while talk.tokens < talk.budget.trigger_tokens:
        talk.says(assistant(prose(94)), user(prose(94)))
    assert adopts(ready, talk.conversation, talk.current, talk.budget, count_text)
    talk.compactions.append(ready)
    assert talk.tokens <= talk.budget.target_tokens + 0.05 * talk.budget.window_tokens
    assert talk.plan() == Send(talk.view)
    assert not adopts(ready, talk.conversation, talk.current, talk.budget, count_text)


@pytest.mark.spec("A27")
def test_the_summary_is_given_what_the_ceiling_leaves() -> None:
    talk = chat(45)
    plan = talk.plan()
    assert isinstance(plan, Fold)
    assert summary_room(plan, talk.conversation, talk.budget, count_text) == plan.summary_tokens
    left = talk.budget.ceiling_tokens - talk.budget.target_tokens
    talk.says(assistant(prose(left)), user(prose(200)))
    room = summary_room(plan, talk.conversation, talk.budget, count_text)
    assert 200 < room < plan.summary_tokens
    talk.carry_out(plan)
    assert talk.tokens <= 0.95 * 10_000
    talk.says(assistant(prose(9_000)), user("go"))
    assert summary_room(plan, talk.conversation, talk.budget, count_text) == 200


def test_what_is_kept_no_longer_is_taken_up_by_the_next_summary() -> None:
    talk = chat(45).pin(7)
    talk.carry_out(talk.plan())
    talk.pins = frozenset()
    for turn in range(60):
        talk.says(assistant(prose(94, f"b{turn}")), user(prose(94, f"v{turn}")))
    plan = talk.plan()
    assert isinstance(plan, Fold)
    assert plan.kept == (0,)
    assert folded_indexes(plan, talk.conversation, talk.current) == (7, *range(plan.since, plan.cut))


@pytest.mark.spec("P10")
@pytest.mark.spec("F15")
def test_between_compactions_each_view_extends_the_last_byte_for_byte() -> None:
    talk, breaks = chat(5), 0
    previous: tuple[bytes, ...] = ()
    for turn in range(120):
        talk.says(assistant(prose(90, f"a{turn}")), user(prose(90, f"u{turn}")))
        before = len(talk.compactions)
        talk.carry_out(talk.plan())
        view = talk.view.messages
        if len(talk.compactions) == before:
            assert view[: len(previous)] == previous
        else:
            breaks += 1
        previous = view
    assert breaks == len(talk.compactions)
    budget, total = talk.budget, sum(each.tokens for each in talk.conversation.messages)
    most = 1 + math.ceil((total - budget.trigger_tokens) / (budget.trigger_tokens - budget.target_tokens))
    assert 2 <= breaks <= most


@pytest.mark.spec("F06")
def test_a_compaction_that_lands_at_half_fires_again_when_the_trigger_is_crossed() -> None:
    talk = chat(
        36, policy=Policy(trigger_ratio=0.7, precompute_ratio=0.6, target_ratio=0.5, reserved_tokens=0)
    )
    made = talk.carry_out(talk.plan())
    assert made is not None
    # Above the mark at which the source re-arms.
    assert talk.tokens > 0.3 * talk.budget.window_tokens
    while talk.tokens < talk.budget.trigger_tokens:
        assert isinstance(talk.plan(), Send)
        talk.says(assistant(prose(94)), user(prose(94)))
    assert isinstance(talk.plan(), Fold)
