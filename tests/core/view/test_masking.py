from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.history.read import read_message
from palimpsest.core.text.message_text import ToolCall
from palimpsest.core.view.compaction import reference_to
from palimpsest.core.view.json_results import is_document, structured
from palimpsest.core.view.masking import masked, shown, text_of

CHAIN = bytes(range(32))
ID = "dcm_" + CHAIN.hex()[:32]
WAY = reference_to("context_describe", ID)
# The longest marker here.
LEAST = len(shown("x" * 10_000_000, 0, WAY))


def built(raw: bytes, limit: int) -> bytes:
    """The message as it is shown; the same text stands in it as is told beside it."""
    made = masked(read_message(raw, lambda _: 1), limit, WAY)
    if made is None:
        return raw
    assert made.text == text_of(json.loads(made.raw, parse_int=str))
    return made.raw


def shortened(raw: bytes, limit: int) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(built(raw, limit))
    return fields


@pytest.mark.spec("A20")
@pytest.mark.spec("E10")
def test_head_and_tail_stay_and_the_marker_names_where_the_rest_is() -> None:
    text = "H" * 800 + "m" * 5_000 + "T" * 400
    short = shown(text, 1_000, WAY)
    marker = f"\n[... 5,319 of 6,200 characters left out; the whole result: context_describe {ID} ...]\n"
    kept = 1_000 - len(marker)
    assert short == text[: int(kept * 0.7)] + marker + text[-(kept - int(kept * 0.7)) :]
    assert len(short) == 1_000


@pytest.mark.spec("E10")
def test_a_model_without_the_tool_is_told_what_is_missing_and_no_id() -> None:
    short = shown("H" * 6_200, 1_000, reference_to("", ID))
    assert "characters left out ...]" in short
    assert "dcm_" not in short


@pytest.mark.spec("A08")
def test_an_array_keeps_fifty_items_and_stays_an_array() -> None:
    text = json.dumps([{"n": i, "text": "x" * 20} for i in range(400)])
    items = json.loads(shown(text, 4_000, WAY))
    assert len(items) == 51
    assert [items[0]["n"], items[34]["n"], items[36]["n"], items[-1]["n"]] == [0, 34, 385, 399]
    assert "50 of 400 items" in items[35]


@pytest.mark.spec("A08")
def test_an_object_is_cut_inside_its_content_and_stays_an_object() -> None:
    text = json.dumps({"path": "a.py", "content": 'first "line"\n' * 2_000, "lines": 2_000})
    short = shown(text, 3_000, WAY)
    fields = json.loads(short)
    assert len(short) <= 3_000
    assert (fields["path"], fields["lines"]) == ("a.py", 2_000)
    assert fields["content"].startswith('first "line"')
    assert ID in fields["content"]


@pytest.mark.spec("A08")
def test_long_items_are_cut_inside_and_the_id_is_named_once() -> None:
    text = json.dumps([{"url": f"https://a/{i}", "content": f"page {i} " * 900} for i in range(20)])
    short = shown(text, 12_000, WAY)
    items = json.loads(short)
    assert len(short) <= 12_000
    assert [item["url"] for item in items] == [f"https://a/{i}" for i in range(20)]
    assert all("characters left out" in item["content"] for item in items)
    assert short.count(ID) == 1
    assert ID in items[0]["content"]


@pytest.mark.spec("A08")
def test_numbers_keep_their_spelling() -> None:
    numbers = ["1e2", "1.0", "12345678901234567890.10", "-0", "9" * 900]
    text = "[" + ", ".join(f'{{"n": {number}, "t": "{"x" * 3_000}"}}' for number in numbers) + "]"
    short = shown(text, 9_000, WAY)
    assert len(short) <= 9_000
    assert [item["n"] for item in json.loads(short, parse_int=str, parse_float=str)] == numbers


@pytest.mark.spec("A08")
def test_what_follows_json_is_not_dropped_with_it() -> None:
    listed = "[" + ",".join(["1"] * 400) + "]"
    assert shown(listed + " and then it failed", 700, WAY).endswith("and then it failed")
    kept = shown(json.dumps({"content": "x" * 4_000}) + "\nexit code 1", 700, WAY)
    assert kept.endswith("exit code 1")


@pytest.mark.spec("A08")
def test_what_only_looks_like_json_is_cut_plainly() -> None:
    assert shown("[1, 2" * 1_000, 800, WAY).startswith("[1, 2[1, 2")
    assert shown("{not json" * 1_000, 800, WAY).startswith("{not json")
    assert shown("[" * 100_000, 800, WAY).startswith("[[[")


def test_every_byte_but_the_content_stays() -> None:
    before, after = (
        b'{ "tool_call_id":"a", "x": 1e2,"big":' + b"1" * 5_000 + b', "content" : ',
        b' , "role":"tool" }',
    )
    raw = before + json.dumps("é" * 2_000).encode() + after
    short = built(raw, 100)
    assert short.startswith(before)
    assert short.endswith(after)
    assert len(json.loads(short[len(before) : -len(after)])) < 300


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
    short = built(raw, limit)
    assert short == built(raw, limit)
    fields = json.loads(short)
    assert fields["tool_call_id"] == "a"
    assert len(fields["content"]) <= max(limit, LEAST)
    if len(value) <= limit:
        assert short == raw
    else:
        assert ID in fields["content"]
        head = max(0, int((limit - LEAST) * 0.7))
        assert fields["content"].startswith(value[:head])


