"""A summarizer with a prompt of the operator's own."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from palimpsest.core.summary.acceptance import SummaryReply
from palimpsest.core.summary.record import Entry, Record, decoded
from palimpsest.core.summary.styles import (
    DEFAULT_TEMPLATE,
    WorkerStyle,
)
from palimpsest.core.summary.template import checked_template
from palimpsest.core.text.fence import unfenced
from palimpsest.errors import SummaryRejected

from tests.core.summary.rolling.asking import LIMITS, after, asked, compacted
from tests.core.summary.talk import ROOMY, calls, count, result, says, source, user

STYLE = WorkerStyle(template="Before: {{PREVIOUS_SUMMARY}}\nSaid: {{ CONVERSATION }}\nNow update it.")
TALK = [
    user("The port of the gate is 54329."),
    calls("look", "a", at="gate"),
    result("open", "a"),
    says("It is open."),
]
TOLD = "The gate listens on port 54329 and it is open; nobody asked for anything else yet."


def test_the_template_is_the_request_and_both_variables_are_filled() -> None:
    (request,), told = asked(STYLE, source(TALK), lambda *_: TOLD)
    (message,) = (json.loads(raw) for raw in request.messages)
    assert message == {"role": "user", "content": request.user}
    assert request.user.startswith("Before: (none)\nSaid: USER [1]: The port of the gate is 54329.")
    assert "TOOL [3]: open" in request.user
    assert request.user.endswith("\nNow update it.")
    assert told == TOLD


def test_the_next_round_gets_the_summary_whole_and_only_new_messages() -> None:
    small = 75
    first = compacted(STYLE, source(TALK), lambda *_: TOLD, small)
    assert TOLD not in first.text
    (request,), _ = asked(STYLE, after(first, TALK, [user("Close it.")]), lambda *_: TOLD)
    assert request.user.startswith(f"Before: {TOLD}\nSaid: USER [5]: Close it.")


def test_a_variable_named_in_a_message_stays_what_was_said() -> None:
    (request,), _ = asked(STYLE, source([user("what is {{PREVIOUS_SUMMARY}}?")]), lambda *_: TOLD)
    assert "what is {{PREVIOUS_SUMMARY}}?" in request.user


@pytest.mark.parametrize(
    ("template", "missing"),
    [
        ("Summarize {{CONVERSATION}}", "{{PREVIOUS_SUMMARY}}"),
        ("Summarize {{PREVIOUS_SUMMARY}}", "{{CONVERSATION}}"),
        ("Summarize {PREVIOUS_SUMMARY} CONVERSATION", "{{PREVIOUS_SUMMARY}} and {{CONVERSATION}}"),
    ],
)
def test_a_template_without_a_variable_is_refused_by_name(template: str, missing: str) -> None:
    with pytest.raises(ValueError, match="must contain") as caught:
        checked_template(template)
    assert str(caught.value).endswith(f"must contain {missing}")
    with pytest.raises(ValueError, match="must contain"):
        WorkerStyle(template=template)


def test_the_default_template_is_valid() -> None:
    assert checked_template(DEFAULT_TEMPLATE) == DEFAULT_TEMPLATE


def test_the_block_is_what_was_told_and_behind_it_what_that_does_not_say() -> None:
    written = compacted(STYLE, source([*TALK, user("Never close it at night.")]), lambda *_: TOLD)
    assert f"## Record\n{TOLD}" in unfenced(written.text)
    assert '- "Never close it at night."' in written.text
    record = decoded(written.state)
    assert record is not None
    assert record.text == TOLD


def test_what_exceeds_a_request_becomes_several_each_with_the_result_before() -> None:
    limits = replace(LIMITS, window_tokens=1_500, max_tokens=200)
    talk = [user(f"Step {n}: " + "word " * 100) for n in range(30)]
    made, _ = asked(STYLE, source(talk), lambda _, number: f"{TOLD} This was call {number}.", limits)
    assert len(made) > 3
    assert all(count(request.user) + 200 <= 1_500 for request in made)
    for number in range(1, len(made)):
        assert f"This was call {number}." in made[number].user
    assert all(any(f"Step {n}: " in request.user for request in made) for n in range(30))


def test_an_answer_that_is_no_summary_is_refused() -> None:
    request = next(STYLE.requests(source(TALK), LIMITS, count, ""))
    with pytest.raises(SummaryRejected):
        STYLE.accepted(SummaryReply(TOLD, "content_filter"), request, 1_000, count)


def test_without_a_model_code_goes_on_from_what_was_told() -> None:
    first = compacted(STYLE, source(TALK), lambda *_: TOLD)
    closing = [user("Close it."), says("Closed.")]
    second = compacted(STYLE, after(first, TALK, closing), None)
    assert TOLD in second.text
    assert "user: Close it." in second.text
    assert compacted(STYLE, after(second, [*TALK, *closing], []), None).text == second.text
    assert asked(STYLE, after(second, [*TALK, *closing], []), lambda *_: TOLD)[0] == []


@pytest.mark.parametrize("tokens", [0, 60, 100, 300])
@pytest.mark.parametrize("told", [None, TOLD * 30])
def test_a_block_keeps_its_budget(told: str | None, tokens: int) -> None:
    written = STYLE.written(source([*TALK, user("word " * 400)]), told, tokens, count)
    assert count(written.text) <= max(tokens, count(STYLE.written(source([]), None, 0, count).text))


def test_no_secret_is_sent() -> None:
    secret = "sk-" + "Ab1" * 8
    made = source([user(f"use {secret}")], previous=f"it was {secret}")
    (request,), _ = asked(STYLE, made, lambda *_: TOLD, focus=secret)
    assert secret not in request.user
    (kept,), _ = asked(
        STYLE,
        replace(made, state=Record((Entry(1, 1, f"it was {secret}"),)).encoded().encode()),
        lambda *_: TOLD,
    )
    assert "it was [secret removed]" in kept.user
    assert secret not in compacted(STYLE, made, None, ROOMY).text
