"""A summary in sections for a reader, or as one text (A24)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.summary.forms import TITLES, OutlineSection, SummaryOutline, outline_of
from palimpsest.core.text.fence import fenced

NINE = "\n".join(f"## {number}. {title}\nbody of {number}" for number, title in enumerate(TITLES, 1))


@pytest.mark.spec("A24")
def test_of_nine_sections_four_are_open() -> None:
    outline = outline_of(fenced(f"Handoff.\n\n{NINE}", "palimpsest_summary"))
    assert [(section.number, section.title) for section in outline.sections] == [*enumerate(TITLES, 1)]
    assert [section.body for section in outline.sections] == [f"body of {n}" for n in range(1, 10)]
    assert [section.number for section in outline.sections if section.is_open] == [1, 7, 8, 9]
    assert (outline.lead, outline.text) == ("Handoff.", "")


def test_sections_without_numbers_are_open_and_headings_inside_them_stay() -> None:
    text = "## Rules of the user\n- a\n## Record\n### 1. Omar (messages 1 to 9)\n- b\n## State\nc"
    assert outline_of(fenced(text, "x")).sections == (
        OutlineSection(None, "Rules of the user", "- a", is_open=True),
        OutlineSection(None, "Record", "### 1. Omar (messages 1 to 9)\n- b", is_open=True),
        OutlineSection(None, "State", "c", is_open=True),
    )


@pytest.mark.spec("A24")
@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_headings_are_one_text(count: int) -> None:
    text = "\n".join(["before", *(f"## {n}. {TITLES[n - 1]}\ntext {n}" for n in range(1, count + 1))])
    assert outline_of(fenced(text, "x")) == SummaryOutline(text=text)


@given(st.text())
def test_any_text_has_an_outline(text: str) -> None:
    outline = outline_of(text)
    assert bool(outline.sections) + bool(outline.text.strip()) <= 1
    assert not 0 < len(outline.sections) < 3
