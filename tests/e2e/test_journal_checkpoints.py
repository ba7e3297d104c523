"""Checkpoints on the way and at completion: when there is one, when there is none, what it cites."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.chat import Chat
from tests.kit.journal import Json, carries_out, checkpoints, events
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

pytestmark = pytest.mark.timeout(60)


async def talked(chat: Chat, exchanges: int) -> None:
    """So many more questions and answers."""
    for _ in range(exchanges):
        number = len(chat.replies)
        await chat.says(f"Question {number}: we decided to keep /srv/part{number}.txt. {prose(number, 20)}")


async def periodic(proxy: Proxy, chat: Chat, count: int) -> list[Json]:
    """The periodic checkpoints, once there are so many: they are made after the answer has gone out."""
    while len(found := await checkpoints(proxy.http, chat, "periodic")) < count:
        continue
    return found


async def complete(proxy: Proxy, chat: Chat, marker: str = "") -> str | None:
    """The id of the checkpoint that completing the session gave."""
    reply = await proxy.http.post(
        f"/api/sessions/{chat.session}/complete", json={"marker": marker}, headers=chat.headers
    )
    assert reply.status_code == 200, reply.text
    made: str | None = reply.json()["checkpoint"]
    return made


@pytest.mark.spec("A37", "A39")
async def test_twenty_four_exchanges_give_two_checkpoints_and_replays_none(tmp_path: Path) -> None:
    model = ModelServer()
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system="You are careful.", session="work")
        await talked(chat, 11)
        assert await checkpoints(proxy.http, chat, "periodic") == []
        await talked(chat, 1)
        (first,) = await periodic(proxy, chat, 1)
        assert first["payload"]["span"]["messages"] == 24
        # The request whose answer made the checkpoint, again: once with the same answer, once with another.
        for answer in (chat.said[-1]["content"], "Something else entirely."):
            model.says(answer)
            reply = await chat.posts(chat.sent[-1])
            assert reply.status_code == 200
        await talked(chat, 12)
        first_again, second = await periodic(proxy, chat, 2)
        model.says(chat.said[-1]["content"])
        await chat.posts(chat.sent[-1])
        await talked(chat, 11)
        assert first_again == first
        kept = await checkpoints(proxy.http, chat, "periodic")
        assert kept == [first, second]
        rows = [row for row in await chat.rows() if row["id"]]
        assert [first["payload"]["span"]["fromId"], first["payload"]["span"]["toId"]] == [
            rows[0]["id"],
            rows[23]["id"],
        ]
        assert [second["payload"]["span"]["fromId"], second["payload"]["span"]["toId"]] == [
            rows[24]["id"],
            rows[47]["id"],
        ]
        texts = {row["id"]: row["message"]["content"] for row in rows}
        spans = [span for checkpoint in kept for span in checkpoint["payload"]["evidence"]]
        assert spans
        assert all(span["excerpt"] in texts[span["id"]] for span in spans)
        assert second["payload"]["runtime"]["loop"]["exchanges"] == 24
        told = await events(proxy.http, chat, ["checkpoint"])
        assert [event["payload"]["checkpointId"] for event in told] == [
            checkpoint["id"] for checkpoint in kept
        ]


@pytest.mark.spec("A33")
async def test_a_turn_without_a_compaction_writes_nothing_beside_its_messages(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        await talked(proxy.chat(session="work"), 11)
    for table in ("events", "checkpoints", "memories", "compactions"):
        assert carries_out(tmp_path, f"SELECT count(*) FROM {table}") == ["0"], table


@pytest.mark.spec("A37")
async def test_calls_of_tools_and_empty_answers_are_no_exchanges(tmp_path: Path) -> None:
    model = ModelServer()
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="work")
        for number in range(12):
            model.calls((f"call-{number}", "read_file", {"path": f"/srv/{number}"}))
            await chat.says(f"Read /srv/{number}.")
            model.answers.append(
                Says({"role": "assistant", "content": f"It says {number}." if number else ""})
            )
            await chat.sends({"role": "tool", "tool_call_id": f"call-{number}", "content": "text"})
        # Twenty-four answers, eleven exchanges; with the twelfth it is found at the next multiple.
        for _ in range(12):
            assert await checkpoints(proxy.http, chat, "periodic") == []
            await talked(chat, 1)
        (only,) = await periodic(proxy, chat, 1)
        assert only["payload"]["runtime"]["loop"]["exchanges"] == 12
        assert only["payload"]["runtime"]["tooling"]["calls"] == {"read_file": 12}


@pytest.mark.spec("A38")
async def test_completing_with_nothing_said_gives_none(tmp_path: Path) -> None:
    model = ModelServer()
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="work")
        model.says("ok")
        await chat.says("Thanks!")
        assert await complete(proxy, chat) is None
        assert await complete(proxy, chat, "ok") is None
        assert await checkpoints(proxy.http, chat, "completion") == []
        model.says("Released parser 2.1 to /srv/release; we decided to keep port 8443.")
        await chat.says("Release it.")
        made = await complete(proxy, chat, "ok")
        (kept,) = await checkpoints(proxy.http, chat, "completion")
        assert kept["id"] == made
        assert kept["payload"]["span"]["messages"] == 4
        assert any("8443" in line for line in kept["payload"]["summary"]["decisions"])
        assert kept["payload"]["runtime"]["schema"] == "session_runtime_v2"
        # Nothing was said since.
        assert await complete(proxy, chat) is None
        assert await complete(proxy, chat, "Released.") is None
        model.says("done")
        await chat.says("Thanks!")
        assert await complete(proxy, chat) is None
        assert await complete(proxy, chat, "The tour of release 2.1 is over.") is not None
        assert len(await checkpoints(proxy.http, chat, "completion")) == 2


@pytest.mark.spec("A38")
@pytest.mark.parametrize(("tool", "counts"), [("write_file", True), ("read_file", False)])
async def test_what_was_changed_was_produced_whatever_is_said_of_it(
    tool: str, counts: bool, tmp_path: Path
) -> None:
    model = ModelServer()
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="work")
        model.calls(("call-1", tool, {"path": "/srv/a.py", "content": "x = 1"}))
        await chat.says("Go on.")
        model.says("Done.")
        await chat.sends({"role": "tool", "tool_call_id": "call-1", "content": "ok"})
        assert bool(await complete(proxy, chat)) is counts
        assert len(await checkpoints(proxy.http, chat, "completion")) == counts
