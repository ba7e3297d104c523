"""What a summarizer is asked: parts, clamps, bounds, several requests in a row."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest
from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy
from palimpsest.core.summary.block import PREAMBLE, Frame, summary_block
from palimpsest.core.summary.prompt import SummaryLimits, SummaryRequest, summary_chunks, summary_requests
from palimpsest.core.summary.sections import TITLES

from tests.core.summary.talk import ROOMY, calls, count, result, says, source, user

LIMITS = SummaryLimits.of(Policy(), window_tokens=200_000, max_tokens=1_000)


def asked(
    messages: Sequence[Message], limits: SummaryLimits = LIMITS, previous: str = ""
) -> list[SummaryRequest]:
    """Every request of a summary whose summarizer answers "record n"."""
    requests = summary_requests(source(messages, previous=previous), limits, count)
    made = [next(requests)]
    while True:
        try:
            made.append(requests.send(f"record {len(made)}"))
        except StopIteration:
            return made


@pytest.mark.spec("E07")
def test_the_request_is_one_system_and_one_user_message_with_two_named_parts() -> None:
    (request,) = asked([user("hello"), says("hi")], previous="what was before")
    system, last = (json.loads(raw) for raw in request.messages)
    assert (system["role"], last["role"]) == ("system", "user")
    assert last["content"].index("PREVIOUS_SUMMARY\nwhat was before") < last["content"].index(
        "CONVERSATION\n"
    )
    assert re.search("(?i)summarize", last["content"])
    assert request.max_tokens == 1_000


@pytest.mark.spec("A15")
def test_the_nine_sections_are_asked_for() -> None:
    (request,) = asked([user("hello")])
    assert all(f"## {number}. {title}" in request.system for number, title in enumerate(TITLES, 1))


@pytest.mark.spec("A17")
def test_secrets_are_forbidden_and_removed() -> None:
    secret = "sk-" + "Ab1" * 8
    (request,) = asked(
        [user(f"use {secret}"), calls("login", token=secret), result(f"got {secret}")], previous=secret
    )
    assert "no secrets" in request.system
    assert not any(secret.encode() in raw for raw in request.messages)


@pytest.mark.spec("A19")
@pytest.mark.parametrize(
    ("said", "limit"),
    [
        (user("x" * 9_000), 3_000),
        (says("x" * 9_000), 1_500),
        (result("x" * 9_000), 1_200),
        (calls("run", script="x" * 9_000), 800),
    ],
)
def test_each_role_is_cut_to_its_clamp(said: Message, limit: int) -> None:
    (request,) = asked([said])
    assert limit - 80 <= request.user.count("x") <= limit


@pytest.mark.spec("A22")
def test_messages_are_numbered_and_marked_by_role() -> None:
    (request,) = asked(
        [user("question"), calls("look", "c1", "let me see", place="x"), result("found"), says("answer")]
    )
    marks = re.findall(r"^([A-Z]+) \[(\d+)\]: ", request.user, re.MULTILINE)
    assert marks == [("USER", "1"), ("ASSISTANT", "2"), ("TOOL", "3"), ("ASSISTANT", "4")]
    assert '-> calls look {"place": "x"}' in request.user


@pytest.mark.spec("A21")
def test_no_request_exceeds_its_characters_and_the_newest_message_is_in_the_last() -> None:
    messages = [user(f"message number {n} " + "word " * 400) for n in range(120)]
    requests = asked(messages, previous="before " * 9_000)
    assert all(len(r.system) + len(r.user) <= 60_000 for r in requests)
    assert "message number 119 " in requests[-1].user
    assert len(requests) > 1


@pytest.mark.spec("F07")
@pytest.mark.spec("F34")
@pytest.mark.parametrize("window", [2_000, 4_000, 16_000])
def test_a_history_ten_times_the_window_goes_in_pieces_and_nothing_is_skipped(window: int) -> None:
    messages = [user(f"<{n}> " + "filler " * 60) for n in range(window // 10)]
    limits = SummaryLimits.of(Policy(), window_tokens=window, max_tokens=500)
    requests = asked(messages, limits, previous="what was before " * 3_000)
    assert sum(m.tokens for m in messages) > 10 * window
    for request in requests:
        assert count(request.system) + count(request.user) + request.max_tokens <= window
    read = "\n".join(request.user for request in requests)
    assert [f"<{n}>" for n in range(window // 10)] == re.findall(r"<\d+>", read)


@pytest.mark.spec("F07")
def test_each_piece_continues_the_result_of_the_one_before() -> None:
    messages = [user(f"<{n}> " + "filler " * 60) for n in range(200)]
    requests = asked(messages, SummaryLimits.of(Policy(), 3_000, 500), previous="the start")
    assert "PREVIOUS_SUMMARY\nthe start" in requests[0].user
    for number, request in enumerate(requests[1:], 1):
        assert f"PREVIOUS_SUMMARY\nrecord {number}\n" in request.user


def test_a_message_longer_than_a_piece_is_split_over_several() -> None:
    limits = SummaryLimits(input_chars=60_000, window_tokens=2_000, max_tokens=500, user_chars=20_000)
    chunks = summary_chunks(source([user("".join(f"<{n}>" for n in range(3_000)))]), limits, count)
    assert len(chunks) > 2
    joined = re.sub(r"USER \[1, continued\]: ", "", "".join(chunks))
    assert re.findall(r"<\d+>", joined)[:50] == [f"<{n}>" for n in range(50)]


@pytest.mark.spec("F30")
def test_a_previous_record_never_crowds_out_the_conversation() -> None:
    requests = asked([user("the news")], SummaryLimits.of(Policy(), 4_000, 500), previous="old " * 20_000)
    assert "the news" in requests[0].user
    assert count(requests[0].user) + count(requests[0].system) + 500 <= 4_000


def test_the_previous_block_goes_in_without_its_fence_and_preamble() -> None:
    made_of = source([user("I need a boat"), says("ok")])
    block = summary_block(made_of, "", None, Frame(ROOMY, count, "palimpsest_summary")).text
    (request,) = asked([user("and sails")], previous=block)
    assert "I need a boat" in request.user
    assert "palimpsest_summary" not in request.user
    assert PREAMBLE not in request.user
