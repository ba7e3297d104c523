"""Messages as text: clamps, pictures, data."""

from __future__ import annotations

import base64
import random

import pytest
from palimpsest.core.text.message_text import calls_of, cut_to, text_of, text_without_data, without_data

from tests.core.summary.talk import calls, message, says, user

DATA = base64.b64encode(random.Random(1).randbytes(3_000)).decode()


@pytest.mark.spec("A20")
def test_long_text_keeps_seventy_percent_head_and_thirty_percent_tail() -> None:
    text = "HEAD" + "a" * 4_000 + "MIDDLE" + "b" * 4_000 + "TAIL"
    cut = cut_to(text, 1_200)
    assert len(cut) <= 1_200
    assert cut.startswith("HEAD")
    assert cut.endswith("TAIL")
    assert "MIDDLE" not in cut
    head, tail = cut.split("\n[...")[0], cut.split("...]\n")[1]
    assert 0.69 < len(head) / (len(head) + len(tail)) < 0.71


@pytest.mark.spec("A22")
@pytest.mark.spec("F14")
@pytest.mark.parametrize(
    ("part", "note"),
    [
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
            "[IMAGE image/png 3000 bytes]",
        ),
        ({"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}, "[IMAGE https://x.test/a.png]"),
        ({"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}, "[INPUT AUDIO 4000 chars]"),
        (
            {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{DATA}"}},
            "[FILE application/pdf 3000 bytes]",
        ),
    ],
)
def test_attachments_become_notes(part: dict[str, object], note: str) -> None:
    assert text_of(user([{"type": "text", "text": "look: "}, part])) == f"look: {note}"


@pytest.mark.spec("F14")
def test_runs_of_base64_in_text_become_a_note_of_their_length() -> None:
    assert text_without_data(says(f"here: {DATA} done")) == "here: [base64 data, 4000 characters] done"
    assert DATA[:80] not in text_without_data(says(f"<img src='data:image/gif;base64,{DATA}'>"))


def test_long_paths_hashes_and_rules_are_no_base64() -> None:
    for text in ("/".join(["folder"] * 60), "=" * 400, "a" * 400, "0123456789abcdef" * 30):
        assert without_data(text) == text


def test_calls_give_their_scalar_values_in_order() -> None:
    (call,) = calls_of(calls("book", flights=[{"n": "HAT1", "day": 3}], ok=True, none=None))
    assert call.values() == ("HAT1", "3", "true")
    broken = {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{oops"}}
    (call,) = calls_of(message({"role": "assistant", "content": None, "tool_calls": [broken]}))
    assert call.values() == ("{oops",)
