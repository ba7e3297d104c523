"""The nine sections: read from any spelling, repaired, written in one form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.summary.sections import (
    TITLES,
    Sections,
    block_sections,
    rendered,
    sections_of,
)

BODIES = tuple(f"body of {number}" for number in range(1, 10))


def written(pattern: str) -> str:
    return "\n".join(
        f"{pattern.format(number=number, title=title)}\n{body}"
        for number, (title, body) in enumerate(zip(TITLES, BODIES, strict=True), 1)
    )


@pytest.mark.spec("A15")
@pytest.mark.parametrize(
    "pattern",
    [
        "## {number}. {title}",
        "# {title}",
        "### {number}) {title}:",
        "**{number}. {title}**",
        "{number}. **{title}**:",
        "{number}. {title}",
        "Section {number}: {title}",
        "## {number} - {title}",
        "{title}:",
        "__{title}__",
    ],
)
def test_headings_are_read_in_every_spelling(pattern: str) -> None:
    assert sections_of(written(pattern)).bodies == BODIES


def test_a_body_may_stand_on_the_heading_line() -> None:
    found = sections_of("1. Primary request: build a bridge\n**Current state:** half built")
    assert found.bodies[0] == "build a bridge"
    assert found.bodies[7] == "half built"


def test_numbered_prose_is_no_heading() -> None:
    text = "## 2. User messages\n1. Fix the login\n2. Work on it at night, errors are common then\n3. Now"
    found = sections_of(text)
    assert found.bodies[1] == text.split("\n", 1)[1]
    assert found.found == 1


def test_a_repeated_section_adds_to_the_first() -> None:
    found = sections_of("## Decisions made\nred\n## Current state\nok\n## Decisions made\nblue")
    assert found.bodies[5] == "red\nblue"


LINES = st.sampled_from(
    [
        "## 3. Work completed",
        "\\## 3. Work completed",
        "\\\\## Identifiers",
        "## Identifiers",
        "3. Work completed",
        "plain",
        "",
        "  indented",
        "» entry",
    ]
)
BODY = st.lists(LINES, max_size=5).map("\n".join)


@pytest.mark.spec("F28")
@given(st.lists(BODY, min_size=9, max_size=9), BODY)
def test_what_is_written_is_read_back_whatever_it_says(bodies: list[str], identifiers: str) -> None:
    clean = tuple(body.strip("\n").rstrip() for body in bodies)
    sections = Sections(clean, added=identifiers.strip("\n").rstrip())
    assert block_sections(rendered(sections)) == sections
