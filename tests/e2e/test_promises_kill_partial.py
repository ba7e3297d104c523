"""kill -9 in the middle of a stream: the answer is there as it was when it was last saved (S10)."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from palimpsest.storage.sqlite_files import driver

from benchmarks.kill_loop import Server, server
from tests.e2e.test_promises_kill import asks, sessions, transcript
from tests.kit.wire import answer_body, event
from tests.upstream.scripted import Scripted, Wire, chunk, head, replies

ASKED = {"role": "user", "content": "Tell me a long story."}
CHUNKED = [(b"Content-Type", b"text/event-stream"), (b"Transfer-Encoding", b"chunked")]


def saved(folder: Path) -> bytes | None:
    """What is stored of an answer that is still coming."""
    connection = driver.connect(folder / "palimpsest.db")
    try:
        row = connection.execute("SELECT partial FROM exchanges WHERE partial IS NOT NULL").fetchone()
    finally:
        connection.close()
    return bytes(row[0]) if row else None


class Story:
    """An upstream that says the next piece when the client has the last one, until something is stored."""

    def __init__(self, running: Server, folder: Path, then: dict[str, Any] | None = None) -> None:
        self.heard = ""
        self.partial = ""
        self._running = running
        self._folder = folder
        self._last = then
        self._had = asyncio.Semaphore(0)

    async def __call__(self, wire: Wire) -> None:
        await wire.send(head(200, CHUNKED))
        pieces = 0
        while (stored := saved(self._folder)) is None:
            await wire.send(chunk(event({"content": f"piece {pieces}; "})))
            pieces += 1
            await self._had.acquire()
        self.partial = json.loads(stored)["content"]
        if self._last is not None:
            await wire.send(chunk(event(self._last)))
            while b"tool_calls" not in (saved(self._folder) or b""):
                await wire.send(chunk(b": waiting\n\n"))
                await self._had.acquire()
        self._running.kill()

    async def is_told(self) -> None:
        """The client listens until it is cut off."""
        body = {"model": "m", "messages": [ASKED], "stream": True}
        async with asyncio.timeout(60), httpx.AsyncClient(timeout=60, trust_env=False, verify=False) as http:
            with suppress(httpx.TransportError):
                url = f"{self._running.url}/v1/chat/completions"
                async with http.stream("POST", url, json=body) as reply:
                    async for line in reply.aiter_lines():
                        if line.startswith("data: "):
                            delta = json.loads(line[6:])["choices"][0]["delta"]
                            self.heard += delta.get("content") or ""
                        if line:
                            self._had.release()


async def told(upstream: Scripted, folder: Path, then: dict[str, Any] | None = None) -> Story:
    """The story as far as it came before the server was killed."""
    async with server(folder, upstream.url) as running:
        story = Story(running, folder, then)
        upstream.expects(story)
        await story.is_told()
    return story


@pytest.mark.spec("S10")
async def test_a_partial_answer_survives_a_kill_and_is_gone_on_from(tmp_path: Path) -> None:
    async with Scripted() as upstream:
        story = await told(upstream, tmp_path)
        assert story.partial
        async with server(tmp_path, upstream.url) as running:
            (session,) = await sessions(running)
            question, (text, state) = await transcript(running, session)
            assert question == (ASKED["content"], "live")
            assert state == "incomplete"
            assert text.startswith(story.partial)
            assert story.heard.startswith(text)
            assert saved(tmp_path) is None
            answer = {"role": "assistant", "content": text}
            body = {"model": "m", "messages": [ASKED, answer, {"role": "user", "content": "Go on."}]}
            upstream.expects(replies(answer_body("The end.")))
            assert (await asks(running, body)).status_code == 200
            assert await sessions(running) == [session]
            after = [("Go on.", "live"), ("The end.", "live")]
            assert await transcript(running, session) == [question, (text, "incomplete"), *after]


@pytest.mark.spec("S10")
async def test_a_client_that_heard_more_than_was_saved_goes_on_in_the_same_session(tmp_path: Path) -> None:
    async with Scripted() as upstream:
        story = await told(upstream, tmp_path)
        async with server(tmp_path, upstream.url) as running:
            (session,) = await sessions(running)
            answer = {"role": "assistant", "content": f"{story.heard} and more"}
            body = {"model": "m", "messages": [ASKED, answer, {"role": "user", "content": "Go on."}]}
            upstream.expects(replies(answer_body("The end.")))
            assert (await asks(running, body)).status_code == 200
            assert await sessions(running) == [session]
            texts = [text for text, _ in await transcript(running, session)]
            assert texts == [ASKED["content"], answer["content"], "Go on.", "The end."]


@pytest.mark.spec("S10")
async def test_a_retry_after_the_kill_is_answered_in_the_same_session(tmp_path: Path) -> None:
    async with Scripted() as upstream:
        await told(upstream, tmp_path)
        async with server(tmp_path, upstream.url) as running:
            (session,) = await sessions(running)
            upstream.expects(replies(answer_body("A story.")))
            assert (await asks(running, {"model": "m", "messages": [ASKED]})).status_code == 200
            assert await sessions(running) == [session]
            assert await transcript(running, session) == [(ASKED["content"], "live"), ("A story.", "live")]


@pytest.mark.spec("S10")
async def test_a_partial_answer_with_open_calls_stays_off_the_path(tmp_path: Path) -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a'}}
    async with Scripted() as upstream:
        await told(upstream, tmp_path, {"tool_calls": [call]})
        async with server(tmp_path, upstream.url) as running:
            (session,) = await sessions(running)
            assert await transcript(running, session) == [(ASKED["content"], "live")]
            assert saved(tmp_path) is None
