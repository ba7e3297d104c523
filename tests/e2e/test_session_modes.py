"""What a client may ask of a session it names: to go on, or to begin anew under the same name (rule 9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.chat import Chat
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied

NEW = {"x-session-mode": "new"}


async def begins_anew(chat: Chat) -> None:
    chat.headers |= NEW
    chat.said.clear()
    await chat.says("Something else altogether.")
    for name in NEW:
        del chat.headers[name]


async def test_new_begins_a_session_that_takes_the_name_over(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="work")
        await chat.says("Remember the number seven.")
        first, said_first = chat.session, list(chat.said)
        await begins_anew(chat)
        second = chat.session
        assert second != first
        assert chat.reply.headers["x-palimpsest-mode"].startswith("new")
        await chat.says("And on with that.")
        assert chat.session == second
        assert await chat.transcript() == chat.said
        assert (await chat.session_fields())["name"] == "work"
        # The earlier one keeps its id and every word.
        old = (await proxy.http.get(f"/api/sessions/{first}/messages", headers=chat.headers)).json()
        assert [row["message"] for row in old["messages"]] == said_first
        assert (await proxy.http.get(f"/api/sessions/{first}", headers=chat.headers)).json()["name"] is None


async def test_new_under_a_name_nobody_has_is_a_first_use(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="fresh")
        await begins_anew(chat)
        began = chat.session
        await chat.says("And on.")
        assert chat.session == began
        await begins_anew(chat)
        again = chat.session
        await begins_anew(chat)
        assert len({began, again, chat.session}) == 3


async def alone(chat: Chat, text: str, **headers: str) -> str:
    """One question, without what was said before; how it was read."""
    reply = await chat.posts([{"role": "user", "content": text}], headers)
    assert reply.status_code == 200, reply.text
    mode: str = reply.headers["x-palimpsest-mode"]
    return mode


@pytest.mark.spec("H16")
async def test_independent_questions_under_one_name_stay_apart(tmp_path: Path) -> None:
    model = ModelServer()
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="batch")
        modes = [await alone(chat, f"Is item {n} sound?") for n in range(4)]
        assert modes[0] == "full; found=id; carrier=x-session-id"
        assert modes[1:] == ["full; found=id; carrier=x-session-id; continues=no"] * 3
        assert [len(seen.messages) for seen in model.prompts] == [1] * 4


@pytest.mark.spec("H16")
async def test_an_append_that_was_asked_for_goes_on_unasked(tmp_path: Path) -> None:
    model = ModelServer()
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="talk")
        for n, mode in enumerate(({"x-session-mode": "append"}, {}, {})):
            assert (await alone(chat, f"Turn {n}.", **mode)).startswith("append; found=id")
        assert [len(seen.messages) for seen in model.prompts] == [1, 3, 5]


@pytest.mark.spec("H16")
async def test_a_session_that_is_not_continued_says_so_once(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="talk", system="Be brief.")
        await chat.says("Remember the number seven.")
        for n in range(3):
            assert (await alone(chat, f"And then {n}?")).endswith("; continues=no")
    # A restart has waited for what was told beside the answers.
    async with proxied(ModelServer(), tmp_path) as proxy:
        path = f"/api/sessions/{chat.session}/events?types=session_not_continued"
        events = (await proxy.http.get(path, headers=chat.headers)).json()["events"]
        assert [event["payload"] for event in events] == [{"messages": 1}]
