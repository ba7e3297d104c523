"""Three sections: read as models write them, written in one form, cut to size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.summary.fitting import clipped, lines_within
from palimpsest.core.summary.rolling.digest import TITLES, digest_of, rendered

from tests.core.summary.talk import count

FACTS, FLOW, THREADS = TITLES


@pytest.mark.spec("B08")
@pytest.mark.parametrize(
    "text",
    [
        "## KEY FACTS\na\nb\n## CONVERSATION FLOW\nc\n## OPEN THREADS\nd",
        "**Key Facts**\na\nb\n\n**Conversation Flow:**\nc\n\n**Open threads**\nd",
        "1. KEY FACTS:\na\nb\n2) Conversation flow\nc\n### 3. OPEN_THREADS\nd\n",
        "OPEN THREADS: d\nKEY FACTS\na\nb\nCONVERSATION FLOW: c",
        "c\n# Key facts\na\n# Open threads\nd\n# key facts\nb",
    ],
)
def test_sections_are_found_however_they_are_marked(text: str) -> None:
    assert digest_of(text) == {FACTS: "a\nb", FLOW: "c", THREADS: "d"}


@pytest.mark.spec("B08")
def test_they_are_written_in_one_form() -> None:
    text = rendered({FACTS: "a", THREADS: "d"})
    assert text == "## KEY FACTS\na\n## CONVERSATION FLOW\nNone recorded.\n## OPEN THREADS\nd"
    assert digest_of(text) == {FACTS: "a", THREADS: "d"}


def test_a_sentence_is_no_heading() -> None:
    assert digest_of("Key facts are few.\n- Open threads: two")[FLOW].count("\n") == 1


def test_a_section_of_the_state_is_left_out() -> None:
    assert digest_of("## SESSION STATE\n- task: x\n## KEY FACTS\na") == {FACTS: "a"}


@given(st.text(max_size=600), st.integers(-5, 120))
def test_a_cut_text_fits(text: str, tokens: int) -> None:
    assert count(clipped(text, tokens, count)) <= max(0, tokens)


@given(st.lists(st.text(max_size=60), max_size=30), st.integers(-5, 200))
def test_chosen_lines_fit(lines: list[str], tokens: int) -> None:
    assert sum(count(line) + 1 for line in lines_within(lines, tokens, count)) <= max(0, tokens)


def test_long_lines_of_decoration_are_read_at_once() -> None:
    text = "*" * 200_000 + "\n" + "_ " * 100_000
    assert digest_of(text)[FLOW] == text.rstrip()
