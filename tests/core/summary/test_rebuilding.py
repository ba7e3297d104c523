"""A record written from the messages themselves: parts by themselves, then one record of their records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy
from palimpsest.core.summary.prompt import (
    MOST_PARTS,
    SummaryLimits,
    SummaryRequest,
    rebuild_requests,
    source_to_rebuild,
)
from palimpsest.core.summary.source import SummarySource
from palimpsest.core.summary.styles import HandoffStyle

from tests.core.summary.talk import ROOMY, count, source, user

_PART = re.compile(r"^PART \d+\n(.*)", re.MULTILINE)


def anew(messages: Sequence[Message], previous: str = "") -> SummarySource:
    """All of them to be read again."""
    return replace(source(messages, previous=previous), since=0, is_rebuild=True)


def asked(made_of: SummarySource, limits: SummaryLimits, answer: str = "record {}") -> list[SummaryRequest]:
    """Every request, the n-th answered with `answer` of n."""
    requests = rebuild_requests(made_of, limits, count)
    made = [next(requests)]
    while True:
        try:
            made.append(requests.send(answer.format(len(made))))
        except StopIteration:
            return made


def test_what_one_question_holds_is_one_question_without_the_record_before() -> None:
    messages = [user(f"<{n}> words") for n in range(9)]
    (request,) = asked(anew(messages, "the old record"), SummaryLimits.of(Policy(), 16_000, 500))
    assert "PREVIOUS_SUMMARY\n(none)" in request.user
    assert "the old record" not in request.user
    assert re.findall(r"<\d+>", request.user) == [f"<{n}>" for n in range(9)]


@pytest.mark.parametrize("window", [2_400, 4_000, 16_000])
def test_more_is_read_in_parts_that_know_nothing_of_each_other_and_merged(window: int) -> None:
    messages = [user(f"<{n}> " + "filler " * 60) for n in range(window // 20)]
    limits = SummaryLimits.of(Policy(), window, 500)
    requests = asked(anew(messages), limits)
    parts = [request for request in requests if not _PART.search(request.user)]
    merging = requests[len(parts) :]
    assert len(parts) > 1
    assert not any(re.search(r"record \d", request.user) for request in parts)
    read = "\n".join(request.user for request in parts)
    assert re.findall(r"<\d+>", read) == [f"<{n}>" for n in range(window // 20)]
    # Each record goes into one merging question, in its order; the last one is made of the others.
    told = [name for request in merging for name in _PART.findall(request.user)]
    assert told[: len(parts)] == [f"record {n}" for n in range(1, len(parts) + 1)]
    assert len(set(told)) == len(told)
    for request in requests:
        assert count(request.system) + count(request.user) + request.max_tokens <= window


def test_records_too_long_for_one_question_are_cut_and_merged_in_rounds() -> None:
    messages = [user(f"<{n}> " + "filler " * 60) for n in range(200)]
    limits = SummaryLimits.of(Policy(), 3_000, 500)
    requests = asked(anew(messages), limits, answer="record {} " + "and so on " * 2_000)
    merging = [request for request in requests if _PART.search(request.user)]
    assert len(merging) > 1
    assert all(len(_PART.findall(request.user)) > 1 for request in merging[:1])
    assert all(count(r.system) + count(r.user) + r.max_tokens <= 3_000 for r in requests)


def test_of_a_history_without_end_the_newest_is_read_and_the_record_tells_the_rest() -> None:
    messages = [user(f"<{n}> " + "filler " * 60) for n in range(2_000)]
    limits = SummaryLimits.of(Policy(), 4_000, 500)
    bounded = source_to_rebuild(anew(messages, "the old record"), limits, count)
    assert 0 < bounded.since < 2_000
    assert bounded.is_rebuild
    requests = asked(bounded, limits)
    parts = [request for request in requests if not _PART.search(request.user)]
    assert MOST_PARTS - 2 <= len(parts) <= MOST_PARTS + 2
    assert "<1999>" in parts[-1].user
    # The record before is the first of those that are merged.
    assert _PART.findall(requests[len(parts)].user)[0] == "the old record"


def test_a_short_history_is_read_whole() -> None:
    messages = [user(f"<{n}> words") for n in range(9)]
    assert source_to_rebuild(anew(messages, "old"), SummaryLimits.of(Policy(), 16_000, 500), count).since == 0


def test_the_question_after_a_fold_by_code_is_told_what_code_folded() -> None:
    style, limits = HandoffStyle(), SummaryLimits.of(Policy(), 16_000, 500)
    first = style.written(source([user("build a boat")]), "## 1. Primary request\nA boat.", ROOMY, count)
    talk = [user("build a boat"), user("Never paint it red.")]
    after = replace(source(talk, since=1, previous=first.text), state=first.state)
    by_code = style.written(after, None, ROOMY, count)
    third = replace(source([*talk, user("and now?")], since=2, previous=by_code.text), state=by_code.state)
    asked_then = next(style.requests(after, limits, count, "")).user
    asked_now = next(style.requests(third, limits, count, "")).user
    assert "Never paint it red." not in asked_then.partition("CONVERSATION\n")[0]
    assert "Never paint it red." in asked_now.partition("CONVERSATION\n")[0]
    assert "A boat." in asked_now
