"""Strict alternation: users merged, a summary acknowledged, everything else byte for byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.view.dialects import ACKNOWLEDGEMENT, answered, merged_users
from palimpsest.core.view.masking import text_of
from palimpsest.core.view.outcomes import ViewPart
from palimpsest.core.view.validity import faults_of

from tests.core.histories import assistant, calls, result, system, user


def raw(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


def said(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts), **fields}


def text_part(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **fields}


def parts(messages: Sequence[bytes], summary: int | None = None) -> list[ViewPart]:
    """The messages as parts of a view; the tokens of each are 1, so that those of a merged one count them."""
    return [
        ViewPart("summary" if place == summary else "tail", 0, message, 1, False, "")
        for place, message in enumerate(messages)
    ]


def merged(messages: Sequence[bytes]) -> tuple[bytes, ...]:
    return tuple(part.raw for part in merged_users(parts(messages)))


def acknowledged(messages: Sequence[bytes], summary: int | None) -> tuple[bytes, ...]:
    return tuple(part.raw for part in answered(parts(messages, summary), len))


def alternated(messages: Sequence[bytes], summary: int | None) -> tuple[ViewPart, ...]:
    """As a view is made: the summary acknowledged, then neighbouring users merged."""
    return merged_users(answered(parts(messages, summary), lambda _: -8))


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.spec("A46")
def test_neighbouring_users_become_one_and_their_text_is_as_spelled() -> None:
    list_ = (
        rb'{"role":"system","content":"s"}',
        rb'{ "content" : "caf\u00e9 \/ \ud800" , "role" : "user" }',
        rb'{"role":"user","content":"\ude00 1e2 \"q\""}',
        rb'{"role":"user","content":""}',
        rb'{"role":"assistant","content":"ok"}',
        rb'{"role":"user","content":"next"}',
    )
    text = rb'{ "content" : "caf\u00e9 \/ \ud800\n\n\ude00 1e2 \"q\"\n\n" , "role" : "user" }'
    assert merged(list_) == (list_[0], text, list_[4], list_[5])


@pytest.mark.spec("A46")
@pytest.mark.parametrize(
    "left_alone",
    [
        said(IMAGE),
        said(text_part("look"), IMAGE),
        said({"type": "tool_result", "tool_use_id": "a", "content": "42"}),
        said(),
        said({"type": "text"}),
        {"role": "user", "content": None},
        {"role": "user"},
        {"role": "user", "content": "as another", "name": "bob"},
        result("a", 'the "user" said'),
        {"role": "function", "name": "f", "content": "user"},
        system("user"),
    ],
)
def test_what_is_not_text_of_the_same_user_is_left_alone(left_alone: dict[str, Any]) -> None:
    messages = (raw(user("a")), raw(left_alone), raw(user("b")))
    assert merged(messages) == messages


@pytest.mark.spec("D19")
def test_a_summary_is_acknowledged_before_the_next_user_message() -> None:
    messages = tuple(map(raw, [system("s"), user("task"), user("summary"), user("recent")]))
    made = acknowledged(messages, 2)
    assert [json.loads(m)["role"] for m in made] == ["system", "user", "user", "assistant", "user"]
    assert json.loads(made[3])["content"] == ACKNOWLEDGEMENT


@pytest.mark.spec("D19")
@pytest.mark.parametrize("after", [[assistant("ok")], [calls("a"), result("a", "1")], [], [system("rule")]])
def test_no_acknowledgement_where_no_user_message_follows(after: list[dict[str, Any]]) -> None:
    messages = tuple(map(raw, [user("summary"), *after]))
    assert acknowledged(messages, 0) == messages
    assert acknowledged(messages, None) == messages


@pytest.mark.spec("A46")
@pytest.mark.spec("D19")
def test_a_view_alternates_with_task_and_summary_in_one_message() -> None:
    messages = tuple(map(raw, [system("s"), user("task"), user("summary"), user("recent"), user("more")]))
    made = alternated(messages, 2)
    assert [json.loads(part.raw)["content"] for part in made] == [
        "s",
        "task\n\nsummary",
        ACKNOWLEDGEMENT,
        "recent\n\nmore",
    ]


pieces = st.sampled_from(
    [
        user("one"),
        user('two "x" \ud800'),
        said(text_part("three"), text_part("four")),
        assistant("ok"),
        said(text_part("five"), IMAGE),
        {**user("six"), "name": "bob"},
    ]
)


@pytest.mark.spec("A46")
@pytest.mark.spec("D19")
@given(st.lists(pieces, min_size=1, max_size=9), st.integers(0, 8))
def test_no_text_is_lost_and_nothing_that_could_be_merged_is_left(
    fields: list[dict[str, Any]], place: int
) -> None:
    messages = tuple(map(raw, fields))
    users = [index for index, each in enumerate(fields) if each["role"] == "user"]
    summary = users[place % len(users)] if users else None
    made = alternated(messages, summary)
    # The acknowledgement counts no tokens here, and every other part those of its sources.
    assert sum(part.tokens for part in made) == len(messages)
    place = 0
    for part in made:
        source = range(place, place := place + part.tokens)
        if len(source) == 1:
            assert part.raw == messages[source[0]]
        elif source:
            assert text_of(json.loads(part.raw)) == "\n\n".join(text_of(fields[i]) for i in source)
    shown = [json.loads(part.raw) for part in made]
    plain = [f["role"] == "user" and "name" not in f and "image_url" not in str(f) for f in shown]
    assert not any(a and b for a, b in pairwise(plain))
    sent = tuple(part.raw for part in made)
    assert merged(sent) == sent
    assert set(faults_of(sent)) <= set(faults_of(messages))


@pytest.mark.spec("W49")
def test_items_of_an_answer_stand_for_an_assistant() -> None:
    summary, question = raw(user("A summary.")), raw(said({"type": "input_text", "text": "And?"}))
    answer = b'[{"type":"message","role":"assistant","content":"the "user" said"}]'
    found = raw({"type": "function_call_output", "call_id": "c", "output": "x"})
    assert acknowledged([summary, answer, question], 0) == (summary, answer, question)
    assert [json.loads(m)["role"] for m in acknowledged([summary, question, answer], 0)[:3]] == [
        "user",
        "assistant",
        "user",
    ]
    assert merged([summary, answer, found, question]) == (summary, answer, found, question)


@pytest.mark.spec("W49", "A46")
def test_items_of_a_user_are_merged_with_parts_and_kinds_of_their_own_api() -> None:
    said_as_item = {"type": "message", **said({"type": "input_text", "text": "And?"})}
    (made,) = merged([raw(user("A summary.")), raw(said_as_item), raw(user("Go."))])
    content = [
        {"type": "input_text", "text": "A summary."},
        {"type": "input_text", "text": "\n\nAnd?"},
        {"type": "input_text", "text": "\n\nGo."},
    ]
    assert json.loads(made) == {"role": "user", "content": content}
    picture = raw(said({"type": "input_image", "image_url": "data:image/png;base64,AAAA"}))
    assert merged([raw(user("A")), picture]) == (raw(user("A")), picture)
