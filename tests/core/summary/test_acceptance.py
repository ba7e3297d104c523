"""What a summarizer returns, and whether it may stand for history."""

from __future__ import annotations

import pytest
from palimpsest.core.policy import Policy
from palimpsest.core.summary.acceptance import accepted, whole_part
from palimpsest.core.summary.asking import INSTRUCTIONS, appended_request, record_requests
from palimpsest.core.summary.forms import CONTENTS, HANDOFF, TITLES
from palimpsest.core.summary.prompt import SummaryLimits, SummaryReply, SummaryRequest
from palimpsest.errors import SummaryRejected

from tests.core.summary.talk import calls, count, result, says, source, user

TALK = [
    user("Please move the launch to the ninth of May and tell the crew in Lisbon about it today."),
    calls("notify", crew="Lisbon"),
    result("sent to 14 people, 2 bounced: ana@crew.test, rui@crew.test"),
    says("Done: the crew in Lisbon knows that the launch moved to the ninth of May, two mails bounced."),
] * 6
GOOD = """## 1. Primary request and intent
Move the launch to 9 May. [done]
## 8. Current state
Crew in Lisbon was told; two mails bounced."""


LIMITS = SummaryLimits.of(Policy(), 100_000, 800)


def request() -> SummaryRequest:
    return next(record_requests(source(TALK), LIMITS, count, "", HANDOFF))


def append_limit() -> SummaryRequest:
    shown = [message.raw for message in TALK]
    return appended_request(shown, source(TALK), 1_000, LIMITS, count, "", HANDOFF)


def verdict(text: str, finish: str | None = "stop", tools: bool = False, replaced: int = 2_000) -> str:
    return accepted(SummaryReply(text, finish, tools), request(), replaced, count)


def test_a_summary_comes_back_as_it_is() -> None:
    assert verdict(GOOD) == GOOD


@pytest.mark.spec("A15")
def test_missing_sections_are_no_reason_to_refuse() -> None:
    text = "The launch moved to the ninth of May; the crew in Lisbon was told, two mails bounced."
    assert verdict(text) == text


@pytest.mark.spec("F09")
@pytest.mark.parametrize("finish", ["content_filter", "tool_calls", None, "error"])
def test_only_a_finished_answer_counts(finish: str | None) -> None:
    with pytest.raises(SummaryRejected, match="finish"):
        verdict(GOOD, finish)


@pytest.mark.spec("F09")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n ",
        "ok",
        "## 1. Primary request and intent",
        "Error: upstream request failed with status 500, please try again later or contact support.",
        "An error occurred while generating the summary. The service returned an unexpected answer.",
        "I'm sorry, but I can't help with summarizing this conversation because it is too long.",
        "I cannot summarize this conversation, since no messages were given to me to work with.",
        "Summary unavailable. The conversation history could not be processed by the server.",
        "Failed to generate summary: timeout after 30 seconds while waiting for the language model.",
        '{"error": {"message": "The server had an error processing your request", "code": 500}}',
        "502 Bad Gateway: the upstream server closed the connection before sending an answer.",
        "<!DOCTYPE html>\n<html><body>\n- 502 Bad Gateway\n- The server is not available.</body></html>",
    ],
)
def test_errors_refusals_and_nothing_are_refused(text: str) -> None:
    with pytest.raises(SummaryRejected):
        verdict(text)


@pytest.mark.parametrize("nothing", ["None.", "N/A", "- None recorded.", "Nothing to report yet."])
def test_a_skeleton_of_headings_is_refused(nothing: str) -> None:
    text = "\n".join(f"## {n}. {title}\n{nothing}" for n, title in enumerate(TITLES, 1))
    with pytest.raises(SummaryRejected, match="headings"):
        verdict(text)
    assert verdict(text + "\nAsk Rui to send the two bounced mails to Lisbon by post instead, today.")


@pytest.mark.parametrize(
    "text",
    [
        "The user was unable to log in; the error was 'E42: no such account'. We reset the account today.",
        "Errors: none so far in this session. The launch moved to the ninth of May and the crew knows it.",
        'Connection timeout raised to 30 s; the parser takes off `<think>` and the text "<tool_call>" now.',
        "The parser reads `\"tool_calls\": [...]`, and we remove '<think>', “</think>” and «<invoke>».",
        GOOD + "\n```xml\n<think>\n</think>\n<tool_call>\n```\nThis sample stands in the tests.",
    ],
)
def test_a_summary_may_speak_of_errors(text: str) -> None:
    assert verdict(text) == text


@pytest.mark.spec("F11")
@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "notify", "arguments": {"crew": "Lisbon"}}</tool_call>' + GOOD,
        '{"name": "notify", "arguments": {"crew": "Lisbon", "text": "the launch has moved to May"}}',
        '[{"type": "function", "function": {"name": "notify", "arguments": "{\\"crew\\": 1}"}}]',
        GOOD + "\n<function=notify>{}</function>",
        GOOD + "\n<|tool_calls_begin|>",
        GOOD + "\n<think>I should also mention the mails.</think>",
        "<think>never closed, it only thinks about what to write and then the answer ends",
        GOOD + "\nThe end.</think> Well",
    ],
)
def test_tool_syntax_and_reasoning_are_refused(text: str) -> None:
    with pytest.raises(SummaryRejected):
        verdict(text)


