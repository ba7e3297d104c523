"""Each request under /v1 leaves one line in the log of a real process, which says how it ended (H19)."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from palimpsest.proxy.reports import TEXT_CHARS

from benchmarks.kill_loop import Server, server
from tests.kit.processes import PATIENCE_SECONDS, Process
from tests.kit.wire import Headers, Line, answer_body, chat_body, event, opened, post
from tests.kit.words import prose
from tests.upstream.scripted import (
    Script,
    Scripted,
    Wire,
    chunk,
    cuts_after,
    head,
    replies,
    stalls_after,
    streams,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.spec("H19")]

Json = dict[str, Any]
JSON_TYPE = (b"Content-Type", b"application/json")
SSE: Headers = [(b"Content-Type", b"text/event-stream"), (b"Transfer-Encoding", b"chunked")]
PARTS = [event({"role": "assistant", "content": "Once"}), event({}, "stop"), b"data: [DONE]\n\n"]
TOO_LONG_CODE = "context_length_exceeded"
TOO_LONG = {"error": {"message": "Too long.", "type": "x", "param": None, "code": TOO_LONG_CODE}}
# The secret and the words that no line may hold.
KEY, WORDS = "sk-Kanarienvogel", "Zeisig"
# How a start ends that is refused.
REFUSED = 2
SETTINGS = {
    "PALIMPSEST_LOGGING__FORMAT": "json",
    "PALIMPSEST_LIMITS__BODY_BYTES": "200000",
    "PALIMPSEST_UPSTREAM__FIRST_BYTE_TIMEOUT_SECONDS": "0.6",
    "PALIMPSEST_DATABASE__STORE_DEADLINE_SECONDS": "0.4",
    "PALIMPSEST_COMPACTION__DEADLINE_SECONDS": "0",
    "PALIMPSEST_COMPACTION__BACKGROUND": "false",
    "PALIMPSEST_POLICY__TRIGGER_RATIO": "0.95",
    "PALIMPSEST_SERVER__SHUTDOWN_SECONDS": "1",
    "PALIMPSEST_UPSTREAM__TRUST_ENV": "false",
}


@dataclass
class Logged(Line):
    """A running process whose log can be read. `process` is it."""

    process: Server

    def lines(self) -> list[Json]:
        """Everything that was logged so far; each line is one object."""
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]

    async def line_after(self, count: int) -> Json:
        """The one line of a request that was not there when `count` lines were."""
        (line,) = await self.after(count, lambda one: one["event"] in ("exchange", "request"))
        return line

    async def after(self, count: int, wanted: Callable[[Json], bool]) -> list[Json]:
        """The wanted lines behind the first `count`, once there are some."""
        for _ in range(2_000):
            if new := [line for line in self.lines()[count:] if wanted(line)]:
                return new
            await asyncio.sleep(0.01)
        raise AssertionError(f"not logged: {self.lines()[count:]}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def logged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Logged]:
    folder = tmp_path_factory.mktemp("logged")
    async with (
        Scripted() as upstream,
        server(folder, upstream.url, 5_000, **SETTINGS) as process,
        httpx.AsyncClient(base_url=process.url, timeout=30, trust_env=False, verify=False) as http,
    ):
        yield Logged(process.url, upstream, folder, http, process)


async def asked(logged: Logged, request: bytes) -> Json:
    """The line that a request leaves."""
    before = len(logged.lines())
    await logged.asks(request)
    return await logged.line_after(before)


def holds(line: Json, **facts: Any) -> None:
    assert {name: line.get(name) for name in facts} == facts, line


ANSWERED = {"event": "exchange", "level": "info", "status": 200, "end": "whole", "model": "test-model"}
PLACES = {"session", "exchange", "mode", "found", "tokens_full", "tokens", "seconds", "first_byte_seconds"}


async def test_an_answer(logged: Logged) -> None:
    named = [JSON_TYPE, (b"X-Request-Id", b"req-7")]
    logged.upstream.expects(replies(answer_body(WORDS), 200, named))
    line = await asked(logged, post(chat_body(f"{WORDS}?"), key=KEY))
    holds(line, **ANSWERED, view="original", attempts=1, request="req-7", upstream=logged.upstream.url)
    assert set(line) >= PLACES
    assert "code" not in line


async def test_a_stream(logged: Logged) -> None:
    logged.upstream.expects(streams(PARTS))
    line = await asked(logged, post(chat_body(stream=True)))
    holds(line, **ANSWERED, bytes=len(b"".join(PARTS)))
    assert line["first_byte_seconds"] <= line["seconds"]


CUT = head(200, SSE) + chunk(PARTS[0])
ERROR = b'{"error": {"message": "no"}}'


@pytest.mark.parametrize(
    ("script", "stream", "facts"),
    [
        *(
            (replies(ERROR, status, [JSON_TYPE]), False, {"status": status, "code": "upstream_status"})
            for status in (400, 401, 429, 500, 503)
        ),
        (cuts_after(0, b"", reset=True), False, {"status": 502, "code": "upstream_unreachable"}),
        (stalls_after(b""), False, {"status": 504, "code": "upstream_timeout"}),
        (cuts_after(len(CUT), CUT), True, {"status": 200, "end": "cut", "code": "upstream_cut"}),
        (replies(b"null", 200, [JSON_TYPE]), False, {"status": 200, "end": "whole", "code": "no_answer"}),
        (replies(json.dumps(TOO_LONG).encode(), 400, [JSON_TYPE]), False, {"code": TOO_LONG_CODE}),
    ],
)
async def test_a_failure_of_the_upstream(logged: Logged, script: Script, stream: bool, facts: Json) -> None:
    logged.upstream.always(script)
    line = await asked(logged, post(chat_body(stream=stream)))
    logged.upstream.always(replies(b"not expected", 599))
    holds(line, level="warning", cause="upstream", **facts)
    assert set(line) >= PLACES - {"first_byte_seconds"}


async def test_an_overflow_that_was_recovered(logged: Logged) -> None:
    messages = [{"role": "user", "content": f"entry {n}. {prose(n, 270)}"} for n in range(10)]
    too_long = replies(json.dumps(TOO_LONG).encode(), 400, [JSON_TYPE])
    logged.upstream.expects(too_long, replies(answer_body(), 200, [JSON_TYPE]))
    line = await asked(logged, post(chat_body(messages=messages)))
    holds(line, **ANSWERED, view="compacted", attempts=2)
    assert line["tokens"] < line["tokens_full"]


async def test_a_client_that_left(logged: Logged) -> None:
    logged.upstream.expects(stalls_after(head(200, SSE) + chunk(PARTS[0])))
    before = len(logged.lines())
    async with logged.caller() as caller:
        await caller.sends(post(chat_body(stream=True)))
        await caller.head()
        await caller.chunk()
    line = await logged.line_after(before)
    holds(line, event="exchange", level="info", status=200, end="left")


async def test_a_client_that_left_before_anything_came(logged: Logged) -> None:
    forwarded = asyncio.Event()

    async def says_nothing(wire: Wire) -> None:
        forwarded.set()
        await wire.stall()

    logged.upstream.expects(says_nothing)
    before = len(logged.lines())
    async with logged.caller() as caller:
        await caller.sends(post(chat_body()))
        await forwarded.wait()
    line = await logged.line_after(before)
    holds(line, event="exchange", level="info", end="left")
    assert "status" not in line


async def test_a_store_that_is_down(logged: Logged) -> None:
    with opened(logged.database) as other:
        other.execute("BEGIN IMMEDIATE")
        line = await asked(logged, post(chat_body()))
        other.execute("ROLLBACK")
    holds(line, event="exchange", level="error", status=503, code="store_unavailable", cause="proxy")


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (post(b"{bad"), 400, "invalid_json"),
        (post(b'{"a": 1, "a": 2}'), 400, "invalid_json"),
        (post(b" " * 200_001), 413, "body_too_large"),
        (post(chat_body(), [(b"X-Session-Id", b"a"), (b"X-Session-Id", b"b")]), 400, "repeated_header"),
        (post(chat_body(), [(b"X-Palimpsest", b"of")]), 400, "invalid_field"),
        (post(chat_body(), [(b"X-Big", b"x" * 65_000), (b"X-B", b"x" * 600)]), 431, "headers_too_large"),
    ],
)
async def test_a_refusal_before_there_is_a_turn(
    logged: Logged, request_: bytes, status: int, code: str
) -> None:
    line = await asked(logged, request_)
    holds(line, level="warning", status=status, end="whole", code=code, cause="client")
    assert "session" not in line


async def test_a_passthrough(logged: Logged) -> None:
    logged.upstream.expects(replies(b"12345", 200))
    get = b"GET /s/Meise/v1/files/f-1?key=sk-Kanarienvogel HTTP/1.1\r\nHost: localhost\r\n\r\n"
    line = await asked(logged, get)
    holds(line, event="request", level="info", method="GET", path="/v1/files/f-1", status=200, bytes=5)
    logged.upstream.expects(replies(b"gone", 404))
    line = await asked(logged, b"GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
    holds(line, event="request", level="warning", status=404, code="upstream_status", cause="upstream")


@pytest.mark.parametrize(
    ("asked_for", "status", "code"),
    [
        ("GET /api/sessions/none?token=sk-Kanarienvogel", 404, "not_found"),
        ("GET /api/sessions?limit=x", 400, "invalid_parameter"),
        ("POST /ui/sessions/none", 404, "not_found"),
        ("GET /nothing", 404, "not_found"),
        ("DELETE /healthz", 405, "method_not_allowed"),
        ("POST /mcp", 400, "refused"),
    ],
)
async def test_a_request_to_an_endpoint_of_ours_that_failed(
    logged: Logged, asked_for: str, status: int, code: str
) -> None:
    before = len(logged.lines())
    reply = await logged.asks(f"{asked_for} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    line = await logged.line_after(before)
    method, _, path = asked_for.partition("?")[0].partition(" ")
    holds(line, event="request", level="warning", method=method, path=path, status=status, code=code)
    assert line.get("request") == reply.header("x-request-id")
    assert line["seconds"] >= 0


async def test_what_is_not_to_be_stored(logged: Logged) -> None:
    logged.upstream.expects(replies(answer_body(), 200, [JSON_TYPE]))
    line = await asked(logged, post(chat_body(), [(b"X-Palimpsest", b"no-store")]))
    holds(line, event="exchange", level="info", status=200, not_stored="no-store")


async def test_a_models_name_forges_no_line(logged: Logged) -> None:
    logged.upstream.expects(replies(answer_body(), 200, [JSON_TYPE]))
    name = '\n{"event": "exchange"}\r\x1b[2J\u2028\u202e' + "m" * 400
    line = await asked(logged, post(chat_body(model=name)))
    assert line["model"].isprintable()
    assert len(line["model"]) < TEXT_CHARS * 6
    assert line["model"].startswith('\\n{"event"')


async def test_a_hangup_never_kills(logged: Logged) -> None:
    logged.process.process.send_signal(signal.SIGHUP)
    assert (await logged.http.get("/healthz")).status_code == 200
    logged.upstream.expects(replies(answer_body(), 200, [JSON_TYPE]))
    holds(await asked(logged, post(chat_body())), status=200)


async def test_no_line_holds_a_word_or_a_key(logged: Logged) -> None:
    logged.upstream.expects(replies(answer_body(WORDS), 200, [JSON_TYPE]))
    await asked(logged, post(chat_body(f"{WORDS}?"), [(b"X-Session-Id", WORDS.encode())], key=KEY))
    written = (logged.folder / "log").read_text()
    assert [word for word in (KEY, WORDS, "Kanarienvogel", "Meise") if word in written] == []


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def test_a_start_a_refused_connection_a_cut_answer_and_a_stop(tmp_path: Path) -> None:
    async with Scripted() as upstream:
        away = f"http://127.0.0.1:{closed_port()}"
        routes = json.dumps([{"match": "away", "base_url": f"{away}/v1"}])
        async with server(tmp_path, upstream.url, 5_000, **SETTINGS, PALIMPSEST_ROUTES=routes) as process:
            async with httpx.AsyncClient(
                base_url=process.url, timeout=30, trust_env=False, verify=False
            ) as http:
                logged = Logged(process.url, upstream, tmp_path, http, process)
                (started,) = [line for line in logged.lines() if line["event"] == "started"]
                holds(started, level="info", version=version("palimpsest"), pid=process.process.pid)
                holds(
                    started, address=process.url, mode="open", upstreams=[f"{upstream.url}/v1", f"{away}/v1"]
                )
                assert started["database"].startswith("SQLite 3.")
                assert started["schema"].isdigit()
                line = await asked(logged, post(chat_body(model="away")))
                holds(line, status=502, code="upstream_unreachable", upstream=away, model="away")
                upstream.expects(stalls_after(head(200, SSE) + chunk(PARTS[0])))
                async with logged.caller() as caller:
                    await caller.sends(post(chat_body(stream=True)))
                    await caller.chunk() if (await caller.head()).status == 200 else None
                    process.process.send_signal(signal.SIGTERM)
                    await process.process.wait()
            said = {line["event"]: line for line in logged.lines()}
            holds(said["stopping"], level="info", reason="SIGTERM", answering=1)
            holds(said["exchange"], level="warning", status=200, end="cut", code="shutdown", cause="proxy")
            holds(said["stopped"], level="info", reason="SIGTERM", cut=1)


async def test_a_hangup_during_the_start_kills_nobody(tmp_path: Path) -> None:
    """The database takes its time; without it the start is refused, and that is how the process ends."""
    waits, goes = asyncio.Event(), asyncio.Event()

    async def database(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waits.set()
        await goes.wait()
        writer.close()

    async with await asyncio.start_server(database, "127.0.0.1", 0) as listening:
        url = f"postgresql://u@127.0.0.1:{listening.sockets[0].getsockname()[1]}/d"
        words = ("serve", "--port", "0", "--database", url)
        process = Process(tmp_path, *words, settings={}, out=tmp_path / "out", err=tmp_path / "log")
        await asyncio.wait_for(waits.wait(), PATIENCE_SECONDS)
        process.send_signal(signal.SIGHUP)
        goes.set()
        assert await process.wait() == REFUSED
    assert "Is the server up" in (tmp_path / "log").read_text()


async def test_without_a_handler_a_hangup_kills() -> None:
    """The control: what is proved above is not the system's own doing."""

    # Whoever started the tests may have had hangups ignored (nohup), and that is inherited.
    def heeded() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    process = await asyncio.create_subprocess_exec("sleep", "60", preexec_fn=heeded)
    process.send_signal(signal.SIGHUP)
    assert await process.wait() == -signal.SIGHUP
