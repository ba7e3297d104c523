"""A search finds what the index has not got yet: it waits for it, and reads through what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from palimpsest.storage import search
from palimpsest.storage.sqlite_files import driver

from tests.kit.chat import Chat
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied

pytestmark = pytest.mark.timeout(60)
Json = dict[str, Any]
WAITS_FOR_NOTHING: Json = {"recall.search_wait_seconds": 0}


async def talks(proxy: Proxy) -> Chat:
    """Three sessions that nobody has searched; the one to ask from. What is sought is in the oldest."""
    for name, said in (("old", "The gate code is 4471-KLM."), ("middle", "Nothing here."), ("new", "Hello.")):
        chat = proxy.chat(session=name)
        await chat.says(said)
    return chat


async def searched(proxy: Proxy, chat: Chat, scope: str = "namespace", session: str = "new") -> Json:
    asked = {"q": "which code opens the gate", "scope": scope}
    reply = await proxy.http.get(f"/api/sessions/{session}/search", params=asked, headers=chat.headers)
    assert reply.status_code == 200, reply.text
    answer: Json = reply.json()
    return answer


def found(answer: Json) -> list[str]:
    return [hit["text"] for hit in answer["results"] if hit["role"] == "user"]


def entries(folder: Path) -> int:
    with driver.connect(folder / "palimpsest.db") as database:
        ((count,),) = database.execute("SELECT coalesce(sum(entries), 0) FROM recall_marks").fetchall()
    return int(count)


async def test_all_sessions_are_searched_as_they_are_now(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        answer = await searched(proxy, await talks(proxy))
        assert found(answer) == ["The gate code is 4471-KLM."]
        assert answer["is_current"] is True
        # By the index, which was waited for.
        assert entries(tmp_path) == 6


async def test_what_is_not_waited_for_is_read_through(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path, WAITS_FOR_NOTHING) as proxy:
        chat = await talks(proxy)
        for scope, session in (("namespace", "new"), ("session", "old"), ("branch", "old")):
            answer = await searched(proxy, chat, scope, session)
            assert found(answer) == ["The gate code is 4471-KLM."]
            assert answer["is_current"] is True
        assert found(await searched(proxy, chat, "session")) == []


async def test_what_is_read_through_is_bounded_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_MOST_ROWS", 3)
    async with proxied(ModelServer(), tmp_path, WAITS_FOR_NOTHING) as proxy:
        answer = await searched(proxy, await talks(proxy))
        # The newest two were read, and there was no room for the oldest.
        assert (found(answer), answer["is_current"]) == ([], False)


async def test_a_session_without_an_index_is_read_through(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = await talks(proxy)
        off = {"recall": {"enabled": False}}
        reply = await proxy.http.patch("/api/sessions/old/settings", json=off, headers=chat.headers)
        assert reply.status_code == 200, reply.text
        assert found(await searched(proxy, chat)) == ["The gate code is 4471-KLM."]
