"""What a client may ask of a session it names: to go on, or to begin anew under the same name (rule 9)."""

from __future__ import annotations

from pathlib import Path

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
