"""SQLite finds every row by a key: no statement reads a table, a namespace or a key's first column through.

SQLite takes the first column of an index for selective whatever it holds; a key that began with the
namespace made it read whole namespaces, slower with every message stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType

import pytest
from sqlalchemy.dialects import sqlite

from app.storage import accounts, branches, known, path, said, sessions, standing
from app.storage.database import Compiler, Statement
from app.storage.erase import rows as erasing
from app.storage.erase import rules
from app.storage.exchange import head_sql, hidden_rows, item_rows, partial, row_sql, writes
from app.storage.journal_sql import (
    arrivals,
    checkpoints,
    compactions,
    events,
    leases,
    memories,
    prepared,
    servers,
    session_settings,
    spending,
)
from app.storage.migrate import sqlite_path
from app.storage.recall import around, catching_up, finding, forgetting, rows, scanning
from app.storage.sqlite import sole
from app.storage.sqlite.driver import driver
from app.storage.tables.schema import METADATA

# Listings, counts of one session, and tables or partial indexes with a handful of rows.
WHOLE = {"_ALL_KEYS", "FAIL_OPEN", "_INTERRUPTED"}
# What was learned of models: a few rows for each that is in use, which expire.
LEARNED = {"_WINDOWS", "_CALIBRATIONS", "_OLD_WINDOWS", "_FORGET_WINDOWS"}
WHOLE |= LEARNED | {"_FORGET_OWN_WINDOWS"}
# The servers, what they have open, what they have leased.
WHOLE |= {"_BEATS", "FAIL_OPEN_OF", "_FREE"}
# The scrub of the index of words: how large it is, and the marks that nobody is called by any more.
WHOLE |= {"PAGES", "_FORGOTTEN"}
# The newest few exchanges there are.
WHOLE |= {"_NEWEST_OF_ALL"}
# Goes through a namespace, newest first, until it has found enough.
WHOLE_NAMESPACE = {"_SEARCH", "_NEWEST"}
# Looks at a row for each of a namespace's sessions, as what adds them up does for the same search.
WHOLE_NAMESPACE |= {"_LAGGING"}
# Adds up or takes away a row for each of a namespace's sessions.
WHOLE_NAMESPACE |= {"_TOTALS", "_FORGET_ALL"}
ONE_SESSION = {
    "_VARIETY",
    "_POINTS",
    "_REQUESTS",
    "_IS_LINE",
    "_SESSION",
    "_SESSIONS",
    "_NEWEST_ASKED",
    "_COMPACTIONS",
    "_PINS",
}


def _statements(module: ModuleType) -> Iterator[tuple[str, Statement]]:
    for name, value in vars(module).items():
        for found in value.values() if isinstance(value, dict) else (value,):
            if isinstance(found, Statement):
                yield name, found


def _is_broad(step: str) -> bool:
    if "VIRTUAL TABLE INDEX" in step:
        # What follows the colon is what FTS5 was asked: words, or a range of rows.
        return step.endswith(":")
    if step.startswith("SCAN"):
        # The recursive part of a walk, listed values and limited subqueries are not tables.
        return not step.split()[1].startswith(
            ("anon_", "walk", "asked", "chosen", "holders", "best", "CONSTANT")
        )
    return step.startswith("SEARCH") and step.endswith(("(session=?)", "(namespace=?)"))


def _is_whole_namespace(step: str) -> bool:
    small = (
        "sessions",
        "credentials",
        "spending",
        "recall_marks",
        "tombstones",
        "learned_windows",
        "calibrations",
    )
    return _is_broad(step) and step.split()[1] not in small


def _is_listed(step: str) -> bool:
    """Lists that a statement makes; a handful of leases; and every body's digest, when a namespace goes."""
    lists = ("own_", "others_", "recent_", "shared_", "all_", "leases", "bodies USING COVERING")
    return step.startswith(tuple(f"SCAN {name}" for name in lists))


MODULES = (
    *(accounts, row_sql, head_sql, hidden_rows, item_rows, partial, writes),
    *(branches, known, path, said, sessions, sole, standing),
    *(arrivals, checkpoints, compactions, events, leases, memories, prepared, servers),
    *(session_settings, spending),
    *(rows, catching_up, finding, around, scanning, forgetting),
    *(rules, erasing),
)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_statement_is_answered_by_a_key(module: ModuleType, sqlite_url: str) -> None:
    compiler = Compiler(sqlite.dialect(), sqlite.insert)  # type: ignore[arg-type]
    file = sqlite_path(sqlite_url)
    assert file is not None
    connection = driver.connect(file)
    broad = []
    for name, statement in _statements(module):
        compiled = compiler[statement]
        rows = connection.execute(
            f"EXPLAIN QUERY PLAN {compiled.sql}", [None] * len(compiled.names)
        ).fetchall()
        steps = [row[3] for row in rows if "CONSTANT ROW" not in row[3]]
        if module in (standing, rules, erasing):
            # Whole sessions of one namespace, found by the keys of `sessions` and of each table.
            broad += [(name, step) for step in steps if step.startswith("SCAN") and not _is_listed(step)]
            broad += [(name, step) for step in steps if "namespace=?" in step and _is_whole_namespace(step)]
        elif name not in WHOLE | WHOLE_NAMESPACE | ONE_SESSION:
            broad += [(name, step) for step in steps if _is_broad(step)]
    connection.close()
    assert broad == []


# Tables whose rows belong to no namespace, or name one as what is asked for.
OPEN = {
    "heartbeat",
    "keys",
    "credentials",
    "namespaces",
    "pepper",
    "leases",
    "servers",
}
# Of all namespaces: which are to be erased, and what a crash left behind.
OF_ALL = {"_UNPROVEN", "FAIL_OPEN", "_INTERRUPTED", "_BEATS", "FAIL_OPEN_OF"}
OF_ALL |= LEARNED
# The servers, what they have open, what they have leased.
WHOLE |= {"_BEATS", "FAIL_OPEN_OF", "_FREE"}
# The scrub of the index of words: by the numbers of marks that name nobody.
OF_ALL |= {"MERGE", "PAGES", "HAS_REMOVED", "_FORGOTTEN", "_REMOVE", "_DROP", "_DROP_ANYHOW"}
# A query of the index of words is scoped by the digest of its namespace or session, which it begins with.
SCOPES = {"namespace", "scoped_0"}


@pytest.mark.spec("P5")
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_statement_on_somebodys_rows_names_the_namespace(module: ModuleType) -> None:
    compiler = Compiler(sqlite.dialect(), sqlite.insert)  # type: ignore[arg-type]
    for name, statement in _statements(module):
        compiled = compiler[statement]
        tables = {table for table in METADATA.tables if re.search(rf"\b{table}\b", compiled.sql)}
        assert SCOPES.intersection(compiled.names) or tables <= OPEN or name in OF_ALL, name
