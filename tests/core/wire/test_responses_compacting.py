"""Items of our own compactions, and bodies from which members are taken out."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from palimpsest.core.wire.compaction_items import item_of, summary_in, threshold_in, with_plain_summaries
from palimpsest.core.wire.json_text import encoded
from palimpsest.core.wire.request import RequestLimits
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.core.wire.responses.request import parse_responses_request

SUMMARY = "Berth 42 \u2013 caf\u00e9 \U0001f6a2 <b>"


def test_an_item_of_ours_is_read_back_and_goes_out_as_a_users_words() -> None:
    item = item_of(SUMMARY, "1")
    assert item["type"] == "compaction"
    assert summary_in(item) == SUMMARY
    assert as_chat(item) == {"role": "user", "content": SUMMARY}
    plain = {"type": "message", "role": "user", "content": SUMMARY}
    assert json.loads(with_plain_summaries(encoded(item))) == plain
    assert json.loads(b"[" + with_plain_summaries(encoded([item, {"n": 1}])) + b"]") == [plain, {"n": 1}]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"input":"x", "a": 1, "b": 2}', '{"input":"x"}'),
        ('{ "a": 1, "input":"x", "b": 2}', '{ "input":"x"}'),
        ('{"a": 1, "b": 2 , "input":"x"}', '{ "input":"x"}'),
        ('{"model":"m","b": 2,"a":[1,2],"input":"x" }', '{"model":"m","input":"x" }'),
    ],
)
def test_members_are_taken_out_with_one_comma_each(body: str, expected: str) -> None:
    request = parse_responses_request(body.encode(), RequestLimits(64, 100))
    assert request is not None
    bare = replace(request, dropped=("a", "b")).edited_body
    assert bare.decode() == expected
    assert json.loads(bare).get("input") == "x"


@pytest.mark.parametrize(
    ("management", "tokens"),
    [
        ([{"type": "compaction", "compact_threshold": 200_000}], 200_000),
        ([{"compact_threshold": 9_000}, {"compact_threshold": 8_000}], 8_000),
        ([{"compact_threshold": 10}], 0),
        ([{"compact_threshold": None}, 5], 0),
        ("compaction", 0),
        (None, 0),
    ],
)
def test_a_threshold_is_the_least_that_means_something(management: object, tokens: int) -> None:
    assert threshold_in(management) == tokens
