"""No request, however large, keeps the others waiting: how much is done on the event loop at a time.

Counted are calls of functions on the loop's thread between two turns of the loop, not seconds: the same on a
busy machine. The control does the same work on the loop.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import APIRouter, FastAPI
from palimpsest.core.wire.chat import parse_chat_request
from palimpsest.core.wire.request import RequestLimits
from palimpsest.proxy import jobs
from palimpsest.proxy.jobs import INLINE_WEIGHT
from palimpsest.proxy.sessions.reader import MessageReader

from tests.kit.proxy import Front, fronting
from tests.kit.serving import served, shared_tokenizer

pytestmark = pytest.mark.timeout(240)

MESSAGES = 20_000
# Calls between two turns of the loop. Anything done for each of 20,000 messages takes more; so many take some
# 20 ms.
MOST_CALLS = 60_000
ANSWER = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Noted."},"finish_reason":"stop"}]}'
SETTINGS = {
    "access.unproven_messages": 1_000_000,
    "compaction.deadline_seconds": 0,
    "compaction.background": False,
    "database.store_deadline_seconds": 60,
    "models": [{"match": "large", "window_tokens": 9_000_000}, {"match": "small", "window_tokens": 16_000}],
}


class Calls:
    """The most function calls of this thread between two turns of its loop."""

    def __init__(self) -> None:
        self.most = 0
        self._since = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        ticking = asyncio.get_running_loop().create_task(self._tick())
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            ticking.cancel()

    def _called(self, frame: object, event: str, argument: object) -> None:
        self._since += event in ("call", "c_call")

    async def _tick(self) -> None:
        while True:
            self.most, self._since = max(self.most, self._since), 0
            # Not at every turn: the threads need the interpreter, too.
            await asyncio.sleep(0.001)


@asynccontextmanager
async def upstream(seen: list[bytes]) -> AsyncIterator[str]:
    """Answers whatever it is asked, and looks at nothing: it shares the loop."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head.lower())
                seen.append(await reader.readexactly(int(length[1]) if length else 0))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**24)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def history(count: int) -> bytes:
    """So many messages, the last one a user's."""
    roles = ("user", "assistant") if count % 2 else ("assistant", "user")
    return b",".join(
        json.dumps({"role": roles[at % 2], "content": f"Message {at} of many."}).encode()
        for at in range(count)
    )


async def asked(front: Front, messages: bytes, model: str) -> httpx.Response:
    body = b'{"model":"%b","messages":[%b]}' % (model.encode(), messages)
    response = await front.http.post("/v1/chat/completions", content=body, headers=JSON)
    assert response.status_code == 200, response.text
    return response


JSON = {"content-type": "application/json", "authorization": "Bearer sk-large"}


async def most_calls(folder: Path, model: str) -> int:
    """Of a request with 20,000 messages, and of the next one of its conversation."""
    seen: list[bytes] = []
    calls, messages = Calls(), history(MESSAGES - 3)
    async with upstream(seen) as address, fronting(address, folder, SETTINGS) as front:
        await asked(front, history(1), model)
        with calls.counted():
            await asked(front, messages, model)
            await asked(front, messages + b"," + ANSWERED, model)
        assert len(seen) >= 3
    return calls.most


ANSWERED = b'{"role":"assistant","content":"Noted."},{"role":"user","content":"And now?"}'


@pytest.mark.spec("H11")
@pytest.mark.parametrize("model", ["large", "small"])
async def test_a_huge_request_is_handled_beside_the_others(tmp_path: Path, model: str) -> None:
    assert await most_calls(tmp_path, model) < MOST_CALLS


