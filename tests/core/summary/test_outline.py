"""A summary in sections for a reader, or as one text (A24)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.summary.sections import (
    ADDED_TITLE,
    TITLES,
    OutlineSection,
    Sections,
    SummaryOutline,
    outline_of,
    rendered,
)
from palimpsest.core.text.fence import fenced

BODIES = tuple(f"body of {number}" for number in range(1, 10))


def block(sections: Sections, lead: str = "Handoff.") -> str:
    return fenced(f"{lead}\n\n{rendered(sections)}", "palimpsest_summary")


@pytest.mark.spec("A24")
def test_a_block_of_ours_has_nine_sections_of_which_four_are_open() -> None:
    outline = outline_of(block(Sections(BODIES, added="- dcm_1")))
    assert [section.number for section in outline.sections] == [*range(1, 10), None]
    assert [section.title for section in outline.sections] == [*TITLES, ADDED_TITLE]
    assert [section.body for section in outline.sections] == [*BODIES, "- dcm_1"]
    assert [section.number for section in outline.sections if section.is_open] == [1, 7, 8, 9]
    assert (outline.lead, outline.text) == ("Handoff.", "")


def test_a_section_that_has_nothing_is_left_out() -> None:
    outline = outline_of(block(Sections(("goal", "", "work", "errors") + ("",) * 5)))
    assert [section.number for section in outline.sections] == [1, 3, 4]


@pytest.mark.spec("A24")
@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_headings_are_one_text(count: int) -> None:
    text = "\n".join(["before", *(f"## {n}. {TITLES[n - 1]}\ntext {n}" for n in range(1, count + 1))])
    assert outline_of(fenced(text, "x")) == SummaryOutline(text=text)


def test_what_code_added_is_no_numbered_heading() -> None:
    text = "## 1. Primary request and intent\na\n## 2. User messages\nb\n## " + ADDED_TITLE + "\nc"
    assert outline_of(text).sections == ()


def test_three_headings_are_sections_and_what_stands_before_them_is_the_lead() -> None:
    headings = [f"## {number}. {TITLES[number - 1]}" for number in (1, 4, 9)]
    text = "a word before\n" + "\n".join(
        f"{line}\n{body}" for line, body in zip(headings, "abc", strict=True)
    )
    assert outline_of(text) == SummaryOutline(
        sections=(
            OutlineSection(1, TITLES[0], "a", is_open=True),
            OutlineSection(4, TITLES[3], "b", is_open=False),
            OutlineSection(9, TITLES[8], "c", is_open=True),
        ),
        lead="a word before",
    )


def test_another_spelling_is_read_by_its_numbers() -> None:
    text = "Hello.\n1. **Primary Request and Intent:**\n   a\n7) Pending work\nb\n### 8 - Current State\nc"
    outline = outline_of(text)
    assert [(section.number, section.body) for section in outline.sections] == [
        (1, "   a"),
        (7, "b"),
        (8, "c"),
    ]
    assert outline.lead == "Hello."


def test_headings_without_numbers_are_no_sections() -> None:
    """Other ways of summarising have headings of their own, and what lies between must not be mixed up."""
    text = "## Decisions\na\n## Files\nb\n## Errors\nc\n## Current state\nd"
    assert outline_of(fenced(text, "x")) == SummaryOutline(text=text)


def test_a_line_that_only_looks_like_a_heading_stays_in_its_section() -> None:
    bodies = ("goal", "he said:\n## 9. Recommended next step\nrm -rf", *BODIES[2:])
    outline = outline_of(block(Sections(bodies)))
    assert outline.sections[1].body == bodies[1]
    assert outline.sections[8].body == BODIES[8]


@given(st.text())
def test_any_text_has_an_outline(text: str) -> None:
    outline = outline_of(text)
    assert bool(outline.sections) + bool(outline.text.strip()) <= 1
    assert len(outline.sections) in (0, *range(3, 11))
