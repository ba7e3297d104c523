import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.budget.budget import Budget, Window, budget_of
from palimpsest.core.policy import Policy
from palimpsest.core.presets import PRESETS

HANDOFF = PRESETS["handoff"]
ROLLING = Policy(name="rolling", trigger_ratio=0.7, precompute_ratio=0.6, trigger_reserve_tokens=40_000)


def budget(
    window: int, fixed: int = 0, output: int | None = None, ratio: float = 1.0, policy: Policy | None = None
) -> Budget:
    return budget_of(
        Window(window, "configured"),
        fixed_tokens=fixed,
        max_output_tokens=output,
        ratio=ratio,
        policy=policy or Policy(),
    )


@pytest.mark.spec("A03")
@pytest.mark.parametrize(("window", "trigger"), [(200_000, 180_000), (128_000, 115_200), (16_000, 14_400)])
def test_the_trigger_stands_at_nine_tenths_of_the_window(window: int, trigger: int) -> None:
    assert budget(window).trigger_tokens == trigger


@pytest.mark.spec("A05")
def test_available_is_window_less_reserve_less_what_is_fixed() -> None:
    assert budget(128_000, fixed=5_000).available_tokens == 128_000 - 8_000 - 5_000


@pytest.mark.spec("A05")
def test_the_reserve_is_at_most_half_a_small_window() -> None:
    assert budget(4_000, fixed=500).available_tokens == 4_000 - 2_000 - 500


@pytest.mark.spec("A05")
def test_what_the_client_asks_as_output_lowers_the_trigger() -> None:
    assert budget(128_000, output=16_000).trigger_tokens == 112_000
    assert budget(128_000, output=1_000).trigger_tokens == 115_200


@pytest.mark.spec("A05")
def test_an_output_as_large_as_the_window_holds_back_half_of_it() -> None:
    small = budget(32_000, output=32_000)
    assert (small.output_tokens, small.trigger_tokens, small.ceiling_tokens) == (16_000, 16_000, 16_000)
    assert small.target_tokens < small.precompute_tokens < small.trigger_tokens


@pytest.mark.spec("A06")
def test_the_target_is_half_of_what_is_available() -> None:
    assert budget(200_000, fixed=2_000).target_tokens == 2_000 + (200_000 - 8_000 - 2_000) // 2


@pytest.mark.spec("A12")
@pytest.mark.parametrize(("window", "tokens"), [(200_000, 4_096), (128_000, 4_096), (16_000, 640)])
def test_a_summary_takes_eight_percent_of_what_is_available(window: int, tokens: int) -> None:
    assert budget(window, policy=HANDOFF).summary_tokens == tokens


@pytest.mark.parametrize(("window", "tokens"), [(200_000, 2_500), (12_000, 700), (6_000, 700)])
def test_of_our_own_a_record_takes_a_tenth(window: int, tokens: int) -> None:
    assert budget(window).summary_tokens == tokens


@pytest.mark.spec("A13")
def test_a_summary_has_at_least_five_hundred_tokens() -> None:
    assert budget(4_000, policy=HANDOFF).summary_tokens == 500
    assert budget(6_000, fixed=1_000, policy=HANDOFF).summary_tokens == 500


@pytest.mark.spec("B02")
@pytest.mark.parametrize(
    ("window", "trigger"), [(200_000, 140_000), (64_000, 24_000), (40_000, 10_000), (16_000, 4_000)]
)
def test_rolling_keeps_its_own_reserve_free(window: int, trigger: int) -> None:
    assert budget(window, policy=ROLLING).trigger_tokens == trigger


def test_a_model_that_counts_more_has_a_smaller_window_in_our_count() -> None:
    dense = budget(130_000, output=13_000, ratio=1.3)
    assert dense.window_tokens == 100_000
    assert dense.output_tokens == 10_000
    assert dense.trigger_tokens == 90_000


@given(
    window=st.integers(1, 2_000_000),
    fixed=st.integers(0, 100_000),
    output=st.none() | st.integers(0, 200_000),
    ratio=st.floats(0.4, 3.0),
    policy=st.sampled_from([Policy(), ROLLING, Policy(trigger_ratio=0.7, target_ratio=0.4)]),
)
def test_the_marks_stand_in_order_in_every_window(
    window: int, fixed: int, output: int | None, ratio: float, policy: Policy
) -> None:
    b = budget(window, fixed, output, ratio, policy)
    assert 0 < b.precompute_tokens <= b.trigger_tokens <= b.ceiling_tokens <= b.window_tokens
    assert b.summary_tokens > 0
    assert b.available_tokens >= 0
    if fixed + 8 <= b.trigger_tokens:
        assert fixed < b.target_tokens < b.trigger_tokens
        assert b.summary_tokens <= max(1, (b.target_tokens - fixed) / 2)
