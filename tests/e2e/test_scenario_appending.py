"""Clients that send only what is new: tools, instructions, what overlaps, what is refused, many at once."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from palimpsest.storage.sqlite_files import driver

from tests.kit.chat import Chat, message_of
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied

Json = dict[str, Any]
APPEND = {"x-session-mode": "append"}
pytestmark = [pytest.mark.timeout(60), pytest.mark.spec("S11")]


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def result(call: str, text: str) -> Json:
    return {"role": "tool", "tool_call_id": call, "content": text}


async def appends(chat: Chat, *messages: Json) -> Json:
    """Only these are sent; the answer's message. `chat.said` holds the whole conversation."""
    reply = await chat.posts(list(messages), APPEND)
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-palimpsest-mode"].startswith("append;")
    answer = message_of(reply)
    chat.said += [*messages, answer]
    return answer


def was_told(proxy: Proxy, chat: Chat) -> list[Json]:
    """What the model was shown last; it is all that was said until then."""
    assert proxy.model.prompts[-1].messages == chat.said[:-1]
    return proxy.model.prompts[-1].messages


async def test_results_complete_the_calls_that_are_open(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="tools")
        proxy.model.calls(("a", "measure", {"of": "x"}), ("b", "measure", {"of": "y"}))
        await appends(chat, user("Measure both."))
        asked = len(proxy.model.prompts)
        half = await chat.posts([result("a", "1")], APPEND)
        assert (half.status_code, half.json()["error"]["code"]) == (422, "open_tool_calls")
        assert len(proxy.model.prompts) == asked
        await appends(chat, result("a", "1"), result("b", "2"))
        assert [message["role"] for message in was_told(proxy, chat)] == ["user", "assistant", "tool", "tool"]
        await appends(chat, user("And their sum?"))
        was_told(proxy, chat)
        assert await chat.transcript() == chat.said


async def test_new_instructions_take_the_place_of_the_old_ones(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="rules")
        await appends(chat, {"role": "system", "content": "Be brief."}, user("Hello."))
        await appends(chat, user("How are you?"))
        assert was_told(proxy, chat)[0]["content"] == "Be brief."
        reply = await chat.posts([{"role": "system", "content": "Be kind."}, user("And now?")], APPEND)
        seen = proxy.model.prompts[-1].messages
        assert seen == [{"role": "system", "content": "Be kind."}, *chat.said[1:], user("And now?")]
        chat.said = [*seen, message_of(reply)]
        await appends(chat, user("Bye."))
        was_told(proxy, chat)
        assert await chat.transcript() == chat.said


async def test_what_is_there_already_is_not_stored_twice(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="overlap")
        await appends(chat, user("One."))
        answer = chat.said[-1]
        reply = await chat.posts([answer, user("Two.")], APPEND)
        chat.said += [user("Two."), message_of(reply)]
        was_told(proxy, chat)
        # The same words said again are said again.
        await appends(chat, user("Two."))
        was_told(proxy, chat)
        assert await chat.transcript() == chat.said


async def test_a_message_that_was_refused_does_not_stay_in_the_way(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="refused")
        await appends(chat, user("One."))
        bad = {"error": {"message": "That picture cannot be read.", "type": "invalid_request_error"}}
        proxy.model.answers.append(Says(status=400, error=bad))
        reply = await chat.posts([user("Look at this.")], APPEND)
        assert (reply.status_code, reply.json()) == (400, bad)
        await appends(chat, user("Two."))
        assert "Look at this." not in proxy.model.prompts[-1].text
        was_told(proxy, chat)


async def test_many_at_once_take_turns(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="queue")
        await appends(chat, user("Begin."))
        replies = await asyncio.gather(*(chat.posts([user(f"Line {at}.")], APPEND) for at in range(6)))
        assert [reply.status_code for reply in replies] == [200] * 6
        told = await chat.transcript()
        assert len(told) == 2 + 12
        lines = [message["content"] for message in told[2:] if message["role"] == "user"]
        assert sorted(lines) == [f"Line {at}." for at in range(6)]
        # Each saw all that came before it: one line of conversation, no branches.
        assert sorted(len(seen.messages) for seen in proxy.model.prompts) == [1, 3, 5, 7, 9, 11, 13]
        assert len((await chat.session_fields())["branches"]) == 1


async def test_an_append_follows_the_branch_that_is_the_newest(tmp_path: Path) -> None:
    """What was read of another branch before is no part of it."""
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="edited")
        for number in range(3):
            await appends(chat, user(f"Letter {number}."))
        edited = [*chat.said[:2], user("Another letter.")]
        reply = await chat.posts(edited, {"x-session-mode": "full"})
        chat.said = [*edited, message_of(reply)]
        for text in ("Which letter was that?", "And before it?"):
            await appends(chat, user(text))
            was_told(proxy, chat)


async def test_an_append_reads_only_what_is_new(tmp_path: Path) -> None:
    """Bodies that were read before are not read again: here they are taken out of the database meanwhile."""
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="long")
        for number in range(3):
            await appends(chat, user(f"Letter {number} about the harbour."))
        # The newest letter has been appended, but not read yet.
        assert _without_bodies(tmp_path, ["%Letter 0%", "%Letter 1%"]) == 2
        await appends(chat, user("And the next one?"))
        assert len(was_told(proxy, chat)) == 7
    async with proxied(ModelServer(), tmp_path) as proxy:
        # The control: who has not read them cannot go on without them.
        again = await proxy.chat(session="long").posts([user("And the last one?")], APPEND)
        assert again.status_code == 500


def _without_bodies(folder: Path, texts: list[str]) -> int:
    """How many bodies of these texts were taken out of the database."""
    with closing(driver.connect(folder / "palimpsest.db")) as connection, connection:
        found = "CAST(body AS TEXT) LIKE ? OR CAST(body AS TEXT) LIKE ?"
        deleted: int = connection.execute(f"DELETE FROM bodies WHERE {found}", texts).rowcount
        return deleted
