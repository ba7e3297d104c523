"""What recall keeps: nothing where it is off, the same ids recorded again, large payloads once."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Mapping
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
from palimpsest.storage.sqlite_files import driver

from tests.api.test_recall import client_of, describe, grep, search
from tests.kit.chat import Chat
from tests.kit.journal import events
from tests.kit.model import ModelServer, Says, counter
from tests.kit.proxy import Proxy, proxied
from tests.kit.recalls import OURS, compacted_chat, names_in
from tests.kit.words import prose

pytestmark = pytest.mark.timeout(120)

Json = dict[str, Any]
OFF = {"recall.enabled": False}
CODE = "durable_context_disabled"
# Rows that recording anything could add to.
TABLES = ("sessions", "messages", "bodies", "compactions", "recall_marks", "recall_words_docsize")
QUERY = "which number has the lighthouse"


def rows_in(folder: Path) -> dict[str, int]:
    """How many rows there are."""
    with driver.connect(folder / "palimpsest.db") as database:
        return {
            table: int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in TABLES
        }


def indexed(folder: Path) -> tuple[int, int]:
    """Rows of the index: marks of sessions, and entries."""
    rows = rows_in(folder)
    return rows["recall_marks"], rows["recall_words_docsize"]


@asynccontextmanager
async def talking(
    folder: Path, overrides: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[Proxy, Chat]]:
    async with proxied(ModelServer(window=20_000), folder, dict(overrides or {})) as proxy:
        chat = proxy.chat(session="garden")
        await chat.says("Last Saturday I painted the rowing boat in green.")
        yield proxy, chat


async def best(chat: Chat, question: str) -> str:
    """What the search shows first."""
    return str((await search(chat, question))["results"][0]["text"])


async def called(chat: Chat, status: int = 200) -> list[Json]:
    """Both tools called directly."""
    ident = (await chat.rows())[0]["id"]
    orders = {"grep": {"query": "boat"}, "describe": {"id": ident}}
    return [
        await chat.asks("POST", f"context/{tool}", {"session": chat.session, **order}, status=status)
        for tool, order in orders.items()
    ]


async def switches(chat: Chat, is_on: bool | None) -> None:
    await chat.asks("PATCH", "/settings", {"recall": {"enabled": is_on}})


@pytest.mark.spec("C03")
async def test_switched_off_nothing_is_written_and_direct_calls_are_refused(tmp_path: Path) -> None:
    async with talking(tmp_path, OFF) as (proxy, chat):
        assert await best(chat, "painting boats") == chat.said[0]["content"]
        assert [error["code"] for error in await called(chat, 403)] == [CODE, CODE]
        async with client_of(proxy, chat) as client:
            assert (await client.list_tools()).tools == []
            result = await client.call_tool("context_grep", {"query": "boat"})
        assert (result.is_error, CODE in str(result.content)) == (True, True)
        assert await events(proxy.http, chat, ["context_recalled"]) == []
        await chat.says("The gate code is 4471-KLM.")
        assert await best(chat, "gate code") == "The gate code is 4471-KLM."
        assert indexed(tmp_path) == (0, 0)


@pytest.mark.spec("C01", "C03")
async def test_a_session_opts_out_and_in_again_without_a_restart(tmp_path: Path) -> None:
    async with talking(tmp_path) as (_, chat):
        assert await best(chat, "painting boats") == chat.said[0]["content"]
        assert indexed(tmp_path) == (1, 2)
        await switches(chat, False)
        # Words that are found by nobody are removed beside the turns.
        async with asyncio.timeout(20):
            while await asyncio.to_thread(indexed, tmp_path) != (0, 0):  # noqa: ASYNC110  # nobody tells us
                await asyncio.sleep(0.01)
        await called(chat, 403)
        assert await best(chat, "painting boats") == chat.said[0]["content"]
        assert indexed(tmp_path) == (0, 0)
        await switches(chat, None)
        found, read = await called(chat)
        assert found["results"][0]["snippet"] == chat.said[0]["content"]
        assert read["text"] == f"user: {chat.said[0]['content']}"
        assert indexed(tmp_path) == (1, 2)


@pytest.mark.spec("C03")
async def test_switched_off_no_model_is_offered_tools(tmp_path: Path) -> None:
    """Neither by the deployment's `recall.tools` nor by a request that asks for them."""
    async with compacted_chat(tmp_path) as (proxy, chat):
        chat.headers["x-palimpsest-recall"] = "on"
        await chat.says("Which port?")
        assert names_in(proxy.model.prompts[-1])[1:] == OURS
        await switches(chat, False)
        await chat.says("Which port?")
        del chat.headers["x-palimpsest-recall"]
        await chat.says("Which port?")
        assert [names_in(seen)[1:] for seen in proxy.model.prompts[-2:]] == [[], []]


