from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.budget.upstream_counts import MAX_RATIO, MIN_RATIO, Measure, calibrated


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


@pytest.mark.parametrize("usage", [(10_000, 0), (10_000, -1), (0, 50), (20, 60), (10_000, 300), (100, 9_000)])
def test_what_cannot_be_a_count_of_this_prompt_is_ignored(usage: tuple[int, int]) -> None:
    known = Measure(1.3, 4)
    assert calibrated(known, *usage) == known


def test_a_changed_tokenizer_is_followed() -> None:
    known = after(*[(10_000, 9_000)] * 10)
    assert after(*[(10_000, 13_000)] * 25, start=known).ratio == pytest.approx(1.3, rel=0.03)


@given(st.lists(st.tuples(st.integers(-5, 10**6), st.integers(-5, 10**7))))
def test_the_ratio_never_leaves_its_bounds(pairs: list[tuple[int, int]]) -> None:
    assert MIN_RATIO <= after(*pairs).ratio <= MAX_RATIO
