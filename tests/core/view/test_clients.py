"""A client's own summary is recognised, and a person's first request behind its set-up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.core.policy import Policy
from palimpsest.core.view.clients import Opening, client_summary_of, opening_of
from palimpsest.core.view.outcomes import Fold

from tests.core.histories import assistant, calls, conversation, prose, result, system, user
from tests.core.view.planning import Talk

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


Json = dict[str, Any]

ENVIRONMENT = "<environment_context>\n  <cwd>/work</cwd>\n  <shell>zsh</shell>\n</environment_context>"
AGENTS = "# AGENTS.md instructions for /work\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>"
QWEN = "This is the Qwen Code. We are setting up the context for our chat.\nToday's date is Monday."
THANKS = "Got it. Thanks for the context!"
TASK = "Repair the harbour crane's log reader."
ANSWER = "I have read the whole of the file, and found that the reader stops. " * 6

CODEX_SETUP = (user(AGENTS), user(ENVIRONMENT), user(TASK))
QWEN_CODE = (user(QWEN), assistant(THANKS), user(TASK))


@pytest.mark.spec("H14")
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((user(TASK),), Opening((), 0)),
        (CODEX_SETUP, Opening((0, 1), 2)),
        (QWEN_CODE, Opening((0, 1), 2)),
        (
            (user(f"<user_instructions>\nBe kind.\n</user_instructions>\n{ENVIRONMENT}"), user(TASK)),
            Opening((0,), 1),
        ),
        ((user("<system-reminder>Plan mode.</system-reminder>"), user(TASK)), Opening((0,), 1)),
        # The request stands behind the block in one message: it is the person's.
        ((user(f"{ENVIRONMENT}\n{TASK}"), assistant(ANSWER)), Opening((), 0)),
        # Quoted, or answered at length: somebody asked that.
        ((user(f"What does this mean? {ENVIRONMENT}"), user("Well?")), Opening((), 0)),
        ((user(QWEN), assistant(ANSWER), user(TASK)), Opening((), 0)),
        ((user(ENVIRONMENT), assistant(ANSWER), user(TASK)), Opening((), 0)),
        ((user("<poem>Waves</poem>"), user(TASK)), Opening((), 0)),
        # Nothing but set-up: the first message counts, as ever.
        ((user(AGENTS), user(ENVIRONMENT)), Opening((0,), 1)),
        ((), Opening((), None)),
    ],
)
def test_the_first_request_of_a_person(said: tuple[Json, ...], expected: Opening) -> None:
    assert opening_of(conversation([system("You are an agent."), *said])) == expected


@pytest.mark.spec("H14")
@pytest.mark.parametrize("opening", [CODEX_SETUP, QWEN_CODE])
@pytest.mark.parametrize("keep_original_task", [True, False])
def test_a_view_holds_the_set_up_at_its_head_and_the_task(
    opening: tuple[Json, ...], *, keep_original_task: bool
) -> None:
    chat = Talk(
        system("You are an agent."),
        *opening,
        window=4_000,
        policy=Policy(keep_original_task=keep_original_task),
    )
    for n in range(16):
        chat.says(assistant(prose(150, f"a{n}")), user(prose(60, f"u{n}")))
    plan = chat.plan()
    assert isinstance(plan, Fold)
    setup = opening_of(chat.conversation).setup
    assert set(setup) <= set(plan.kept)
    assert (opening_of(chat.conversation).task in plan.kept) is keep_original_task
    chat.carry_out(plan)
    head = [part for part in chat.view.parts if part.kind != "preamble"][: len(setup)]
    assert [part.kind for part in head] == ["instruction"] * len(setup)
    assert [part.raw for part in head] == [chat.conversation.messages[i].raw for i in setup]
    assert all("set up by the client" in part.reason for part in head)
    tasks = [part for part in chat.view.parts if part.kind == "task"]
    assert [json.loads(part.raw)["content"] for part in tasks] == [TASK] * keep_original_task
