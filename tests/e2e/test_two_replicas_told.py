"""What one of two servers was told the other one knows at its next request (S10)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.kit.chat import Chat
from tests.kit.model import ModelServer, Says
from tests.kit.postgres import asked
from tests.kit.processes import ran
from tests.kit.replicas import Replicas, replicated, until
from tests.kit.words import prose

WINDOW = 4_000
pytestmark = pytest.mark.timeout(120)


async def compacted(both: Replicas) -> Chat:
    """A conversation that alternates, under its first compaction."""
    chat = both.chat(system="You keep notes.")
    await chat.says("The first note: remember 4711.")
    while "x-palimpsest-compaction" not in chat.reply.headers:
        await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 120)}")
    return chat


@pytest.mark.spec("S10")
async def test_settings_pins_and_an_undo_hold_at_the_other_server(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with replicated(model, tmp_path, window=WINDOW) as both:
        chat = await compacted(both)
        one, two = both.clients
        at = f"/api/sessions/{chat.session}"
        (made,) = await chat.compactions()
        both.switch.only = 0
        await chat.says("Under it, here.")
        undone = await one.post(f"{at}/compactions/{made['id']}/undo", headers=chat.headers)
        assert undone.status_code == 200, undone.text
        pinned = (await one.get(f"{at}/messages", headers=chat.headers)).json()["messages"][4]
        pin = await one.post(f"{at}/pins", json={"message": pinned["id"]}, headers=chat.headers)
        assert pin.status_code < 300, pin.text
        wanted = {"policy": {"trigger_ratio": 0.95}}
        patched = await one.patch(f"{at}/settings", json=wanted, headers=chat.headers)
        assert patched.status_code == 200, patched.text
        assert (await two.get(f"{at}/settings", headers=chat.headers)).json() == patched.json()
        both.switch.only = 1
        await chat.says("And there?")
        assert chat.reply.headers.get("x-palimpsest-compaction") != made["id"]
        while chat.reply.headers.get("x-palimpsest-compaction") in (None, made["id"]):
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 120)}")
        assert pinned["message"] in model.prompts[-1].messages


@pytest.mark.spec("S10", "P6")
async def test_what_one_has_erased_and_blocked_is_gone_at_the_other(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with replicated(model, tmp_path, window=WINDOW) as both:
        chat = await compacted(both)
        session = f"/api/sessions/{chat.session}"
        for client in both.clients:
            assert (await client.get(session, headers=chat.headers)).status_code == 200
        reply = await both.clients[0].delete(f"{session}?block=true", headers=chat.headers)
        assert reply.status_code == 200, reply.text
        for at in (1, 0):
            both.switch.only = at
            again = await chat.posts([*chat.said, {"role": "user", "content": "Do you remember?"}])
            assert (again.status_code, again.json()["error"]["code"]) == (410, "session_erased")
            gone = await both.clients[at].get(session, headers=chat.headers)
            assert gone.status_code == 404
        for table in ("messages", "bodies", "compactions", "prepared", "exchanges"):
            assert await asked(both.database, f"SELECT count(*) FROM {table}") == [(0,)], table


@pytest.mark.spec("S10", "P6")
async def test_an_answer_under_way_at_one_is_not_stored_when_the_other_erases(tmp_path: Path) -> None:
    model = ModelServer()
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        begun.set()
        await let_go.wait()

    async with replicated(model, tmp_path, window=100_000) as both:
        chat = both.chat(0)
        await chat.says("Hello.")
        model.answers.append(Says({"role": "assistant", "content": "A secret."}, after=waits))
        telling = asyncio.create_task(chat.says("Tell me a secret."))
        await begun.wait()
        reply = await both.clients[1].delete(f"/api/sessions/{chat.session}", headers=chat.headers)
        assert reply.status_code == 200, reply.text
        let_go.set()
        assert (await telling)["content"] == "A secret."
        assert await asked(both.database, "SELECT count(*) FROM messages") == [(0,)]
        assert await asked(both.database, "SELECT count(*) FROM bodies") == [(0,)]


def palimpsest(folder: Path, database: str, *arguments: str) -> str:
    """What the command prints."""
    done = ran(folder, *arguments, "--database", database, settings={})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.spec("S10")
async def test_a_key_is_revoked_for_both(tmp_path: Path) -> None:
    settings = {"PALIMPSEST_ACCESS__MODE": "keys", "PALIMPSEST_UPSTREAM__API_KEY": "theirs"}
    async with replicated(ModelServer(), tmp_path, settings, window=100_000) as both:
        key = palimpsest(tmp_path, both.database, "keys", "create", "--label", "me").split()[-1]
        chat = both.chat(key=key)
        for turn in range(4):
            await chat.says(f"Hello {turn}.")
        ((ident,),) = await asked(both.database, "SELECT id FROM keys")
        palimpsest(tmp_path, both.database, "keys", "revoke", str(ident))

        async def is_refused() -> bool:
            replies = [await client.get("/api/sessions", headers=chat.headers) for client in both.clients]
            return {reply.status_code for reply in replies} == {401}

        await until(is_refused)


@pytest.mark.spec("S10", "S8")
async def test_a_window_that_one_has_learned_costs_the_other_no_refusal_of_its_own(tmp_path: Path) -> None:
    """The window halves; each server may be refused once, and no client hears of it.

    It is not configured: against what an operator has set nothing is learned.
    """
    model = ModelServer(window=8_000)
    async with replicated(model, tmp_path, window=None) as both:
        chat = both.chat(system="You keep notes.")
        for turn in range(20):
            await chat.says(f"Note {turn}. {prose(turn, 120)}")
        model.window = 2_500
        for turn in range(20, 50):
            await chat.says(f"Note {turn}. {prose(turn, 120)}")
        assert {reply.status_code for reply in chat.replies} == {200}
        refused = [prompt for prompt in model.prompts if prompt.tokens > model.window]
        late = [prompt for prompt in refused if model.prompts.index(prompt) > 22]
        assert len(late) <= 2
        assert await chat.transcript() == chat.said
