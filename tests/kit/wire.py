"""The proxy as it is deployed, with raw bytes on both sides: a scripted upstream and a client of sockets.

async with wired(tmp_path) as line:
    line.upstream.expects(replies(b"{}"))
    async with line.caller() as caller:
        await caller.sends(post(chat_body()))
        assert (await caller.reply()).is_whole
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from palimpsest.cli.http_server import PlainServer, address_of, bound_socket
from palimpsest.main.application import create_app
from palimpsest.settings.load import load_settings
from palimpsest.settings.settings import Settings
from palimpsest.storage.sqlite_files import driver

from tests.kit.migrated import migrated
from tests.kit.serving import listening_on, shared_tokenizer
from tests.upstream.scripted import Scripted

Json = dict[str, Any]
Headers = list[tuple[bytes, bytes]]
# Large enough that nothing is compacted; configured, so that nobody asks the upstream for it.
WINDOW = 1_000_000


@dataclass
class Reply:
    """One answer as it stood on the wire. `is_whole` is false when its body was cut."""

    status: int
    headers: Headers
    body: bytes = b""
    is_whole: bool = False
    interim: list[bytes] = field(default_factory=list)

    def all(self, name: str) -> list[str]:
        return [value.decode("latin-1") for key, value in self.headers if key == name.lower().encode()]

    def header(self, name: str) -> str | None:
        return next(iter(self.all(name)), None)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error in OpenAI's shape, whose members are all there."""
        error = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert isinstance(error["message"], str)
        assert isinstance(error["type"], str)
        return str(error["code"])


class Caller:
    """One client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def sends(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def leaves(self) -> None:
        """The connection is aborted, as by a client that was killed."""
        self._writer.transport.abort()

    async def until(self, ending: bytes) -> bytes:
        async with asyncio.timeout(20):
            return await self._reader.readuntil(ending)

    async def piece(self) -> bytes:
        """Whatever has come; empty at the end."""
        async with asyncio.timeout(20):
            return await self._reader.read(65536)

    def arrived(self) -> bytes:
        """What has come and was not read yet; waits for nothing."""
        held: bytearray = self._reader._buffer  # type: ignore[attr-defined]
        came = bytes(held)
        held.clear()
        return came

    async def head(self) -> Reply:
        """The answer's head."""
        interim: list[bytes] = []
        while True:
            lines = (await self.until(b"\r\n\r\n")).split(b"\r\n")
            status = int(lines[0].split(b" ")[1])
            if status >= 200:
                pairs = [line.partition(b":") for line in lines[1:] if line]
                return Reply(status, [(n.lower(), v.strip()) for n, _, v in pairs], interim=interim)
            interim.append(lines[0])

    async def reply(self, *, to_head: bool = False) -> Reply:
        """A whole answer, or what came of it."""
        reply = await self.head()
        if to_head or reply.status in (204, 304):
            reply.is_whole = True
            return reply
        try:
            async with asyncio.timeout(20):
                await self._body(reply)
        except (asyncio.IncompleteReadError, ConnectionError) as cut:
            reply.body += cut.partial if isinstance(cut, asyncio.IncompleteReadError) else b""
        return reply

    async def chunk(self) -> bytes:
        """One chunk of a chunked body; empty for the last."""
        size = int(await self.until(b"\r\n"), 16)
        async with asyncio.timeout(20):
            return (await self._reader.readexactly(size + 2))[:size]

    async def _body(self, reply: Reply) -> None:
        length = reply.header("content-length")
        if length is not None:
            reply.body = await self._reader.readexactly(int(length))
        elif reply.header("transfer-encoding") == "chunked":
            while piece := await self.chunk():
                reply.body += piece
        else:
            reply.body = await self._reader.read()
        reply.is_whole = True


