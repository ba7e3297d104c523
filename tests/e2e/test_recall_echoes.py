"""Injected blocks and what recall has told are recorded word for word, and nothing is made of them (C07)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.recall.searchable_text import RECALL_OUTPUT_TAGS, is_recall_output
from palimpsest.core.recall.tool_calls import DESCRIBE, GREP
from palimpsest.storage.sqlite_files import driver

from tests.kit.chat import Chat
from tests.kit.journal import AT_THE_END, checkpoints, read
from tests.kit.model import SUMMARY_MODEL, ModelServer
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

pytestmark = pytest.mark.timeout(90)

Json = dict[str, Any]
TAGS = sorted(RECALL_OUTPUT_TAGS)
# What stands in echoes alone, and what is said beside them.
HIDDEN = "quokka"
SAID = "wombat"
SETTINGS = AT_THE_END | {"summarizer.model": SUMMARY_MODEL}
# Whatever is made of messages.
DERIVED = (
    "compactions",
    "checkpoints",
    "memories",
    "recall_marks",
    "recall_words_docsize",
    "messages",
    "bodies",
)


def block(tag: str, number: int) -> str:
    return f"<{tag}>\nWe decided that {HIDDEN}{number} is the port of /srv/{HIDDEN}{number}.py.\n</{tag}>"


def calling(name: str, ident: str) -> list[Json]:
    """A call of a recall tool, as clients of MCP spell it too, and what it told."""
    called = {"name": name, "arguments": json.dumps({"query": f"{HIDDEN} call {ident}"})}
    tool = name.rpartition("__")[2]
    told = json.dumps({"tool": tool, "text": f"We decided that {HIDDEN} is the port. Error: {HIDDEN} failed"})
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": ident, "type": "function", "function": called}],
        },
        {"role": "tool", "tool_call_id": ident, "content": told},
    ]


async def echoes(chat: Chat) -> None:
    """Every kind of echo, alone and beside words of the user's, and a conversation around them."""
    await chat.says(f"We decided to keep the {SAID} in /srv/{SAID}.py.")
    for number, tag in enumerate(TAGS):
        await chat.says(block(tag, number))
    await chat.says(f"We must feed the {SAID}. {block(TAGS[0], 50)} The {SAID} eats at 7.")
    await chat.sends(*calling(GREP, "g1"), {"role": "user", "content": f"What does the {SAID} eat?"})
    await chat.sends(*calling(f"mcp__palimpsest__{DESCRIBE}", "d1"), {"role": "user", "content": "And then?"})


async def folded(proxy: Proxy, chat: Chat) -> None:
    for number in range(6):
        await chat.says(f"Note {number}: {prose(number, 200)}")
    await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
    assert await chat.compactions()


async def derived(proxy: Proxy, chat: Chat) -> dict[str, str]:
    """All that was made of the conversation's messages, as text."""
    kinds = ("pre_compaction", "periodic", "completion")
    made = [one for kind in kinds for one in await checkpoints(proxy.http, chat, kind)]
    summaries = await chat.compactions()
    state = await read(proxy.http, chat, f"sessions/{chat.session}/state")
    memories = await read(proxy.http, chat, f"sessions/{chat.session}/memory")
    asked = [seen.body["messages"] for seen in proxy.model.seen if seen.is_summary]
    things = {
        "checkpoints": made,
        "summaries": summaries,
        "state": state,
        "memories": memories,
        "questions": asked,
    }
    return {name: json.dumps(thing) for name, thing in things.items()}


@pytest.mark.spec("C07")
@pytest.mark.parametrize("policy", ["handoff", "working_state", "rolling", "batch"])
async def test_nothing_is_made_of_echoes(policy: str, tmp_path: Path) -> None:
    settings = SETTINGS | {"policy.name": policy}
    async with proxied(ModelServer(window=8_000), tmp_path, settings) as proxy:
        chat = proxy.chat()
        await echoes(chat)
        await folded(proxy, chat)
        await proxy.http.post(
            f"/api/sessions/{chat.session}/complete", headers=chat.headers, json={"marker": "released as 2.1"}
        )
        made = await derived(proxy, chat)
        assert {name: HIDDEN in text for name, text in made.items()} == dict.fromkeys(made, False)
        # What stands beside them counts.
        assert SAID in made["summaries"]
        assert SAID in made["checkpoints"]
        # The archive has them word for word.
        assert await chat.transcript() == chat.said


def rows_in(folder: Path) -> dict[str, int]:
    with driver.connect(folder / "palimpsest.db") as database:
        return {
            table: int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in DERIVED
        }


def words_in(folder: Path) -> set[str]:
    """Every word that the index holds."""
    with driver.connect(folder / "palimpsest.db") as database:
        database.execute("CREATE VIRTUAL TABLE temp.held USING fts5vocab('main', 'recall_words', 'row')")
        return {term for (term,) in database.execute("SELECT term FROM temp.held")}


@pytest.mark.spec("C07")
async def test_searching_three_times_adds_nothing_and_echoes_have_no_words(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, SETTINGS) as proxy:
        chat = proxy.chat(session="zoo")
        await echoes(chat)
        await folded(proxy, chat)

        async def grep() -> Json:
            order = {"session": "zoo", "query": f"{SAID} {HIDDEN}"}
            reply = await proxy.http.post("/api/context/grep", headers=chat.headers, json=order)
            assert reply.status_code == 200, reply.text
            found: Json = reply.json()
            return found

        first = await grep()
        rows = rows_in(tmp_path)
        assert [await grep() for _ in range(3)] == [first] * 3
        assert rows_in(tmp_path) == rows
        assert first["results"]
        said = [row["message"] for row in await chat.rows() if row["role"] != "system"]
        echoing = {str(number) for number, message in enumerate(said, 1) if is_recall_output(message)}
        assert len(echoing) == len(TAGS) + 4
        assert echoing.isdisjoint(hit["id"] for hit in first["results"])
        words = words_in(tmp_path)
        assert SAID in words
        assert [word for word in words if HIDDEN in word] == []
