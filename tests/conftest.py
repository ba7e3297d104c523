"""What every test of the project shares: the record of proved rows, and what is begun first."""

from __future__ import annotations

import gc

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure: no example is timed.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# Files that take longer than the rest, the longest first: so no process is left alone with one at the end.
_LONG = (
    "test_fifty_rounds",
    "test_probes",
    "test_store_faults",
    "test_nothing_stands_still",
    "test_two_replicas",
    "test_preset_",
    "test_isolation",
    "test_learned_values",
    "test_promises_kill",
    "test_random_histories",
    "test_summary_material",
    "test_other_sites",
    "test_journal_",
)

pytest_plugins = ["tests.house.spec_marks"]

# As where it is served: Python's 700 new objects come several times a request, and looking for rubbish that
# often, in all that the tests have loaded, took a tenth of their CPU.
gc.set_threshold(20_000, 10, 10)


def pytest_collection_finish() -> None:
    """All tests are loaded, and stay."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order is random but for the long ones."""
    items.sort(key=lambda item: _place(item.path.name))


def _place(file: str) -> int:
    """Where a file stands: before those that are shorter, or with all others behind them."""
    return next((place for place, name in enumerate(_LONG) if file.startswith(name)), len(_LONG))
