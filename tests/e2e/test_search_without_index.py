"""A database that cannot keep an index of words: what was said is found all the same (C15)."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.storage.sqlite.driver import driver
from tests.kit.model import ModelServer
from tests.kit.proxy import fronting, proxied

pytestmark = pytest.mark.timeout(60)


@pytest.mark.spec("C15")
async def test_words_and_letters_are_found_without_an_index(tmp_path: Path) -> None:
    file = tmp_path / "palimpsest.db"
    async with proxied(ModelServer(window=20_000), tmp_path) as proxy:
        chat = proxy.chat()
        await chat.says("Last Saturday I painted the rowing boat in green.")
        await chat.says("The gate code is 4471-KLM, 100%_sure.")
        path, headers = f"/api/sessions/{chat.session}/search", chat.headers
        before = (await proxy.http.get(path, headers=headers, params={"q": "painting boats"})).json()
    with driver.connect(file) as database:
        # As a migration by a SQLite without FTS5 leaves it.
        database.execute("DROP TABLE recall_words")
    async with fronting("http://127.0.0.1:9/v1", tmp_path, migrates=False) as proxy:
        for question, answer in (
            ("painting boats", "rowing boat"),
            ("100%_sure", "4471"),
            ("gate code", "4471"),
        ):
            reply = await proxy.http.get(path, headers=headers, params={"q": question})
            assert answer in reply.json()["results"][0]["text"]
    assert "rowing boat" in before["results"][0]["text"]
