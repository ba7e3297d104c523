"""What of a conversation the summarizer reads under this style."""

from __future__ import annotations

import pytest
from palimpsest.core.history.message import Message
from palimpsest.core.summary.prompt import SummaryLimits
from palimpsest.core.summary.rolling.prompt import EVERY_TOOL, ToolAllowList, transcript

from tests.core.summary.rolling.asking import ROLLING, asked, text_in
from tests.core.summary.talk import ROOMY, calls, count, message, result, says, source, user


def read(*messages: Message, tools: ToolAllowList | None = None, since: int = 0) -> list[str]:
    lines = transcript(source(messages, since=since), tools or ToolAllowList(), SummaryLimits(0, 0, 0))
    return [line.marked() for line in lines]


@pytest.mark.spec("B06")
def test_messages_are_numbered_by_their_place_and_named_by_role() -> None:
    assert read(user("question"), says("answer"), user("more")) == [
        "USER [1]: question",
        "ASSISTANT [2]: answer",
        "USER [3]: more",
    ]
    assert read(user("old"), says("old"), user("new"), since=2) == ["USER [3]: new"]


@pytest.mark.spec("B06")
@pytest.mark.parametrize(
    "fields",
    [
        {"content": "<think>NEEDLE</think>\nspoken"},
        {"content": "  <thinking>NEEDLE\n</thinking>spoken"},
        {"content": "<think>NEEDLE</think><think>NEEDLE</think>spoken"},
        {"content": [{"type": "text", "text": "<think>NEEDLE</think>spoken"}]},
        {"content": "spoken", "reasoning_content": "NEEDLE"},
        {"content": "spoken", "reasoning": {"text": "NEEDLE"}},
        {"content": [{"type": "reasoning", "text": "NEEDLE"}, {"type": "text", "text": "spoken"}]},
        {"content": [{"type": "thinking", "thinking": "NEEDLE"}, {"type": "text", "text": "spoken"}]},
    ],
)
def test_reasoning_is_not_read(fields: dict[str, object]) -> None:
    assert read(message({"role": "assistant", **fields})) == ["ASSISTANT [1]: spoken"]


@pytest.mark.spec("B06")
def test_an_answer_that_was_cut_while_thinking_says_nothing() -> None:
    assert read(user("q"), says("<think>NEEDLE and no end")) == ["USER [1]: q"]


def test_what_a_user_writes_about_thinking_stays() -> None:
    assert read(user("<think>why?</think>")) == ["USER [1]: <think>why?</think>"]


TOOLS = (
    [calls("userQuestions", "a", about="colour"), result("asked: teal", "a")],
    [calls("linear_search", "b", text="login"), result("found LIN-77", "b")],
    [calls("bash", "c", command="ls"), result("HIDDEN", "c")],
    [calls("myLinear", "d", text="x"), result("HIDDEN", "d")],
)


@pytest.mark.spec("B14")
def test_only_tools_on_the_list_are_read_by_name_and_by_prefix() -> None:
    said = "\n".join(read(*(each for group in TOOLS for each in group)))
    assert "asked: teal" in said
    assert "-> calls userQuestions" in said
    assert "found LIN-77" in said
    assert "HIDDEN" not in said
    assert "bash" not in said
    assert "ASSISTANT [3]" in said
    assert "[5]" not in said


@pytest.mark.spec("B14")
@pytest.mark.parametrize(
    ("tools", "shown"),
    [
        (ToolAllowList(frozenset({"bash"}), ()), 1),
        (ToolAllowList(frozenset(), ("my",)), 1),
        (ToolAllowList(frozenset({"bash"}), ("my*",)), 2),
        (ToolAllowList(frozenset(), ()), 0),
        (EVERY_TOOL, 2),
    ],
)
def test_the_list_is_a_setting(tools: ToolAllowList, shown: int) -> None:
    said = "\n".join(read(*(each for group in TOOLS for each in group), tools=tools))
    assert said.count("HIDDEN") == shown


@pytest.mark.spec("B14")
def test_a_result_belongs_to_the_newest_call_of_its_id() -> None:
    said = read(calls("linearGet", "x"), result("shown", "x"), calls("bash", "x"), result("hidden", "x"))
    assert [line for line in said if "shown" in line]
    assert not [line for line in said if "hidden" in line]


@pytest.mark.spec("B14")
def test_a_result_whose_call_is_not_there_is_not_read() -> None:
    assert read(result("orphan")) == []
    named = message({"role": "tool", "tool_call_id": "z", "name": "linearGet", "content": "named"})
    assert read(named) == ["TOOL [1]: named"]


@pytest.mark.spec("B14")
def test_no_request_holds_the_text_of_another_tool() -> None:
    requests, _ = asked(ROLLING, source([user("go"), *(each for group in TOOLS for each in group)]))
    assert requests
    assert not [raw for request in requests for raw in request.messages if b"HIDDEN" in raw]
    assert "asked: teal" in text_in(requests[0], "new-messages")


@pytest.mark.spec("B14")
def test_code_does_not_read_them_either() -> None:
    talk = [user("go"), calls("bash", "c", command="ls"), result("Error: HIDDEN port is 54329 now", "c")]
    written = ROLLING.written(source(talk), None, ROOMY, count)
    assert "HIDDEN" not in written.text
    assert "54329" not in written.text
    assert "`ls`: failed" in written.text


def test_no_secret_and_no_data_is_read() -> None:
    secret = "sk-" + "Ab1" * 8
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 40}}
    said = read(user(f"use {secret}"), user([picture]), calls("linearLogin", "a", token=secret))
    assert secret not in "".join(said)
    assert said[1].startswith("USER [2]: [IMAGE image/png")
