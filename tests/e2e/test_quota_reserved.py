"""A quota holds for what comes at once, leaves early or asks for summaries; a kill frees what it reserved."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied
from tests.kit.replicas import until
from tests.kit.wire import Line, chat_body, post, wired
from tests.upstream.scripted import Scripted, stalls_after

pytestmark = pytest.mark.timeout(180)


async def asks(http: httpx.AsyncClient, number: int, header: dict[str, str]) -> httpx.Response:
    """A request of 400 words, unlike any other."""
    body = chat_body(f"{number} " + "word " * 400, max_tokens=100)
    return await http.post("/v1/chat/completions", content=body, headers=HEADERS | header)


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


HEADERS = {"authorization": "Bearer key-1", "content-type": "application/json"}
