"""Where sentences begin and end, and what is no prose."""

from __future__ import annotations

import pytest
from palimpsest.core.notes.sentences import LONGEST, prose_of, sentences_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? four", ("One.", "Two!", "Three?", "four")),
        ("Use v1.2 of foo.py, e.g. from https://x.org/a.b?c=d.", None),
        ("It costs 3.5 dollars at Dr. Lee's.", None),
        ("J. Smith came.", None),
        ("Am 3. Mai kommt er. Gut.", ("Am 3. Mai kommt er.", "Gut.")),
        ("He left... and came back... Then he slept.", ("He left... and came back...", "Then he slept.")),
        ('She said "no." Then left.', ('She said "no."', "Then left.")),
        ("不要推送。先问我！好吗？", ("不要推送。", "先问我！", "好吗？")),
        ("do this\nthen that", ("do this", "then that")),
        (
            "This line was wrapped by an editor at seventy characters or so and\ngoes on here. End.",
            ("This line was wrapped by an editor at seventy characters or so and\ngoes on here.", "End."),
        ),
        (
            "Rules:\n- Never push. Ask first.\n- Keep\n  it short\n1. one\n2) two",
            ("Rules:", "Never push. Ask first.", "Keep\n  it short", "one", "two"),
        ),
        ("# Title\n\nText.", ("Title", "Text.")),
        ("--- !!! ---", ()),
        ("", ()),
    ],
)
def test_sentences_end_where_a_reader_stops(text: str, expected: tuple[str, ...] | None) -> None:
    assert sentences_of(text) == ((text,) if expected is None else expected)


@pytest.mark.parametrize(
    "part",
    [
        "```python\nnever = 1\n```",
        "~~~\nnever push\n~~~",
        "    never(indented)",
        "12: def never(self):",
        "  14\treturn never",
        "src/a.py:12: never do this",
        'Traceback (most recent call last):\n  File "a.py", line 3, in never\nValueError: never',
        "    at never (file.js:3:4)",
        "> never quoted",
        "| never | a table |\n|---|---|",
        "<environment_context>\nnever push\n</environment_context>",
        "never" + "a" * 130,
        '{"never": 1}',
        "$ never --push",
        "const never = require('x');",
        "2024-05-03 10:11:12 never log",
    ],
)
def test_what_is_no_prose_is_left_out(part: str) -> None:
    assert sentences_of(f"Look at this.\n\n{part}\n\nThat is all.") == ("Look at this.", "That is all.")
    assert "never" not in prose_of(f"Look at this.\n{part}\nThat is all.")


def test_blocks_in_which_the_user_speaks_are_read() -> None:
    assert sentences_of("<task>\nFix it.\n</task>\n<user_query>Then stop.</user_query>") == (
        "Fix it.",
        "Then stop.",
    )


def test_long_sentences_are_left_out_and_long_items_split() -> None:
    long = "word " * (LONGEST // 5 + 1)
    assert sentences_of(f"Short. {long}. Also short.") == ("Short.", "Also short.")
    assert sentences_of(f"- First part. {long}.") == ("First part.",)
