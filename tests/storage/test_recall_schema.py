"""What recall needs is there after migrating an empty database, or one of an older version with rows in it.

The names of the row, and ours for them, stand in docs/decisions/0008-recall-keeps-no-second-copy.md.
"""

from __future__ import annotations

from functools import partial

import pytest
from alembic import command
from alembic.config import Config
from palimpsest.storage.migrate import MIGRATIONS, migrate, schema_state, with_connection
from palimpsest.storage.store import open_store
from sqlalchemy import Connection, inspect, text

from tests.storage.conftest import new_id
from tests.storage.test_migrate import put_row

# What the row names -> the table and the columns that hold it here.
WANTED = {
    "conversations": ("sessions", {"id", "namespace", "created_at"}),
    "messages: hash, seq, source, tokens": (
        "messages",
        {"chain", "canonical", "digest", "arrival", "role", "relayed", "tokens"},
    ),
    "message texts": ("bodies", {"digest", "body"}),
    "summaries: source count, seq bounds, times, proactive": (
        "compactions",
        {"id", "summary", "messages_folded", "kept", "watermark", "created_at", "undone_at", "trigger"},
    ),
    "summary_messages": ("compactions", {"kept", "watermark"}),
    "summary_parents": ("compactions", {"parents"}),
    "large_payloads: the message's tokens, its body by digest": ("messages", {"tokens", "digest"}),
    "fts": ("recall_words", {"words"}),
    "fts: how far each session is": ("recall_marks", {"session", "namespace", "number", "arrival"}),
}
REVISIONS = ("0001", "0002", "0003", "0004")


def columns_of(connection: Connection) -> dict[str, set[str]]:
    """The columns of every table; SQLite's virtual ones are told by no reflection."""
    found = inspect(connection)
    tables = {
        name: {column["name"] for column in found.get_columns(name)} for name in found.get_table_names()
    }
    if connection.dialect.name == "sqlite":
        virtual = connection.execute(text("SELECT name FROM pragma_table_info('recall_words')"))
        tables["recall_words"] = {name for (name,) in virtual}
    return tables


def missing_in(tables: dict[str, set[str]]) -> list[str]:
    """What the row names and the database has not."""
    return [name for name, (table, columns) in WANTED.items() if not columns <= tables.get(table, set())]


def has_full_text(connection: Connection) -> bool:
    """The index of words is one: FTS5, or GIN."""
    if connection.dialect.name == "sqlite":
        made = "SELECT sql FROM sqlite_master WHERE name = 'recall_words'"
        return "USING fts5" in str(connection.execute(text(made)).scalar())
    made = "SELECT indexdef FROM pg_indexes WHERE tablename = 'recall_words' AND indexdef LIKE '%gin%'"
    return connection.execute(text(made)).scalar() is not None


@pytest.mark.spec("C09", "C23")
async def test_an_empty_database_has_all_of_it_after_migrating(empty_url: str) -> None:
    """A SQLite without FTS5 fails here; it is not skipped, as nothing is."""
    if not empty_url.startswith("sqlite"):
        assert await with_connection(empty_url, columns_of) == {}
    await migrate(empty_url)
    assert missing_in(await with_connection(empty_url, columns_of)) == []
    assert await with_connection(empty_url, has_full_text)


def written(revision: str, connection: Connection) -> None:
    """An older version's database, with a conversation of two messages and a summary of the first."""
    config = Config()
    config.set_main_option("script_location", MIGRATIONS.as_posix())
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    rows = [("sessions", {"id": "s", "namespace": "n", "arrivals": 3, "found_by": "new"})]
    for arrival, (chain, parent, said) in enumerate([(b"1", b"", b"first"), (b"2", b"1", b"second")], 1):
        rows.append(("bodies", {"digest": chain * 32, "namespace": "n", "body": said}))
        rows.append(
            (
                "messages",
                {
                    **{"session": "s", "namespace": "n", "role": "user", "state": "live"},
                    **{"chain": chain * 32, "parent": parent * 32, "digest": chain * 32},
                    **{"arrival": arrival, "depth": arrival, "tokens": 7, "is_head": chain == b"2"},
                },
            )
        )
    rows.append(
        (
            "compactions",
            {
                **{"id": "c", "session": "s", "namespace": "n", "arrival": 3, "kind": "message_removal"},
                **{"watermark": b"1" * 32, "summary": b"of the first", "parents": "[]", "messages_folded": 1},
            },
        )
    )
    for table, row in rows:
        put_row(connection, table, **row)
    connection.commit()


@pytest.mark.spec("C09")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_rows_of_every_older_version_are_migrated_and_indexed(revision: str, empty_url: str) -> None:
    await with_connection(empty_url, partial(written, revision))
    before = missing_in(await with_connection(empty_url, columns_of))
    # The first two versions had no index.
    assert (revision < "0003") == ("fts: how far each session is" in before)
    await migrate(empty_url)
    assert await schema_state(empty_url) == "current"
    assert missing_in(await with_connection(empty_url, columns_of)) == []
    store = await open_store(empty_url, new_id=new_id)
    try:
        unindexed = await store.search.unindexed("n", "s", 64)
        assert unindexed is not None
        assert [(row.kind, row.body, row.tokens) for row in unindexed.rows] == [
            ("message", b"first", 7),
            ("message", b"second", 7),
            ("summary", b"of the first", 0),
        ]
        found = await store.compactions.get("n", "c")
        assert found is not None
        assert (found[0], found[1].compaction.messages_folded) == ("s", 1)
    finally:
        await store.close()
