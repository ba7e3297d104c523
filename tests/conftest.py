"""What every test of the project shares: the record of proved rows, and what is begun first."""

from __future__ import annotations

import gc
import sys

import pytest
import structlog
from hypothesis import HealthCheck, settings
from palimpsest.cli.logs import text_line

# A busy machine is no failure: no example is timed.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("untimed"), max_examples=15, stateful_step_count=15)

# Files that take longer than the rest, the longest first: so no process is left alone with one at the end.
# xdist begins with the files of most tests instead, unless it gets --no-loadscope-reorder.
_LONG = (
    "test_fifty_rounds",
    "test_probes",
    "test_store_faults",
    "test_two_replicas",
    "test_turns_seen",
    "test_nothing_stands_still",
    "test_preset_",
    "test_random_histories",
    "test_rebuilt_records",
    "test_view_memory",
    "test_workers",
    "test_copy",
    "test_summary_material",
    "test_tour",
    "test_first_visit",
    "test_isolation",
    "test_responses_summaries",
    "test_learned_values",
    "test_erase_races",
    "test_documentation",
    "test_other_sites",
    "test_view_spending",
    "test_promises_kill",
    "test_cli",
    "test_scenario_",
    "test_reader",
    "test_recall_",
    "test_admin",
)

# What a proxy in this process logs is shown with a test that fails, and is no part of what a command prints.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        text_line,
    ],
    # Looked up for each line: a test may have another one.
    logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
)

pytest_plugins = ["tests.house.spec_marks"]

# What `--quick` leaves out: what attacks a running program or plays long conversations, and PostgreSQL. One
# end-to-end test for each promise stays.
_LONG_FOLDERS = frozenset({"browser", "clients", "e2e", "faults", "realmodel", "simulation"})

# As where it is served: Python's 700 new objects come several times a request, and looking for rubbish that
# often, in all that the tests have loaded, took a tenth of their CPU.
gc.set_threshold(20_000, 10, 10)
# Fixtures of tests that need PostgreSQL.
_POSTGRES = frozenset({"server", "migrated_database", "postgres_url", "replicas"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make test` asks for the quick ones."""
    parser.addoption("--quick", action="store_true", help="a few minutes, without PostgreSQL")


def pytest_configure(config: pytest.Config) -> None:
    """Random examples are many, or few."""
    settings.load_profile("quick" if config.getoption("quick") else "untimed")


def pytest_collection_finish() -> None:
    """All tests are loaded, and stay."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The order is random but for the long ones."""
    if config.getoption("quick"):
        kept = _quick(sorted(items, key=lambda item: item.nodeid))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    items.sort(key=lambda item: _place(item.path.name))


def _quick(items: list[pytest.Item]) -> set[pytest.Item]:
    """Those that need little time and no PostgreSQL, and of the others the first that proves a promise."""
    kept: set[pytest.Item] = set()
    proved: set[str] = set()
    for item in items:
        rows = {
            str(row) for mark in item.iter_markers("spec") for row in mark.args if str(row).startswith("P")
        }
        folder = item.path.relative_to(item.config.rootpath / "tests").parts[0]
        if "postgres" in item.nodeid or not _POSTGRES.isdisjoint(getattr(item, "fixturenames", ())):
            continue
        if folder not in _LONG_FOLDERS:
            kept.add(item)
        elif folder == "e2e" and rows - proved:
            proved |= rows
            kept.add(item)
    return kept


def _place(file: str) -> int:
    """Where a file stands: before those that are shorter, or with all others behind them."""
    return next((place for place, name in enumerate(_LONG) if file.startswith(name)), len(_LONG))
