"""What is asked for a record: parts, clamps, bounds, several questions in a row, and one to settle."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy
from palimpsest.core.summary.asking import (
    APPENDED,
    RecordRequest,
    accepted_record,
    appended_request,
    record_requests,
    settling,
)
from palimpsest.core.summary.forms import EPISODES, HANDOFF, TITLES, Form
from palimpsest.core.summary.prompt import SummaryLimits, SummaryReply
from palimpsest.core.summary.record import Entry, Record
from palimpsest.core.summary.source import SummarySource
from palimpsest.core.summary.styles import RecordStyle
from palimpsest.errors import SummaryRejected

from tests.core.summary.talk import calls, count, result, says, source, user

LIMITS = SummaryLimits.of(Policy(), window_tokens=200_000, max_tokens=1_000)
TALK = [
    user("Please move the launch to the ninth of May and tell the crew in Lisbon about it today."),
    calls("notify", crew="Lisbon"),
    result("sent to 14 people, 2 bounced: ana@crew.test, rui@crew.test"),
    says("Done: the crew in Lisbon knows that the launch moved to the ninth of May, two mails bounced."),
]
ANSWER = """## State
- nothing is open
## Rules
- "tell the crew in Lisbon about it today"
- "never said by anybody"
## Entry
### The launch
- launch moved to 9 May; crew in Lisbon told, 2 of 14 mails bounced: ana@crew.test, rui@crew.test
## Corrections
none"""


def asked(
    messages: Sequence[Message], limits: SummaryLimits = LIMITS, *, form: Form = EPISODES, told: str = ""
) -> list[RecordRequest]:
    """Every question of a stretch whose summarizer answers "- record n", or `told`."""
    made_of = replace(source(messages), room=2_000, instructions="You help.", task="Begin.")
    requests = record_requests(made_of, limits, count, "", form)
    made: list[RecordRequest] = []
    text: str | None = None
    while True:
        try:
            request = next(requests) if text is None else requests.send(text)
        except StopIteration:
            return made
        assert isinstance(request, RecordRequest)
        made.append(request)
        answer = SummaryReply(
            told or f"## Entry\n### Part\n- record {len(made)} of what was said here", "stop"
        )
        text = accepted_record(answer, request, 100_000, count).encoded()


def test_a_question_is_one_system_and_one_user_message_with_three_parts() -> None:
    (request,) = asked(TALK)
    system, last = (json.loads(raw) for raw in request.messages)
    assert (system["role"], last["role"]) == ("system", "user")
    tags = re.findall(r"^<([a-z-]+)>", last["content"], re.MULTILINE)
    assert tags == ["always-shown", "record", "new-messages"]
    assert "You help.\n\nBegin." in last["content"]
    assert all(f"\n## {title}\n" in last["content"] for title in ("State", "Rules", "Entry", "Corrections"))
    assert request.max_tokens == 1_000


@pytest.mark.spec("A15")
def test_handoff_asks_for_nine_sections() -> None:
    (request,) = asked(TALK, form=HANDOFF)
    assert all(f"#### {number}. {title}" in request.user for number, title in enumerate(TITLES, 1))
    assert TITLES[0] not in asked(TALK)[0].user


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
def test_handoff_cuts_each_role_to_its_clamp_and_others_nothing_that_fits(said: Message, limit: int) -> None:
    (request,) = asked([said], form=HANDOFF)
    assert limit - 80 <= request.user.count("x" * 50) * 50 + 50 <= limit + 50
    (whole,) = asked([said])
    assert whole.user.count("x" * 50) * 50 == 9_000


@pytest.mark.spec("A21")
def test_no_request_exceeds_its_characters_and_the_newest_message_is_in_the_last() -> None:
    requests = asked([user(f"message number {n} " + "word " * 400) for n in range(120)])
    assert all(len(r.system) + len(r.user) <= 60_000 for r in requests)
    assert max(len(r.system) + len(r.user) for r in requests) > 55_000
    assert "message number 119 " in requests[-1].user
    assert len(requests) > 1


@pytest.mark.spec("F07", "F34")
@pytest.mark.parametrize("window", [3_000, 6_000, 16_000])
def test_a_history_ten_times_the_window_goes_in_pieces_and_nothing_is_skipped(window: int) -> None:
    messages = [user(f"<{n}> " + "filler " * 60) for n in range(window // 10)]
    requests = asked(messages, SummaryLimits.of(Policy(), window_tokens=window, max_tokens=500))
    assert sum(m.tokens for m in messages) > 10 * window
    for request in requests:
        assert count(request.system) + count(request.user) + request.max_tokens <= window
    pieces = [request for request in requests if request.last]
    read = "\n".join(request.user for request in pieces)
    assert [f"<{n}>" for n in range(window // 10)] == re.findall(r"<\d+>", read)
    # Each is an entry, and they follow each other without a gap.
    assert pieces[0].first == 1
    assert all(after.first == before.last + 1 for before, after in pairwise(pieces))


def test_calls_stay_with_their_results_where_a_piece_ends() -> None:
    talk = [
        each
        for n in range(60)
        for each in (calls("look", f"c{n}", at="y " * 40), result("z " * 200, f"c{n}"))
    ]
    limits = SummaryLimits.of(Policy(), window_tokens=4_000, max_tokens=500)
    pieces = [request for request in asked(talk, limits) if request.last]
    assert len(pieces) > 2
    assert all(request.first % 2 for request in pieces)


def test_an_answer_is_an_entry_a_state_and_the_rules_that_a_user_said() -> None:
    (request,) = asked(TALK, told=ANSWER)
    record = accepted_record(SummaryReply(ANSWER, "stop"), request, 2_000, count)
    (entry,) = record.entries
    assert entry.text.startswith("### 1. The launch (messages 1 to 4)\n- launch moved to 9 May")
    assert record.state == "- nothing is open"
    assert record.rules == ("tell the crew in Lisbon about it today",)


@pytest.mark.parametrize(
    "text",
    [
        "Sure! I moved the launch to the ninth of May and told the crew in Lisbon about it, as you asked.",
        "## State\nall is well and nothing else is to be said of it\n## Entry\nnone",
    ],
)
def test_an_answer_without_lines_is_no_entry(text: str) -> None:
    with pytest.raises(SummaryRejected):
        accepted_record(SummaryReply(text, "stop"), asked(TALK)[0], 2_000, count)


def test_an_appended_question_names_where_the_new_messages_end() -> None:
    made_of = replace(source(TALK, tail=[user("And what about Porto? sk-" + "Ab1" * 8)]), room=2_000)
    shown = [message.raw for message in TALK]
    request = appended_request(shown, made_of, 900, LIMITS, count, "", EPISODES)
    assert request.messages[:-1] == tuple(shown)
    assert request.user.startswith(APPENDED)
    assert 'up to the message that begins "And what about Porto? [secret removed]"' in request.user
    assert (request.first, request.last) == (1, 4)


def test_a_full_record_is_settled_as_a_whole_and_asked_for_once_more() -> None:
    entries = tuple(
        Entry(
            10 * n + 1,
            10 * n + 10,
            f"### {n + 1}. Part {n}\n" + "\n".join(f"- fact {n} {k}" for k in range(60)),
        )
        for n in range(4)
    )
    record = Record(entries, state="- go on")
    room = count(record.text) * 3 // 4
    made_of = replace(SummarySource(()), room=room)
    questions = settling(record, made_of, LIMITS, count)
    first = next(questions)
    assert isinstance(first, RecordRequest)
    assert "fact 0 0" in first.user
    assert f"({len(record.older.split())} words)" in first.user
    newest = first.user.partition("<newest-entry-and-state>")[2]
    assert "fact 3 0" in newest
    too_long = "## Record\n" + record.older
    unchanged = accepted_record(SummaryReply(too_long, "stop"), first, 100_000, count)
    again = questions.send(unchanged.encoded())
    assert "Your last try had" in again.user
    assert isinstance(again, RecordRequest)
    shorter = (
        "## Record\n### 1-2. Before\n- fact 0 0 and all that came of it, in fewer words\n"
        "### 3. Then\n- fact 2 0, and no other of them"
    )
    done = accepted_record(SummaryReply(shorter, "stop"), again, 100_000, count)
    assert [(entry.first, entry.last) for entry in done.entries] == [(1, 20), (21, 30), (31, 40)]
    assert done.entries[-1] == entries[-1]
    with pytest.raises(StopIteration):
        questions.send(done.encoded())


def test_the_next_question_shows_the_record_and_asks_for_what_no_entry_covers() -> None:
    made_of = replace(source(TALK), room=2_000)
    (request,) = asked(TALK, told=ANSWER)
    state = accepted_record(SummaryReply(ANSWER, "stop"), request, 2_000, count).encoded().encode()
    more = [*TALK, user("Rename it."), says("Renamed.")]
    # Code has folded them meanwhile: the current block covers all.
    following = replace(source(more), since=6, state=state, room=2_000)
    question = next(RecordStyle().requests(following, LIMITS, count, ""))
    assert isinstance(question, RecordRequest)
    assert (question.first, question.last) == (5, 6)
    assert "- launch moved to 9 May" in question.user
    assert not list(RecordStyle().requests(replace(made_of, since=4, state=state), LIMITS, count, ""))


def test_a_newest_entry_that_is_too_long_alone_asks_nobody() -> None:
    record = Record((Entry(1, 4, ""), Entry(5, 6, "### 1. (messages 5 to 6)\n- " + "long " * 900)))
    assert not list(settling(record, replace(SummarySource(()), room=300), LIMITS, count))