@dataclass
class Line:
    """A running proxy between `upstream` and whoever calls."""

    url: str
    upstream: Scripted
    folder: Path
    http: httpx.AsyncClient

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @asynccontextmanager
    async def caller(self, window: int = 2**26) -> AsyncIterator[Caller]:
        """A connection; its client takes in about twice `window` bytes before anybody reads."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=window)
        try:
            yield Caller(reader, writer)
        finally:
            writer.transport.abort()

    async def asks(self, request: bytes) -> Reply:
        """One request on a connection of its own."""
        async with self.caller() as caller:
            await caller.sends(request)
            return await caller.reply()

    async def rows(self, session: str | Reply, key: str = "key-1") -> list[Json]:
        """The messages of a session as the archive tells them, with what is known of each."""
        name = session.header("x-palimpsest-session") if isinstance(session, Reply) else session
        headers = {"authorization": f"Bearer {key}"}
        reply = await self.http.get(f"/api/sessions/{name}/messages", headers=headers)
        assert reply.status_code == 200, reply.text
        rows: list[Json] = reply.json()["messages"]
        return rows

    def states(self, reply: Reply) -> list[str]:
        """How the exchanges of the session that answered so have ended, oldest first."""
        statement = "SELECT state FROM exchanges WHERE session = ? ORDER BY started_at, id"
        return [state for (state,) in self.query(statement, reply.header("x-palimpsest-session"))]

    def session_of_newest(self) -> str:
        """The session of the newest exchange, for answers that do not say it."""
        return str(self.query("SELECT session FROM exchanges ORDER BY started_at DESC, id DESC")[0][0])

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a reader of the database file finds."""
        with opened(self.database) as connection:
            rows: list[tuple[Any, ...]] = connection.execute(statement, values).fetchall()
            return rows

    @property
    def database(self) -> Path:
        return self.folder / "palimpsest.db"


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A connection of our own to a database file that a proxy of this process uses.

    It must be the proxy's library: another one's, closing, would give up the process's locks.
    """
    connection = driver.connect(path, timeout=5, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def holding(folder: Path, text: str) -> set[str]:
    """The names of the files that hold these bytes."""
    found = [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
    return {path.name for path in found}


def settings_for(folder: Path, upstream: str, overrides: Json | None = None) -> Settings:
    """Settings of a proxy whose files lie in `folder`."""
    given: Json = {
        "upstream.base_url": f"{upstream}/v1",
        "database.url": f"sqlite:///{folder / 'palimpsest.db'}",
        "database.data_folder": str(folder),
        "server.shutdown_seconds": 5,
        "models": [{"match": "*", "window_tokens": WINDOW}],
    }
    return load_settings(None, given | (overrides or {}), {})


@asynccontextmanager
async def deployed(settings: Settings) -> AsyncIterator[str]:
    """The proxy's address while it runs, on the server that `palimpsest serve` configures."""
    await migrated(settings.database.url.get_secret_value())
    with bound_socket("127.0.0.1", 0) as listening:
        config = PlainServer(create_app(settings, shared_tokenizer()), settings.server).config
        async with listening_on(listening, config):
            yield address_of(listening)


@asynccontextmanager
async def wired(
    folder: Path, overrides: Json | None = None, *, reads_bodies: bool = True
) -> AsyncIterator[Line]:
    """A proxy between a scripted upstream and raw clients. `reads_bodies`: scripts begin after the body."""
    async with (
        Scripted(reads_bodies=reads_bodies) as upstream,
        deployed(settings_for(folder, upstream.url, overrides)) as url,
        httpx.AsyncClient(base_url=url, timeout=30, trust_env=False, verify=False) as http,
    ):
        yield Line(url, upstream, folder, http)


def chat_body(text: str | None = None, **fields: Any) -> bytes:
    """A chat request of one user message; without `text` of words that no other request has."""
    messages = [{"role": "user", "content": text or f"hi {uuid.uuid4()}"}]
    return json.dumps({"model": "test-model", "messages": messages, **fields}).encode()


def post(
    body: bytes,
    headers: Headers | None = None,
    *,
    path: str = "/v1/chat/completions",
    key: str | None = "key-1",
) -> bytes:
    """A POST as it stands on the wire."""
    given: Headers = [(b"Host", b"localhost"), (b"Content-Type", b"application/json")]
    if key is not None:
        given.append((b"Authorization", b"Bearer " + key.encode()))
    given += [*(headers or []), (b"Content-Length", b"%d" % len(body))]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in given)
    return b"POST " + path.encode() + b" HTTP/1.1\r\n" + lines + b"\r\n" + body


def event(delta: Json, finish: str | None = None, **fields: Any) -> bytes:
    """One chunk of a streamed answer as an event."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk | fields).encode() + b"\n\n"


def answer_body(text: str = "Hello.", **fields: Any) -> bytes:
    """A whole answer of one choice."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"id": "c", "object": "chat.completion", "choices": [choice], **fields}).encode()