# About as many characters has a random JSON text at most, so that the test stays quick.
LARGEST = 40_000


def random_value(random: Random, levels: int) -> object:
    """A JSON value; long texts, long arrays and odd characters are frequent."""
    kind = random.randrange(8 if levels else 4)
    if kind == 0:
        return random.choice([None, True, -0.0, 1e300, 10**30, 7])
    if kind < 4:
        unit = random.choice(["word ", "é", '"', "\\", "\n", "\ud800", "漢字", "\x00", "x" * 70])
        return unit * random.choice([0, 1, 9, 90, 900])
    if kind < 6:
        item = random_value(random, levels - 1)
        return [item] * min(random.choice([0, 1, 3, 60, 400]), 1 + LARGEST // len(json.dumps(item)))
    if kind == 6:
        return [random_value(random, levels - 1) for _ in range(random.randrange(9))]
    return {f"k{i}": random_value(random, levels - 1) for i in range(random.randrange(9))}


@pytest.mark.spec("A08")
@given(st.integers(0, 2**32), st.integers(0, 3_000), st.sampled_from([None, 1]), st.booleans())
def test_json_is_never_larger_than_the_limit(
    seed: int, limit: int, indent: int | None, is_ascii: bool
) -> None:
    value = random_value(Random(seed), 4)
    whole = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    raw = json.dumps({"role": "tool", "content": whole, "tool_call_id": "a"}).encode()
    short = shortened(raw, limit)["content"]
    assert len(short) <= max(limit, LEAST)
    assert short == shown(whole, limit, WAY)
    assert (short == whole) == (len(whole) <= limit)
    assert short == whole or short.count(ID) == 1
    if short == whole or (shape := structured(whole, limit, WAY)) is None:
        return
    assert len(shape) <= limit
    assert type(json.loads(shape)) is type(value)
    if isinstance(value, dict):
        assert list(json.loads(shape)) == list(value)
    if limit >= 600 and len(whole) <= 1_000_000:
        assert short == shape


@pytest.mark.spec("A08")
def test_every_kind_of_nesting_that_agents_send_stays_json() -> None:
    page = {"type": "text", "text": 'a "quoted" line\n' * 500}
    for value in (
        [page],
        {"content": [page], "isError": False},
        {"data": {"results": [{"title": "t", "body": page["text"]}] * 90}},
        {"stdout": "x" * 90_000, "stderr": "y" * 90_000, "code": 0},
        {"files": {f"src/{i}.py": page["text"] for i in range(12)}},
        [[i, "é" * 200] for i in range(600)],
    ):
        short = shown(json.dumps(value), 8_000, WAY)
        assert len(short) <= 8_000
        assert type(json.loads(short)) is type(value)
        assert short.count(ID) == 1


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall("a", name, json.dumps(arguments))


PAGES = "--- Page 1 ---\nThe parties agree\n" + "line\n" * 3_000 + "--- Page 2 ---\nand so on\n"
SLIDES = "<!-- Slide number: 1 -->\n# Plan\n<!-- Slide number: 2 -->\n# Costs\n"


@pytest.mark.spec("A08")
@pytest.mark.parametrize(
    ("made", "text"),
    [
        (call("read_file", path="contracts/Lease 2026.PDF"), "text"),
        (call("fetch", url="https://example.org/a.docx?download=1"), "text"),
        (call("run", command="python -m markitdown deck.pptx > out.md"), "text"),
        (ToolCall("a", "run", "pdftotext a.pdf -"), "text"),
        (call("read_pdf", page=2), "text"),
        (call("PDFReader", handle=7), "text"),
        (call("convertDocument", handle=7), "text"),
        (call("read_attachment", id="att_1"), PAGES),
        (call("read_attachment", id="att_1"), SLIDES),
        (call("read_attachment", id="att_1"), "first page\f second page\f"),
        (call("read_attachment", id="att_1"), '<file type="application/pdf">text</file>'),
        (call("get"), "%PDF-1.7 ..."),
    ],
)
def test_documents_are_recognised(made: ToolCall, text: str) -> None:
    assert is_document(made, text)


@pytest.mark.spec("A08")
@pytest.mark.parametrize(
    ("made", "text"),
    [
        (call("read_file", path="src/pdf.py"), "import os"),
        (call("run", command="ls *.pdf"), "no such file"),
        (call("run", command="grep -r pdfkit ."), "package.json: pdfkit"),
        (call("read_file", path="a.pdf_old"), "text"),
        (call("search_documents", query="rent"), "[]"),
        (call("documentSymbols", path="a.ts"), "[]"),
        (call("read_file", path="notes.md"), "see\nPage 1\nof the contract"),
        (call("read_file", path="notes.md"), "Page 1 says\nPage 2 says"),
        (call("read_file", path="a.c"), "before\f after"),
        (call("read_file", path="notes.md"), "[Page 1]\nsee also\n[Page 1]\n"),
        (call("list", path="x"), "page: 1\npage: 2\n"),
        (call("get"), ""),
    ],
)
def test_other_results_are_not(made: ToolCall, text: str) -> None:
    assert not is_document(made, text)
