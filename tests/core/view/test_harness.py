"""The first request of a person behind what a client set up (rule 34)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.core.policy import Policy
from palimpsest.core.view.clients import Opening, opening_of
from palimpsest.core.view.outcomes import Fold

from tests.core.histories import assistant, conversation, prose, system, user
from tests.core.view.planning import Talk

Json = dict[str, Any]

ENVIRONMENT = "<environment_context>\n  <cwd>/work</cwd>\n  <shell>zsh</shell>\n</environment_context>"
AGENTS = "# AGENTS.md instructions for /work\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>"
QWEN = "This is the Qwen Code. We are setting up the context for our chat.\nToday's date is Monday."
THANKS = "Got it. Thanks for the context!"
TASK = "Repair the harbour crane's log reader."
ANSWER = "I have read the whole of the file, and found that the reader stops. " * 6

CODEX = (user(AGENTS), user(ENVIRONMENT), user(TASK))
QWEN_CODE = (user(QWEN), assistant(THANKS), user(TASK))


@pytest.mark.spec("H14")
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((user(TASK),), Opening((), 0)),
        (CODEX, Opening((0, 1), 2)),
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
@pytest.mark.parametrize("opening", [CODEX, QWEN_CODE])
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
