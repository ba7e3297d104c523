"""What the marks cost in whole conversations, against one who knows their future."""

import pytest

from benchmarks.policy import kinds, ratios
from benchmarks.policy_replay import (
    Bill,
    Policy,
    Setting,
    at,
    derived,
    fixed,
    full,
    lowest,
    optimum,
    replay,
    view,
)
from benchmarks.policy_traces import Trace, trace_of

KINDS = {f"{kind.name}, {kind.window}": kind for kind in kinds()}
CHAT = trace_of([("system", 100), *[("user", 50), ("assistant", 250)] * 6])


@pytest.mark.parametrize("asks_model", [False, True], ids=["by code", "by a model"])
@pytest.mark.parametrize("name", KINDS)
def test_a_bill_is_near_that_of_one_who_knows_the_future(name: str, asks_model: bool) -> None:
    """The aim is 1.15 times the optimum for every kind, the mean over two sizes of summaries."""
    kind = KINDS[name]
    found = [ratios(kind, Setting(kind.window, size, asks_model)) for size in (500, 1_000)]
    _, cost, cheapest, in_background, _ = (sum(column) / 2 for column in zip(*found, strict=True))
    assert cheapest <= 1.12
    assert cost <= 1.15
    assert in_background <= 1.15


@pytest.mark.parametrize("policy", [derived, lowest, fixed], ids=["cost", "lowest", "fidelity"])
@pytest.mark.parametrize("asks_model", [False, True])
def test_nobody_pays_less_than_the_optimum(policy: Policy, asks_model: bool) -> None:
    """The control of the dynamic programme."""
    for kind in KINDS.values():
        trace, setting = kind.traces[0], Setting(kind.window, 500, asks_model)
        assert replay(trace, setting, policy).paid >= optimum(trace, setting) - 1e-6


def test_the_optimum_is_the_best_of_all_cuts() -> None:
    """The control by hand: every sequence of cuts of a short conversation, added up one by one."""
    for asks_model in (False, True):
        setting = Setting(1_500, 150, asks_model)
        every = [_paid(CHAT, starts, setting) for starts in _sequences(CHAT, setting)]
        assert optimum(CHAT, setting) == pytest.approx(min(every))
        assert len(every) > 50


def test_a_window_that_holds_nothing_has_no_optimum() -> None:
    assert optimum(CHAT, Setting(200, 150, False)) == float("inf")


def test_the_full_history_pays_every_token_once_and_the_known_ones_again() -> None:
    short = trace_of([("system", 100), ("user", 50), ("assistant", 250), ("user", 50), ("assistant", 1)])
    assert full(short) == pytest.approx(150 + 0.1 * 150 + 300)
    assert replay(short, Setting(9_000, 500, True), at(8_000)) == Bill(full(short), 0, 16_000)


def test_a_tail_never_begins_with_a_result() -> None:
    trace = trace_of([("user", 1), ("assistant", 2), ("tool", 3), ("tool", 4), ("assistant", 5)])
    assert (trace.turns, trace.cuts) == ((1, 4), (1, 4))


def _sequences(trace: Trace, setting: Setting) -> list[tuple[int, ...]]:
    """Where the tail begins at each turn, in every way that fits the window."""
    found: list[tuple[int, ...]] = [()]
    for turn in trace.turns:
        found = [
            (*starts, start)
            for starts in found
            for start in (0, *trace.cuts)
            if start < turn
            and view(trace, start, turn, setting.summary) <= setting.window
            and start >= (starts[-1] if starts else 0)
        ]
    return found


def _paid(trace: Trace, starts: tuple[int, ...], setting: Setting) -> float:
    paid, was, last = 0.0, 0, 0
    for turn, start in zip(trace.turns, starts, strict=True):
        now = view(trace, start, turn, setting.summary)
        if start == last:
            paid += (now - was) + 0.1 * was
        else:
            paid += (now - trace.kept) + 0.1 * trace.kept
            if setting.asks_model:
                paid += 0.1 * (was or now) + 4 * setting.summary
        was, last = now, start
    return paid
