"""`palimpsest erase` against a running proxy: what it asks, what it prints, and whose sessions it reaches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from palimpsest.errors import NotFound
from typer.testing import Result

from tests.kit.chat import Chat
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied
from tests.kit.terminal import runs

pytestmark = pytest.mark.timeout(60)


def receipt_of(done: Result) -> dict[str, Any]:
    # What was typed is shown before it.
    receipt: dict[str, Any] = json.loads(done.stdout.removeprefix(" y\n"))
    return receipt


async def names(proxy: Proxy, chat: Chat) -> list[str]:
    reply = await proxy.http.get("/api/sessions", headers=chat.headers)
    return sorted(session["name"] for session in reply.json()["sessions"])


async def talks(proxy: Proxy, *sessions: str, key: str = "key-1") -> list[Chat]:
    made = [proxy.chat(session=name, key=key) for name in sessions]
    for chat in made:
        await chat.says(f"Hello from {chat.headers['x-session-id']}.")
    return made


async def test_a_session_is_erased_when_it_is_said_so(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat, _ = await talks(proxy, "my/own name?", "other")
        refused = await runs(proxy, "erase", "--session", "my/own name?", says="n\n", code=1)
        assert f"Erase session {chat.session} (my/own name?): 2 messages, for good?" in refused.stderr
        assert "Nothing was erased." in refused.stderr
        # Nobody is there to answer.
        await runs(proxy, "erase", "--session", "other", code=1)
        assert await names(proxy, chat) == ["my/own name?", "other"]
        done = await runs(proxy, "erase", "--session", "my/own name?", says="y\n")
        receipt = receipt_of(done)
        assert (receipt["session"], receipt["files"], receipt["blocked"]) == (chat.session, "scrubbed", False)
        assert receipt["rows"]["messages"] == 2
        assert await names(proxy, chat) == ["other"]
        again = await runs(proxy, "erase", "--session", "my/own name?", "--yes", code=1)
        assert isinstance(again.exception, NotFound)


async def test_everything_of_a_key_is_erased_and_nothing_of_another(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        mine, _ = await talks(proxy, "one", "two")
        (theirs,) = await talks(proxy, "one", key="key-2")
        asked = await runs(proxy, "erase", "--all", says="n\n", code=1)
        assert "Erase everything of this key: 2 sessions, for good?" in asked.stderr
        receipt = receipt_of(await runs(proxy, "erase", "--all", "--yes"))
        assert (receipt["rows"]["sessions"], receipt["files"], receipt["scrub"]) == (2, "scrubbed", None)
        assert await names(proxy, mine) == []
        assert await names(proxy, theirs) == ["one"]


async def test_a_proxy_that_lets_nobody_in_says_so(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path, {"access.mode": "keys"}) as proxy:
        refused = await runs(proxy, "erase", "--all", "--yes", key="nobody", code=1)
        assert "401" in str(refused.exception)


async def test_what_is_blocked_stays_away(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        (chat,) = await talks(proxy, "tour")
        done = await runs(proxy, "erase", "--session", chat.session, "--block", "--yes")
        assert receipt_of(done)["blocked"] is True
        assert (await chat.posts(chat.said)).status_code == 410


async def test_what_is_blocked_comes_back_in_no_session_that_was_answered_alike(tmp_path: Path) -> None:
    """Rule 4 would take it for a list of the other session's whose beginning was written anew."""
    async with proxied(ModelServer(), tmp_path) as proxy:
        proxy.model.says("Done.", "Done.", "Done.")
        erased, kept = proxy.chat(), proxy.chat()
        await erased.says("The code of the gate is Kanarienvogel.")
        await kept.says("Wash the car.")
        await runs(proxy, "erase", "--session", erased.session, "--block", "--yes")
        assert (await erased.posts([*erased.said, {"role": "user", "content": "Again."}])).status_code == 410
        assert await kept.transcript() == kept.said
        # A beginning that was written anew is no conversation that was erased.
        short = [{"role": "user", "content": "Wash it."}, kept.said[-1]]
        assert (await kept.posts([*short, {"role": "user", "content": "And dry it."}])).status_code == 200
