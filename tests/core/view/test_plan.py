import json

import pytest
from palimpsest.core.policy import Policy
from palimpsest.core.view.outcomes import Fold, MaskOnly, Refuse, Send
from palimpsest.core.view.record import folded_indexes
from palimpsest.core.view.view import fits

from tests.core.histories import FRAME, assistant, calls, prose, result, user
from tests.core.view.planning import Talk, chat


@pytest.mark.spec("A02")
def test_a_fold_is_asked_for_at_nine_tenths_and_not_below() -> None:
    for newest, outcome in ((40, Send), (50, Fold)):
        talk = chat(44).says(assistant(prose(50 - FRAME)), user(prose(newest - FRAME)))
        assert talk.tokens == 8_950 + newest
        assert isinstance(talk.plan(), outcome)


@pytest.mark.spec("A06")
@pytest.mark.spec("F04")
def test_after_a_fold_the_prompt_is_at_the_target_and_far_from_the_trigger() -> None:
    talk = chat(45)
    made = talk.carry_out(talk.plan())
    assert made is not None
    assert talk.tokens <= talk.budget.target_tokens
    assert talk.tokens > talk.budget.target_tokens - 300
    kept = sum(part.tokens for part in talk.view.parts if part.kind != "summary")
    assert kept <= talk.budget.available_tokens // 2
    assert (made.tokens_before, made.tokens_after) == (9_100, talk.tokens)


@pytest.mark.spec("F03")
def test_planning_again_plans_nothing() -> None:
    talk = chat(45)
    talk.carry_out(talk.plan())
    assert talk.plan() == Send(talk.view)
    talk.says(assistant(prose(50)), user("go on"))
    assert talk.plan() == Send(talk.view)


@pytest.mark.spec("A09")
def test_task_pins_and_the_newest_contiguous_tail_stay() -> None:
    talk = chat(45).pin(7)
    plan = talk.plan()
    assert isinstance(plan, Fold)
    assert plan.kept == (0, 7)
    talk.carry_out(plan)
    indexes = [part.index for part in talk.view.parts if part.kind != "summary"]
    assert indexes == [0, 7, *range(plan.cut, len(talk.conversation.messages))]
    assert talk.conversation.messages[plan.cut].role == "user"


@pytest.mark.spec("A10")
def test_a_tail_never_starts_inside_a_tool_group() -> None:
    talk = Talk(user("go"))
    for step in range(30):
        ids = [f"c{step}_{n}" for n in range(3)]
        talk.says(calls(*ids), *(result(i, prose(90)) for i in reversed(ids)))
    plan = talk.plan()
    assert isinstance(plan, Fold | MaskOnly)
    forced = chat(0)
    forced.fields, forced.policy = talk.fields, Policy(old_result_chars=0)
    fold = forced.plan()
    assert isinstance(fold, Fold)
    assert forced.conversation.messages[fold.cut].calls
    assert fold.kept == (0,)


def naming(path: str, tokens: int = 60) -> Talk:
    """An early message names a path; the newest names src/app/main.py."""
    talk = Talk(
        user(prose(90)), assistant("ok"), user(f"look at {path} " + prose(tokens)), assistant(prose(90))
    )
    for turn in range(43):
        talk.says(user(prose(94, f"u{turn}")), assistant(prose(94, f"a{turn}")))
    return talk.says(user("now change src/app/main.py please"))


@pytest.mark.spec("A11")
def test_an_older_message_that_names_a_path_in_use_stays() -> None:
    talk = naming("src/app/main.py")
    talk.says(assistant(prose(200)), user("go"))
    plan = talk.plan()
    assert isinstance(plan, Fold)
    assert 2 in plan.kept