async def test_the_control_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "INLINE_WEIGHT", sys.maxsize)
    assert await most_calls(tmp_path, "large") > 2 * MOST_CALLS


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def long_session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a stopped server that has stored one session of 10,000 messages."""
    folder = tmp_path_factory.mktemp("long")
    async with upstream([]) as address, fronting(address, folder, SETTINGS) as front:
        await asked(front, history(9_999), "small")
    return folder


@pytest.mark.spec("H11")
@pytest.mark.parametrize(
    "page",
    [
        *(f"/api/sessions/{{}}/{end}" for end in ("status", "view", "messages")),
        *(f"/api/sessions/{{}}/exchanges/1{end}" for end in ("", "?against=previous", "?lost=1", "/body")),
        *(f"/ui/sessions/{{}}{end}" for end in ("", "/events", "/turns/1", "/turns/1?from=0")),
    ],
)
async def test_a_cold_page_of_a_long_session_is_made_beside_the_others(
    long_session: Path, tmp_path: Path, page: str
) -> None:
    folder = shutil.copytree(long_session, tmp_path / "cold")
    async with fronting("http://127.0.0.1:1/v1", folder, SETTINGS, migrates=False) as front:
        (session,) = (await front.http.get("/api/sessions", headers=JSON)).json()["sessions"]
        calls = Calls()
        with calls.counted():
            response = await front.http.get(page.format(session["id"]), headers=JSON)
        assert response.status_code == 200
    assert calls.most < MOST_CALLS


@pytest.mark.spec("H11")
async def test_long_messages_are_indexed_beside_the_others(tmp_path: Path) -> None:
    """Nothing is done a word on the loop, long after the request itself was answered."""
    said = (" ".join(f"word{at}x{word}" for word in range(3_000)) for at in range(64))
    roles = ("user", "assistant")
    listed = [json.dumps({"role": roles[at % 2], "content": text}).encode() for at, text in enumerate(said)]
    messages = b",".join([*listed, history(1)])
    calls = Calls()
    async with upstream([]) as address, fronting(address, tmp_path, SETTINGS) as front:
        # What only the first page needs is loaded.
        await front.http.get("/api/sessions", headers=JSON)
        with calls.counted():
            await asked(front, messages, "large")
            (session,) = (await front.http.get("/api/sessions", headers=JSON)).json()["sessions"]
            found = f"/api/sessions/{session['id']}/search?q=word63x2999"
            # A search brings the index up to date before it looks.
            assert (await front.http.get(found, headers=JSON)).json()["results"]
    assert calls.most < MOST_CALLS


@pytest.mark.spec("H11")
async def test_the_first_page_after_a_start_is_prepared(tmp_path: Path) -> None:
    async with fronting("http://127.0.0.1:1/v1", tmp_path, SETTINGS) as front:
        first, second = await two_pages(front.http, "/api/sessions")
    assert first < 5 * second


async def test_the_control_makes_its_routes_at_the_first_page() -> None:
    """As the framework proposes: a router with as many routes as ours is included."""
    routes, app = APIRouter(), FastAPI()
    for number in range(40):
        routes.add_api_route(f"/{number}", _page)
    app.include_router(routes)
    async with served(app) as address, httpx.AsyncClient(base_url=address, verify=False) as http:
        first, second = await two_pages(http, "/39")
    assert first > 5 * second


async def _page(session: str = "", most: int = 10) -> list[str]:
    return [session] * most


async def two_pages(http: httpx.AsyncClient, path: str) -> tuple[int, int]:
    """The most calls of the first time that the page is asked for, and of the second."""
    most = []
    for _ in range(2):
        calls = Calls()
        with calls.counted():
            assert (await http.get(path, headers=JSON)).status_code == 200
        most.append(calls.most)
    return most[0], most[1]


@pytest.mark.spec("H11")
async def test_what_is_sent_and_told_does_not_depend_on_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for place, bound in (("inline", sys.maxsize), ("beside", -1)):
        monkeypatch.setattr(jobs, "INLINE_WEIGHT", bound)
        folder = tmp_path / place
        folder.mkdir()
        told.append(await _told(folder))
    assert told[0] == told[1]


async def _told(folder: Path) -> list[Any]:
    """What the upstream was sent and what pages say, without ids and times."""
    seen: list[bytes] = []
    async with upstream(seen) as address, fronting(address, folder, SETTINGS) as front:
        messages = history(2_001)
        await asked(front, messages, "small")
        await asked(front, messages + b"," + ANSWERED, "small")
        (session,) = (await front.http.get("/api/sessions", headers=JSON)).json()["sessions"]
        status = (await front.http.get(f"/api/sessions/{session['id']}/status", headers=JSON)).json()
    forwarded = [re.sub(rb"[0-9a-f]{12,}", b"id", body) for body in seen]
    return [forwarded, status["tokens"], status["tokens_full"], status["armed"], session["messages"]]


@pytest.mark.spec("H11")
async def test_a_client_that_leaves_while_its_request_is_read_harms_nobody(tmp_path: Path) -> None:
    messages = history(MESSAGES - 1)
    async with upstream([]) as address, fronting(address, tmp_path, SETTINGS) as front:
        host, port = front.url.removeprefix("http://").split(":")
        for _ in range(3):
            _, writer = await asyncio.open_connection(host, int(port))
            body = b'{"model":"large","messages":[%b]}' % messages
            head = (
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer sk-large\r\n"
            )
            writer.write(
                head + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
            await writer.drain()
            writer.close()
        await asked(front, messages, "large")
        sessions = (await front.http.get("/api/sessions", headers=JSON)).json()["sessions"]
        # A request that was given up may have been recorded, whole, or not at all.
        assert {session["messages"] for session in sessions} <= {MESSAGES - 1, MESSAGES}
        assert MESSAGES in {session["messages"] for session in sessions}


async def test_other_coroutines_run_while_a_body_is_parsed() -> None:
    body = b'{"model":"m","messages":[%b]}' % history(MESSAGES - 1)
    assert await ticks_beside(len(body), parse_chat_request, body, RequestLimits()) > 10


async def test_the_control_lets_nobody_run() -> None:
    body = b'{"model":"m","messages":[%b]}' % history(MESSAGES - 1)
    assert await ticks_beside(0, parse_chat_request, body, RequestLimits()) == 0


async def test_other_coroutines_run_while_a_long_answer_is_read() -> None:
    counter = shared_tokenizer().counter_for("m")
    answer = json.dumps({"role": "assistant", "content": "A word or two. " * 200_000}).encode()
    reader = MessageReader(lambda _: counter.count_message, 1_000_000)
    assert await ticks_while(reader.read_long_answers([answer], "m")) > 10


async def ticks_beside(weight: int, work: Callable[..., object], *args: Any) -> int:
    """How often another coroutine came to its turn while this was done."""
    return await ticks_while(jobs.offload(weight, work, *args))


async def ticks_while(waited: Coroutine[Any, Any, object]) -> int:
    """How often another coroutine came to its turn meanwhile."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    await waited
    ticking.cancel()
    return ticks


async def test_whoever_is_cancelled_leaves_at_once_and_the_work_ends() -> None:
    may_end, ended = threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait()
        ended.set()

    waiting = asyncio.ensure_future(jobs.offload(INLINE_WEIGHT + 1, work))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not ended.is_set()
    may_end.set()
    assert await asyncio.to_thread(ended.wait, 10)


@pytest.mark.parametrize("weight", [0, INLINE_WEIGHT + 1])
async def test_what_the_work_raises_is_raised(weight: int) -> None:
    def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await jobs.offload(weight, work)
