import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.view.compaction import Mask
from app.core.view.masking import context_id, masked, shown, text_of

CHAIN = bytes(range(32))
ID = "dcm_" + CHAIN.hex()[:32]


def shortened(raw: bytes, limit: int) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(masked(raw, Mask(CHAIN, limit)))
    return fields


def test_the_id_is_the_start_of_the_chain() -> None:
    assert context_id(CHAIN) == ID


@pytest.mark.spec("A20")
@pytest.mark.spec("E10")
def test_head_and_tail_stay_and_the_marker_names_where_the_rest_is() -> None:
    text = "H" * 800 + "m" * 5_000 + "T" * 400
    short = shown(text, 1_000, ID)
    assert short.startswith("H" * 700 + "\n[... 5,200 of 6,200 characters left out")
    assert short.endswith("...]\n" + "T" * 300)
    assert f"GET /api/context/{ID}" in short


@pytest.mark.spec("A08")
def test_an_array_keeps_fifty_items_and_stays_an_array() -> None:
    text = json.dumps([{"n": i, "text": "x" * 20} for i in range(400)])
    items = json.loads(shown(text, 4_000, ID))
    assert len(items) == 51
    assert [items[0]["n"], items[34]["n"], items[36]["n"], items[-1]["n"]] == [0, 34, 385, 399]
    assert "50 of 400 items" in items[35]


@pytest.mark.spec("A08")
def test_an_object_is_cut_inside_its_content_and_stays_an_object() -> None:
    text = json.dumps({"path": "a.py", "content": 'first "line"\n' * 2_000, "lines": 2_000})
    short = shown(text, 3_000, ID)
    fields = json.loads(short)
    assert len(short) <= 3_000
    assert (fields["path"], fields["lines"]) == ("a.py", 2_000)
    assert fields["content"].startswith('first "line"')
    assert ID in fields["content"]


@pytest.mark.spec("A08")
def test_what_only_looks_like_json_is_cut_plainly() -> None:
    assert shown("[1, 2" * 1_000, 800, ID).startswith("[1, 2[1, 2")
    assert shown("{not json" * 1_000, 800, ID).startswith("{not json")
    assert shown("[" * 100_000, 800, ID).startswith("[[[")


def test_every_byte_but_the_content_stays() -> None:
    before, after = (
        b'{ "tool_call_id":"a", "x": 1e2,"big":' + b"1" * 5_000 + b', "content" : ',
        b' , "role":"tool" }',
    )
    raw = before + json.dumps("é" * 2_000).encode() + after
    short = masked(raw, Mask(CHAIN, 100))
    assert short.startswith(before)
    assert short.endswith(after)
    assert len(json.loads(short[len(before) : -len(after)])) < 300


def test_a_short_text_and_a_missing_one_are_left_alone() -> None:
    for raw in (
        b'{"role":"tool","content":"ok"}',
        b'{"role":"tool","content":null}',
        b'{"role":"tool"}',
        b"{}",
    ):
        assert masked(raw, Mask(CHAIN, 100)) == raw


def test_text_parts_are_shortened_as_one_text_and_images_stay() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [
        {"type": "text", "text": "a" * 500},
        {"type": "text", "text": "b" * 500},
        image,
        {"type": "text", "text": "c" * 500},
        {"type": "text", "text": "d" * 500},
    ]
    raw = json.dumps({"role": "tool", "tool_call_id": "x", "content": parts}).encode()
    content = shortened(raw, 1_000)["content"]
    assert [part.get("text", "image")[:5] for part in content] == ["aaaaa", "bbbbb", "image", "ddddd"]
    assert ID in content[1]["text"]
    assert content[2] == image
    assert "".join(p["text"] for p in content if "text" in p).count("characters left out") == 1


text = st.text(st.characters() | st.sampled_from('\ud800\udfff[]{}",:\\ '), max_size=400)


@given(text, st.integers(0, 300))
def test_a_masked_message_is_valid_json_and_the_same_each_time(value: str, limit: int) -> None:
    raw = json.dumps({"role": "tool", "content": value, "tool_call_id": "a"}).encode()
    short = masked(raw, Mask(CHAIN, limit))
    assert short == masked(raw, Mask(CHAIN, limit))
    fields = json.loads(short)
    assert fields["tool_call_id"] == "a"
    if len(value) <= limit:
        assert short == raw
    else:
        assert ID in fields["content"]
        assert fields["content"].startswith(value[: int(limit * 0.7)])


@given(st.lists(text, max_size=5), st.integers(0, 300))
def test_masked_parts_hold_head_and_tail(values: list[str], limit: int) -> None:
    raw = json.dumps(
        {"role": "tool", "content": [{"type": "text", "text": value} for value in values]}
    ).encode()
    whole = "".join(values)
    joined = text_of(shortened(raw, limit))
    head = int(limit * 0.7)
    if len(whole) <= limit:
        assert joined == whole
    else:
        assert joined.startswith(whole[:head])
        assert joined.endswith(whole[len(whole) - (limit - head) :] if limit > head else "")
        assert joined.count(f"GET /api/context/{ID}") == 1