@pytest.mark.spec("A11")
def test_what_stays_for_its_path_takes_at_most_its_share_of_the_target() -> None:
    talk = Talk(user(prose(90)))
    for turn in range(45):
        talk.says(assistant(prose(94, f"a{turn}")), user(f"src/app/main.py {prose(90, f'u{turn}')}"))
    plan = talk.plan()
    assert isinstance(plan, Fold)
    retained = [index for index in plan.kept if index]
    sizes = [talk.conversation.messages[index].tokens for index in retained]
    assert 0 < sum(sizes) <= 0.15 * talk.budget.target_tokens
    talk.carry_out(plan)
    assert talk.tokens <= talk.budget.target_tokens


@pytest.mark.spec("A07")
def test_shortening_oversized_results_alone_asks_no_model() -> None:
    talk = Talk(user("go"), calls("a"), result("a", prose(9_500)), assistant("read"), user("next"))
    plan = talk.plan()
    assert isinstance(plan, MaskOnly)
    made = talk.carry_out(plan)
    assert made is not None
    assert (made.kind, made.summary, made.watermark) == ("tool_truncation_only", "", b"")
    assert talk.tokens <= talk.budget.target_tokens
    assert talk.plan() == Send(talk.view)


@pytest.mark.spec("A07")
def test_old_results_are_shortened_before_anything_is_folded() -> None:
    talk = Talk(user("go"), window=20_000)
    for step in range(20):
        talk.says(calls(f"c{step}"), result(f"c{step}", prose(1_000)))
    plan = talk.plan()
    assert isinstance(plan, MaskOnly)
    newest = talk.conversation.chains[-1]
    assert newest not in {mask.chain for mask in plan.masks}
    talk.carry_out(plan)
    assert talk.tokens <= talk.budget.target_tokens


@pytest.mark.spec("A07")
def test_the_newest_result_stays_whole_while_a_fold_makes_room() -> None:
    talk = chat(42).says(assistant(prose(90)), user("go"), calls("a"), result("a", prose(3_000)))
    plan = talk.plan()
    assert isinstance(plan, Fold)
    assert plan.masks == ()


@pytest.mark.spec("A08")
@pytest.mark.parametrize(("name", "most"), [("notes.txt", 10_000), ("report.PDF", 30_000)])
def test_a_document_is_shown_with_thrice_the_tokens_of_another_result(name: str, most: int) -> None:
    talk = Talk(user("read it"), window=200_000)
    talk.says(calls("a", arguments=json.dumps({"path": name})), result("a", prose(185_000)), assistant("ok"))
    talk.says(user("go on")).carry_out(talk.plan())
    shown = talk.view.parts[2]
    assert shown.masked
    assert 0.9 * most < shown.tokens <= most


@pytest.mark.spec("A28")
def test_one_message_past_the_window_compacts_at_once() -> None:
    talk = chat(20).says(assistant("ok"), user("go"), calls("a"), result("a", prose(15_000)))
    plan = talk.plan()
    assert isinstance(plan, Fold | MaskOnly)
    assert plan.trigger == "reactive"
    talk.carry_out(plan)
    # The newest exchanges stay beyond the target (rule 38).
    assert talk.tokens <= talk.budget.target_tokens + 3 * 200


@pytest.mark.spec("A26")
def test_below_the_window_a_compaction_is_proactive_and_above_it_reactive() -> None:
    for turns, trigger in ((45, "proactive"), (60, "reactive")):
        plan = chat(turns).plan()
        assert isinstance(plan, Fold)
        assert plan.trigger == trigger
        assert plan.fits_now is (turns == 45)


@pytest.mark.spec("F33")
def test_ten_parallel_results_of_30k_tokens_go_out_with_all_their_ids() -> None:
    ids = [f"call_{n}" for n in range(10)]
    talk = Talk(user("read them all"), calls(*ids), *(result(i, prose(30_000)) for i in ids), window=128_000)
    assert talk.tokens > 300_000
    talk.carry_out(talk.plan())
    assert fits(talk.view, talk.budget)
    shown = [json.loads(raw) for raw in talk.view.messages]
    assert [each["tool_call_id"] for each in shown[2:]] == ids
    assert all("characters left out" in each["content"] for each in shown[2:])
    assert talk.plan() == Send(talk.view)


