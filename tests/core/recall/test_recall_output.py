"""What is only an echo of what is stored, and what merely looks a little like one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.core.recall.searchable_text import (
    RECALL_OUTPUT_TAGS,
    is_recall_output_body,
    own_text,
    without_blocks,
    without_recall_output,
)
from palimpsest.core.wire.json_text import encoded

from tests.core.histories import message


def body(content: Any, role: str = "user", **others: Any) -> bytes:
    return encoded({"role": role, "content": content, **others})


def call(name: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": '{"query": "the gate"}'}}


@pytest.mark.parametrize("tag", sorted(RECALL_OUTPUT_TAGS))
def test_a_pasted_block_is_an_echo(tag: str) -> None:
    pasted = body(f"\n<{tag}>\nThe gate code is 4471.\n</{tag}>\n")
    assert is_recall_output_body(pasted)
    assert own_text(pasted) == ""
    assert is_recall_output_body(pasted.replace(b"<", b"\\u003c").replace(b">", b"\\u003e"))


def test_blocks_that_nobody_closes_cost_no_more_than_reading_them() -> None:
    text = "<user_profile>" * 100_000 + "</recall_hints>"
    assert own_text(body(text)) == text
    assert without_blocks("a<recall_hints>b</recall_hints>" * 3).split() == ["a", "a", "a"]


def test_what_is_said_beside_a_block_counts_alone() -> None:
    mixed = body("<user_profile>\nlikes tea\n</user_profile>\nWhere is the ladder?")
    assert not is_recall_output_body(mixed)
    assert own_text(mixed).strip() == "Where is the ladder?"


@pytest.mark.parametrize(
    "content",
    [
        "Why does <user_profile> not close?",
        "<b>bold</b>",
        "A function named context_grep is called.",
        'He wrote {"tool": "hammer"} there.',
        "x" * 500 + '{"tool":"context_grep"}',
        None,
        [],
    ],
)
def test_no_echo(content: Any) -> None:
    assert not is_recall_output_body(body(content))


@pytest.mark.parametrize(
    "content",
    [
        '{"tool":"context_grep","session":"s","totalFound":1,"results":[]}',
        '{ "tool" : "context_describe", "id": "dcm_1"}',
        'Result: {"tool":"context_grep","results":[]}',
        [{"type": "text", "text": '{"tool":"context_grep","results":[]}'}],
        json.dumps([{"type": "text", "text": '{"tool":"context_grep","results":[]}'}]),
    ],
)
def test_a_result_of_ours_is_an_echo_however_it_is_wrapped(content: Any) -> None:
    assert is_recall_output_body(body(content, role="tool", tool_call_id="c1"))


def test_a_call_for_recall_is_an_echo_and_others_beside_it_are_not() -> None:
    for name in ("context_grep", "mcp__palimpsest__context_describe"):
        assert is_recall_output_body(body(None, role="assistant", tool_calls=[call(name)]))
    both = body(None, role="assistant", tool_calls=[call("context_grep"), call("open_gate")])
    assert not is_recall_output_body(both)
    assert own_text(both) == 'open_gate {"query": "the gate"}'


def test_facts_are_taken_from_what_stands_beside_echoes() -> None:
    said = message({"role": "user", "content": "Keep the <user_profile>He rows.</user_profile> boat."})
    heard = without_recall_output(said)
    assert [part["text"] for part in heard.fields["content"]] == ["Keep the ", " ", " boat."]
    assert heard.raw == said.raw
    picture = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}
    block = {"type": "text", "text": "<recall_hints>a</recall_hints>"}
    mixed = without_recall_output(message({"role": "user", "content": [block, picture]}))
    assert mixed.fields["content"] == [picture]


def test_recall_calls_and_their_results_say_nothing() -> None:
    calling = message({"role": "assistant", "content": "Wait.", "tool_calls": [call("context_grep")]})
    assert (without_recall_output(calling).fields["tool_calls"], without_recall_output(calling).calls) == (
        [],
        (),
    )
    both = [call("mcp__palimpsest__context_grep"), {**call("read_file"), "id": "c2"}]
    mixed = without_recall_output(message({"role": "assistant", "content": None, "tool_calls": both}))
    assert [one["id"] for one in mixed.fields["tool_calls"]] == ["c2"]
    assert mixed.calls == ("c2",)
    result = {"role": "tool", "tool_call_id": "c1", "content": '{"tool":"context_grep","results":[]}'}
    assert without_recall_output(message(result)).fields["content"] == []


@pytest.mark.parametrize("text", ["a < b", "<user_profile> is a tag", "context_grep finds it", ""])
def test_a_message_without_echoes_is_the_same(text: str) -> None:
    plain = message({"role": "user", "content": text})
    assert without_recall_output(plain) is plain
