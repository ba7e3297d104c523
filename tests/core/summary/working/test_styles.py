"""Both styles over several rounds: cumulative, bounded, sections as they must be (D20, D21, section 0)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy
from palimpsest.core.summary.acceptance import Style, SummaryReply, WrittenBlock
from palimpsest.core.summary.prompt import SummaryLimits, SummaryRequest
from palimpsest.core.summary.working.forms import BATCH_TITLES as TITLES
from palimpsest.core.summary.working.forms import INSTRUCTIONS, NOTHING, PREAMBLE
from palimpsest.core.summary.working.styles import WorkingStateStyle
from palimpsest.errors import SummaryRejected

from tests.core.summary.talk import ROOMY, calls, count, result, says, source, user
from tests.core.summary.working.session import session

LIMITS = SummaryLimits.of(Policy(), 200_000, 9_000)
BATCH_STYLE = WorkingStateStyle(asks="summary")
BOTH: list[Style] = [WorkingStateStyle(), BATCH_STYLE]
TOLD = """## Environment
- Python 3.11.9 on linux
## Files Touched
- services/queue.py: limit is a setting
## Tool Results
- pytest: 42 passed
## Key Decisions
- a Settings object, because QUE-4471 asks for one number in one place
## Work Completed
- retries are configurable
## Errors & Resolutions
- off-by-one in range(limit), resolved
## Current State
- only the commit is missing"""


def after(
    style: Style, said: list[Message], since: int, before: WrittenBlock, told: str | None = None
) -> WrittenBlock:
    given = replace(source(said, since=since, previous=before.text), state=before.state)
    return style.written(given, told, ROOMY, count)


def asked(style: Style, said: list[Message], limits: SummaryLimits = LIMITS) -> list[SummaryRequest]:
    requests = style.requests(source(said), limits, count, "")
    found = [next(requests)]
    while True:
        try:
            found.append(requests.send("The record after question " + str(len(found))))
        except StopIteration:
            return found


@pytest.mark.parametrize("style", BOTH)
def test_what_round_one_knew_every_later_round_knows(style: Style) -> None:
    said = session()[:20]
    block = style.written(source(said), None, ROOMY, count)
    for number in range(8):
        said = [*said, user(f"Round {number}: use port {8100 + number}."), says("Done, it is set now.")]
        block = after(style, said, len(said) - 2, block)
    for kept in (
        "QUE-4471",
        '"range(limit)" -> "range(n)"',
        "off-by-one",
        "[in progress] Make",
        "port 8100",
        "port 8107",
    ):
        assert kept in block.text


@pytest.mark.parametrize("style", BOTH)
@pytest.mark.parametrize("stored", [b"", b'{"kind":"other"}', b"\xff"])
def test_without_a_readable_state_it_is_made_anew(style: Style, stored: bytes) -> None:
    said = session()
    whole = style.written(source(said), None, ROOMY, count)
    given = replace(source(said, since=20, previous="something of another style"), state=stored)
    assert style.written(given, None, ROOMY, count) == whole


@pytest.mark.parametrize("style", BOTH)
@pytest.mark.parametrize("tokens", [1, 40, 90, 150, 300, 600, 1_200])
@pytest.mark.parametrize("told", [None, TOLD])
def test_a_block_fits_and_is_never_empty(style: Style, tokens: int, told: str | None) -> None:
    budget = tokens
    said = [*session(), user("Say </palimpsest_summary> and <palimpsest_summary> often. " * 40)]
    text = style.written(source(said), told, budget, count).text
    assert PREAMBLE in text
    assert text.count("<palimpsest_summary>") == text.count("</palimpsest_summary>") == 1
    assert count(text) <= max(tokens, count(PREAMBLE) + 14)


@pytest.mark.parametrize("style", BOTH)
def test_sizes_are_bounded_over_fifty_rounds(style: Style) -> None:
    said: list[Message] = []
    block = WrittenBlock("")
    sizes: list[tuple[int, int]] = []
    for number in range(50):
        round_ = [
            user(f"Round {number}: check file src/m{number}.py for the number {number * 7919}."),
            calls("Bash", f"c{number}", command=f"make m{number}"),
            result(f"error: m{number} is broken\n" + "details of it " * 200, f"c{number}"),
            says(f"I found that m{number} misses a brace. I'll use tool {number} to add it."),
        ]
        said = [*said, *round_]
        block = after(style, said, len(said) - 4, block)
        sizes.append((count(block.text), len(block.state)))
    assert max(text for text, _ in sizes) <= ROOMY
    assert sizes[-1][1] < 1.2 * sizes[-15][1]
    assert f"{49 * 7919}" in block.text


@pytest.mark.parametrize("style", BOTH)
def test_a_long_folded_request_keeps_its_head_and_its_tail(style: Style) -> None:
    long = "Now do B-77:\n" + "\n".join(f"{n}. step with id STP-{n:03}" for n in range(60))
    said = [
        user("Do A first."),
        says("A is done by now, all of it."),
        user(long),
        calls("Bash", command="ls"),
    ]
    text = style.written(source(said), None, ROOMY, count).text
    wanted = text.partition("## User Requirements\n")[2].partition("\n## ")[0]
    assert wanted.startswith("- user: Now do B-77:\n0. step with id STP-000")
    assert wanted.rstrip().endswith("59. step with id STP-059")
    told = style.written(source(said[:2], tail=said[2:]), None, ROOMY, count).text
    assert "STP-000" not in told


@pytest.mark.parametrize("style", BOTH)
def test_equal_input_gives_equal_bytes(style: Style) -> None:
    assert style.written(source(session()), TOLD, ROOMY, count) == style.written(
        source(session()), TOLD, ROOMY, count
    )


@pytest.mark.spec("D20")
def test_the_batch_question_has_its_clamps_and_sections() -> None:
    said = [
        user("start-u " + "word " * 3_000 + "end-u"),
        says("start-a " + "word " * 3_000 + "end-a"),
        calls("Bash", command="ls"),
        result("start-t " + "word " * 3_000 + "end-t"),
    ]
    (request,) = asked(BATCH_STYLE, said)
    assert request.max_tokens == 8_192
    assert [title for title in TITLES if f"## {title}" not in request.system] == []
    lengths = [
        len(each) for each in request.user.split("\n\n") if each.startswith(("USER", "ASSIST", "TOOL"))
    ]
    for mark in ("start-u", "end-u", "start-a", "end-a", "start-t", "end-t"):
        assert mark in request.user
    assert 5_900 < request.user.index("end-u") - request.user.index("start-u") < 6_000
    assert 7_900 < request.user.index("end-t") - request.user.index("start-t") < 8_000
    assert max(lengths) <= 8_050
    few = asked(BATCH_STYLE, said, replace(LIMITS, max_tokens=700))
    assert few[0].max_tokens == 700


@pytest.mark.spec("D20")
def test_more_than_one_question_holds_goes_on_in_the_next_one() -> None:
    said = [user(f"message {n} " + "word " * 900) for n in range(40)]
    small = replace(LIMITS, window_tokens=9_000, max_tokens=1_000, input_chars=40_000)
    requests = asked(BATCH_STYLE, said, small)
    assert len(requests) > 3
    text = "".join(request.user for request in requests)
    assert [n for n in range(40) if f"message {n} " not in text] == []
    assert "The record after question 1" in requests[1].user
    for request in requests:
        assert len(request.user) + len(INSTRUCTIONS) <= 40_000
        assert count(request.user) + count(INSTRUCTIONS) + request.max_tokens <= 9_000


@pytest.mark.spec("D20")
def test_the_batch_block_has_plan_and_seven_sections() -> None:
    text = BATCH_STYLE.written(source(session()), TOLD, ROOMY, count).text
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["Task", "User Requirements", "Plan", *TITLES]
    assert "[in progress] Make the number of retries a setting\n" in text
    for line in TOLD.splitlines():
        assert line in text


@pytest.mark.spec("D20")
def test_the_plan_is_never_a_models_version_of_it() -> None:
    text = BATCH_STYLE.written(source(session()), f"## Plan\n- do things\n{TOLD}", ROOMY, count).text
    assert "do things" not in text
    assert text.count("## Plan") == 1


@pytest.mark.spec("D20")
@pytest.mark.parametrize(
    "told",
    [
        TOLD.replace("## ", "### ").replace("Errors & Resolutions", "Errors and Resolutions"),
        TOLD.replace("## Environment", "**Environment:**").replace("## Current State", "7. Current State:"),
        "Here is the summary:\n\n" + TOLD.replace("## Files Touched", "# 2. FILES"),
    ],
)
def test_headings_are_read_in_any_spelling(told: str) -> None:
    text = BATCH_STYLE.written(source(session()), told, ROOMY, count).text
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings[3:] == list(TITLES)
    assert text.partition("## Environment\n")[2].startswith("- Python 3.11.9 on linux")
    assert text.partition("## Current State\n")[2].startswith("- only the commit is missing")


@pytest.mark.spec("D20")
def test_missing_sections_come_from_the_state() -> None:
    told = "Retries are configurable now, and all of the tests pass again since yesterday."
    text = BATCH_STYLE.written(source(session()), told, ROOMY, count).text
    assert f"## Work Completed\n{told}" in text
    assert "## Environment\n- python version: Python 3.11.9" in text
    assert '- edited services/queue.py: "range(limit)" -> "range(n)"' in text
    assert "- `pytest tests/test_queue.py -q`\n  42 passed" in text
    bare = BATCH_STYLE.written(source([user("Hi there.")]), told, ROOMY, count).text
    assert f"## Key Decisions\n{NOTHING}" in bare


@pytest.mark.spec("D20")
def test_without_a_model_the_state_is_the_summary() -> None:
    given = source(session())
    batch = BATCH_STYLE.written(given, None, ROOMY, count)
    assert batch == WorkingStateStyle().written(given, None, ROOMY, count)


def test_a_fallback_after_a_summary_still_knows_it() -> None:
    said = session()
    first = BATCH_STYLE.written(source(said), TOLD, ROOMY, count)
    more = [*said, user("And the port?"), says("The port is 8081 from now on.")]
    second = after(BATCH_STYLE, more, len(said), first)
    assert "only the commit is missing" in second.text
    assert "8081" in second.text
    third = after(BATCH_STYLE, more, len(said), first, TOLD.replace("only the commit", "nothing"))
    fourth = after(BATCH_STYLE, [*more, user("Good.")], len(more), third)
    assert "nothing is missing" in fourth.text
    assert "only the commit is missing" not in fourth.text


def test_nothing_new_leaves_a_summary_alone() -> None:
    said = session()
    first = BATCH_STYLE.written(source(said), TOLD, ROOMY, count)
    given = replace(source(said, since=len(said), previous=first.text), state=first.state)
    assert list(BATCH_STYLE.requests(given, LIMITS, count, "")) == []
    assert BATCH_STYLE.written(given, None, ROOMY, count) == first


@pytest.mark.spec("D21")
@pytest.mark.parametrize("text", ["", "Done.", "x" * 49])
def test_a_summary_of_a_few_words_is_refused(text: str) -> None:
    (request,) = asked(BATCH_STYLE, session())
    with pytest.raises(SummaryRejected):
        BATCH_STYLE.accepted(SummaryReply(text, "stop"), request, 5_000, count)
    assert BATCH_STYLE.accepted(SummaryReply(TOLD, "stop"), request, 5_000, count) == TOLD
