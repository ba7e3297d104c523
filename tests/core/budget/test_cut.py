"""Which counts say that a prompt was cut, and which only look like it (W39)."""

from __future__ import annotations

import pytest

from app.core.budget.calibration import Measure, Measures
from app.core.budget.cut import Counted, is_cut, window_of

NEW = Measures()
KNOWN = Measures(Measure(1.0, 8))


def test_a_long_first_prompt_is_counted_at_the_window() -> None:
    assert is_cut(Counted(40_000, 4_090), None, 0, NEW)
    assert is_cut(Counted(9_000, 4_096), None, 0, NEW)


def test_a_conversation_that_grows_past_the_window_stands_still() -> None:
    assert is_cut(Counted(4_700, 4_080), Counted(4_000, 4_010), 4_010, KNOWN)
    assert is_cut(Counted(5_300, 3_700), Counted(4_700, 4_080), 4_080, KNOWN)


@pytest.mark.parametrize(
    ("now", "before", "most", "measure"),
    [
        (Counted(4_700, 4_690), Counted(4_000, 4_010), 4_010, KNOWN),
        # Another tokenizer, of which nothing is known yet.
        (Counted(9_000, 6_300), None, 0, NEW),
        # Known to count half of ours.
        (Counted(9_000, 4_600), None, 9_000, Measures(Measure(0.5, 8))),
        # Only the part that was not cached is counted: by name, and without a word.
        (Counted(9_000, 1_200, cached=7_800), Counted(8_000, 8_000), 8_000, KNOWN),
        (Counted(9_000, 1_200), Counted(8_000, 8_000), 8_000, KNOWN),
        (Counted(9_300, 1_250), Counted(9_000, 1_200), 8_000, KNOWN),
        # Too little has come to say anything.
        (Counted(4_150, 4_000), Counted(4_000, 4_010), 4_010, KNOWN),
        (Counted(900, 300), None, 0, KNOWN),
        (Counted(9_000, 12), None, 0, KNOWN),
        # A smaller view went out after a compaction.
        (Counted(2_000, 1_900), Counted(9_000, 8_900), 8_900, KNOWN),
    ],
)
def test_other_counts_say_nothing(now: Counted, before: Counted | None, most: int, measure: Measures) -> None:
    assert not is_cut(now, before, most, measure)


def test_two_counts_alike_suggest_a_window() -> None:
    assert window_of(Counted(4_700, 4_080), None) is None
    assert window_of(Counted(5_300, 3_700), Counted(4_700, 4_080)) == 4_096
    assert window_of(Counted(5_300, 8_192), Counted(4_700, 8_100)) == 8_192
    assert window_of(Counted(9_000, 2_000), Counted(4_700, 4_080)) is None