@pytest.mark.spec("F33")
def test_parallel_results_far_beyond_a_small_window_are_shortened_until_they_fit() -> None:
    ids = [f"call_{n}" for n in range(10)]
    talk = chat(20, window=4_000).says(calls(*ids), *(result(i, prose(30_000)) for i in ids))
    talk.carry_out(talk.plan())
    assert fits(talk.view, talk.budget)
    assert talk.view.parts[-1].tokens > 50


@pytest.mark.spec("A32")
def test_a_pinned_tool_result_is_never_shortened() -> None:
    talk = Talk(user("go"), calls("a", "b"), result("a", prose(3_000)), result("b", prose(3_000)))
    for turn in range(20):
        talk.says(assistant(prose(90, f"a{turn}")), user(prose(90, f"u{turn}")))
    talk.pin(2).carry_out(talk.plan())
    shown = {part.index: part for part in talk.view.parts}
    assert {1, 2, 3} <= shown.keys()
    assert not any(shown[index].masked for index in (2, 3))


def test_a_standing_summary_is_written_again_shorter_when_nothing_else_is_left() -> None:
    talk = chat(45)
    talk.carry_out(talk.plan())
    assert talk.current is not None
    cut = (talk.conversation.position(talk.current.watermark) or 0) + 1
    block = next(part.tokens for part in talk.view.parts if part.kind == "summary")
    assert block > 1_000
    # The client goes back to the first message after the cut and makes it enormous.
    talk.fields = [*talk.fields[:cut], user(prose(9_500 - block + 400))]
    plan = talk.plan()
    assert isinstance(plan, Fold)
    assert plan.cut == plan.since == cut
    assert plan.summary_tokens < block
    talk.carry_out(plan)
    assert fits(talk.view, talk.budget)
    assert talk.plan() == Send(talk.view)


@pytest.mark.spec("F12")
def test_a_compaction_that_would_free_next_to_nothing_is_not_made() -> None:
    talk = Talk(user(prose(8_400)), assistant(prose(550)), user("now"), assistant(prose(90)), user("go on"))
    assert talk.budget.trigger_tokens <= talk.tokens <= talk.budget.ceiling_tokens
    assert talk.plan() == Send(talk.view)


def test_a_newest_user_message_above_a_known_window_is_refused() -> None:
    talk = chat(3).says(assistant("ok"), user(prose(10_500)))
    plan = talk.plan()
    assert isinstance(plan, Refuse)
    assert "The newest message alone takes" in plan.message


@pytest.mark.spec("A32")
def test_pins_that_leave_no_room_are_refused() -> None:
    talk = Talk(user("go"), *[user(prose(3_500)) for _ in range(3)], assistant("ok"), user("now"))
    talk.pin(1).pin(2).pin(3)
    plan = talk.plan()
    assert isinstance(plan, Refuse)
    assert "Instructions, tools and pinned messages take" in plan.message


def test_an_enormous_task_is_given_up_before_a_request_is() -> None:
    talk = Talk(user(prose(7_000)), assistant("ok"), user(prose(3_400)))
    plan = talk.plan()
    assert isinstance(plan, Fold)
    assert 0 not in plan.kept
    assert folded_indexes(plan, talk.conversation, None) == (0, 1)
    talk.carry_out(plan)
    assert fits(talk.view, talk.budget)


def test_a_large_task_stays_and_is_not_compacted_at_every_turn() -> None:
    talk = Talk(user(prose(7_000)))
    folds = 0
    for turn in range(40):
        talk.says(assistant(prose(60, f"a{turn}")), user(prose(60, f"u{turn}")))
        plan = talk.plan()
        folds += isinstance(plan, Fold)
        talk.carry_out(plan)
        assert fits(talk.view, talk.budget)
        assert talk.view.parts[0].index == 0
    assert folds <= 8
