"""A quota holds for what comes at once, leaves early or asks for summaries; a kill frees what it reserved."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from benchmarks.kill_loop import server
from tests.kit.model import ModelServer
from tests.kit.postgres import empty_database, server_address
from tests.kit.proxy import Proxy, proxied
from tests.kit.replicas import until
from tests.kit.wire import Json, Line, answer_body, chat_body, deployed, post, settings_for, wired
from tests.upstream.scripted import Script, Scripted, Wire, replies, stalls_after

pytestmark = pytest.mark.timeout(180)

QUOTA = 5_000
# What each request reserves and uses at most: 400 words, and an answer of 100 tokens.
ROOM = 520
AT_ONCE = {
    "access.daily_tokens": QUOTA,
    "limits.concurrent_requests": 1_000,
    "limits.caller_share": 1.0,
    # On a busy machine 200 requests wait for each other longer than anybody's would.
    "database.store_deadline_seconds": 60,
}


async def asks(http: httpx.AsyncClient, number: int, header: dict[str, str]) -> httpx.Response:
    """A request of 400 words, unlike any other."""
    body = chat_body(f"{number} " + "word " * 400, max_tokens=100)
    return await http.post("/v1/chat/completions", content=body, headers=HEADERS | header)


def slowly(stated: list[int]) -> Script:
    """Answers of 500 tokens that all come after all requests; what they state is added to `stated`."""

    async def answers(wire: Wire) -> None:
        await asyncio.sleep(2)
        stated.append(500)
        usage = {"prompt_tokens": 400, "completion_tokens": 100}
        await replies(answer_body(usage=usage))(wire)

    return answers


@pytest.mark.parametrize("on_postgres", [False, True], ids=["sqlite", "postgresql"])
@pytest.mark.parametrize("header", [{}, {"x-palimpsest": "no-store"}], ids=["recorded", "no-store"])
async def test_two_hundred_at_once_use_no_more_than_the_quota_and_one_request(
    tmp_path: Path, header: dict[str, str], on_postgres: bool
) -> None:
    """On PostgreSQL at two servers."""
    async with AsyncExitStack() as stack:
        given: Json = {**AT_ONCE}
        if on_postgres:
            given["database.url"] = await stack.enter_async_context(empty_database(server_address()))
        line = await stack.enter_async_context(wired(tmp_path, given))
        urls = [line.url]
        if on_postgres:
            settings = settings_for(tmp_path, line.upstream.url, given)
            urls.append(await stack.enter_async_context(deployed(settings)))
        clients = [await stack.enter_async_context(client(url)) for url in urls]
        stated: list[int] = []
        line.upstream.always(slowly(stated))
        sent = [asks(clients[number % len(clients)], number, header) for number in range(200)]
        answers = await asyncio.gather(*sent)
        answered = [reply for reply in answers if reply.status_code == 200]
        assert len(answered) == len(stated)
        # Something is answered, and what is answered is within the quota and the room of one request.
        assert 0 < sum(stated) <= QUOTA + ROOM
        refused = [reply for reply in answers if reply.status_code != 200]
        assert {reply.json()["error"]["code"] for reply in refused} == {"quota_exceeded"}
        # What was reserved and not used is free again.
        if sum(stated) < QUOTA:

            async def is_free() -> bool:
                return (await asks(clients[0], 201, header)).status_code == 200

            await until(is_free)


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/v1/chat/completions", []),
        ("/v1/chat/completions", [(b"X-Palimpsest", b"no-store")]),
        ("/v1/embeddings", []),
    ],
    ids=["recorded", "no-store", "embeddings"],
)
async def test_whoever_leaves_before_the_first_byte_has_used_the_prompt(
    tmp_path: Path, path: str, header: list[tuple[bytes, bytes]]
) -> None:
    async with wired(tmp_path, {"access.daily_tokens": 1_150}) as line:
        line.upstream.always(stalls_after(b""))
        for number in range(3):
            async with line.caller() as caller:
                body = chat_body(f"{number} " + "word " * 400, max_tokens=10)
                await caller.sends(post(body, header, path=path))
                await line.upstream.arrived(number + 1)
                await caller.leaves()

            async def is_counted(least: int = 400 * (number + 1)) -> bool:
                return line.query("SELECT coalesce(sum(tokens), 0) FROM usage") >= [(least,)]

            await until(is_counted)
        refused = await line.asks(post(chat_body("once more"), header, path=path))
        assert (refused.status, refused.code) == (429, "quota_exceeded")
        assert len(line.upstream.requests) == 3


async def test_imports_and_compactions_with_a_focus_ask_no_model_beyond_the_quota(tmp_path: Path) -> None:
    model = ModelServer(window=8_000)
    off = {"compaction.background": False, "policy.trigger_ratio": 0.9}
    async with proxied(model, tmp_path, off) as proxy:
        chat = proxy.chat(session="told")
        for number in range(12):
            await chat.says(f"Entry {number}. " + f"Something of {number} happened. " * 40)
        headers = chat.headers
        document = (await proxy.http.get("/api/sessions/told/export", headers=headers)).json()
    model.seen.clear()
    async with proxied(model, tmp_path, off | {"access.daily_tokens": 30}) as proxy:
        while (await said(proxy, headers)) == 200:
            pass
        for number in range(3):
            copy = document | {"name": f"copy-{number}"}
            made = await proxy.http.post("/api/sessions/import", json=copy, headers=headers)
            assert made.status_code == 201, made.text
            path = f"/api/sessions/{made.json()['session']}/compact"
            compacted = await proxy.http.post(path, json={"focus": f"the {number}"}, headers=headers)
            assert compacted.status_code == 200, compacted.text
            assert compacted.json()["compaction"]["author"] == "deterministic"
            assert "quota of the day" in compacted.json()["compaction"]["reason"]
        assert model.summaries == []


async def test_summaries_count(tmp_path: Path) -> None:
    model = ModelServer(window=8_000)
    given = {"compaction.background": False, "access.daily_tokens": 10**6}
    async with proxied(model, tmp_path, given) as proxy:
        chat = proxy.chat(session="told")
        for number in range(12):
            await chat.says(f"Entry {number}. " + f"Something of {number} happened. " * 40)
        before = await used(proxy, tmp_path)
        path = "/api/sessions/told/compact"
        made = await proxy.http.post(path, json={"focus": "numbers"}, headers=chat.headers)
        assert made.json()["compaction"]["author"] == "model"
        asked = sum(seen.tokens for seen in model.summaries)
        assert asked > 0

        async def is_counted() -> bool:
            return await used(proxy, tmp_path) - before >= asked

        await until(is_counted)


async def said(proxy: Proxy, headers: dict[str, str]) -> int:
    """The status of one more request."""
    body = {"model": "test-model", "messages": [{"role": "user", "content": "Hello there."}]}
    return (await proxy.http.post("/v1/chat/completions", json=body, headers=headers)).status_code


async def used(proxy: Proxy, folder: Path) -> int:
    """Tokens charged to all accounts."""
    line = Line(proxy.url, Scripted(), folder, proxy.http)
    ((tokens,),) = line.query("SELECT coalesce(sum(tokens), 0) FROM usage")
    return int(tokens)


async def test_what_a_killed_server_had_reserved_is_free_again(tmp_path: Path) -> None:
    """In a file at the next start; on PostgreSQL when another server misses it."""
    async with Scripted() as upstream, empty_database(server_address()) as url:
        for database in ({}, {"PALIMPSEST_DATABASE__URL": url}):
            folder = tmp_path / str(len(database))
            folder.mkdir()
            if database:
                migrated = settings_for(folder, upstream.url, {"database.url": url})
                async with deployed(migrated):
                    pass
            given = {
                "PALIMPSEST_ACCESS__DAILY_TOKENS": "3000",
                "PALIMPSEST_DATABASE__HEARTBEAT_TIMEOUT_SECONDS": "3",
                **database,
            }
            upstream.always(stalls_after(b""))
            before = len(upstream.requests)
            async with (
                server(folder, upstream.url, 1_000_000, **given) as running,
                client(running.url) as http,
            ):
                waiting = asyncio.create_task(
                    http.post("/v1/chat/completions", content=BODY, headers=HEADERS)
                )
                await upstream.arrived(before + 1)
                refused = await http.post("/v1/chat/completions", content=BODY, headers=HEADERS)
                assert refused.json()["error"]["code"] == "quota_exceeded"
                # It is not used yet: a client may try again soon.
                assert int(refused.headers["retry-after"]) < 60
                running.kill()
                with pytest.raises(httpx.HTTPError):
                    await waiting
            upstream.always(replies(answer_body(usage={"prompt_tokens": 5, "completion_tokens": 5})))
            async with (
                server(folder, upstream.url, 1_000_000, **given) as running,
                client(running.url) as http,
            ):

                async def is_free() -> bool:
                    again = await http.post("/v1/chat/completions", content=BODY, headers=HEADERS)
                    return again.status_code == 200

                await until(is_free)


BODY = chat_body("a question", max_tokens=10_000)
NO_LIMITS = httpx.Limits(max_connections=None)
HEADERS = {"authorization": "Bearer key-1", "content-type": "application/json"}


def client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=150, limits=NO_LIMITS, trust_env=False, verify=False)
