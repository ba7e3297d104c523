"""Erasing one small session takes no more memory and no longer stop in a large file than in a small one."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from palimpsest.storage.sqlite_files import driver

from benchmarks.kill_loop import server
from tests.e2e.test_promises_kill import FIRST, asks
from tests.kit.migrated import make_file
from tests.kit.remains import remains
from tests.kit.wire import answer_body
from tests.upstream.scripted import Scripted, replies

pytestmark = pytest.mark.timeout(120)
LARGE_MEGABYTES = 240
# What a request, its answer and the erase of both may take.
MOST_MEGABYTES = 80


async def large_file(file: Path) -> None:
    """A database with many bodies of another caller, as a long use leaves it."""
    await make_file(file)
    with closing(driver.connect(file)) as connection:
        for number in range(LARGE_MEGABYTES):
            connection.execute(
                "INSERT INTO bodies (digest, namespace, body) VALUES (?, 'other', zeroblob(1000000))",
                (number.to_bytes(32),),
            )
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def resident_megabytes(pid: int, name: str) -> float:
    """VmRSS: now; VmHWM: the most so far."""
    status = Path("/proc", str(pid), "status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1000


@pytest.mark.spec("P6")
async def test_an_erase_in_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    await large_file(tmp_path / "palimpsest.db")
    async with Scripted() as upstream, server(tmp_path, upstream.url) as running:
        upstream.always(replies(answer_body("Noted: 4711.")))
        assert (await asks(running, FIRST, {"x-session-id": "small"})).status_code == 200
        before = resident_megabytes(running.process.pid, "VmRSS")
        async with httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False) as http:
            assert (await http.delete("/api/sessions/small")).status_code == 200
        while remains(tmp_path, "Remember 4711", "Noted: 4711"):
            pass
        assert resident_megabytes(running.process.pid, "VmHWM") - before < MOST_MEGABYTES
