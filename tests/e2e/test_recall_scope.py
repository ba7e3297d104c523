"""How far a model's recall tools reach: its own session unless the user names another."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from app.core.recall.words import Words
from app.core.wire.json_text import encoded
from app.proxy.jobs import Jobs
from app.proxy.recall.catching_up import CatchingUp
from app.proxy.recall.describing import Describing
from app.proxy.recall.indexing import Indexing
from app.proxy.recall.searching import Searching, Where
from app.proxy.recall.switch import RecallSwitch
from app.proxy.recall.tools import RecallTools
from app.settings.recall import Recall
from app.storage.contract import Store
from app.storage.open import open_store
from app.storage.sqlite.driver import driver
from tests.kit.chat import Chat
from tests.kit.journal import compacted
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied

pytestmark = pytest.mark.timeout(60)

Json = dict[str, Any]
MARKER = "ACTIVE_TASK_ONLY_PASS"


@dataclass
class Model:
    """A model that calls the tools within its session, with a store of its own under them."""

    store: Store
    tools: RecallTools
    where: Where

    async def calls(self, name: str, newest_user: str = "", **arguments: Any) -> Any:
        text = await self.tools.called(self.where, f"context_{name}", json.dumps(arguments), newest_user)
        return json.loads(text)

    async def events(self) -> list[Json]:
        rows = await self.store.events(self.where.namespace, self.where.session, 0, 100, ["context_recalled"])
        return [json.loads(row.event.payload) for row in rows]


@asynccontextmanager
async def model_in(folder: Path, chat: Chat) -> AsyncIterator[Model]:
    """The tools as the conversation's model has them, on what the proxy has stored in `folder`."""
    file = folder / "palimpsest.db"
    with driver.connect(file) as database:
        (namespace,) = database.execute(
            "SELECT namespace FROM sessions WHERE id = ?", (chat.session,)
        ).fetchone()
    store = await open_store(f"sqlite:///{file}", new_id=lambda: uuid.uuid4().hex)
    try:
        heads = await store.heads(namespace, chat.session)
        switch = RecallSwitch(store, lambda stored: True)
        indexing = Indexing(store, Jobs(), asyncio.Event(), switch)
        searching = Searching(store, CatchingUp(store, indexing, switch, 10.0), switch, Recall())
        tools = RecallTools(store, searching, Describing(store, 25_000), switch, lambda: uuid.uuid4().hex)
        yield Model(store, tools, Where(namespace, chat.session, heads[0].chain))
    finally:
        await store.close()


async def two_talks(folder: Path) -> tuple[Chat, Chat, str]:
    """A session "mine" and a session "voyage" of one caller, and the id of a message of the latter."""
    async with proxied(ModelServer(window=20_000), folder) as proxy:
        mine, other = proxy.chat(session="mine"), proxy.chat(session="voyage")
        await mine.says(f"The codename here is {MARKER}.")
        await other.says("The codename there is SECRET-OTHER.")
        return mine, other, (await other.rows())[0]["id"]


@pytest.mark.spec("C06")
async def test_another_session_is_ignored_without_the_flag(tmp_path: Path) -> None:
    mine, other, ident = await two_talks(tmp_path)
    async with model_in(tmp_path, mine) as model:
        asked = "Look into the session voyage."
        for arguments, newest in (
            ({"taskId": "voyage"}, asked),
            ({"taskId": other.session}, asked),
            ({"taskId": "voyage", "explicitUserRequest": False}, asked),
            ({"taskId": "voyage", "explicitUserRequest": True}, "What was the codename?"),
            ({"taskId": "nowhere", "explicitUserRequest": True}, "Look into nowhere."),
        ):
            found = await model.calls("grep", newest, query="codename", **arguments)
            assert found["session"] == mine.session
            shown = json.dumps(found)
            assert MARKER in shown
            assert "SECRET-OTHER" not in shown
            assert await model.calls("describe", newest, id=ident, **arguments) is None


@pytest.mark.spec("C06", "C18")
async def test_a_session_that_the_user_names_is_read(tmp_path: Path) -> None:
    mine, other, ident = await two_talks(tmp_path)
    async with model_in(tmp_path, mine) as model:
        wide = {"taskId": "voyage", "explicitUserRequest": True}
        newest = "What was the codename in the voyage session?"
        found = await model.calls("grep", newest, query="codename", **wide)
        assert found["session"] == other.session
        assert "SECRET-OTHER" in json.dumps(found)
        entry = await model.calls("describe", newest, id=ident, **wide)
        assert entry["text"] == "user: The codename there is SECRET-OTHER."
        searched, read = await model.events()
        assert (searched["via"], searched["requestedSession"]) == ("model", "voyage")
        assert searched["explicitUserRequest"] is True
        assert searched["effectiveSession"] == other.session
        assert (read["asked"], read["resultCount"]) == (ident, 1)


@pytest.mark.spec("C06", "P5")
async def test_no_flag_leads_to_another_caller(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=20_000), tmp_path) as proxy:
        mine = proxy.chat(session="mine", key="key-1")
        theirs = proxy.chat(session="voyage", key="key-2")
        await mine.says("Nothing here.")
        await theirs.says("The codename there is SECRET-OTHER.")
        ident = (await theirs.rows())[0]["id"]
    async with model_in(tmp_path, mine) as model:
        for name in ("voyage", theirs.session):
            wide = {"taskId": name, "explicitUserRequest": True}
            found = await model.calls("grep", f"Look into {name}.", query="codename SECRET-OTHER", **wide)
            assert (found["session"], found["results"]) == (mine.session, [])
            assert await model.calls("describe", f"Look into {name}.", id=ident, **wide) is None


