"""What the proxy keeps beside a conversation, as a client of its endpoints reads it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.kit.chat import Chat
from tests.kit.words import prose

Json = dict[str, Any]
# Nothing is prepared in advance and the trigger stands at 90 % of the window, where room is short.
AT_THE_END = {"compaction.background": False, "summarizer.window_tokens": 100_000}


async def read(http: httpx.AsyncClient, chat: Chat, path: str) -> Json:
    """One of our pages, as the chat's caller sees it."""
    reply = await http.get(f"/api/{path}", headers=chat.headers)
    assert reply.status_code == 200, reply.text
    fields: Json = reply.json()
    return fields


async def events(http: httpx.AsyncClient, chat: Chat, types: Sequence[str] = ()) -> list[Json]:
    """The session's events, oldest first."""
    page = await read(http, chat, f"sessions/{chat.session}/events?limit=1000&types={','.join(types)}")
    listed: list[Json] = page["events"]
    return listed


def of_compactions(told: Sequence[Json]) -> list[Json]:
    """Those events that belong to compactions: checkpoints on the way are left out."""
    return [event for event in told if event["payload"].get("kind") not in ("periodic", "completion")]


async def checkpoints(http: httpx.AsyncClient, chat: Chat, kind: str) -> list[Json]:
    """The session's checkpoints of one kind with their payloads, oldest first."""
    rows = (await read(http, chat, f"sessions/{chat.session}/checkpoints"))["checkpoints"]
    of_kind = [row for row in reversed(rows) if row["kind"] == kind]
    return [await read(http, chat, f"sessions/{chat.session}/checkpoints/{row['id']}") for row in of_kind]


async def memories(http: httpx.AsyncClient, chat: Chat, kind: str) -> list[Json]:
    """The session's memories of one kind, newest first."""
    listed: list[Json] = (await read(http, chat, f"sessions/{chat.session}/memory?kind={kind}"))["memories"]
    return listed


async def compacted(chat: Chat, rounds: int = 1, words: int = 500) -> None:
    """The conversation has gone on until it was compacted so many times."""
    seen: set[str] = set()
    while len(seen) < rounds:
        number = len(chat.replies)
        await chat.says(f"Note {number}: we decided to use port {8_000 + number}. {prose(number, words)}")
        if made := chat.reply.headers.get("x-palimpsest-compaction"):
            seen.add(made)


def refuses_compactions(folder: Path, *, refuses: bool = True) -> None:
    """The database in `folder` takes no compaction any more, or takes them again."""
    made = "CREATE TRIGGER refused BEFORE INSERT ON compactions BEGIN SELECT RAISE(ABORT, 'refused'); END"
    carries_out(folder, made if refuses else "DROP TRIGGER refused")


# In a process of its own: a second SQLite library in one process drops the locks of the first when it
# closes the file (sqlite.org/howtocorrupt.html, 2.2).
_PROGRAM = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1], timeout=10) as database:
    print("\\n".join(str(row[0]) for row in database.execute(sys.argv[2])))
database.close()
"""


def carries_out(folder: Path, statement: str) -> list[str]:
    """The statement is carried out in the database in `folder`; the first column of what it gives."""
    command = [sys.executable, "-c", _PROGRAM, str(folder / "palimpsest.db"), statement]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
