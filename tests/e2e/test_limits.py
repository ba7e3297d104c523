"""What an operator bounds: made-up keys, huge headers, too many requests at a time, what clients hear."""

from __future__ import annotations

from pathlib import Path

import pytest
from palimpsest.proxy.access import UnprovenNamespaces
from palimpsest.storage.migrate import migrate
from palimpsest.storage.store import Store, open_store

from tests.kit.model import ModelServer, Says
from tests.kit.proxy import proxied


@pytest.mark.parametrize(("notify", "tells"), [("header", True), ("none", False)])
async def test_a_client_hears_of_views_only_where_the_operator_wants_it(
    tmp_path: Path, notify: str, tells: bool
) -> None:
    async with proxied(ModelServer(), tmp_path, {"compaction.notify": notify}) as proxy:
        chat = proxy.chat()
        await chat.says("hello")
        assert ("x-palimpsest-view" in chat.reply.headers) is tells
        assert chat.session


async def test_a_made_up_key_stores_no_more_than_its_share(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path, {"access.unproven_messages": 3}) as proxy:
        refused = Says(status=401, error={"error": {"message": "no such key", "code": "invalid_api_key"}})
        proxy.model.answers.extend([refused] * 3)
        chat = proxy.chat(key="made-up")
        asked = [await chat.posts([{"role": "user", "content": f"question {n}"}]) for n in range(5)]
        assert [reply.status_code for reply in asked] == [401, 401, 401, 429, 429]
        assert asked[-1].json()["error"]["code"] == "namespace_unproven"
        assert asked[-1].headers["x-should-retry"] == "false"
        real = proxy.chat(key="real")
        for n in range(4):
            await real.says(f"question {n}")


async def test_a_sweep_erases_old_unproven_namespaces_and_says_which(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    await migrate(url)
    store: Store = await open_store(url, new_id=iter("ab").__next__)
    gone: list[str] = []
    now = 1_000.0
    newcomers = UnprovenNamespaces(store, gone.extend, lambda: now, messages=1, seconds=60)
    await store.accounts.namespace_of(b"old", 900.0)
    await store.accounts.namespace_of(b"young", 990.0)
    await newcomers.sweep()
    assert gone == ["a"]
    now = 2_000.0
    await newcomers.sweep()
    assert gone == ["a", "b"]
    await store.close()
