"""After failures in a row nobody is asked for a while, then again; having nothing to do is no failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from palimpsest.proxy.compacting.breaker import Breaker

from tests.kit.chat import Chat
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose


def test_it_opens_after_failures_in_a_row_and_closes_by_itself() -> None:
    now = [0.0]
    breaker = Breaker(3, 60.0, lambda: now[0])

    def fails(times: int) -> None:
        for _ in range(times):
            breaker.failed("model", "mine", cause="server")

    fails(2)
    breaker.succeeded("model", "mine")
    fails(2)
    assert not breaker.is_open("model", "mine")
    fails(1)
    assert breaker.is_open("model", "mine")
    assert not breaker.is_open("another", "mine")
    now[0] = 59.9
    assert breaker.is_open("model", "mine")
    now[0] = 60.0
    assert not breaker.is_open("model", "mine")


def test_one_caller_cannot_stop_the_summaries_of_others() -> None:
    breaker = Breaker(3, 60.0, lambda: 0.0)
    for _ in range(30):
        breaker.failed("model", "hers", cause="server")
    assert breaker.is_open("model", "hers")
    assert not breaker.is_open("model", "mine")
    # A server that fails two of them is down for all.
    breaker.failed("model", "his", cause="server")
    assert breaker.is_open("model", "mine")
    breaker.succeeded("model", "mine")
    assert not breaker.is_open("model", "mine")


def test_what_a_key_or_a_conversation_may_have_caused_counts_for_its_namespace() -> None:
    breaker = Breaker(3, 60.0, lambda: 0.0)
    for whose in ("hers", "his") * 5:
        breaker.failed("model", whose, cause="conversation")
    assert breaker.is_open("model", "hers")
    assert breaker.is_open("model", "his")
    assert not breaker.is_open("model", "mine")


@pytest.mark.spec("H05")
async def test_summaries_that_fail_one_caller_are_written_for_another(tmp_path: Path) -> None:
    """Her key is out of tokens (429): three failures, and only hers are made by code from then on."""

    def summary(seen: Seen) -> Says:
        if seen.headers["authorization"] == "Bearer hers":
            return Says(status=429, error={"error": {"message": "quota"}})
        return Says({"role": "assistant", "content": plain_summary(seen)})

    model = ModelServer(window=4_000, summary=summary)
    settings = {"policy.advanced.breaker_failures": 1, "compaction.background": False}
    async with proxied(model, tmp_path, settings) as proxy:
        authors = {}
        for key in ("hers", "mine"):
            chat = proxy.chat(key=key)
            for turn in range(30):
                await chat.says(prose(turn, 150))
            authors[key] = {compaction["author"] for compaction in await chat.compactions()}
        assert authors == {"hers": {"deterministic"}, "mine": {"model"}}


def test_what_a_key_causes_counts_for_that_key_alone() -> None:
    breaker = Breaker(3, 60.0, lambda: 0.0)
    for _ in range(30):
        breaker.failed("model", "shared", "spent", cause="key")
    assert breaker.is_open("model", "shared", "spent")
    assert not breaker.is_open("model", "shared", "paid")
    assert not breaker.is_open("another", "shared", "spent")
    breaker.succeeded("model", "shared", "spent")
    assert not breaker.is_open("model", "shared", "spent")


async def by_hand(proxy: Proxy, chat: Chat) -> str:
    """Who wrote the summary of a compaction that is asked for."""
    for _ in range(6):
        await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 100)}")
    reply = await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
    assert reply.json()["compacted"], reply.text
    author: str = reply.json()["compaction"]["author"]
    return author


async def next_author(chat: Chat) -> str:
    """Who wrote the next summary that a turn needs."""
    known = len(await chat.compactions())
    while len(made := await chat.compactions()) == known:
        await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 300)}")
        assert len(chat.sent) < 90
    author: str = made[-1]["author"]
    return author


@pytest.mark.spec("F05")
async def test_who_is_left_alone_is_asked_again_by_hand(tmp_path: Path) -> None:
    model = ModelServer(
        window=6_000, summary=lambda _: Says(status=500, error={"error": {"message": "down"}})
    )
    settings = {"policy.name": "handoff", "policy.advanced.breaker_failures": 1}
    async with proxied(model, tmp_path, settings) as proxy:
        chat = proxy.chat()
        assert await by_hand(proxy, chat) == "deterministic"
        asked = len(model.summaries)
        assert asked > 0
        model.summary = None
        assert await next_author(chat) == "deterministic"
        assert len(model.summaries) == asked
        # Whoever asks for one by hand is not told to wait, and what comes of it counts for the turns.
        assert await by_hand(proxy, chat) == "model"
        assert await next_author(chat) == "model"
        assert len(model.summaries) > asked


@pytest.mark.spec("F05")
async def test_having_nothing_to_compact_is_no_failure(tmp_path: Path) -> None:
    settings = {"policy.advanced.breaker_failures": 1}
    async with proxied(ModelServer(window=4_000), tmp_path, settings) as proxy:
        chat = proxy.chat()
        await chat.says("hello")
        for _ in range(3):
            path = f"/api/sessions/{chat.session}/compact"
            reply = await proxy.http.post(path, headers=chat.headers)
            assert reply.json()["compacted"] is False
        for turn in range(30):
            await chat.says(prose(turn, 150))
        assert proxy.model.summaries