def test_a_name_is_read_back_in_either_spelling() -> None:
    ident, chain = str(uuid.uuid4()), bytes(range(32))
    assert re.fullmatch("dcc_[0-9a-f]{32}", conversation_id(ident))
    assert [session_of(name) for name in (conversation_id(ident), ident)] == [ident, None]
    assert re.fullmatch("dcs_[0-9a-f]{32}", summary_id(ident))
    assert [compaction_of(name) for name in (ident, "dcs_" + ident, summary_id(ident))] == [ident] * 3
    # What an import brought may be called anything.
    assert compaction_of(summary_id("Summary-3")) == "Summary-3"
    digits = chain.hex()[:32]
    assert [chain_digits_of(name) for name in (payload_id(chain), "dcm_" + digits, digits)] == [digits] * 3
    assert chain_digits_of(summary_id(ident)) is None


async def names_of(chat: Chat) -> dict[str, str]:
    """The ids that a search shows, one of each kind, and the conversation's."""
    found, made = await search(chat, QUERY, limit=50), await grep(chat, QUERY, kind="summary")
    names = {hit["kind"]: hit["id"] for hit in reversed([*found["results"], *made["results"]])}
    return {**names, "conversation": made["conversation"]}


@pytest.mark.spec("C05", "C10", "F25")
async def test_everything_keeps_its_id_recorded_again_and_after_a_restart(tmp_path: Path) -> None:
    large = {"recall.large_payload_tokens": 1_000}
    async with proxied(ModelServer(window=30_000), tmp_path, large) as proxy:
        # Asked again, the model answers the same.
        proxy.model.script = lambda seen: Says({"role": "assistant", "content": "It is noted."})
        chat = proxy.chat(session="lights")
        await chat.says("The lighthouse has the number 7731. " + prose(1, 1_500))
        for turn in range(6):
            await chat.says(f"Question {turn} of the lighthouse: " + prose(turn + 2, 300))
        compaction = (await chat.compacts())["id"]
        names, rows = await names_of(chat), rows_in(tmp_path)
        letters = {"message": "m", "payload": "p", "summary": "s", "conversation": "c"}
        assert names.keys() == letters.keys()
        for kind, letter in letters.items():
            assert re.fullmatch(f"dc{letter}_[0-9a-f]{{32}}", names[kind])
        # The client sends what it sent before, as a retry; the same is to be compacted again.
        reply = await chat.posts(chat.said[:-1], headers={"x-stainless-retry-count": "1"})
        assert reply.headers["x-palimpsest-session"] == chat.session
        assert (await chat.asks("POST", "/compact"))["compacted"] is False
        assert await names_of(chat) == names
        assert rows_in(tmp_path) == rows
        payload = (await chat.rows())[0]["id"]
    async with proxied(ModelServer(window=30_000), tmp_path, large) as proxy:
        again = proxy.chat(session="lights")
        again.replies = chat.replies
        assert await names_of(again) == names
        for name in (names["conversation"], chat.session, "lights"):
            assert (await grep(again, QUERY, session=name))["session"] == chat.session
        for ident, kind in (
            *((ident, "summary") for ident in (names["summary"], compaction, f"dcs_{compaction}")),
            *((ident, "payload") for ident in (names["payload"], payload)),
        ):
            entry, page = await describe(again, ident), await again.asks("GET", f"context/{ident}")
            assert (entry["id"], entry["kind"], page["session"]) == (names[kind], kind, chat.session)
            said = chat.said[0]["content"] if kind == "payload" else entry["text"]
            assert page["text"][:200] == said[:200]


