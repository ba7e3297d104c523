"""A compaction is taken back, and what it was made from is in force again."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.kit.chat import Chat
from tests.kit.journal import events
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


async def says_much(chat: Chat, turns: range) -> None:
    for turn in turns:
        await chat.says(f"Question {turn}: " + f"detail {turn} of the matter. " * 60)


async def compact(proxy: Proxy, chat: Chat) -> str:
    reply = await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
    assert reply.json()["compacted"], reply.text
    ident: str = reply.json()["compaction"]["id"]
    return ident


async def undo(proxy: Proxy, chat: Chat, compaction: str) -> httpx.Response:
    path = f"/api/sessions/{chat.session}/compactions/{compaction}/undo"
    return await proxy.http.post(path, headers=chat.headers)


@pytest_asyncio.fixture(loop_scope="module")
async def twice(proxy: Proxy) -> tuple[Chat, str, str]:
    """A conversation that was compacted twice."""
    chat = proxy.chat(session="twice")
    await says_much(chat, range(8))
    first = await compact(proxy, chat)
    await says_much(chat, range(8, 22))
    return chat, first, await compact(proxy, chat)


async def test_what_was_undone_is_not_in_force_and_no_message_is_lost(proxy: Proxy, chat: Chat) -> None:
    await says_much(chat, range(8))
    before = await chat.view()
    made = await compact(proxy, chat)
    assert (await chat.view())["compaction"] == made
    reply = await undo(proxy, chat, made)
    assert (reply.status_code, reply.json()["restored"]) == (200, None)
    assert await chat.view() == before
    await chat.says("And now?")
    assert chat.reply.headers["x-palimpsest-view"] == "original"
    assert await chat.transcript() == chat.said


async def test_the_one_before_is_in_force_again(proxy: Proxy, twice: tuple[Chat, str, str]) -> None:
    chat, first, second = twice
    reply = await undo(proxy, chat, second)
    assert reply.json()["restored"] == first
    assert (await chat.view())["compaction"] == first
    assert (await undo(proxy, chat, first)).json()["restored"] is None
    assert (await chat.view())["view"] == "original"


@pytest.mark.spec("B13")
async def test_each_message_says_whether_a_summary_stands_for_it(
    proxy: Proxy, twice: tuple[Chat, str, str]
) -> None:
    chat, _, second = twice

    async def compacted() -> list[Json]:
        return [row["message"] for row in await chat.rows() if row["is_compacted"]]

    async def hidden_from_the_model() -> list[Json]:
        shown = [part["message"] for part in (await chat.view())["parts"]]
        return [message for message in chat.said if message not in shown]

    after_two = await compacted()
    # The task stays word for word, so it is folded into no summary.
    assert chat.said[0] not in after_two
    assert after_two == await hidden_from_the_model()
    await undo(proxy, chat, second)
    after_one = await compacted()
    assert after_one == await hidden_from_the_model()
    assert 0 < len(after_one) < len(after_two)
    # On another branch, of which nothing was folded, none is.
    await chat.posts([*chat.said[:2], {"role": "user", "content": "Something else."}])
    branches = (await chat.session_fields())["branches"]
    (short,) = [branch["branch"] for branch in branches if branch["messages"] == 4]
    assert [row["is_compacted"] for row in await chat.rows(branch=short)] == [False] * 4


async def test_one_that_another_was_made_from_stays(proxy: Proxy, twice: tuple[Chat, str, str]) -> None:
    chat, first, second = twice
    reply = await undo(proxy, chat, first)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "not_undoable")
    assert second in reply.json()["error"]["message"]
    assert reply.headers["x-should-retry"] == "false"
    assert (await chat.view())["compaction"] == second


async def test_nothing_is_undone_twice(proxy: Proxy, twice: tuple[Chat, str, str]) -> None:
    chat, _, second = twice
    assert (await undo(proxy, chat, second)).status_code == 200
    reply = await undo(proxy, chat, second)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "not_undoable")


async def test_what_is_not_there_is_not_found(proxy: Proxy, chat: Chat) -> None:
    reply = await undo(proxy, chat, "01a2006d-0000-7000-8000-000000000000")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


async def test_the_list_says_when_and_an_event_says_what(proxy: Proxy, twice: tuple[Chat, str, str]) -> None:
    chat, first, second = twice
    assert [one["undone_at"] for one in await chat.compactions()] == [None, None]
    done = (await undo(proxy, chat, second)).json()
    listed = {one["id"]: one["undone_at"] for one in await chat.compactions()}
    assert listed == {first: None, second: done["undone_at"]}
    path = f"/api/sessions/{chat.session}/events?types=compaction_undone"
    events = (await proxy.http.get(path, headers=chat.headers)).json()["events"]
    assert [event["payload"] for event in events] == [{"compactionId": second, "restoredId": first}]


async def restore(proxy: Proxy, chat: Chat, checkpoint: str) -> httpx.Response:
    path = f"/api/sessions/{chat.session}/checkpoints/{checkpoint}/restore"
    return await proxy.http.post(path, headers=chat.headers)


@pytest.mark.spec("A36", "A40")
async def test_a_session_goes_back_to_a_checkpoint_of_its_own(
    proxy: Proxy, twice: tuple[Chat, str, str]
) -> None:
    chat, first, second = twice
    before_two, before_one = [kept["id"] for kept in await pre_compaction(proxy, chat)]
    reply = await restore(proxy, chat, before_two)
    assert (reply.status_code, reply.json()["undone"], reply.json()["restored"]) == (200, [second], first)
    assert (await chat.view())["compaction"] == first
    await chat.says("And now?")
    assert chat.reply.headers["x-palimpsest-compaction"] == first
    # Both at once, newest first; nothing that was said is lost.
    third = await compact(proxy, chat)
    reply = await restore(proxy, chat, before_one)
    assert (reply.json()["undone"], reply.json()["restored"]) == ([third, first], None)
    assert (await chat.view())["view"] == "original"
    await chat.says("And on?")
    assert chat.reply.headers["x-palimpsest-view"] == "original"
    assert await chat.transcript() == chat.said
    undone = await events(proxy.http, chat, ["compaction_undone"])
    assert [event["payload"]["compactionId"] for event in undone] == [second, third, first]
    # Once more there is nothing to do.
    assert (await restore(proxy, chat, before_one)).json()["undone"] == []


async def pre_compaction(proxy: Proxy, chat: Chat) -> list[Json]:
    """Checkpoints before compactions, newest first."""
    reply = await proxy.http.get(f"/api/sessions/{chat.session}/checkpoints", headers=chat.headers)
    listed: list[Json] = reply.json()["checkpoints"]
    return [one for one in listed if one["kind"] == "pre_compaction"]


async def test_a_checkpoint_of_nobody_or_of_another_branch_is_not_there(
    proxy: Proxy, twice: tuple[Chat, str, str]
) -> None:
    chat, _, second = twice
    assert (await restore(proxy, chat, "none")).status_code == 404
    newest = (await pre_compaction(proxy, chat))[0]["id"]
    await chat.posts([*chat.said[:2], {"role": "user", "content": "Something else."}])
    branches = (await chat.session_fields())["branches"]
    (short,) = [branch["branch"] for branch in branches if branch["messages"] == 4]
    path = f"/api/sessions/{chat.session}/checkpoints/{newest}/restore?branch={short}"
    assert (await proxy.http.post(path, headers=chat.headers)).status_code == 404
    stranger = {"authorization": "Bearer somebody else"}
    assert (await proxy.http.post(path.partition("?")[0], headers=stranger)).status_code == 404
    standing = [one["id"] for one in await chat.compactions() if one["undone_at"] is None]
    assert standing[-1] == second
