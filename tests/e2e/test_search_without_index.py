"""Sessions without an index of words, since recall is off: what was said is found all the same (C15)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.model import ModelServer
from tests.kit.proxy import fronting, proxied

pytestmark = pytest.mark.timeout(60)


NO_INDEX = {"recall.enabled": False}


@pytest.mark.spec("C15")
async def test_words_and_letters_are_found_without_an_index(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=20_000), tmp_path, NO_INDEX) as proxy:
        chat = proxy.chat()
        await chat.says("Last Saturday I painted the rowing boat in green.")
        await chat.says("The gate code is 4471-KLM, 100%_sure.")
        path, headers = f"/api/sessions/{chat.session}/search", chat.headers
        for question, answer in (
            ("painting boats", "rowing boat"),
            ("100%_sure", "4471"),
            ("gate code", "4471"),
        ):
            reply = await proxy.http.get(path, headers=headers, params={"q": question})
            assert answer in reply.json()["results"][0]["text"]


@pytest.mark.parametrize("has_index", [True, False])
async def test_of_large_messages_a_search_reads_no_more_than_is_set(tmp_path: Path, has_index: bool) -> None:
    kept = {"recall.enabled": has_index}
    settings = {"recall.search_bytes": 100_000, **kept}
    async with proxied(ModelServer(window=200_000), tmp_path, settings) as proxy:
        chat = proxy.chat()
        for size in (80_000, 80_001, 10):
            await chat.says(f"The ledger: {'.' * size}")
        path, headers = f"/api/sessions/{chat.session}/search", chat.headers
        await proxy.http.get(path, headers=headers, params={"q": "ledger"})
    async with fronting("http://127.0.0.1:9/v1", tmp_path, settings, migrates=False) as proxy:
        told = (await proxy.http.get(path, headers=headers, params={"q": "ledgers"})).json()
    async with fronting("http://127.0.0.1:9/v1", tmp_path, kept, migrates=False) as proxy:
        whole = (await proxy.http.get(path, headers=headers, params={"q": "ledgers"})).json()
    large = [{hit["chars"] for hit in each["results"] if hit["chars"] > 9} for each in (told, whole)]
    assert large == [{22, 80_013}, {22, 80_012, 80_013}]
