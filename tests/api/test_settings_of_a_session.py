"""The settings of one session: merged, refused by name, and in force with the next request (A42)."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.kit.chat import Chat
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


async def patched(proxy: Proxy, chat: Chat, patch: Any) -> httpx.Response:
    return await proxy.http.patch(f"/api/sessions/{chat.session}/settings", headers=chat.headers, json=patch)


async def read(proxy: Proxy, chat: Chat) -> Json:
    reply = await proxy.http.get(f"/api/sessions/{chat.session}/settings", headers=chat.headers)
    assert reply.status_code == 200, reply.text
    value: Json = reply.json()
    return value


async def test_without_settings_every_number_is_the_presets(proxy: Proxy, chat: Chat) -> None:
    told = await read(proxy, chat)
    assert (told["session"], told["model"], told["settings"]) == (chat.session, "test-model", {})
    assert told["policy"]["trigger_ratio"] == {"value": 0.9, "from": "preset"}
    assert {number["from"] for number in told["policy"].values()} == {"preset"}


async def test_patches_are_merged_and_null_takes_back(proxy: Proxy, chat: Chat) -> None:
    reply = await patched(proxy, chat, {"policy": {"name": "rolling", "tail_messages": 9}})
    assert reply.status_code == 200
    assert reply.json() == await read(proxy, chat)
    await patched(proxy, chat, {"policy": {"wait_for_summary": True, "tail_messages": None}})
    told = await read(proxy, chat)
    assert told["settings"] == {"policy": {"name": "rolling", "wait_for_summary": True}}
    assert told["policy"]["name"] == {"value": "rolling", "from": "session"}
    assert told["policy"]["wait_for_summary"] == {"value": True, "from": "session"}
    assert told["policy"]["tail_messages"] == {"value": 6, "from": "preset"}
    assert (await patched(proxy, chat, {"policy": None})).json()["settings"] == {}
    assert (await read(proxy, chat))["settings"] == {}


@pytest.mark.spec("A42")
@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"policy": {"trigger_ratio": 2}}, "policy.trigger_ratio"),
        ({"policy": {"summary_max_tokens": "many"}}, "policy.summary_max_tokens"),
        ({"policy": {"advanced": {"tail_ratio": 0.9}}}, "policy.advanced.tail_ratio"),
        ({"policy": {"name": "nobody"}}, "policy.name"),
        ({"policy": {"colour": 1}}, "policy.colour"),
        ({"policy": {"target_ratio": 0.9}}, "policy.target_ratio"),
        ({"server": {"port": 1}}, "server"),
    ],
)
async def test_what_cannot_be_is_refused_by_name_and_changes_nothing(
    proxy: Proxy, chat: Chat, patch: Json, field: str
) -> None:
    await patched(proxy, chat, {"policy": {"wait_for_summary": True}})
    reply = await patched(proxy, chat, patch)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, "invalid_parameter", field)
    assert field in error["message"]
    assert (await read(proxy, chat))["settings"] == {"policy": {"wait_for_summary": True}}


@pytest.mark.parametrize("body", [b"[1]", b'"x"', b"1", b"null"])
async def test_a_patch_is_an_object(proxy: Proxy, chat: Chat, body: bytes) -> None:
    path = f"/api/sessions/{chat.session}/settings"
    reply = await proxy.http.patch(
        path, headers=chat.headers | {"content-type": "application/json"}, content=body
    )
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_parameter")


async def test_patches_at_once_do_not_undo_each_other(proxy: Proxy, chat: Chat) -> None:
    plain = {"wait_for_summary": True, "reuse_prompt_cache": False, "keep_original_task": False}
    advanced = {"in_background": False, "trigger_messages": 3}
    patches: list[Json] = [{key: value} for key, value in plain.items()]
    patches += [{"advanced": {key: value}} for key, value in advanced.items()]
    await asyncio.gather(*(patched(proxy, chat, {"policy": patch}) for patch in patches))
    assert (await read(proxy, chat))["settings"] == {"policy": {**plain, "advanced": advanced}}


@pytest.mark.spec("A42")
async def test_settings_count_from_the_next_request_on(proxy: Proxy) -> None:
    """The same conversation twice; one of the two is told to compact earlier."""
    plain, early = proxy.chat(session="plain"), proxy.chat(session="early")
    for turn in range(6):
        for chat in (plain, early):
            await chat.says(f"Question {turn}: " + f"detail {turn} of the matter. " * 150)
    assert early.reply.headers["x-palimpsest-view"] == "original"
    numbers = {"name": "handoff", "trigger_tokens": 4_000, "target_ratio": 0.1}
    assert (await patched(proxy, early, {"policy": numbers})).status_code == 200
    for chat in (plain, early):
        await chat.says("And now?")
    views = [chat.reply.headers["x-palimpsest-view"] for chat in (plain, early)]
    assert views == ["original", "compacted"]
    assert [one["policy"] for one in await early.compactions()] == ["handoff"]


async def test_settings_of_one_session_are_not_those_of_another(proxy: Proxy, chat: Chat) -> None:
    other = proxy.chat(session="other")
    await other.says("hello")
    await patched(proxy, chat, {"policy": {"wait_for_summary": True}})
    assert (await read(proxy, other))["settings"] == {}
