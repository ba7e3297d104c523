"""A client's own summary is recognised, and a user who writes about summaries is not taken for one."""

from __future__ import annotations

from typing import Any

import pytest
from palimpsest.core.view.clients import client_summary_of

from tests.core.histories import assistant, calls, conversation, prose, result, system, user

BODY = "\n1. The login test fails.\n2. src/auth.py was changed.\n" + "3. The clock is wrong in CI.\n" * 20
CLAUDE = (
    "This session is being continued from a previous conversation that ran out of context. The summary "
    f"below covers the earlier portion.\n{BODY}"
)
CODEX = f"Another language model started to solve this problem and produced a summary of its thinking.{BODY}"


def found(*fields: dict[str, Any], is_rebased: bool = False) -> tuple[int, ...] | None:
    return client_summary_of(conversation(fields), is_rebased) or None


@pytest.mark.parametrize(
    "text",
    [
        CLAUDE,
        CODEX,
        (
            "The conversation history before this point was compacted into the following summary:\n\n"
            f"<summary>{BODY}</summary>"
        ),
        (f"I spoke to you previously about a number of things.\n{prose(80, 'I asked you')}"),
        (f"Here is a summary of the conversation to date:\n\n## GOAL{BODY}"),
        (f"The previous conversation was compacted. Use this summary as context:\n\n{BODY}"),
        (f"<state_snapshot>\n<overall_goal>{BODY}</overall_goal></state_snapshot>"),
        (f"<summary>\n{BODY}</summary>"),
        (f"# Conversation summary\n{BODY}"),
        (f"[Context summary]{BODY}"),
        (f"Summary of our conversation so far:{BODY}"),
        (f"The conversation so far has been condensed.{BODY}"),
    ],
)
def test_the_summaries_of_known_clients_are_recognised(text: str) -> None:
    assert found(system("rules"), user(text), assistant("ok"), user("go on")) == (0,)


def test_a_summary_behind_a_reminder_or_in_a_later_part_is_recognised() -> None:
    reminder = "<system-reminder>\nbe exact\n</system-reminder>\n"
    parts = [{"type": "text", "text": reminder}, {"type": "text", "text": CLAUDE}]
    assert found({"role": "user", "content": parts}, assistant("ok")) == (0,)
    assert found(user(reminder + CLAUDE), assistant("ok")) == (0,)


def test_the_newest_summary_counts_wherever_it_stands() -> None:
    fields = [user(CLAUDE), assistant("ok"), user("and now?"), assistant("done"), user(CODEX), user("next")]
    assert found(*fields) == (4,)
    assert found(*fields[:4]) == (0,)


def test_a_question_put_by_the_client_is_kept_with_the_summary_that_answers_it() -> None:
    fields = [user("What did we do so far?"), assistant(f"## Goal{BODY}"), user("go on"), assistant("ok")]
    assert found(system("rules"), *fields) == (0, 1)
    assert found(user("hello"), assistant("hi"), *fields) is None
    assert found(fields[0], assistant("Nothing yet, we just started.")) is None
    assert found(fields[0], calls("a"), result("a", BODY)) is None


def test_a_rewritten_list_that_begins_with_a_long_summary_is_one() -> None:
    first = user(f"Handoff from my earlier self, the rest was cut.{BODY * 3}")
    fields = [first, assistant("ok"), user("go on")]
    assert found(*fields, is_rebased=True) == (0,)
    assert found(*fields) is None
    assert found(user(f"Handoff:{BODY}"), assistant("ok"), is_rebased=True) is None
    assert found(user(f"Please fix this log.{BODY * 3}"), assistant("ok"), is_rebased=True) is None
    assert found(user("hi"), assistant("ok"), first, assistant("ok"), is_rebased=True) is None


@pytest.mark.parametrize(
    "text",
    [
        "Write a summary of the conversation.",
        f"Please write a summary of this text:\n{BODY}",
        f"Summary statistics of the table are below, plot them.\n{BODY}",
        f"Fix the <summary> tag in this page:\n{BODY}",
        "This session is being continued from a previous conversation",
        f"This session is being continued from a previous conversation: who writes that?\n{BODY}",
        f"My log says: Another language model started to solve this problem\n{BODY}",
        "Another language model started to solve this problem and gave up. " + "I want it done. " * 20,
        f"Can you explain what the conversation history before this point was compacted means?\n{BODY}",
        f"Your task is to create a detailed summary of the conversation so far.\n{BODY}",
        "",
    ],
)
def test_a_user_who_writes_of_summaries_is_no_client(text: str) -> None:
    assert found(user(text), assistant("ok"), user("go on")) is None


def test_what_the_model_or_a_tool_says_is_no_clients_summary() -> None:
    start = [user("hi"), assistant("hello"), user("go")]
    assert found(*start, assistant(f"Here is a summary of the conversation to date:\n{BODY}")) is None
    assert found(*start, assistant(CLAUDE)) is None
    assert found(*start, calls("a"), result("a", CLAUDE)) is None
    assert found(user("go"), calls("a", text=CLAUDE), result("a", "x")) is None


def test_a_summary_that_a_client_put_in_the_assistants_mouth_is_recognised() -> None:
    assert found(user("build it"), assistant(CLAUDE), user("go on")) == (1,)
