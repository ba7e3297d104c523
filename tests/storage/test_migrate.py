"""Migrations arrive exactly at the declared schema, and a schema we do not know refuses to open."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from palimpsest.errors import SchemaMismatch, SettingsError, StoreUnavailable
from palimpsest.storage.accounts import LearnedWindow
from palimpsest.storage.migrate import (
    MIGRATIONS,
    _upgrade,
    migrate,
    schema_of_this_version,
    schema_state,
    with_connection,
)
from palimpsest.storage.search_index import MAKE, SHADOWS
from palimpsest.storage.store import open_store
from palimpsest.storage.tables import METADATA
from sqlalchemy import Connection, event, inspect, text

from tests.storage.conftest import new_id


def _differences(connection: Connection) -> list[Any]:
    """SQLite's index of words is a virtual table, whose columns have no types: it is compared by itself."""
    virtual = ("recall_words", *SHADOWS) if connection.dialect.name == "sqlite" else ()

    def is_compared(thing: Any, name: str | None, kind: str, *_: object) -> bool:
        return (thing.table.name if kind == "index" else name) not in virtual

    options = {"compare_type": True, "include_object": is_compared}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), METADATA))


def _word_index(connection: Connection) -> dict[str, str]:
    """The statements that made SQLite's index of words, and the tables it is kept in."""
    made = text("SELECT name, sql FROM sqlite_master WHERE name LIKE 'recall!_words%' ESCAPE '!'")
    return {row.name: row.sql for row in connection.execute(made)}


async def _execute(url: str, statement: str) -> None:
    def act(connection: Connection) -> None:
        connection.execute(text(statement))
        connection.commit()

    await with_connection(url, act)


async def test_the_migrated_database_is_the_declared_one(url: str) -> None:
    assert await with_connection(url, _differences) == []
    await _execute(url, "ALTER TABLE pins ADD COLUMN stray TEXT")
    try:
        assert await with_connection(url, _differences) != []
    finally:
        await _execute(url, "ALTER TABLE pins DROP COLUMN stray")


async def test_sqlites_index_of_words_is_the_declared_one(sqlite_url: str) -> None:
    made = await with_connection(sqlite_url, _word_index)
    assert made.pop("recall_words") == MAKE.replace("IF NOT EXISTS ", "")
    assert set(made) == set(SHADOWS)
    await _execute(sqlite_url, "DROP TABLE recall_words")
    assert await with_connection(sqlite_url, _word_index) == {}
    # A library that has learned it since: the next migration makes it.
    await migrate(sqlite_url)
    assert set(await with_connection(sqlite_url, _word_index)) == {"recall_words", *SHADOWS}


async def test_an_empty_database_is_behind_until_migrated(empty_url: str) -> None:
    assert await schema_state(empty_url) == "behind"
    with pytest.raises(SchemaMismatch):
        await open_store(empty_url, new_id=new_id)
    await migrate(empty_url)
    await migrate(empty_url)
    assert await schema_state(empty_url) == "current"
    store = await open_store(empty_url, new_id=new_id)
    await store.ping()
    await store.close()
    await _execute(empty_url, "UPDATE alembic_version SET version_num = 'from the future'")
    assert await schema_state(empty_url) == "unknown"
    with pytest.raises(SchemaMismatch):
        await open_store(empty_url, new_id=new_id)
    await _execute(empty_url, "DROP TABLE alembic_version")
    assert await schema_state(empty_url) == "unknown"


@pytest.mark.parametrize("table", ["customers", "sessions", "messages"])
async def test_a_database_of_another_program_is_refused_untouched(empty_url: str, table: str) -> None:
    await _execute(empty_url, f"CREATE TABLE {table} (name TEXT)")
    assert await schema_state(empty_url) == "unknown"
    with pytest.raises(SchemaMismatch, match="another program"):
        await migrate(empty_url)
    tables = await with_connection(empty_url, lambda connection: inspect(connection).get_table_names())
    assert tables == [table]


