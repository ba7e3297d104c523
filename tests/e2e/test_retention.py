"""What is kept too long goes by itself, with everything that an erase takes; what is in use stays."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from palimpsest.cli.db_commands import due_sessions
from palimpsest.cli.keys import create_key

from tests.kit.replicas import until
from tests.kit.wire import Line, answer_body, chat_body, holding, opened, post, settings_for, wired
from tests.upstream.scripted import replies

DAY = 86_400
WORDS = {"old": "ancient-words-of-the-old", "young": "recent-words-of-the-young"}


async def says(line: Line, name: str, text: str | None = None) -> None:
    """A turn in the session of this name."""
    asked = post(chat_body(text or WORDS[name]), [(b"X-Session-Id", name.encode())])
    assert (await line.asks(asked)).status == 200


def ages(line: Line, name: str, days: float) -> None:
    """The session was written to last so long ago."""
    with opened(line.database) as connection:
        at = time.time() - days * DAY
        connection.execute("UPDATE sessions SET updated_at = ? WHERE external_id = ?", (at, name))


def names(line: Line) -> set[str]:
    return {name for (name,) in line.query("SELECT external_id FROM sessions")}


@pytest.mark.spec("P6")
async def test_an_old_session_is_erased_at_the_start_and_nothing_of_it_is_left(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with wired(tmp_path) as line:
        line.upstream.always(replies(answer_body()))
        for name in WORDS:
            await says(line, name)
        ages(line, "old", 31)
        ages(line, "young", 29)
        settings = settings_for(tmp_path, line.upstream.url)
        for limits in ((30, 0), (None, 1)):
            due = await due_sessions(settings, *limits)
            assert [old.external_id for old in due] == (["old"] if limits[0] else ["old", "young"])
        assert names(line) == {"old", "young"}
    assert holding(tmp_path, WORDS["old"])
    async with wired(tmp_path, {"retention.days": 30}) as line:

        async def is_gone() -> bool:
            return names(line) == {"young"} and not holding(tmp_path, WORDS["old"])

        await until(is_gone)
        assert len(await line.rows("young")) == 2
        line.upstream.always(replies(answer_body()))
        await says(line, "old", "the name is free again")
    log = capfd.readouterr().err
    runs = [each for each in log.splitlines() if " retention " in each]
    assert len(runs) == 1
    assert "sessions=1" in runs[0]
    assert WORDS["old"] not in log


async def test_the_oldest_go_until_the_rest_fits(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.always(replies(answer_body()))
        for age in (3, 1, 2):
            await says(line, f"s{age}", f"{age}" * 10_000)
            ages(line, f"s{age}", age)
    async with wired(tmp_path, {"retention.max_bytes": 15_000}) as line:

        async def are_gone() -> bool:
            return names(line) == {"s1"}

        await until(are_gone)


async def test_a_key_keeps_longer_or_shorter_than_the_settings_say(tmp_path: Path) -> None:
    keyed = {"access.mode": "keys", "upstream.api_key": "sk-operator"}
    async with wired(tmp_path, keyed) as line:
        settings = settings_for(tmp_path, line.upstream.url, keyed)
        line.upstream.always(replies(answer_body()))
        for name, days in (("short", 5), ("plain", None), ("long", 90)):
            _, key = await create_key(settings, name, retention_days=days)
            asked = post(chat_body(f"of {name}"), [(b"X-Session-Id", name.encode())], key=key)
            assert (await line.asks(asked)).status == 200
            ages(line, name, 40)
        for limits, gone in (((None, None), {"short"}), ((30, None), {"short", "plain"})):
            due = await due_sessions(settings, *limits)
            assert {old.external_id for old in due} == gone
    async with wired(tmp_path, keyed | {"retention.days": 30}) as line:

        async def are_gone() -> bool:
            return names(line) == {"long"}

        await until(are_gone)


async def test_by_default_nothing_is_erased(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.always(replies(answer_body()))
        await says(line, "old")
        ages(line, "old", 9_999)
    async with wired(tmp_path) as line:
        assert len(await line.rows("old")) == 2
        assert line.query("SELECT count(*) FROM leases WHERE key = 'retention'") == [(0,)]
