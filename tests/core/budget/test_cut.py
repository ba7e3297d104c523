"""How counts correct ours, and which say that a prompt was cut (W39) or teach something (H15)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.budget.upstream_counts import (
    MAX_RATIO,
    MIN_RATIO,
    Counted,
    Measure,
    Measures,
    PromptGrowth,
    calibrated,
    is_cut,
    taught,
)

NEW = Measures()
KNOWN = Measures(Measure(1.0, 8))


def test_a_conversation_that_grows_past_the_window_stands_still() -> None:
    assert is_cut(Counted(4_700, 4_080), Counted(4_000, 4_010), 4_010, KNOWN)
    assert is_cut(Counted(5_300, 3_700), Counted(4_700, 4_080), 4_080, KNOWN)


@pytest.mark.parametrize(
    ("now", "before", "most", "measure"),
    [
        (Counted(4_700, 4_690), Counted(4_000, 4_010), 4_010, KNOWN),
        # Another tokenizer, of which nothing is known yet.
        (Counted(9_000, 6_300), None, 0, NEW),
        # Its counts are known to be half of ours.
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


def turns(window: int, ratio: float, grows: int, start: int = 300, fixed: int = 0) -> list[Counted]:
    """A conversation's counts by a server that reads no more than its window."""
    prompts = range(start, 3 * window, grows)
    return [Counted(ours, min(window, int(ratio * ours + fixed)), fixed=fixed) for ours in prompts]


def heard(counts: list[Counted], measures: Measures = NEW) -> tuple[Measures, list[Counted]]:
    """What the counts have taught, and which of them were found cut."""
    growth, most, cuts = None, 0, []
    for now in counts:
        if is_cut(now, growth.last if growth else None, most, measures):
            cuts.append(now)
        else:
            measures = taught(measures, now, growth)
        growth = growth.after(now) if growth else PromptGrowth(now)
        most = max(most, now.theirs)
    return measures, cuts


@pytest.mark.spec("H15")
@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.3, 2.2])
@pytest.mark.parametrize("grows", [40, 90, 250, 700, 3_000])
def test_cut_counts_never_teach_the_ratio(ratio: float, grows: int) -> None:
    """Also of a conversation that creeps past the window a few tokens a turn."""
    window = 8_192
    measures, cuts = heard(turns(window, ratio, grows))
    assert measures.text.ratio == pytest.approx(ratio, rel=0.03)
    # Noticed once it has grown by a tenth behind the window, in one turn or in many.
    assert cuts[0].ours <= 1.21 * window / ratio + 2 * grows


@pytest.mark.spec("H15")
def test_the_first_long_prompt_is_found_cut_from_what_short_ones_have_taught() -> None:
    """Ollama: 16,742 tokens sent, 7,983 counted, behind a talk of a tokenizer that counts 0.9 of ours."""
    measures, _ = heard([Counted(200, 185), Counted(500, 450), Counted(900, 810)])
    assert is_cut(Counted(16_742, 7_983), Counted(900, 810), 810, measures)
    # Nothing is known: no tokenizer counts so little.
    assert is_cut(Counted(16_742, 7_983), None, 0, NEW)
    # Most of it are tools, which this server is known to render.
    known = Measures(Measure(1.0, 4), Measure(1.15, 2))
    assert is_cut(Counted(10_000, 7_983, fixed=5_000), None, 0, known)
    assert not is_cut(Counted(10_000, 7_983, fixed=5_000), None, 0, Measures(Measure(1.0, 4)))


@pytest.mark.spec("H15")
@pytest.mark.parametrize("theirs", [7_000, 6_500])
def test_a_long_prompt_with_a_low_count_teaches_nothing(theirs: int) -> None:
    assert taught(NEW, Counted(9_000, theirs), None) == NEW
    assert taught(KNOWN, Counted(9_000, theirs), PromptGrowth(Counted(8_900, 8_900))) == KNOWN
    assert taught(NEW, Counted(9_000, 11_700), None).text.ratio == pytest.approx(1.3)


@pytest.mark.spec("H15")
@pytest.mark.parametrize(("rendered", "text"), [(1.15, 1.0), (1.15, 1.3), (0.8, 1.0), (0.0, 1.0), (2.0, 0.8)])
def test_tools_are_calibrated_apart(rendered: float, text: float) -> None:
    counts = [
        Counted(ours, int(text * ours + rendered * 5_000), fixed=5_000) for ours in range(150, 9_000, 400)
    ]
    measures, cuts = heard(counts)
    assert measures.text.ratio == pytest.approx(text, rel=0.04)
    assert measures.fixed_ratio == pytest.approx(rendered, abs=0.06)
    assert cuts == []
    # What a view carries of them is worth so many tokens of text.
    assert measures.fixed_share * measures.text.ratio == pytest.approx(measures.fixed_ratio)


def after(*usages: tuple[int, int], start: Measure | None = None) -> Measure:
    """The measure after prompts, each with our count and theirs."""
    measure = start or Measure()
    for usage in usages:
        measure = calibrated(measure, *usage)
    return measure


@given(st.sampled_from([0.7, 1.3]), st.integers(3, 5), st.integers(0, 10_000))
def test_a_tokenizer_thirty_percent_off_is_known_after_a_few_answers(
    true: float, samples: int, seed: int
) -> None:
    random = Random(seed)
    usages = []
    for _ in range(samples):
        ours = random.randint(800, 60_000)
        usages.append((ours, round(ours * true * random.uniform(0.975, 1.025))))
    assert after(*usages).ratio == pytest.approx(true, rel=0.03)


@pytest.mark.parametrize(
    "usage",
    [
        (10_000, 0),
        (10_000, -1),
        (0, 50),
        (20, 60),
        (10_000, 300),
        (100, 9_000),
    ],
)
def test_what_cannot_be_a_count_of_this_prompt_is_ignored(usage: tuple[int, int]) -> None:
    known = Measure(1.3, 4)
    assert calibrated(known, *usage) == known


def test_a_changed_tokenizer_is_followed() -> None:
    known = after(*[(10_000, 9_000)] * 10)
    assert after(*[(10_000, 13_000)] * 25, start=known).ratio == pytest.approx(1.3, rel=0.03)


@given(st.lists(st.tuples(st.integers(-5, 10**6), st.integers(-5, 10**7))))
def test_the_ratio_never_leaves_its_bounds(pairs: list[tuple[int, int]]) -> None:
    assert MIN_RATIO <= after(*pairs).ratio <= MAX_RATIO
