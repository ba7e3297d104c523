"""Compactions by hand, pins, and how both are read back."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio
from palimpsest.core.presets import PRESETS

from tests.kit.chat import Chat
from tests.kit.model import Says, Seen
from tests.kit.proxy import Proxy
from tests.kit.words import prose

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


@pytest_asyncio.fixture(loop_scope="module")
async def long_chat(proxy: Proxy) -> Chat:
    talk = proxy.chat(system="Be exact.", session="long")
    for turn in range(8):
        await talk.says(f"Question {turn}: " + f"detail {turn} of the matter. " * 60)
    return talk


async def asked(proxy: Proxy, chat: Chat, method: str, path: str, body: Json | None = None) -> Json:
    reply = await proxy.http.request(
        method, f"/api/sessions/{chat.session}{path}", headers=chat.headers, json=body
    )
    assert reply.status_code in (200, 201), reply.text
    value: Json = reply.json()
    return value


@pytest.mark.spec("D25", "A25")
async def test_a_compaction_by_hand_says_what_it_did(proxy: Proxy, long_chat: Chat) -> None:
    before = await asked(proxy, long_chat, "GET", "/view")
    done = await asked(proxy, long_chat, "POST", "/compact", {"focus": "the number of the question"})
    record = done["compaction"]
    assert done["compacted"] is True
    assert (record["trigger"], record["kind"]) == ("manual", "message_removal")
    assert record["tokens_freed"] == record["tokens_before"] - record["tokens_after"] > 0
    assert "the number of the question" in proxy.model.summaries[0].text
    after = await asked(proxy, long_chat, "GET", "/view")
    assert (after["view"], after["compaction"]) == ("compacted", record["id"])
    assert after["tokens"] < before["tokens"] == after["tokens_full"]
    assert [part["kind"] for part in after["parts"]][:3] == ["preamble", "task", "summary"]
    listed = (await asked(proxy, long_chat, "GET", "/compactions"))["compactions"]
    assert [{k: v for k, v in one.items() if k not in ("created_at", "undone_at")} for one in listed] == [
        record
    ]


@pytest.mark.spec("D25")
@pytest.mark.parametrize("preset", sorted(PRESETS))
async def test_every_preset_is_told_what_to_keep_in_mind(proxy: Proxy, preset: str) -> None:
    chat = proxy.chat(session="wish")
    for turn in range(8):
        await chat.says(f"Question {turn}. {prose(turn, 150)}")
    numbers = {"policy": {"name": preset, "tail_messages": 4}}
    await asked(proxy, chat, "PATCH", "/settings", numbers)
    done = await asked(proxy, chat, "POST", "/compact", {"focus": "the quokka of pier nine"})
    assert done["compacted"] is True
    assert done["compaction"]["policy"] == preset
    assert ["the quokka of pier nine" in seen.text for seen in proxy.model.summaries] == [True]


@pytest.mark.spec("F35")
async def test_a_second_compaction_without_new_messages_is_none(proxy: Proxy, long_chat: Chat) -> None:
    await asked(proxy, long_chat, "POST", "/compact")
    again = await asked(proxy, long_chat, "POST", "/compact")
    assert (again["compacted"], again["reason"]) == (False, "nothing_to_fold")
    assert len((await asked(proxy, long_chat, "GET", "/compactions"))["compactions"]) == 1


async def test_the_archive_keeps_what_was_folded(proxy: Proxy, long_chat: Chat) -> None:
    await asked(proxy, long_chat, "POST", "/compact")
    assert await long_chat.transcript() == long_chat.said


async def test_the_next_turn_uses_the_compaction(proxy: Proxy, long_chat: Chat) -> None:
    done = await asked(proxy, long_chat, "POST", "/compact")
    view = await asked(proxy, long_chat, "GET", "/view")
    await long_chat.says("And now?")
    assert long_chat.reply.headers["x-palimpsest-compaction"] == done["compaction"]["id"]
    assert proxy.model.prompts[-1].messages[:-1] == [part["message"] for part in view["parts"]]


async def test_a_refused_key_leaves_the_summary_to_code(proxy: Proxy, long_chat: Chat) -> None:
    def refuses(_: Seen) -> Says:
        return Says(status=401, error={"message": "no"})

    proxy.model.summary = refuses
    done = await asked(proxy, long_chat, "POST", "/compact")
    assert (done["compacted"], done["compaction"]["author"]) == (True, "deterministic")


async def test_there_is_nothing_to_fold_in_a_short_conversation(proxy: Proxy, chat: Chat) -> None:
    done = await asked(proxy, chat, "POST", "/compact")
    assert (done["compacted"], done["reason"]) == (False, "nothing_to_fold")
    assert proxy.model.summaries == []


@pytest.mark.spec("A32")
async def test_a_pinned_message_stays_verbatim_from_the_next_compaction_on(
    proxy: Proxy, long_chat: Chat
) -> None:
    ident = (await asked(proxy, long_chat, "GET", "/messages"))["messages"][5]["id"]
    before = await asked(proxy, long_chat, "GET", "/view")
    await asked(proxy, long_chat, "POST", "/pins", {"message": ident})
    await asked(proxy, long_chat, "POST", "/pins", {"message": ident})
    assert [pin["message"] for pin in (await asked(proxy, long_chat, "GET", "/pins"))["pins"]] == [ident]
    assert await asked(proxy, long_chat, "GET", "/view") == before
    await asked(proxy, long_chat, "POST", "/compact")
    parts = (await asked(proxy, long_chat, "GET", "/view"))["parts"]
    assert [p["message"] for p in parts if p["kind"] == "pin" and p["id"] == ident] == [long_chat.said[5]]


async def test_a_pin_is_taken_back_once(proxy: Proxy, chat: Chat) -> None:
    ident = (await asked(proxy, chat, "GET", "/messages"))["messages"][1]["id"]
    await asked(proxy, chat, "POST", "/pins", {"message": ident})
    path = f"/api/sessions/{chat.session}/pins/{ident}"
    assert (await proxy.http.delete(path, headers=chat.headers)).status_code == 204
    assert (await proxy.http.delete(path, headers=chat.headers)).status_code == 404
    assert (await asked(proxy, chat, "GET", "/pins"))["pins"] == []


@pytest.mark.spec("A32")
async def test_pins_that_leave_no_room_are_refused(proxy: Proxy) -> None:
    talk = proxy.chat()
    await talk.says("word " * 12_000)
    ident = (await asked(proxy, talk, "GET", "/messages"))["messages"][0]["id"]
    reply = await proxy.http.post(
        f"/api/sessions/{talk.session}/pins", headers=talk.headers, json={"message": ident}
    )
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "pins_too_large"
    assert (await asked(proxy, talk, "GET", "/pins"))["pins"] == []
