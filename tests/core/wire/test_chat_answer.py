from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palimpsest.core.wire.chat_answers import (
    AnsweredChoice,
    UnreadableAnswer,
    Usage,
    WholeAnswer,
    parse_answer,
    usage_of,
)

from tests.core.wire.json_texts import BLANKS, EXTRAS, VALUES, messages


@given(st.lists(messages(), min_size=1, max_size=3), BLANKS, VALUES, EXTRAS)
@settings(max_examples=50)
def test_each_message_is_the_bytes_that_came(
    said: list[str], blank: str, other: str, extras: list[tuple[str, str, str, str]]
) -> None:
    around = "".join(f",{key}:{value}" for key, value, _, _ in extras)
    choices = ",".join(
        f'{{"index":{index},"logprobs":{other},"message":{blank}{message}{blank},"finish_reason":"stop"}}'
        for index, message in enumerate(said)
    )
    body = f'{{"choices":[{blank}{choices}]{around}}}'.encode()
    answer = parse_answer(body)
    assert isinstance(answer, WholeAnswer)
    assert [choice.message_body for choice in answer.choices] == [message.encode() for message in said]


def test_reasons_and_counts() -> None:
    body = {
        "choices": [
            {"index": 1, "message": {"role": "assistant"}, "finish_reason": "length"},
            {"index": 0, "message": {"role": "assistant"}, "finish_reason": None},
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 8}},
    }
    assert parse_answer(json.dumps(body).encode()) == WholeAnswer(
        choices=(
            AnsweredChoice(1, b'{"role": "assistant"}', "length"),
            AnsweredChoice(0, b'{"role": "assistant"}', None),
        ),
        usage=Usage(9, 4, 8),
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "invalid_json"),
        (b"<html>", "invalid_json"),
        (b'{"choices":[{"message":{"content":"cut', "invalid_json"),
        (b'{"choices":NaN}', "invalid_json"),
        (b"\xff", "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b"[" * 500 + b"]" * 500, "invalid_json"),
        (b"{}", "no_choices"),
        (b"[]", "not_an_object"),
        (b'"choices"', "not_an_object"),
        (b'{"error":{"message":"no"}}', "error"),
        (b'{"error":{"message":"no"},"choices":[]}', "no_choices"),
        (b'{"detail":"Not Found"}', "no_choices"),
        (b'{"choices":null}', "no_choices"),
        (b'{"choices":[]}', "no_choices"),
        (b'{"choices":[7,{"text":"a"},{"message":"a"},{"message":null}]}', "no_choices"),
    ],
)
def test_a_body_without_an_answer_is_unreadable(body: bytes, reason: str) -> None:
    assert parse_answer(body) == UnreadableAnswer(reason)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "usage"),
    [
        (None, Usage()),
        ([], Usage()),
        ({"prompt_tokens": "9", "completion_tokens": True}, Usage()),
        ({"prompt_tokens": -1, "completion_tokens": 0, "prompt_tokens_details": None}, Usage(None, 0, None)),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 5}, Usage(9, None, 5)),
        # No prompt has as many, and the sum of two such counts does not fit a column.
        ({"prompt_tokens": 10**12, "completion_tokens": 10**12 + 1}, Usage(10**12)),
        ({"prompt_tokens": 2**63 - 1, "prompt_cache_hit_tokens": 2**53}, Usage()),
    ],
)
def test_counts_are_taken_only_where_they_are_counts(value: Any, usage: Usage) -> None:
    assert usage_of(value) == usage
