"""Erase leaves no bytes (P6): what a caller wrote, anywhere, is in no file of the data folder afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from palimpsest.storage import sqlite_database
from palimpsest.storage.sqlite_database import Commits
from palimpsest.storage.sqlite_files import Connection, Synchronous, writable

from benchmarks.kill_loop import server
from tests.e2e.test_promises_kill import sessions, transcript
from tests.e2e.test_promises_kill_partial import ASKED
from tests.e2e.test_promises_kill_partial import told as told_until_killed
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied
from tests.kit.remains import remains
from tests.kit.words import prose
from tests.upstream.scripted import Scripted

Json = dict[str, Any]
WINDOW = 4_000
CANARY = "Kanarienvogel77"
KEPT = "Nachtigall88"
KEYED = {"authorization": "Bearer one"}
# The caller's words are in a summary by a model, in one by code, and in the log of the day.
SETTINGS: Json = {"compaction.background": False}


def told(word: str, place: str) -> str:
    """What is in a header too."""
    return f"{word}-{place}"


def accented(word: str) -> str:
    """As it is escaped in JSON that knows ASCII only."""
    return word.replace("ie", "i\u00eb")


async def fills(proxy: Proxy, word: str, key: str = "one") -> str:
    """A session with the word in every place that a caller can write to; our id."""
    tool = {"type": "function", "function": {"name": "look", "description": told(word, "schema")}}
    chat = proxy.chat(
        key=key,
        system=f"Be kind. {told(word, 'system')}",
        session=told(word, "name"),
        extra={"tools": [tool], "user": told(word, "user")},
    )
    chat.headers["idempotency-key"] = told(word, "key")
    proxy.model.calls((told(word, "id"), "look", {"at": told(word, "arguments")}))
    await chat.says(told(word, "question"))
    call = chat.said[-1]["tool_calls"][0]["id"]
    await chat.sends({"role": "tool", "tool_call_id": call, "content": told(word, "result")})
    # Another spelling of what was said, and an answer that breaks off.
    chat.said[1] = {"content": chat.said[1]["content"], "role": "user", "name": told(word, "variant")}
    chat.headers["idempotency-key"] = told(word, "key 2")
    for turn in range(8):
        proxy.model.answers.append(Says({"role": "assistant", "content": told(word, f"answer {turn}")}))
        await chat.says(f"{told(word, f'turn {turn}')} {accented(word)} {prose(turn, 400)}")
    assert await chat.compactions()
    proxy.model.answers.append(
        Says(status=400, error={"error": {"message": told(word, "refused"), "code": "bad"}})
    )
    await chat.posts([*chat.said, {"role": "user", "content": told(word, "rejected")}])
    await _orders(proxy, chat.headers, chat.session, word)
    return chat.session


async def _orders(proxy: Proxy, headers: Json, session: str, word: str) -> None:
    async def order(method: str, path: str, **body: Any) -> httpx.Response:
        reply = await proxy.http.request(method, f"/api/sessions/{session}{path}", headers=headers, json=body)
        assert reply.status_code < 300, reply.text
        return reply

    messages = (await order("GET", "/messages")).json()["messages"]
    await order("POST", "/pins", message=messages[1]["id"])
    await order("POST", "/memory-block", text=told(word, "memory"))
    await order("PATCH", "/settings", policy={"summary_model": told(word, "setting")})
    await order("POST", "/complete", marker=f"Done: {told(word, 'marker')}")
    await order("POST", "/compact", focus=told(word, "focus"))
    found = await proxy.http.get(f"/api/memory/search?q={told(word, 'memory')}", headers=headers)
    assert found.json()["memories"]


async def erases(proxy: Proxy, path: str, headers: Json = KEYED) -> Json:
    reply = await proxy.http.delete(f"/api/{path}", headers=headers)
    assert reply.status_code == 200, reply.text
    receipt: Json = reply.json()
    return receipt


def logged(folder: Path) -> Json:
    (folder / "log").mkdir(exist_ok=True)
    return SETTINGS | {"compaction.daily_log_folder": str(folder / "log")}


@pytest.mark.spec("P6")
async def test_nothing_of_an_erased_session_is_in_any_file(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=WINDOW), tmp_path, logged(tmp_path)) as proxy:
        kept = await fills(proxy, KEPT)
        erased = await fills(proxy, CANARY)
        before = remains(tmp_path, CANARY, accented(CANARY))
        assert any(name.endswith(".md") for name in before)
        receipt = await erases(proxy, f"sessions/{told(CANARY, 'name')}")
        assert (receipt["session"], receipt["files"], receipt["blocked"]) == (erased, "scrubbed", False)
        counts = receipt["rows"]
        # Of an exchange that was answered nothing is left to erase but itself.
        # Nor was anything looked up, or named by items: see test_recall_kept.py, test_responses_names.py.
        empty = {"rebases", "leases", "hidden_rounds", "items", "prepared"}
        assert {table for table, rows in counts.items() if not rows} <= empty
        assert receipt["daily_log_entries"]
        assert remains(tmp_path, CANARY, accented(CANARY)) == {}
        assert remains(tmp_path, KEPT)
        reply = await proxy.http.get(f"/api/sessions/{kept}/messages", headers=KEYED)
        assert told(KEPT, "turn 7") in reply.text
        for path in (f"sessions/{erased}", f"sessions/{told(CANARY, 'name')}"):
            assert (await proxy.http.delete(f"/api/{path}", headers=KEYED)).status_code == 404
    # Nor in what is written at the end.
    assert remains(tmp_path, CANARY, accented(CANARY)) == {}


@pytest.mark.spec("P6")
async def test_nothing_of_an_answer_that_a_kill_cut_off_is_in_any_file(tmp_path: Path) -> None:
    async with Scripted() as upstream:
        story = await told_until_killed(upstream, tmp_path)
        asked = str(ASKED["content"])
        assert story.partial.startswith("piece 0;")
        assert remains(tmp_path, "piece 0;")
        async with server(tmp_path, upstream.url) as running, httpx.AsyncClient(trust_env=False) as http:
            (session,) = await sessions(running)
            assert len(await transcript(running, session)) == 2
            reply = await http.delete(f"{running.url}/api/sessions/{session}")
            assert reply.json()["rows"]["messages"] == 2
            assert remains(tmp_path, "piece 0", asked) == {}
    # Killed once more.
    assert remains(tmp_path, "piece 0", asked) == {}


@pytest.mark.spec("P6")
@pytest.mark.spec("C17")
async def test_one_call_erases_everything_of_a_key(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=WINDOW), tmp_path, logged(tmp_path)) as proxy:
        await fills(proxy, KEPT, key="two")
        first = await fills(proxy, CANARY)
        await fills(proxy, f"{CANARY}-second")
        await proxy.http.delete(f"/api/sessions/{first}?block=true", headers=KEYED)
        assert (await proxy.http.delete("/api/namespace", headers=KEYED)).status_code == 400
        wrong = await proxy.http.delete("/api/namespace?confirm=yes", headers=KEYED)
        assert wrong.status_code == 400
        receipt = await erases(proxy, "namespace?confirm=everything")
        assert receipt["files"] == "scrubbed"
        assert receipt["rows"]["sessions"] == 1
        assert receipt["rows"]["tombstones"]
        assert remains(tmp_path, CANARY, accented(CANARY)) == {}
        assert remains(tmp_path, KEPT)
        listed = await proxy.http.get("/api/sessions", headers=KEYED)
        assert listed.json()["total"] == 0
        others = await proxy.http.get("/api/sessions", headers={"authorization": "Bearer two"})
        assert others.json()["total"] == 1
        # The key goes on working, and what was blocked may come back.
        assert await fills(proxy, CANARY)
        again = await erases(proxy, "namespace?confirm=everything")
        assert again["rows"]["sessions"] == 1
        nothing = await erases(proxy, "namespace?confirm=everything")
        assert not any(nothing["rows"].values())


def careless(path: Path, synchronous: Synchronous) -> Connection:
    """As the program opens its file, but for one thing."""
    connection = writable(path, synchronous)
    connection.execute("PRAGMA secure_delete=OFF")
    return connection


@pytest.mark.parametrize("broken", ["secure_delete", "checkpoint"])
async def test_without_the_scrub_the_word_is_found(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: what the scan finds when one of the means is missing."""
    if broken == "checkpoint":
        monkeypatch.setattr(Commits, "scrubbed", lambda *_: True)
    else:
        monkeypatch.setattr(Commits, "scrubbed", lambda self, _: self.checkpoint("TRUNCATE"))
        monkeypatch.setattr(sqlite_database, "writable", careless)
    async with proxied(ModelServer(window=WINDOW), tmp_path, SETTINGS) as proxy:
        await fills(proxy, CANARY)
        await erases(proxy, f"sessions/{told(CANARY, 'name')}")
        assert remains(tmp_path, CANARY, accented(CANARY))
