"""A database that cannot keep an index of words: what was said is found all the same (C15, C23)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from palimpsest.storage.sqlite.driver import driver

from tests.kit.agent import TOOLS
from tests.kit.chat import Chat
from tests.kit.journal import AT_THE_END, compacted
from tests.kit.model import ModelServer
from tests.kit.proxy import Front, fronting, proxied
from tests.kit.recalls import GREP, OURS, names_in, saying
from tests.kit.serving import served

pytestmark = pytest.mark.timeout(60)


def loses_its_index(folder: Path) -> None:
    """The database is as a migration by a SQLite without FTS5 leaves it."""
    with driver.connect(folder / "palimpsest.db") as database:
        database.execute("DROP TABLE recall_words")


@pytest.mark.spec("C15")
async def test_words_and_letters_are_found_without_an_index(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=20_000), tmp_path) as proxy:
        chat = proxy.chat()
        await chat.says("Last Saturday I painted the rowing boat in green.")
        await chat.says("The gate code is 4471-KLM, 100%_sure.")
        path, headers = f"/api/sessions/{chat.session}/search", chat.headers
        before = (await proxy.http.get(path, headers=headers, params={"q": "painting boats"})).json()
    loses_its_index(tmp_path)
    async with fronting("http://127.0.0.1:9/v1", tmp_path, migrates=False) as proxy:
        for question, answer in (
            ("painting boats", "rowing boat"),
            ("100%_sure", "4471"),
            ("gate code", "4471"),
        ):
            reply = await proxy.http.get(path, headers=headers, params={"q": question})
            assert answer in reply.json()["results"][0]["text"]
    assert "rowing boat" in before["results"][0]["text"]


@pytest.mark.parametrize("has_index", [True, False])
async def test_of_large_messages_a_search_reads_no_more_than_is_set(tmp_path: Path, has_index: bool) -> None:
    settings = {"recall.search_bytes": 100_000}
    async with proxied(ModelServer(window=200_000), tmp_path, settings) as proxy:
        chat = proxy.chat()
        for size in (80_000, 80_001, 10):
            await chat.says(f"The ledger: {'.' * size}")
        path, headers = f"/api/sessions/{chat.session}/search", chat.headers
        await proxy.http.get(path, headers=headers, params={"q": "ledger"})
    if not has_index:
        loses_its_index(tmp_path)
    async with fronting("http://127.0.0.1:9/v1", tmp_path, settings, migrates=False) as proxy:
        told = (await proxy.http.get(path, headers=headers, params={"q": "ledgers"})).json()
    async with fronting("http://127.0.0.1:9/v1", tmp_path, migrates=False) as proxy:
        whole = (await proxy.http.get(path, headers=headers, params={"q": "ledgers"})).json()
    large = [{hit["chars"] for hit in each["results"] if hit["chars"] > 9} for each in (told, whole)]
    assert large == [{22, 80_013}, {22, 80_012, 80_013}]


@asynccontextmanager
async def without_index(model: ModelServer, folder: Path, settings: dict[str, Any]) -> AsyncIterator[Front]:
    """The proxy again, on the database as it lies there."""
    async with (
        served(model, lifespan="off") as upstream,
        fronting(f"{upstream}/v1", folder, settings, migrates=False) as front,
    ):
        yield front


@pytest.mark.spec("C23")
async def test_the_tools_answer_without_an_index(tmp_path: Path) -> None:
    """By HTTP and in a conversation; nothing of these tests depends on what the library can do."""
    model = ModelServer(window=8_000)
    settings = AT_THE_END | {"recall.tools": True}
    async with proxied(model, tmp_path, settings) as proxy:
        chat = proxy.chat(system="You help.", session="ports", extra={"tools": TOOLS})
        await compacted(chat, words=1_500)
        decided = chat.said[1]["content"][:40]
    loses_its_index(tmp_path)
    async with without_index(model, tmp_path, settings) as front:
        again = Chat(front.http, system="You help.", session="ports", extra={"tools": TOOLS})
        again.said = list(chat.said)
        order = {"session": "ports", "query": "port 8000 decided"}
        found = (await front.http.post("/api/context/grep", headers=again.headers, json=order)).json()
        assert decided in json.dumps(found["results"])
        order = {"session": "ports", "id": found["results"][0]["id"]}
        read = (await front.http.post("/api/context/describe", headers=again.headers, json=order)).json()
        assert read["id"] == found["results"][0]["id"]
        model.seen.clear()
        model.answers.extend([saying(None, GREP), saying("It is 8000.")])
        assert (await again.says("Which port?"))["content"] == "It is 8000."
        assert [names_in(seen)[1:] for seen in model.prompts] == [OURS, OURS]
        told = model.prompts[-1].messages[-1]
        assert told["role"] == "tool"
        assert "decided to use port" in told["content"]