NEEDLE = "The vermilion beacon answers to QX-7731."
LINE = "a line of the log of the long night at the station\n"
# 120 parts, 2 MB together; what is looked for stands near the end of the last.
PARTS = [f"Part {number}.\n" + LINE * 340 for number in range(119)]
PARTS += ["Part 119.\n" + LINE * 300 + NEEDLE + "\n" + LINE * 40]
TEXT = "".join(PARTS)


@pytest.mark.spec("C05", "C11")
async def test_a_large_payload_is_found_in_full_shown_in_little_and_kept_once(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=2_000_000), tmp_path) as proxy:
        chat = proxy.chat(session="night")
        call = {"id": "c1", "type": "function", "function": {"name": "read_log", "arguments": "{}"}}
        text = [{"type": "text", "text": part} for part in PARTS]
        await chat.sends(
            {"role": "user", "content": "Read the log."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": text},
        )
        hits = (await grep(chat, "vermilion beacon QX-7731"))["results"]
        (hit,) = [hit for hit in hits if hit.get("kind") == "payload"]
        assert re.fullmatch("dcp_[0-9a-f]{32}", hit["id"])
        assert (NEEDLE in hit["snippet"], len(hit["snippet"]) <= 600) == (True, True)
        assert (hit["speaker"], hit["totalChars"], hit["tokens"] > 25_000) == ("tool", len(TEXT), True)
        # What stands for it: its head, where the rest is, its tail.
        assert len(hit["summary"]) <= 1_200
        head, marker, tail = hit["summary"].partition("\n[... ")
        assert TEXT.startswith(head)
        assert hit["id"] in marker + tail
        assert TEXT.endswith(hit["summary"][-200:])
        searched = (await search(chat, "vermilion beacon"))["results"][0]
        assert (searched["kind"], searched["id"]) == ("payload", hit["id"])
        assert NEEDLE in searched["text"] == TEXT[searched["start"] :][: len(searched["text"])]
        assert searched["summary"] == hit["summary"]
        # A preview is short, and the whole is read in pieces, by a tool too.
        entry = await describe(chat, hit["id"])
        assert (entry["kind"], entry["id"], entry["totalChars"]) == ("payload", hit["id"], len(TEXT))
        assert (len(entry["preview"]) <= 4_000, NEEDLE in entry["preview"]) == (True, False)
        assert await chat.recalls(hit["id"]) == TEXT
        pieces, offset = [], len(TEXT) - 40_000
        while offset is not None:
            page = await describe(chat, hit["id"], offset=offset, limit=16_000)
            pieces.append(page["text"])
            offset = page["nextOffset"]
        assert [len(piece) for piece in pieces] == [16_000, 16_000, 8_000]
        assert "".join(pieces) == TEXT[-40_000:]
    # The row of a message refers to the body; no other table has any of it.
    with driver.connect(tmp_path / "palimpsest.db") as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        holding = {}
        for table in [name for (name,) in names if not name.startswith(("recall_words", "sqlite_"))]:
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            held = " OR ".join(f"instr(CAST({column} AS BLOB), CAST(? AS BLOB))" for column in columns)
            asked = f"SELECT count(*) FROM {table} WHERE {held}"
            (holding[table],) = database.execute(asked, [NEEDLE] * len(columns)).fetchone()
    assert {table: rows for table, rows in holding.items() if rows} == {"bodies": 1}


@pytest.mark.spec("C11")
async def test_what_takes_more_than_25_000_tokens_is_large(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=2_000_000), tmp_path) as proxy:
        chat = proxy.chat()
        words = 25_000 - counter().count_message({"role": "user", "content": ""})
        for more in (0, 1):
            message = {"role": "user", "content": " ".join(["word"] * (words + more))}
            assert counter().count_message(message) == 25_000 + more
            await chat.sends(message)
        ids = [row["id"] for row in await chat.rows() if row["role"] == "user"]
        assert [(await describe(chat, ident))["kind"] for ident in ids] == ["message", "payload"]
