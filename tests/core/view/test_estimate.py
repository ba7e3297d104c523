"""The exact numbers of the guesses, and marks that go by them exactly (B04)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.budget.budget import Window, budget_of
from palimpsest.core.policy import Estimator, Policy
from palimpsest.core.view.compaction import Compaction, Mask
from palimpsest.core.view.estimate import Reported, by_usage, guess, with_estimate
from palimpsest.core.view.view import view_of

from tests.core.histories import (
    assistant,
    calls,
    conversation,
    count_text,
    preamble_tokens,
    result,
    user,
)

BUDGET = budget_of(
    Window(10_000, "configured"),
    fixed_tokens=50,
    max_output_tokens=None,
    ratio=1.0,
    policy=Policy(),
)


def guessed(estimator: Estimator, fields: list[dict[str, Any]], compaction: Compaction | None = None) -> int:
    """The guess of what these messages take, with 50 tokens of tools and framing."""
    talk = conversation(fields)
    budget = replace(BUDGET, fixed_tokens=50 + preamble_tokens(talk))
    tokens = guess(estimator, view_of(talk, compaction, count_text), talk, budget)
    assert tokens is not None
    return tokens - 50


@pytest.mark.spec("B04")
@pytest.mark.parametrize(
    ("length", "three", "four"),
    [(0, 0, 0), (1, 1, 1), (3, 1, 1), (4, 2, 1), (7, 3, 2), (8, 3, 2), (9, 3, 3), (12_000, 4_000, 3_000)],
)
def test_characters_by_three_and_by_four_are_rounded_up(length: int, three: int, four: int) -> None:
    said = [user("x" * length)]
    assert (guessed("chars3", said), guessed("chars4", said)) == (three, four)


@pytest.mark.spec("B04")
def test_all_texts_are_counted_together_and_once() -> None:
    # 7 + 5 + 1 code points, then name and arguments of a call with its result: 1 + 13 + 4.
    said = [user("Be kind"), user("日本語でも"), assistant("😀")]
    assert (guessed("chars3", said), guessed("chars4", said)) == (5, 4)
    named = json.loads(json.dumps(calls("c1", arguments='{"path":"x"}')))
    name = named["tool_calls"][0]["function"]["name"]
    more = [*said, named, result("c1", "done")]
    assert guessed("chars3", more) == -(-(13 + len(name) + 12 + 4) // 3)


@pytest.mark.spec("B04")
def test_summary_and_live_messages_are_guessed_and_masks_as_they_are_shown() -> None:
    said = [
        user("the task"),
        assistant("a" * 3_000),
        user("on"),
        calls("c"),
        result("c", "r" * 4_000),
        user("end"),
    ]
    talk = conversation(said)
    compaction = Compaction(
        id="c",
        kind="message_removal",
        watermark=talk.chains[1],
        kept=(talk.chains[0],),
        masks=(Mask(talk.chains[4], 600),),
        summary="s" * 300,
        policy="auto",
        trigger="proactive",
        author="model",
        model=None,
        tokens_before=0,
        tokens_after=0,
        messages_folded=1,
        memory="m" * 60,
    )
    view = view_of(talk, compaction, count_text)
    shown = json.loads(next(part.raw for part in view.parts if part.masked))["content"]
    call = said[3]["tool_calls"][0]["function"]
    chars = len("the task" + "on" + "end") + 300 + 60 + len(shown) + len(call["name"] + call["arguments"])
    assert len(shown) <= 600
    assert guessed("chars3", said, compaction) == -(-chars // 3)


@pytest.mark.spec("B04")
def test_what_is_no_text_is_counted() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 90_000}}
    seen = user("")
    seen["content"] = [{"type": "text", "text": "Look."}, picture]
    talk = conversation([seen])
    assert guessed("chars3", [seen]) == talk.messages[0].tokens


@pytest.mark.spec("B04")
def test_the_last_usage_and_what_came_since() -> None:
    assert by_usage(Reported(theirs=5_000, ours=4_000), 4_600, BUDGET) == 5_600
    # A server that says too little changes nothing.
    assert by_usage(Reported(theirs=100, ours=4_000), 4_600, BUDGET) == 4_600
    # In our count: theirs by the model's calibration.
    halved = replace(BUDGET, window_tokens=5_000)
    assert by_usage(Reported(theirs=9_000, ours=4_000), 4_600, halved) == 5_100


@pytest.mark.spec("B04")
@pytest.mark.parametrize("estimator", ["tiktoken", "usage"])
def test_others_do_not_guess_by_characters(estimator: Estimator) -> None:
    talk = conversation([user("hello")])
    assert guess(estimator, view_of(talk, None, count_text), talk, BUDGET) is None


@pytest.mark.spec("B04")
@given(st.integers(60, 30_000), st.integers(60, 30_000))
def test_the_count_is_at_a_mark_exactly_when_the_guess_is(counted: int, guessed_tokens: int) -> None:
    judged = with_estimate(BUDGET, counted, guessed_tokens)
    for name in ("trigger_tokens", "precompute_tokens"):
        mark = getattr(judged, name)
        is_at = counted >= mark
        is_guessed_at = guessed_tokens >= getattr(BUDGET, name)
        # What exceeds the ceiling is compacted whatever is guessed.
        assert is_at == is_guessed_at or (counted >= BUDGET.ceiling_tokens and is_at)


@given(st.integers(60, 30_000), st.integers(60, 30_000))
def test_the_marks_stay_in_order_and_the_ceiling_where_it_is(counted: int, guessed_tokens: int) -> None:
    judged = with_estimate(BUDGET, counted, guessed_tokens)
    assert judged.ceiling_tokens == BUDGET.ceiling_tokens
    assert judged.window_tokens == BUDGET.window_tokens
    assert judged.trigger_tokens <= judged.ceiling_tokens
    assert judged.precompute_tokens <= judged.trigger_tokens
    assert BUDGET.fixed_tokens < judged.target_tokens
    assert judged.summary_tokens >= 1
