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
from palimpsest.core.recall.words import Words
from palimpsest.core.wire.json_text import encoded
from palimpsest.proxy.background import Background
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.recall.indexing import Indexer, RecallSwitch
from palimpsest.proxy.recall.tools import RecallTools, Searcher, Where
from palimpsest.settings.compacting import RecallSettings
from palimpsest.storage.sqlite_files import driver
from palimpsest.storage.store import Store, open_store

from tests.kit.chat import Chat
from tests.kit.journal import compacted, events
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.recalls import compacted_chat, saying

pytestmark = pytest.mark.timeout(60)

Json = dict[str, Any]
MARKER = "ACTIVE_TASK_ONLY_PASS"
USED = ["context_recalled"]


@dataclass
class Model:
    """A model that calls the tools within its session, with a store of its own under them."""

    store: Store
    tools: RecallTools
    where: Where

    async def calls(self, name: str, newest_user: str = "", **arguments: Any) -> Any:
        text = await self.tools.called(self.where, f"context_{name}", json.dumps(arguments), newest_user)
        return json.loads(text)


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
        heads = await store.history.heads(namespace, chat.session)
        switch = RecallSwitch(store.journal, lambda stored: True)
        indexing = Indexer(store.search, Jobs(), Background(Jobs()), asyncio.Event(), switch, 10.0)
        searching = Searcher(store, indexing, switch, RecallSettings())
        tools = RecallTools(store, searching, switch, lambda: uuid.uuid4().hex, 25_000)
        yield Model(store, tools, Where(namespace, chat.session, heads[0].chain))
    finally:
        await store.close()


# What the user says, how the model calls, and which of the sessions is read then.
ASKED: list[tuple[str, Json, str]] = [
    ("Look into the session voyage.", {"taskId": "voyage"}, ""),
    ("Look into the session voyage.", {"taskId": "voyage", "explicitUserRequest": False}, ""),
    ("What was the codename?", {"taskId": "voyage", "explicitUserRequest": True}, ""),
    ("Look into nowhere.", {"taskId": "nowhere", "explicitUserRequest": True}, ""),
    ("Look into the session theirs.", {"taskId": "theirs", "explicitUserRequest": True}, ""),
    ("What was it in the voyage session?", {"taskId": "voyage", "explicitUserRequest": True}, "voyage"),
]


@pytest.mark.spec("C06", "C18", "P5")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_reads_another_session_on_the_users_word_alone(stream: bool, tmp_path: Path) -> None:
    # Room for every result as a whole.
    async with compacted_chat(tmp_path, stream=stream, window=16_000) as (proxy, mine):
        await mine.says(f"The codename here is {MARKER}.")
        others = {"voyage": proxy.chat(session="voyage"), "theirs": proxy.chat(session="theirs", key="key-2")}
        for name, other in others.items():
            await other.says(f"The codename there is SECRET-OF-{name}.")
        ids = {name: (await other.rows())[0]["id"] for name, other in others.items()}
        for newest, arguments, read_from in ASKED:
            ident = ids["theirs" if "theirs" in newest else "voyage"]
            calls: list[tuple[str, str, Json]] = [
                ("g1", "context_grep", {"query": "codename SECRET", **arguments}),
                ("d1", "context_describe", {"id": ident, **arguments}),
            ]
            proxy.model.answers.extend([saying(None, *calls), saying("So it is.")])
            await mine.says(newest)
            found, entry = (json.loads(told["content"]) for told in proxy.model.prompts[-1].messages[-2:])
            assert found["session"] == (others[read_from].session if read_from else mine.session)
            assert (entry is None) is (not read_from)
            shown = json.dumps([found, entry])
            assert ("SECRET-OF-voyage" in shown) is bool(read_from)
            assert "SECRET-OF-theirs" not in shown
            assert (MARKER in shown) is (not read_from)
            searched, read = (e["payload"] for e in (await events(proxy.http, mine, USED))[-2:])
            assert (searched["tool"], searched["asked"]) == ("context_grep", "codename SECRET")
            assert (read["tool"], read["asked"], read["resultCount"]) == (
                "context_describe",
                ident,
                int(bool(read_from)),
            )
            for event in (searched, read):
                assert (event["via"], event["requestedSession"]) == ("model", arguments["taskId"])
                assert event["explicitUserRequest"] is bool(arguments.get("explicitUserRequest"))
                assert event["effectiveSession"] == found["session"]


async def talked(folder: Path) -> Chat:
    """A conversation about a codename, behind its proxy."""
    async with proxied(ModelServer(window=20_000), folder) as proxy:
        chat = proxy.chat(session="mine")
        await chat.says(f"The codename here is {MARKER}.")
        return chat


async def test_what_a_model_writes_wrong_is_said(tmp_path: Path) -> None:
    mine = await talked(tmp_path)
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


async def test_where_nothing_was_said_nothing_is_found(tmp_path: Path) -> None:
    mine = await talked(tmp_path)
    async with model_in(tmp_path, mine) as model:
        ident = (await model.calls("grep", query="codename"))["results"][0]["id"]
        model.where = replace(model.where, head=b"")
        empty = await model.calls("grep", query="codename")
        assert (empty["results"], empty["totalFound"]) == ([], 0)
        assert await model.calls("describe", id=ident) is None


async def test_an_echo_has_no_words_in_the_index(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=20_000), tmp_path) as proxy:
        chat = proxy.chat(session="new")
        await chat.says("The pear tree bears in June.")
        await chat.says("<memory_recall>\nThe plum tree bears in August.\n</memory_recall>")
    async with model_in(tmp_path, chat) as model:
        await model.calls("grep", query="tree")
        words = Words().of("pear plum")
        held = (await model.store.search.find(model.where.namespace, model.where.session, words, 0)).holdings
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
