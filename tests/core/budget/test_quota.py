"""Whose quota a request has, and when it is used up."""

from __future__ import annotations

from palimpsest.core.budget.quota import DailyLimits, Quota, Used, quota_of, refusal, tokens_in, used_by
from palimpsest.core.wire.chat_answers import Usage

NONE = DailyLimits()


def test_without_a_limit_there_is_no_quota() -> None:
    assert quota_of("ns", NONE, "key", NONE) is None


def test_a_key_without_limits_is_charged_to_its_namespace() -> None:
    assert quota_of("ns", DailyLimits(tokens=5), "key", NONE) == Quota("ns", DailyLimits(tokens=5))


def test_a_limit_of_a_key_replaces_the_default_and_is_counted_by_key() -> None:
    default = DailyLimits(tokens=5, dollars=1.0)
    own = quota_of("ns", default, "key", DailyLimits(tokens=9))
    assert own == Quota("key", DailyLimits(tokens=9, dollars=1.0), is_key=True)


def test_a_quota_is_used_up_when_it_is_reached() -> None:
    quota = Quota("ns", DailyLimits(tokens=10, dollars=1.0))
    assert refusal(quota, Used(9, 0.99)) == ""
    assert "10 of 10 tokens" in refusal(quota, Used(10, 0.0))
    assert "$1.00 of $1.00" in refusal(quota, Used(0, 1.0))


def test_our_own_count_stands_where_the_upstream_states_none() -> None:
    assert used_by(Usage(), 7, 2, None) == Used(9, 0.0)
    assert used_by(Usage(prompt_tokens=0), 7, 2, None) == Used(2, 0.0)
    assert used_by(Usage(5, 1), 7, 2, None) == Used(6, 0.0)


def test_bytes_make_at_least_one_token() -> None:
    assert [tokens_in(size) for size in (0, 1, 4, 5)] == [0, 1, 1, 2]