def _broken_off(revision: str | None, after: int) -> Callable[[Connection], None]:
    """A migration that ends before the next statement, as by a kill: from `revision`, or from nothing."""

    def act(connection: Connection) -> None:
        if revision is not None:
            _at(revision, connection)
        left = after

        def count(*_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise KeyboardInterrupt

        event.listen(connection, "before_cursor_execute", count)
        _upgrade(connection)

    return act


@pytest.mark.parametrize(
    ("revision", "after"), [(None, 10), (None, 30), (None, 90), ("0010", 12), ("0010", 17), ("0010", 30)]
)
async def test_a_migration_that_is_broken_off_is_made_by_the_next_one(
    empty_url: str, revision: str | None, after: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        await with_connection(empty_url, _broken_off(revision, after))
    assert await schema_state(empty_url) == "behind"
    await migrate(empty_url)
    assert await schema_state(empty_url) == "current"
    assert await with_connection(empty_url, _differences) == []


async def test_what_extensions_and_other_schemas_have_is_no_other_program(empty_postgres_url: str) -> None:
    url, own = empty_postgres_url, f"{empty_postgres_url}?search_path=ours%2Cpublic"
    for statement in (
        "CREATE EXTENSION citext",
        "CREATE TABLE spatial_ref_sys (id int)",
        "ALTER EXTENSION citext ADD TABLE spatial_ref_sys",
    ):
        await _execute(url, statement)
    assert await schema_state(url) == "behind"
    await _execute(url, "CREATE TABLE customers (id int)")
    assert await schema_state(url) == "unknown"
    await _execute(url, "CREATE SCHEMA ours")
    await migrate(own)
    assert [await schema_state(each) for each in (own, url)] == ["current", "unknown"]


def test_a_files_name_says_its_revision_and_their_order() -> None:
    """The program goes by the names: it need not load what migrates to know that nothing has to be."""
    scripts = ScriptDirectory(MIGRATIONS.as_posix())
    newest_first = [(script.revision, Path(script.path).name[:4]) for script in scripts.walk_revisions()]
    assert newest_first == [(name, name) for _, name in sorted(newest_first, reverse=True)]
    assert schema_of_this_version() == scripts.get_current_head()


_OF_BEFORE = {
    "sessions": {"id": "s", "namespace": "n"},
    "compactions": {
        "id": "c",
        "session": "s",
        "namespace": "n",
        "kind": "message_removal",
        "trigger": "manual",
    },
}


# Of a key with each kind of limit, when there were more of them.
_LIMITED = (
    "INSERT INTO keys (id, digest, label, namespace, created_at, daily_tokens, daily_dollars, max_bytes)"
    " VALUES ('k', 'x', 'ann', 'n', 1.0, 9, 0.5, 100)",
    "INSERT INTO usage (account, day, tokens, dollars) VALUES ('k', '2026-11-26', 7, 0.25)",
    "INSERT INTO bodies (digest, namespace, body) VALUES ('d', 'n', 'four')",
)


def _at(revision: str, connection: Connection, more: Sequence[str] = ()) -> None:
    """The schema of an older version, with a row in each table named, and what `more` statements insert."""
    config = Config()
    config.set_main_option("script_location", MIGRATIONS.as_posix())
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    for table, known in _OF_BEFORE.items():
        put_row(connection, table, **known)
    for statement in more:
        connection.execute(text(statement))
    connection.commit()


def put_row(connection: Connection, table: str, **known: Any) -> None:
    """A row as an older version may have left it."""
    columns = inspect(connection).get_columns(table)
    values = {c["name"]: known.get(c["name"], _plain(c)) for c in columns if not c["nullable"]}
    names, places = ", ".join(f'"{name}"' for name in values), ", ".join(f":{name}" for name in values)
    connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({places})"), values)


def _plain(column: Mapping[str, Any]) -> Any:
    """A value that any such column takes."""
    kind = column["type"].python_type
    return b"" if kind is bytes else "[]" if column["name"] == "parents" else kind()


async def test_rows_of_an_older_version_are_read_after_migrating(empty_url: str) -> None:
    await with_connection(empty_url, partial(_at, "0001"))
    assert await schema_state(empty_url) == "behind"
    await migrate(empty_url)
    store = await open_store(empty_url, new_id=new_id)
    try:
        (old,) = await store.compactions.of_session("n", "s")
        assert (old.compaction.id, old.compaction.trigger, old.compaction.memory) == ("c", "manual", "")
        new = replace(old.compaction, id="d", memory="What is kept. \ud800")
        assert await store.compactions.add("n", "s", 0, new, 2.0)
        assert (await store.compactions.of_session("n", "s"))[-1].compaction == new
    finally:
        await store.close()


async def test_of_a_keys_limits_the_tokens_and_what_was_used_stay(empty_url: str) -> None:
    await with_connection(empty_url, partial(_at, "0020", more=_LIMITED))
    await migrate(empty_url)
    store = await open_store(empty_url, new_id=new_id)
    try:
        (key,) = await store.accounts.keys()
        assert (key.id, key.daily_tokens) == ("k", 9)
        assert (await store.accounts.used("k", "2026-11-26")).tokens == 7
        assert await store.namespaces.sizes() == {"n": 4}
    finally:
        await store.close()


async def test_asking_does_not_create_a_file(tmp_path: Path) -> None:
    path = tmp_path / "absent.db"
    assert await schema_state(f"sqlite:///{path}") == "behind"
    assert not path.exists()


async def test_what_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        await migrate(f"sqlite:///{tmp_path / 'no' / 'folder' / 'store.db'}")
    with pytest.raises(StoreUnavailable):
        await migrate("postgresql://postgres@127.0.0.1:1/postgres")
    with pytest.raises(SettingsError):
        await open_store("mysql://somewhere", new_id=new_id)


async def test_a_new_sqlite_file_can_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "new.db"
    await migrate(f"sqlite:///{file}")
    assert file.stat().st_mode & 0o077 == 0


def _with_learned_windows(connection: Connection) -> None:
    _at("0001", connection)
    for model, source in (("stated", "upstream"), ("poisoned", "overflow"), ("x" * 1_000, "upstream")):
        connection.execute(
            text("INSERT INTO learned_windows VALUES ('u', :model, 10, :source, 1.0)"),
            {"model": model, "source": source},
        )
    connection.commit()


@pytest.mark.spec("H01")
async def test_windows_that_nobody_can_be_named_for_are_dropped(empty_url: str) -> None:
    await with_connection(empty_url, _with_learned_windows)
    await migrate(empty_url)
    store = await open_store(empty_url, new_id=new_id)
    try:
        assert await store.accounts.learned_windows(0.0) == [
            LearnedWindow("", "u", "stated", 10, "upstream", 1.0)
        ]
    finally:
        await store.close()


CHAIN = bytes(range(32))
STATE = {"usage": {"inputTokens": 7}, "loop": {"compactionCount": 2}, "transcript": {"head": CHAIN.hex()}}


def _with_checkpoints(connection: Connection) -> None:
    _at("0021", connection)
    put_row(connection, "messages", chain=CHAIN, session="s", namespace="n")
    ends = {"ours": f"dcm_{CHAIN.hex()[:32]}", "gone": "dcm_" + "ab" * 16, "foreign": 5}
    for seq, (name, end) in enumerate(ends.items(), 1):
        row = {"session": "s", "namespace": "n", "id": name, "created_at": 5.0}
        payload = json.dumps({"span": {"toId": end}, "runtime": STATE}).encode()
        kept = {"kind": "periodic", "arrival": seq, "span_hash": name.encode(), "payload": payload}
        put_row(connection, "checkpoints", **row, **kept)
        put_row(connection, "events", **row, type="checkpoint", seq=seq)
    for seq, (kind, fields) in enumerate(
        (
            ("conversation_snapshot", STATE),
            ("session_restored", {"form": "checkpoint_v2", "loop": {"compactionCount": 0}}),
            ("conversation_snapshot", STATE),
            ("flush", {}),
        ),
        4,
    ):
        row = {"session": "s", "namespace": "n", "id": str(seq), "created_at": 5.0}
        put_row(connection, "events", **row, type=kind, seq=seq, payload=json.dumps(fields).encode())
    connection.commit()


@pytest.mark.spec("A33", "A36")
async def test_checkpoints_become_places_and_states_are_no_longer_stored(empty_url: str) -> None:
    await with_connection(empty_url, _with_checkpoints)
    await migrate(empty_url)
    assert await with_connection(empty_url, _differences) == []
    store = await open_store(empty_url, new_id=new_id)
    try:
        (kept,) = await store.journal.checkpoints("n", "s", 9)
        assert (kept.id, kept.point, kept.kind) == ("ours", CHAIN, "periodic")
        told = [json.loads(row.payload) for row in await store.journal.events("n", "s", 0, 9)]
        assert told[0] == {"checkpointId": "ours", "kind": "periodic"}
        # What an import brought stays, its state beside what the event said.
        assert told[3] == STATE
        assert told[4] == {"form": "checkpoint_v2", "loop": STATE["loop"], "usage": STATE["usage"]}
        assert told[5:] == [{"point": CHAIN.hex()}, {}]
    finally:
        await store.close()
