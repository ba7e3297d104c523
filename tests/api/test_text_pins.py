"""A user who has nothing but a chat window pins by writing so (A32)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.journal import AT_THE_END
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied

pytestmark = pytest.mark.timeout(90)
Json = dict[str, Any]
RULE = "[PIN] Never push to the remote before I say so."
OTHER = "  Remember for this session: amounts are in kroner."
LIKE_IT = "I said [pin] somewhere in the middle."


async def asked(proxy: Proxy, chat: Chat, method: str, path: str) -> Any:
    path = f"/api/sessions/{chat.session}{path}"
    reply = await proxy.http.request(method, path, headers=chat.headers)
    assert reply.status_code in (200, 201, 204), reply.text
    return reply.json() if reply.content else None


async def talks(chat: Chat, turns: int) -> None:
    for turn in range(turns):
        await chat.says(f"Question {len(chat.replies)}.{turn}: " + f"detail {turn} of the matter. " * 60)


async def view_of(proxy: Proxy, chat: Chat) -> list[str]:
    """What stands word for word in the compacted view."""
    await asked(proxy, chat, "POST", "/compact")
    parts = (await asked(proxy, chat, "GET", "/view"))["parts"]
    return [part["message"]["content"] for part in parts if part["kind"] == "pin"]


@pytest.mark.spec("A32")
async def test_what_a_user_marks_stays_in_every_view_until_it_is_taken_back(tmp_path: Any) -> None:
    async with proxied(ModelServer(window=60_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(system="Be exact.")
        await talks(chat, 2)
        for said in (RULE, OTHER, LIKE_IT):
            await chat.says(said)
        for _ in range(3):
            await talks(chat, 6)
            assert await view_of(proxy, chat) == [RULE, OTHER]
        pins = (await asked(proxy, chat, "GET", "/pins"))["pins"]
        assert [(pin["origin"], pin["is_kept"]) for pin in pins] == [("text", True), ("text", True)]
        await asked(proxy, chat, "DELETE", f"/pins/{pins[0]['message']}")
        left = (await asked(proxy, chat, "GET", "/pins"))["pins"]
        assert [pin["message"] for pin in left] == [pins[1]["message"]]
        await talks(chat, 6)
        assert await view_of(proxy, chat) == [OTHER]
        # It is taken back once; and pinned again by hand.
        path = f"/api/sessions/{chat.session}/pins"
        gone = await proxy.http.delete(f"{path}/{pins[0]['message']}", headers=chat.headers)
        assert gone.status_code == 404
        made = await proxy.http.post(path, headers=chat.headers, json={"message": pins[0]["message"]})
        assert made.status_code == 201
        assert {pin["origin"] for pin in (await asked(proxy, chat, "GET", "/pins"))["pins"]} == {
            "hand",
            "text",
        }


@pytest.mark.spec("A32")
async def test_nobody_fills_a_window_with_them_and_the_newest_win(tmp_path: Any) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(system="Be exact.")
        await chat.says("Let us begin.")
        told = [f"[pin] Rule {number}. " + "It holds for all of us. " * 20 for number in range(30)]
        for said in told:
            await chat.says(said)
        await talks(chat, 4)
        kept = await view_of(proxy, chat)
        assert kept == told[-len(kept) :]
        assert 1 <= len(kept) < 8
        pins = (await asked(proxy, chat, "GET", "/pins"))["pins"]
        assert [pin["is_kept"] for pin in pins] == [False] * (30 - len(kept)) + [True] * len(kept)


@pytest.mark.spec("A32")
async def test_it_can_be_switched_off(tmp_path: Any) -> None:
    off = AT_THE_END | {"compaction.text_pins_share": 0}
    async with proxied(ModelServer(window=60_000), tmp_path, off) as proxy:
        chat = proxy.chat(system="Be exact.")
        await talks(chat, 2)
        await chat.says(RULE)
        await talks(chat, 6)
        assert await view_of(proxy, chat) == []
        assert (await asked(proxy, chat, "GET", "/pins"))["pins"] == []
