"""A floor to compare with: the least a proxy in Python does to store both sides of a conversation durably.

Digests, counts and stores what is new of each request, relays it, and stores the answer, with SQLite's FULL.
It keeps no other promise: no sessions, views, errors, limits or search. Served by uvicorn as
`benchmarks.lean:app`; LEAN_UPSTREAM is the upstream's base URL, LEAN_DATABASE a file.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import queue
import sqlite3
import threading
from typing import Any

import aiohttp
import msgspec
from palimpsest.tokenizer.text import encoding_of

_TABLE = "CREATE TABLE IF NOT EXISTS m (h BLOB UNIQUE, parent BLOB, tokens INTEGER, body BLOB)"
_PUT = "INSERT OR IGNORE INTO m VALUES (?, ?, ?, ?)"
_MOST_AT_ONCE = 512
_HEADERS = {"content-type": "application/json", "authorization": "Bearer sk-measured"}
_request = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list = msgspec.json.Decoder(list[msgspec.Raw])


class Lean:
    """The application; what it needs of the loop is made with the first request."""

    def __init__(self, upstream: str, database: str) -> None:
        self._url = f"{upstream}/chat/completions"
        self._database = database
        self._encoding = encoding_of("o200k_base")
        self._seen: set[bytes] = set()
        self._rows: queue.SimpleQueue[tuple[list[Any], asyncio.Future[None]]] = queue.SimpleQueue()
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request, answered in one piece."""
        if scope["type"] != "http":
            return
        if self._session is None:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._write, daemon=True).start()
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        rows, head = self._new(body)
        stored = asyncio.ensure_future(self._stored(rows))
        async with self._session.post(self._url, data=body, headers=_HEADERS) as response:
            answer = await response.read()
        await stored
        await self._stored([(self._chained(head, answer), head, self._count(answer), answer)])
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _new(self, body: bytes) -> tuple[list[Any], bytes]:
        """The rows that are not stored yet, and the digest of the whole list."""
        rows, head = [], b""
        for raw in _list.decode(_request.decode(body)["messages"]):
            message = bytes(raw)
            chain = self._chained(head, message)
            if chain not in self._seen:
                self._seen.add(chain)
                rows.append((chain, head, self._count(message), message))
            head = chain
        return rows, head

    def _chained(self, head: bytes, message: bytes) -> bytes:
        return hashlib.sha256(head + hashlib.sha256(message).digest()).digest()

    def _count(self, message: bytes) -> int:
        return len(self._encoding.encode_ordinary(message.decode()))

    async def _stored(self, rows: list[Any]) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._rows.put((rows, future))
        await future

    def _write(self) -> None:
        """All that waits is one commit."""
        connection = sqlite3.connect(self._database, isolation_level=None)
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("PRAGMA synchronous = full")
        connection.execute(_TABLE)
        while True:
            group = [self._rows.get()]
            while len(group) < _MOST_AT_ONCE and not self._rows.empty():
                group.append(self._rows.get())
            connection.execute("BEGIN IMMEDIATE")
            for rows, _ in group:
                connection.executemany(_PUT, rows)
            connection.execute("COMMIT")
            self._loop.call_soon_threadsafe(_tell, [future for _, future in group])


def _tell(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


app = Lean(os.environ.get("LEAN_UPSTREAM", ""), os.environ.get("LEAN_DATABASE", ":memory:"))
