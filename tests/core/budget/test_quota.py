"""Whose quota a request has, and when it is used up."""

from __future__ import annotations

from palimpsest.core.budget.quota import Quota, answer_room, quota_of, refusal, tokens_in, used_by
from palimpsest.core.wire.chat_answers import Usage


def test_a_key_with_a_limit_is_charged_by_itself_and_others_to_their_namespace() -> None:
    assert quota_of("ns", 0, "key", 0) is None
    assert quota_of("ns", 5, "key", 0) == Quota("ns", 5)
    assert quota_of("ns", 5, "key", 9) == Quota("key", 9, is_key=True)


def test_a_quota_is_used_up_when_it_is_reached() -> None:
    assert refusal(Quota("ns", 10), 4, 5) == ""
    assert "10 of 10 tokens" in refusal(Quota("ns", 10), 10, 5)
    assert "have reserved 6" in refusal(Quota("ns", 10), 4, 6)


def test_room_for_an_answer_is_bounded() -> None:
    assert (answer_room(None), answer_room(10), answer_room(10**6)) == (4_096, 10, 32_768)
    assert [answer_room(10, choices) for choices in (1, 3, None, "3")] == [10, 30, 10, 10]


def test_our_own_count_stands_where_the_upstream_states_none() -> None:
    assert used_by(Usage(), 7, 2) == 9
    assert used_by(Usage(prompt_tokens=0), 7, 2) == 2
    assert used_by(Usage(5, 1), 7, 2) == 6


def test_bytes_make_at_least_one_token() -> None:
    assert [tokens_in(size) for size in (0, 1, 4, 5)] == [0, 1, 1, 2]
