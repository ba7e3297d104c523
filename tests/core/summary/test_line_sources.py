"""The messages that a line of a summary comes from, found by their words."""

from __future__ import annotations

import pytest
from palimpsest.core.summary.line_sources import lines_of
from palimpsest.core.text.fence import fenced

TEXTS = [
    "Please move the payroll job to the worker in Lyon.",
    "I moved it: src/payroll/sites.py now names LYON, and 3 tests pass.",
    "Please also mail the report to Fatou every Friday.",
    "Done, the report goes out on Friday at 09:15.",
    "\u8bf7\u628a\u62a5\u544a\u53d1\u7ed9\u738b\u82b3\u3002",
]


@pytest.mark.parametrize(
    ("line", "sources"),
    [
        ("- src/payroll/sites.py names LYON", (1,)),
        ("- turn 2, user: Please also mail the report to Fatou every Friday.", (2,)),
        ("The payroll job was moved to the Lyon worker", (0,)),
        ("\u62a5\u544a\u53d1\u7ed9\u738b\u82b3", (4,)),
        ("Nothing of this was ever discussed", ()),
        ("- it is so", ()),
        ("## 2. Payroll job, Lyon worker", ()),
    ],
)
def test_a_line_has_the_messages_that_share_its_rare_words(line: str, sources: tuple[int, ...]) -> None:
    (found,) = lines_of(fenced(line, "context_summary"), TEXTS)
    assert (found.text, found.sources, found.is_heading) == (line, sources, line.startswith("#"))


def test_what_is_said_again_and_again_has_its_first_three_messages() -> None:
    (found,) = lines_of("Answer in short paragraphs.", ["Answer in short paragraphs."] * 9)
    assert found.sources == (0, 1, 2)


def test_a_summary_of_nothing_and_no_messages_have_no_sources() -> None:
    assert lines_of("", TEXTS) == []
    assert [line.sources for line in lines_of("one line\n\nanother line", [])] == [(), ()]