async def test_what_was_edited_away_is_out_of_a_models_reach(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=20_000), tmp_path) as proxy:
        chat = proxy.chat(session="edited")
        await chat.says("Good morning.")
        kept = list(chat.said)
        await chat.says("The codename is OLD-NAME.")
        old = next(row["id"] for row in await chat.rows() if "OLD-NAME" in str(row["message"]))
        chat.said = kept
        await chat.says("The codename is NEW-NAME.")
        await chat.says("Go on.")
    async with model_in(tmp_path, chat) as model:
        shown = json.dumps(await model.calls("grep", query="codename"))
        assert "NEW-NAME" in shown
        assert "OLD-NAME" not in shown
        assert await model.calls("describe", id=old) is None


@pytest.mark.spec("C19")
async def test_where_nothing_was_said_nothing_is_found(tmp_path: Path) -> None:
    mine, _, _ = await two_talks(tmp_path)
    async with model_in(tmp_path, mine) as model:
        ident = (await model.calls("grep", query="codename"))["results"][0]["id"]
        model.where = replace(model.where, head=b"")
        empty = await model.calls("grep", query="codename")
        assert (empty["results"], empty["totalFound"]) == ([], 0)
        assert await model.calls("describe", id=ident) is None


async def test_what_a_model_writes_wrong_is_said(tmp_path: Path) -> None:
    mine, _, _ = await two_talks(tmp_path)
    async with model_in(tmp_path, mine) as model:
        assert (await model.calls("grep"))["error"]["code"] == "missing_field"
        assert (await model.calls("drop", query="x"))["error"]["code"] == "unknown_tool"
        broken = await model.tools.called(model.where, "context_grep", "{")
        assert json.loads(broken)["error"]["code"] == "invalid_json"
        odd = r'{"query": "\ud800 \u0000 codename", "taskId": "\udfff\u0000", "explicitUserRequest": true}'
        assert MARKER in await model.tools.called(model.where, "context_grep", odd, "\ud800")
        assert (await model.calls("describe", id="\ud800")) is None
        await model.store.close()
        assert (await model.calls("grep", query="x"))["error"]["code"] == "store_error"


@pytest.mark.spec("C08")
async def test_an_echo_that_was_indexed_long_ago_is_not_found(tmp_path: Path) -> None:
    plain = "The plum tree bears in August."
    echo = "<compaction_summary>\nThe plum tree bears in August.\n</compaction_summary>"
    async with proxied(ModelServer(window=20_000), tmp_path) as proxy:
        chat = proxy.chat(session="old")
        await chat.says(plain)
        ask = {"session": "old", "query": "plum tree"}
        found = await proxy.http.post("/api/context/grep", headers=chat.headers, json=ask)
        assert found.json()["results"][0]["snippet"] == plain
    with driver.connect(tmp_path / "palimpsest.db") as database:
        # As a version that knew no echoes stored and indexed it.
        body = encoded({"role": "user", "content": echo})
        changed = database.execute("UPDATE bodies SET body = ? WHERE instr(body, ?)", (body, plain.encode()))
        assert changed.rowcount == 1
    async with proxied(ModelServer(window=20_000), tmp_path) as proxy:
        again = await proxy.http.post("/api/context/grep", headers=chat.headers, json=ask)
        assert again.json()["results"] == []
        hits = await proxy.http.get(
            "/api/sessions/old/search", headers=chat.headers, params={"q": "plum tree", "scope": "session"}
        )
        assert hits.json()["results"] == []


async def test_an_echo_has_no_words_in_the_index(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=20_000), tmp_path) as proxy:
        chat = proxy.chat(session="new")
        await chat.says("The pear tree bears in June.")
        await chat.says("<memory_recall>\nThe plum tree bears in August.\n</memory_recall>")
    async with model_in(tmp_path, chat) as model:
        await model.calls("grep", query="tree")
        words = Words().of("pear plum")
        held = await model.store.holding(model.where.namespace, model.where.session, words)
        assert [held.holding.get(word, 0) for word in words] == [1, 0]


@pytest.mark.spec("F25")
async def test_ids_resolve_after_a_restart(tmp_path: Path) -> None:
    model = ModelServer(window=4_000)

    async def described(http: Any, chat: Chat, ident: str) -> Json:
        order = {"session": chat.session, "id": ident}
        reply = await http.post("/api/context/describe", headers=chat.headers, json=order)
        entry: Json = reply.json()
        return entry

    async with proxied(model, tmp_path) as before:
        chat = before.chat(session="long")
        await compacted(chat, 2)
        idents = [row["id"] for row in await chat.rows()][:5]
        idents += [one["id"] for one in await chat.compactions() if one["kind"] == "message_removal"]
        known = {ident: await described(before.http, chat, ident) for ident in idents}
    assert {entry["kind"] for entry in known.values()} == {"message", "summary"}
    async with proxied(model, tmp_path) as after:
        assert {ident: await described(after.http, chat, ident) for ident in idents} == known
