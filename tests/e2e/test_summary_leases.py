"""Leases of summaries: taken over when they expire, renewed, respected while another server has them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.kit.journal import carries_out
from tests.kit.judge import are_sound
from tests.kit.model import ModelServer
from tests.kit.proxy import fronting, proxied
from tests.kit.serving import served
from tests.kit.summaries import ROLLING, WINDOW, Writer, grown, is_compacting, quiet
from tests.kit.words import prose

LONG = 3_600.0
pytestmark = pytest.mark.timeout(60)


def leases(folder: Path) -> list[str]:
    """The holders of the summaries' leases."""
    return carries_out(folder, "SELECT holder FROM leases WHERE key LIKE 'compact:%'")


def lease_of_another(folder: Path, expires_at: float) -> None:
    """Another server holds the lease of every session there is."""
    carries_out(
        folder,
        "INSERT INTO leases (key, holder, expires_at)"
        f" SELECT 'compact:' || namespace || ':' || id, 'other', {expires_at} FROM sessions",
    )


@pytest.mark.spec("B17")
async def test_an_expired_lease_is_taken_over_and_let_go_at_the_end(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 4_000)
        lease_of_another(tmp_path, time.time() - 1)
        await grown(chat)
        await writer.is_asked()
        (holder,) = leases(tmp_path)
        assert holder != "other"
        writer.let_go.set()
        await quiet(proxy, chat)
        await chat.says("The next one uses it.")
        assert [row["author"] for row in await chat.compactions()] == ["model"]
        assert leases(tmp_path) == []


@pytest.mark.spec("B17", "B18")
async def test_while_another_server_writes_nobody_is_asked_here_and_turns_are_answered(
    tmp_path: Path,
) -> None:
    writer = Writer()
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING | {"compaction.deadline_seconds": 0.2}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 4_000)
        assert not await is_compacting(proxy, chat)
        lease_of_another(tmp_path, time.time() + LONG)
        assert await is_compacting(proxy, chat)
        await grown(chat)
        await chat.says("This one fits.")
        assert model.prompts[-1].messages == chat.sent[-1]
        await chat.says(f"This one does not. {prose(99, 1_800)}")
        assert [row["author"] for row in await chat.compactions()] == ["deterministic"]
        are_sound(model.prompts, chat.sent, WINDOW)
        assert model.summaries == []
        assert leases(tmp_path) == ["other"]
        assert await chat.transcript() == chat.said


async def test_by_hand_nobody_is_asked_either_while_another_server_writes(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=Writer())
    async with proxied(model, tmp_path, ROLLING | {"compaction.deadline_seconds": 0.2}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 4_000)
        lease_of_another(tmp_path, time.time() + LONG)
        reply = await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
        assert reply.json()["compaction"]["author"] == "deterministic"
        assert model.summaries == []


@pytest.mark.spec("B13", "B17")
async def test_what_a_killed_server_held_keeps_nobody_from_writing_after_the_next_start(
    tmp_path: Path,
) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with served(model, lifespan="off") as upstream:
        async with fronting(f"{upstream}/v1", tmp_path, ROLLING) as first:
            chat = first.chat(system="You keep notes.")
            await grown(chat)
            await writer.is_asked()
            kept = carries_out(tmp_path, "SELECT key, holder FROM leases WHERE key LIKE 'compact:%'")
            holder = leases(tmp_path)[0]
            said = list(chat.said)
            writer.let_go.set()
        lost = f"INSERT INTO leases VALUES ('{kept[0]}', '{holder}', {time.time() + LONG})"
        carries_out(tmp_path, lost)
        # What it wrote while it stopped is one more thing that a kill leaves nothing of.
        carries_out(tmp_path, "DELETE FROM prepared")
        async with fronting(f"{upstream}/v1", tmp_path, ROLLING) as second:
            chat = second.chat()
            chat.said = said
            asked = len(model.summaries)
            await chat.says("Still there?")
            await chat.says("The next one uses it.")
            assert len(model.summaries) == asked + 1
