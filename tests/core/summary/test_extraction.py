"""What of a conversation the summarizer reads under `rolling` (B06, B14)."""

from __future__ import annotations

import pytest
from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy
from palimpsest.core.summary.prompt import as_read, transcript_line

from tests.core.summary.talk import calls, message, result, says, source, user

Listed = tuple[tuple[str, ...], tuple[str, ...]]
LISTED: Listed = (Policy().read_tools, Policy().read_tool_prefixes)
CLAMPS = (3_000, 1_500, 1_200, 800)


def read(*messages: Message, tools: Listed = LISTED) -> list[str]:
    seen = as_read(source(messages), *tools)
    each = zip(seen.numbers, seen.fresh, strict=True)
    return [transcript_line(number, said, CLAMPS) for number, (_, said) in each]


@pytest.mark.spec("B06")
def test_messages_are_numbered_by_their_place_and_named_by_role() -> None:
    assert read(user("question"), says("<think>NEEDLE and no end"), says("answer"), user("more")) == [
        "USER [1]: question",
        "ASSISTANT [3]: answer",
        "USER [4]: more",
    ]


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
    [((("bash",), ()), 1), (((), ("my",)), 1), ((("bash",), ("my*",)), 2), (((), ()), 0), (((), ("*",)), 2)],
)
def test_the_list_is_a_setting(tools: Listed, shown: int) -> None:
    said = "\n".join(read(*(each for group in TOOLS for each in group), tools=tools))
    assert said.count("HIDDEN") == shown


@pytest.mark.spec("B14")
def test_a_result_belongs_to_the_newest_call_of_its_id() -> None:
    said = read(calls("linearGet", "x"), result("shown", "x"), calls("bash", "x"), result("hidden", "x"))
    assert [line for line in said if "shown" in line]
    assert not [line for line in said if "hidden" in line]
    assert read(result("orphan")) == []
    named = message({"role": "tool", "tool_call_id": "z", "name": "linearGet", "content": "named"})
    assert read(named) == ["TOOL [1]: named"]


def test_what_is_left_out_is_not_new_either() -> None:
    seen = as_read(source([user("q"), calls("bash"), result("x"), says("a"), user("b")], since=3), *LISTED)
    assert (seen.numbers, seen.since) == ((1, 4, 5), 1)


def test_no_secret_and_no_data_is_read() -> None:
    secret = "sk-" + "Ab1" * 8
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 40}}
    said = read(user(f"use {secret}"), user([picture]), calls("linearLogin", "a", token=secret))
    assert secret not in "".join(said)
    assert said[1].startswith("USER [2]: [IMAGE image/png")
