"""kill -9 of the real server: what was forwarded and what was finished is there afterwards (P2, P3, S10)."""

from __future__ import annotations

import random
from pathlib import Path

import httpx
import pytest

from benchmarks.kill_loop import Server, kill_loop, server
from tests.kit.wire import answer_body
from tests.upstream.scripted import Scripted, Wire, replies

FIRST = {"model": "m", "messages": [{"role": "user", "content": "Remember 4711."}]}


async def asks(running: Server, body: object, headers: dict[str, str] | None = None) -> httpx.Response:
    async with httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False, verify=False) as http:
        return await http.post("/v1/chat/completions", json=body, headers=headers)


async def transcript(running: Server, session: str) -> list[tuple[str, str]]:
    async with httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False, verify=False) as http:
        reply = await http.get(f"/api/sessions/{session}/messages")
        assert reply.status_code == 200, reply.text
        return [(row["message"]["content"], row["state"]) for row in reply.json()["messages"]]


async def sessions(running: Server) -> list[str]:
    async with httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False, verify=False) as http:
        return [row["id"] for row in (await http.get("/api/sessions")).json()["sessions"]]


@pytest.mark.spec("P2")
@pytest.mark.spec("S10")
async def test_what_reached_the_upstream_is_there_after_a_kill(tmp_path: Path) -> None:
    async with Scripted() as upstream:
        async with server(tmp_path, upstream.url) as running:

            async def kills(_: Wire) -> None:
                running.kill()

            upstream.expects(replies(answer_body("Noted.")), kills)
            assert (await asks(running, FIRST)).status_code == 200
            said = [*FIRST["messages"], {"role": "assistant", "content": "Noted."}]
            body = {"model": "m", "messages": [*said, {"role": "user", "content": "Which number?"}]}
            with pytest.raises(httpx.TransportError):
                await asks(running, body)
        async with server(tmp_path, upstream.url) as running:
            (session,) = await sessions(running)
            kept = [("Remember 4711.", "live"), ("Noted.", "live"), ("Which number?", "live")]
            assert await transcript(running, session) == kept
            # The SDK's retry, after the restart: the same session, not a row more, the answer behind it.
            upstream.expects(replies(answer_body("4711.")), replies(b'{"error":"busy"}', 429))
            again = await asks(running, body, {"x-stainless-retry-count": "1"})
            assert again.status_code == 200
            assert await sessions(running) == [session]
            assert await transcript(running, session) == [*kept, ("4711.", "live")]
            assert (await asks(running, body)).status_code == 429


@pytest.mark.spec("P2")
@pytest.mark.spec("P3")
@pytest.mark.spec("S10")
async def test_kills_under_load_lose_nothing_a_client_saw_the_end_of(tmp_path: Path) -> None:
    after = await kill_loop(3, tmp_path, random.Random(3), most_pieces=1_000)
    assert after.failures == 0, after
    assert after.ended > 0, after
    assert after.cut > 0, after


@pytest.mark.spec("P3")
async def test_a_client_that_claims_ends_too_early_is_caught(tmp_path: Path) -> None:
    # It stops at the first that is lost; a kill finds nobody amidst an answer now and then.
    after = await kill_loop(12, tmp_path, random.Random(1), broken=True, most_pieces=200)
    assert after.lost > 0, after