@pytest.mark.spec("F11")
def test_tool_calls_beside_the_text_are_refused() -> None:
    with pytest.raises(SummaryRejected, match="tool"):
        verdict(GOOD, "stop", tools=True)


@pytest.mark.spec("F11")
@pytest.mark.parametrize("tag", ["think", "thinking", "reasoning"])
def test_what_a_model_thought_first_is_taken_off(tag: str) -> None:
    for opened in (f"<{tag}>\nlet me see\n", "Okay, let me see. `</x>`\n", ""):
        assert verdict(f"{opened}</{tag}>\n\n{GOOD}") == GOOD


@pytest.mark.spec("F09")
@pytest.mark.parametrize(
    "echo", [request().user, INSTRUCTIONS, "Sure! " + request().user, INSTRUCTIONS + GOOD]
)
def test_an_echo_is_refused(echo: str) -> None:
    with pytest.raises(SummaryRejected, match=r"echo|repeats"):
        verdict(echo, replaced=1_000_000)


@pytest.mark.spec("F12")
def test_what_is_not_smaller_than_what_it_replaces_is_refused() -> None:
    size = count(GOOD)
    assert verdict(GOOD, replaced=size * 2) == GOOD
    for replaced in (size // 2, size, int(size * 1.1)):
        with pytest.raises(SummaryRejected, match="smaller"):
            verdict(GOOD, replaced=replaced)


@pytest.mark.spec("A17")
def test_secrets_a_model_repeats_are_removed() -> None:
    assert "sk-" not in verdict(GOOD + "\nThe key is sk-" + "Ab1" * 8)


def test_the_reason_never_quotes_the_answer() -> None:
    with pytest.raises(SummaryRejected) as caught:
        verdict("I'm sorry, PRIVATE-WORD cannot be summarized by me because of its contents.")
    assert "PRIVATE-WORD" not in caught.value.message


@pytest.mark.spec("F09")
@pytest.mark.parametrize(
    ("cut", "whole"),
    [
        (GOOD + "\n## 9. Recommended next st", GOOD),
        (GOOD + "\n## 9. Recommended next step\nWrite to the tw", GOOD),
        (GOOD + "\n- Ana was told. Rui was not to", GOOD),
        (GOOD + "\n1. Ana was told. Rui was not to", GOOD),
        (GOOD + "\nAna was told. Rui was no", GOOD + "\nAna was told."),
        (GOOD + "\n", GOOD),
        ("船はリスボンにあります。次の便は", "船はリスボンにあります。"),
        ("## 1. Primary request and intent\n## 2. User mess", ""),
        ("no end anywhere", ""),
    ],
)
def test_of_a_text_that_was_cut_what_is_whole_stays(cut: str, whole: str) -> None:
    assert whole_part(cut) == whole


@pytest.mark.spec("F09", "A15")
def test_an_answer_cut_by_its_length_is_taken_as_far_as_it_is_whole() -> None:
    assert verdict(GOOD + "\n- Ask Rui to se", "length") == GOOD
    for nothing in ("## 1. Primary request and intent\nMove the launch to", "", "The launch moved. The"):
        with pytest.raises(SummaryRejected):
            verdict(nothing, "length")


def test_an_answer_longer_than_was_asked_for_is_not_refused() -> None:
    long = GOOD + "".join(f"\n- Mail {n} to crew member {n} was sent on 9 May." for n in range(300))
    assert count(long) > 3 * request().max_tokens
    assert verdict(long, replaced=20_000) == long


@pytest.mark.parametrize("filler", ["None.", "[what was done]", "<to be filled in>", "TBD", ""])
def test_a_template_of_any_sections_is_refused(filler: str) -> None:
    titles = ("KEY FACTS", "CONVERSATION FLOW", "OPEN THREADS", "DECISIONS")
    with pytest.raises(SummaryRejected, match="headings"):
        verdict("\n".join(f"## {title} of the conversation so far\n{filler}" for title in titles))


def test_what_the_question_says_of_a_section_is_not_part_of_it() -> None:
    copied = GOOD.replace("intent\n", f"intent ({CONTENTS[0]})\n").replace(
        "state\n", f"state ({CONTENTS[7]})\n"
    )
    assert verdict(copied) == GOOD


@pytest.mark.spec("F09")
def test_the_question_that_rides_is_no_summary_either() -> None:
    for echo in (append_limit().user, append_limit().user + GOOD):
        with pytest.raises(SummaryRejected, match="repeats"):
            accepted(SummaryReply(echo, "stop"), append_limit(), 1_000_000, count)
    assert accepted(SummaryReply(GOOD, "stop"), append_limit(), 2_000, count) == GOOD
