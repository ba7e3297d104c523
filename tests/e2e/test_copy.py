"""`palimpsest db copy`: every row arrives, or none does; mistakes are refused."""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from palimpsest.storage.migrate import COPIED, migrate, schema_state
from palimpsest.storage.sqlite_files import driver
from palimpsest.storage.tables import METADATA

from tests.kit.journal import AT_THE_END, compacted, read
from tests.kit.model import ModelServer
from tests.kit.postgres import asked, empty_database, executed, server_address
from tests.kit.processes import ran
from tests.kit.proxy import proxied

pytestmark = pytest.mark.timeout(180)
REFUSED = 2


def copied(folder: Path, source: str, target: str) -> subprocess.CompletedProcess[str]:
    settings = {
        "PALIMPSEST_DATABASE__URL": source,
        "PALIMPSEST_DATABASE__DATA_FOLDER": str(folder),
        "PALIMPSEST_DATABASE__HEARTBEAT_TIMEOUT_SECONDS": "1",
    }
    return ran(folder, "db", "copy", target, settings=settings)


def ask(file: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(driver.connect(file)) as connection, connection:
        return connection.execute(statement).fetchall()


def test_every_table_is_copied_but_those_that_each_database_makes_itself() -> None:
    left = {"leases", "servers", "heartbeat", "reserved", "recall_marks", "recall_words"}
    assert {table.name for table in COPIED} == set(METADATA.tables) - left


async def talked(folder: Path) -> str:
    """A stopped server's database, with a conversation that was compacted; its address."""
    async with proxied(ModelServer(window=8_000), folder, AT_THE_END) as proxy:
        await compacted(proxy.chat(session="the work"))
    return f"sqlite:///{folder / 'palimpsest.db'}"


async def test_every_row_arrives_there_and_back(tmp_path: Path) -> None:
    source, back = await talked(tmp_path), tmp_path / "back.db"
    async with empty_database(server_address()) as target:
        for one, other in ((source, target), (target, f"sqlite:///{back}")):
            done = await asyncio.to_thread(copied, tmp_path, one, other)
            assert done.returncode == 0, done.stderr
        assert await schema_state(target) == "current"
    for table in COPIED:
        read = f"SELECT * FROM {table.name} ORDER BY {', '.join(table.primary_key.columns.keys())}"
        assert ask(back, read) == ask(tmp_path / "palimpsest.db", read)
    assert ask(back, "SELECT count(*) FROM messages") > [(10,)]


async def test_a_row_that_arrives_otherwise_is_noticed_and_nothing_stays(tmp_path: Path) -> None:
    source, target = await talked(tmp_path), tmp_path / "there.db"
    await migrate(f"sqlite:///{target}")
    ask(
        target,
        "CREATE TRIGGER changes AFTER INSERT ON messages BEGIN UPDATE messages SET tokens = tokens + 1; END",
    )
    refused = await asyncio.to_thread(copied, tmp_path, source, f"sqlite:///{target}")
    assert refused.returncode == REFUSED
    assert "the rows of messages are not those of the source" in refused.stderr
    assert [ask(target, f"SELECT count(*) FROM {table.name}") for table in COPIED] == [[(0,)]] * len(COPIED)


async def test_the_copy_is_served_with_everything_found_again(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(session="the work")
        await compacted(chat)
        said = await chat.transcript()
    file = tmp_path / "palimpsest.db"
    # As a kill leaves it.
    ask(file, "UPDATE exchanges SET state = 'open' WHERE id = (SELECT max(id) FROM exchanges)")
    async with empty_database(server_address()) as target:
        done = await asyncio.to_thread(copied, tmp_path, f"sqlite:///{file}", target)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"{len(said)} messages, 1 compaction: every row is as in the source." in done.stdout
        assert await asked(target, "SELECT count(*) FROM exchanges WHERE state = 'open'") == [(0,)]
        beating = {**AT_THE_END, "database.heartbeat_timeout_seconds": 0.5}
        async with proxied(ModelServer(window=8_000), tmp_path, beating, url=target) as proxy:
            again = proxy.chat(session="the work")
            kept = await read(proxy.http, again, "sessions/the work/messages")
            assert [row["message"] for row in kept["messages"]] == said
            first = str(said[0]["content"])[:30]
            found = await read(proxy.http, again, f"sessions/the work/search?q={first}")
            assert found["results"][0]["text"].startswith(first)
            # A server uses it now.
            back = await asyncio.to_thread(copied, tmp_path, target, f"sqlite:///{tmp_path / 'back.db'}")
            assert back.returncode == REFUSED
            assert "a server uses the database; stop it first" in back.stderr


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_target_with_rows_and_other_mistakes_are_refused(tmp_path: Path, kind: str) -> None:
    source = f"sqlite:///{tmp_path / 'source.db'}"
    await migrate(source)
    ask(tmp_path / "source.db", "INSERT INTO namespaces (id, created_at) VALUES ('n', 1)")
    linked = tmp_path / "linked.db"
    linked.symlink_to("source.db")
    async with empty_database(server_address()) as database:
        target = database if kind == "postgresql" else f"sqlite:///{tmp_path / 'target.db'}"
        assert (await asyncio.to_thread(copied, tmp_path, source, target)).returncode == 0
        for one, other, why in (
            (source, target, "the target has rows already (namespaces)"),
            (source, source, "source and target are the same database"),
            (source, "sqlite:///source.db", "source and target are the same database"),
            (source, f"sqlite:///{linked}", "source and target are the same database"),
            (f"sqlite:///{tmp_path / 'none.db'}", target, "the source is not migrated"),
            (source, "mysql://host/name", "mysql is not served here"),
            (source, "postgresql://127.0.0.1:1/none", "cannot be reached"),
            (source, f"sqlite:///{tmp_path}", "is not a regular file"),
        ):
            refused = await asyncio.to_thread(copied, tmp_path, one, other)
            assert (refused.returncode, refused.stdout) == (REFUSED, ""), refused.stderr
            assert why in refused.stderr
            assert "Traceback" not in refused.stderr
        if kind == "postgresql":
            assert await asked(target, "SELECT id FROM namespaces") == [("n",)]
            await executed(target, "DELETE FROM namespaces")
        else:
            assert ask(tmp_path / "target.db", "SELECT id FROM namespaces") == [("n",)]
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("postgresql://u:s3cret@[::1/x", "the target must be a whole URL"),
        ("postgresql://u:s3cret@h:abc/x", "the target must be a whole URL"),
        ("sqlite:///", "the target must name a file"),
        ("sqlite:///text.txt/x.db", "text.txt/x.db cannot be used (File exists)"),
        ("sqlite:///text.txt", "cannot be opened: file is not a database"),
        ("sqlite:///pipe", "pipe is not a regular file"),
        (f"sqlite:///{'a' * 300}", "cannot be used (File name too long)"),
        (f"sqlite:///{'a' * 253}", "cannot be used (File name too long)"),
        ("sqlite:////proc/x.db", "/proc/x.db cannot be used"),
        ("sqlite:////proc/new/x.db", "/proc/new/x.db cannot be used"),
    ],
)
def test_a_target_that_is_no_database_is_refused_and_nothing_is_left(
    tmp_path: Path, target: str, why: str
) -> None:
    source = f"sqlite:///{tmp_path / 'source.db'}"
    asyncio.run(migrate(source))
    (tmp_path / "text.txt").write_text("not a database\n" * 1_000)
    os.mkfifo(tmp_path / "pipe")
    refused = copied(tmp_path, source, target)
    assert (refused.returncode, refused.stdout) == (REFUSED, "")
    (line,) = refused.stderr.splitlines()
    assert why in line
    assert "s3cret" not in line
    left = {path.name for path in tmp_path.iterdir()} - {"source.db.lock"}
    assert left == {"source.db", "text.txt", "pipe"}
