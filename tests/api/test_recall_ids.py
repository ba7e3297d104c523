"""How results name things: the same for the same thing, whoever records it again, and read by either name."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.recall.tool_results import (
    chain_digits_of,
    compaction_of,
    conversation_id,
    payload_id,
    session_of,
    summary_id,
)
from palimpsest.storage.sqlite.driver import driver

from tests.kit.chat import Chat
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

pytestmark = pytest.mark.timeout(60)

Json = dict[str, Any]
# Rows that recording anything could add to.
TABLES = ("sessions", "messages", "bodies", "compactions", "recall_marks", "recall_words_docsize")
LARGE = {"recall.large_payload_tokens": 1_000}
QUERY = "which number has the lighthouse"


def told(folder: Path) -> dict[str, int]:
    with driver.connect(folder / "palimpsest.db") as database:
        return {
            table: int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in TABLES
        }


async def posted(proxy: Proxy, chat: Chat, tool: str, **order: Any) -> Any:
    reply = await proxy.http.post(f"/api/context/{tool}", headers=chat.headers, json=order)
    assert reply.status_code == 200, reply.text
    return reply.json()


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Proxy]:
    async with proxied(ModelServer(window=30_000), folder, LARGE) as proxy:
        yield proxy


async def recorded(proxy: Proxy) -> Chat:
    """A conversation with a large payload, compacted; asked again, the model answers the same."""
    proxy.model.script = lambda seen: Says({"role": "assistant", "content": "It is noted."})
    chat = proxy.chat(session="lights")
    await chat.says("The lighthouse has the number 7731. " + prose(1, 1_500))
    for turn in range(6):
        await chat.says(f"Question {turn} of the lighthouse: " + prose(turn + 2, 300))
    await compacted(proxy, chat)
    return chat


async def compacted(proxy: Proxy, chat: Chat) -> Json:
    reply = await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
    made: Json = reply.json()
    return made


async def names_of(proxy: Proxy, chat: Chat) -> dict[str, str]:
    """The ids that a search shows, one of each kind, and the conversation's."""
    found = await posted(proxy, chat, "grep", session="lights", query=QUERY, limit=50)
    made = await posted(proxy, chat, "grep", session="lights", query=QUERY, kind="summary")
    names = {hit["kind"]: hit["id"] for hit in reversed([*found["results"], *made["results"]])}
    return {**names, "conversation": found["conversation"]}


def test_a_name_is_read_back_in_either_spelling() -> None:
    ident, chain = str(uuid.uuid4()), bytes(range(32))
    assert re.fullmatch("dcc_[0-9a-f]{32}", conversation_id(ident))
    assert session_of(conversation_id(ident)) == ident
    assert session_of(ident) is None
    assert re.fullmatch("dcs_[0-9a-f]{32}", summary_id(ident))
    assert [compaction_of(name) for name in (ident, "dcs_" + ident, summary_id(ident))] == [ident] * 3
    # What an import brought may be called anything.
    assert compaction_of(summary_id("Summary-3")) == "Summary-3"
    digits = chain.hex()[:32]
    assert [chain_digits_of(name) for name in (payload_id(chain), "dcm_" + digits, digits)] == [digits] * 3
    assert chain_digits_of(summary_id(ident)) is None


@pytest.mark.spec("C10")
async def test_recorded_again_everything_has_the_same_id_and_no_row_is_added(tmp_path: Path) -> None:
    async with opened(tmp_path) as proxy:
        chat = await recorded(proxy)
        names, rows = await names_of(proxy, chat), told(tmp_path)
        assert names.keys() == {"message", "payload", "summary", "conversation"}
        for kind, prefix in (("message", "m"), ("payload", "p"), ("summary", "s"), ("conversation", "c")):
            assert re.fullmatch(f"dc{prefix}_[0-9a-f]{{32}}", names[kind])
        # The client sends what it sent before, as a retry; the same is to be compacted again.
        retried = {"x-stainless-retry-count": "1"}
        reply = await chat.posts(chat.said[:-1], headers=retried)
        assert reply.headers["x-palimpsest-session"] == chat.session
        assert (await compacted(proxy, chat))["compacted"] is False
        assert await names_of(proxy, chat) == names
        assert told(tmp_path) == rows


@pytest.mark.spec("C10", "C05", "F25")
async def test_ids_resolve_after_a_restart_in_both_spellings(tmp_path: Path) -> None:
    async with opened(tmp_path) as proxy:
        chat = await recorded(proxy)
        names = await names_of(proxy, chat)
        (compaction,) = [one["id"] for one in await chat.compactions()]
        payload = (await chat.rows())[0]["id"]
    async with opened(tmp_path) as proxy:
        assert await names_of(proxy, chat) == names
        for name in (names["conversation"], chat.session, "lights"):
            again = await posted(proxy, chat, "grep", session=name, query=QUERY)
            assert again["session"] == chat.session
        for ident in (names["summary"], compaction, f"dcs_{compaction}"):
            entry = await posted(proxy, chat, "describe", session="lights", id=ident)
            assert (entry["id"], entry["kind"]) == (names["summary"], "summary")
            page = await fetched(proxy, chat, ident)
            assert (page["id"], page["session"]) == (names["summary"], chat.session)
            assert page["text"].startswith(entry["text"][:200])
        for ident in (names["payload"], payload):
            entry = await posted(proxy, chat, "describe", session="lights", id=ident)
            assert (entry["id"], entry["kind"]) == (names["payload"], "payload")
            page = await fetched(proxy, chat, ident)
            assert page["text"] == chat.said[0]["content"][: len(page["text"])]


async def fetched(proxy: Proxy, chat: Chat, ident: str) -> Json:
    reply = await proxy.http.get(f"/api/context/{ident}", headers=chat.headers)
    assert reply.status_code == 200, reply.text
    page: Json = reply.json()
    return page
