"""SQLite finds every row by a key: no statement reads a table, a namespace or a key's first column through.

SQLite takes the first column of an index for selective whatever it holds; a key that began with the
namespace made it read whole namespaces, slower with every message stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from types import ModuleType

import pytest
import sqlalchemy as sa
from palimpsest.storage import (
    accounts,
    erasure,
    exchange_log,
    exchange_units,
    exchanges,
    history_sql,
    journal,
    namespaces,
    search,
    search_index,
    sql,
    store,
)
from palimpsest.storage.address import sqlite_path
from palimpsest.storage.database import Compiler, Statement
from palimpsest.storage.sqlite_files import driver
from palimpsest.storage.tables import METADATA
from sqlalchemy.dialects import sqlite

# Listings, counts of one session, and tables or partial indexes with a handful of rows.
WHOLE = {"_ALL_KEYS", "_USED_ON", "OPEN_FAILED", "INTERRUPTED"}
# What was learned of models: a few rows for each that is in use, which expire.
LEARNED = {"_WINDOWS", "_CALIBRATIONS", "_OLD_WINDOWS", "_FORGET_WINDOWS"}
WHOLE |= LEARNED | {"_FORGET_OWN_WINDOWS"}
# The servers, what they have open, what they have leased.
WHOLE |= {"_BEATS", "FAIL_OPEN_OF", "_FREE_LEASES"}
# What requests under way have reserved of quotas: at most a row for each key and server.
WHOLE |= {"FREE_RESERVED", "_FREE_RESERVED_OF"}
# The scrub of the index of words: how large it is, and the marks that nobody is called by any more.
WHOLE |= {"_PAGES", "FORGOTTEN"}
# The newest few exchanges there are.
WHOLE |= {"NEWEST_OF_ALL"}
# What is kept too long, once an hour: a row for each session, and one for each namespace.
WHOLE |= {"_BEFORE", "_OLDEST", "_SIZE", "_SIZES", "_KEYS"}
# What the operator sees of a page of namespaces, of all of them.
OF_MANY = {"_SESSION_COUNTS", "_MESSAGE_COUNTS", "_TURN_COUNTS", "_MODEL_TOKENS"}
WHOLE |= OF_MANY | {"_FAILURES"}
# Goes through a namespace, newest first, until it has found enough.
WHOLE_NAMESPACE = {"_SEARCH", "NEWEST_SESSIONS"}
# Looks at a row for each of a namespace's sessions, as what adds them up does for the same search.
WHOLE_NAMESPACE |= {"LAGGING"}
# Adds up a row for each of a namespace's sessions, or those of their messages.
WHOLE_NAMESPACE |= {"TOTALS", "_STORED", "SESSION_COUNT"}
# Exchanges as they are read for people: listed, counted or summed up, of a session or of some.
ONE_SESSION = {"VARIETY", "POINTS", "REQUESTS", "IS_LINE", "SESSION", "SESSIONS_BEFORE", "NEWEST_FINISHED"}
ONE_SESSION |= {"_PAGE", "_NUMBERED", "_COUNT", "_NEWEST", "_OPENINGS", "_TOTALS_OF", "_COMPACTED_AT"}
ONE_SESSION |= {"_TOKENS_UNTIL", "_OF_SESSION", "PINS_OF"}
# Not run themselves: statements are made of them.
PARTS = {"_OWN_SESSIONS", "_WITH_LIMITS", "_BY_NAMESPACE", "_OLDEST_FIRST", "_SESSION_ROWS"}
PARTS |= {"_STORED_CHECKPOINTS", "_MESSAGES"}
# PostgreSQL alone runs it.
PARTS |= {"_HOLD_BODIES"}
PARTS |= {"_SUMMARIES", "_REBASES", "_REMOVED", "_OF_VALID_KEY", "_NEW_RESERVED", "_NEW_USE"}


def _statements(module: ModuleType) -> Iterator[tuple[str, Statement]]:
    for name, value in vars(module).items():
        for found in value.values() if isinstance(value, dict) else (value,):
            if (
                isinstance(found, sa.SelectBase | sa.UpdateBase | sa.TextClause | partial)
                and name not in PARTS
            ):
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
    small = {"sessions", "credentials", "spending", "recall_marks", "tombstones"}
    small |= {"learned_windows", "calibrations"}
    return _is_broad(step) and step.split()[1] not in small


def _is_listed(step: str) -> bool:
    """Lists that a statement makes; a handful of leases; and every body's digest, when a namespace goes."""
    lists = ("own_", "others_", "recent_", "alone_", "all_", "leases", "bodies USING COVERING")
    return step.startswith(tuple(f"SCAN {name}" for name in lists))


MODULES = (
    *(accounts, exchange_log, exchange_units, exchanges, history_sql, journal, namespaces),
    *(search_index, search, sql, store, erasure),
)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_statement_is_answered_by_a_key(module: ModuleType, sqlite_url: str) -> None:
    compiler = Compiler(sqlite.dialect())
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
        if module is erasure:
            # Whole sessions of one namespace, found by the keys of `sessions` and of each table.
            broad += [(name, step) for step in steps if step.startswith("SCAN") and not _is_listed(step)]
            broad += [(name, step) for step in steps if "namespace=?" in step and _is_whole_namespace(step)]
        elif name not in WHOLE | WHOLE_NAMESPACE | ONE_SESSION:
            broad += [(name, step) for step in steps if _is_broad(step)]
    connection.close()
    assert broad == []


# Tables whose rows belong to no namespace, or name one as what is asked for.
OPEN = {"heartbeat", "keys", "credentials", "namespaces", "pepper", "leases", "reserved", "servers", "usage"}
# Of all namespaces: which are to be erased, and what a crash left behind.
UPSTREAM_NAMESPACE = {"_UNPROVEN", "OPEN_FAILED", "INTERRUPTED", "_BEATS", "FAIL_OPEN_OF"}
UPSTREAM_NAMESPACE |= LEARNED | {"_UNFINISHED", "GIVE_UP_IMPORTS"}
# What is kept too long, of anybody, and how much there is of each.
UPSTREAM_NAMESPACE |= {"_BEFORE", "_SIZES"} | OF_MANY
# The scrub of the index of words: by the numbers of marks that name nobody.
UPSTREAM_NAMESPACE |= {"_MERGE", "_PAGES", "HAS_REMOVED", "FORGOTTEN", "_REMOVE", "_DROP"}
# A query of the index of words is scoped by the digest of its namespace or session, which it begins with.
# That of a session that is imported or erased is the namespace with a mark.
SCOPES = {"namespace", "hidden", "scoped_0"}


@pytest.mark.spec("P5")
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_statement_on_somebodys_rows_names_the_namespace(module: ModuleType) -> None:
    compiler = Compiler(sqlite.dialect())
    for name, statement in _statements(module):
        compiled = compiler[statement]
        tables = {table for table in METADATA.tables if re.search(rf"\b{table}\b", compiled.sql)}
        assert SCOPES.intersection(compiled.names) or tables <= OPEN or name in UPSTREAM_NAMESPACE, name
