"""When a conversation is compacted: by tokens, and by counts of what stands behind the last summary."""

from __future__ import annotations

from dataclasses import replace

import pytest
from palimpsest.core.budget.budget import Due, Window, budget_of, due
from palimpsest.core.policy import Policy
from palimpsest.core.presets import PRESETS

from tests.core.histories import message, user

AUTO = PRESETS["auto"]


def asked(policy: Policy, tokens: int, messages: int) -> Due:
    """Of a window of 10,000 tokens."""
    budget = budget_of(
        Window(10_000, "configured"), fixed_tokens=0, max_output_tokens=None, ratio=1.0, policy=policy
    )
    return due(tokens, [message(user(f"{n}")) for n in range(messages)], budget, policy)


@pytest.mark.parametrize(("tokens", "expected"), [(5_000, "later"), (8_900, "soon"), (9_000, "now")])
@pytest.mark.spec("A02")
def test_tokens_decide(tokens: int, expected: Due) -> None:
    assert asked(AUTO, tokens, 3) == expected


@pytest.mark.parametrize(("messages", "expected"), [(23, "later"), (24, "now")])
def test_a_count_of_messages_decides_whatever_the_tokens(messages: int, expected: Due) -> None:
    assert asked(replace(AUTO, trigger_messages=24), 100, messages) == expected


@pytest.mark.parametrize(("tokens", "expected"), [(9_000, "soon"), (9_500, "now")])
def test_few_messages_wait_for_the_ceiling(tokens: int, expected: Due) -> None:
    assert asked(replace(AUTO, min_messages=6), tokens, 5) == expected
    assert asked(replace(AUTO, min_messages=5), tokens, 5) == "now"
