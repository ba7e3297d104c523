"""Where a session stands: status, state, and what a view costs (D23, B09)."""

from __future__ import annotations

import asyncio
import html
import re
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.journal import events
from tests.kit.model import Says, Seen, plain_summary
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


async def got(proxy: Proxy, chat: Chat, end: str) -> Json:
    reply = await proxy.http.get(f"/api/sessions/{chat.session}{end}", headers=chat.headers)
    assert reply.status_code == 200, reply.text
    value: Json = reply.json()
    return value


async def long_chat(proxy: Proxy, **policy: Any) -> Chat:
    chat = proxy.chat(system="Be exact.", session="long")
    for turn in range(8):
        await chat.says(f"Question {turn}: " + f"detail {turn} of the matter. " * 60)
    if policy:
        path = f"/api/sessions/{chat.session}/settings"
        reply = await proxy.http.patch(path, headers=chat.headers, json={"policy": policy})
        assert reply.status_code == 200, reply.text
    return chat


async def compact(proxy: Proxy, chat: Chat) -> Json:
    reply = await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
    assert reply.json()["compacted"], reply.text
    record: Json = reply.json()["compaction"]
    return record


@pytest.mark.spec("D23")
async def test_before_a_compaction_both_shares_are_the_same(proxy: Proxy) -> None:
    chat = await long_chat(proxy)
    status, view = await got(proxy, chat, "/status"), await got(proxy, chat, "/view")
    assert (status["strategy"], status["compacting"], status["armed"]) == ("auto", False, True)
    assert status["pct"]["before"] == status["pct"]["after"]
    assert status["pct"]["after"] == round(100 * view["tokens"] / view["budget"]["window_tokens"], 1) > 0
    assert status["last_compaction"] is None
    assert status["slots"] is None
    for mark in ("trigger_tokens", "target_tokens", "window_tokens"):
        assert status[mark] == view["budget"][mark]


@pytest.mark.spec("D23")
async def test_after_a_compaction_the_shares_say_what_it_won(proxy: Proxy) -> None:
    chat = await long_chat(proxy)
    before = await got(proxy, chat, "/status")
    record = await compact(proxy, chat)
    status, view = await got(proxy, chat, "/status"), await got(proxy, chat, "/view")
    assert status["pct"]["before"] == before["pct"]["before"]
    assert status["pct"]["after"] < before["pct"]["after"]
    assert (status["tokens"], status["tokens_full"]) == (view["tokens"], view["tokens_full"])
    last = status["last_compaction"]
    assert last["id"] == record["id"]
    assert (last["tokens_before"], last["tokens_after"]) == (record["tokens_before"], record["tokens_after"])
    window = view["window"]["tokens"]
    assert last["pct"] == {
        "before": round(100 * record["tokens_before"] / window, 1),
        "after": round(100 * record["tokens_after"] / window, 1),
    }


@pytest.mark.spec("D23")
async def test_a_working_state_shows_how_many_slots_are_filled(proxy: Proxy) -> None:
    chat = await long_chat(proxy, name="working_state")
    # As messages pass: nothing has been compacted yet, and nobody was asked (D02).
    before = await slots_told(proxy, chat)
    await chat.says("I found that the lantern leaks, so always fill it in the morning.")
    assert await slots_told(proxy, chat) == before + 1
    assert proxy.model.summaries == []
    await compact(proxy, chat)
    assert await slots_told(proxy, chat) == before + 1


async def slots_told(proxy: Proxy, chat: Chat) -> int:
    """How many slots the status says are filled; the state has as many."""
    status, state = await got(proxy, chat, "/status"), (await got(proxy, chat, "/state"))["state"]
    slots = [value for name, value in state.items() if name not in ("gap", "open_calls", "task")]
    told = sum(map(len, slots)) + bool(state["task"])
    assert (status["strategy"], status["slots"]) == ("working_state", f"v2:{told}")
    assert state["task"].startswith("Question 0")
    return told


@pytest.mark.spec("D17", "D23")
async def test_switched_to_batch_no_slots_are_left(proxy: Proxy) -> None:
    chat = await long_chat(proxy, name="working_state")
    await compact(proxy, chat)
    assert (await got(proxy, chat, "/status"))["slots"]
    path = f"/api/sessions/{chat.session}/settings"
    for preset in ("batch", "rolling", "handoff"):
        await proxy.http.patch(path, headers=chat.headers, json={"policy": {"name": preset}})
        status, state = await got(proxy, chat, "/status"), await got(proxy, chat, "/state")
        assert status["strategy"] == state["strategy"] == preset
        assert status["slots"] is None
        assert state["state"] == {}
    await proxy.http.patch(path, headers=chat.headers, json={"policy": {"name": "batch"}})
    for turn in range(14):
        await chat.says(f"Question {8 + turn}: " + f"detail {turn} of the matter. " * 60)
    assert (await compact(proxy, chat))["policy"] == "batch"
    assert (await got(proxy, chat, "/status"))["slots"] is None
    assert (await got(proxy, chat, "/state"))["state"] == {}
    # Switched back it is made anew from the transcript.
    await proxy.http.patch(path, headers=chat.headers, json={"policy": {"name": "working_state"}})
    assert await slots_told(proxy, chat) >= 8


@pytest.mark.spec("D23")
async def test_one_line_says_strategy_and_shares(proxy: Proxy) -> None:
    chat = await long_chat(proxy, name="working_state")
    before = await got(proxy, chat, "/status")
    record = await compact(proxy, chat)
    after = await got(proxy, chat, "/status")
    (told,) = await events(proxy.http, chat, ["compaction_completed"])
    was, now = (record["tokens_before"], record["tokens_after"])
    shares = f"{round(was / 200, 1)} % -> {round(now / 200, 1)} % of 20,000 tokens"
    assert re.fullmatch(rf"working_state v2:\d+: {shares}", told["payload"]["note"])
    page = await proxy.http.get(f"/ui/sessions/{chat.session}/events", headers=chat.headers)
    assert shares in html.unescape(page.text)
    await chat.says("And?")
    said = chat.reply.headers["x-palimpsest-policy"]
    found = re.fullmatch(r"working_state; before=([\d.]+)%; after=([\d.]+)%", said)
    assert found, said
    assert float(found[1]) == pytest.approx(before["pct"]["before"], abs=1)
    assert float(found[2]) == pytest.approx(after["pct"]["after"], abs=1)
    assert float(found[2]) < float(found[1])


@pytest.mark.spec("D23")
async def test_while_a_compaction_is_made_the_status_says_so(proxy: Proxy) -> None:
    chat = await long_chat(proxy, name="handoff")
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        asked.set()
        await go_on.wait()

    proxy.model.summary = lambda seen: Says(
        {"role": "assistant", "content": plain_summary(seen)}, after=waits
    )
    compacting = asyncio.ensure_future(compact(proxy, chat))
    async with asyncio.timeout(20):
        await asked.wait()
    assert (await got(proxy, chat, "/status"))["compacting"] is True
    go_on.set()
    await compacting
    assert (await got(proxy, chat, "/status"))["compacting"] is False


@pytest.mark.spec("B09")
async def test_the_state_of_a_rolling_summary_is_what_the_model_said(proxy: Proxy) -> None:
    chat = await long_chat(proxy, name="rolling")
    assert (await got(proxy, chat, "/state"))["state"] == {}
    proxy.model.summary = rolling
    record = await compact(proxy, chat)
    assert record["author"] == "model"
    told = await got(proxy, chat, "/state")
    assert (told["strategy"], told["compaction"]) == ("rolling", record["id"])
    assert [entry["text"] for entry in told["state"]["decisions"]] == ["Use port 8443"]
    assert [entry["status"] for entry in told["state"]["tasks"]] == ["open"]
    assert told["state"]["risks"] == []


def rolling(_: Seen) -> Says:
    """A summary with a delta, as the style asks for it."""
    text = (
        "The user asks about the details of a matter, one question after another, and wants exact answers.\n"
        "Questions 0 to 5 were answered; the port of the service was settled on the way.\n\n"
        '```json\n{"decisions": [{"id": "d1", "text": "Use port 8443"}],'
        ' "tasks": [{"id": "t1", "text": "Answer question 7", "status": "open"}]}\n```'
    )
    return Says({"role": "assistant", "content": text})


async def test_a_style_without_a_state_has_an_empty_one(proxy: Proxy) -> None:
    chat = await long_chat(proxy)
    record = await compact(proxy, chat)
    told = await got(proxy, chat, "/state")
    assert (told["compaction"], told["state"]) == (record["id"], {})


async def test_a_view_is_explained_in_prices_and_marks(proxy: Proxy) -> None:
    chat = await long_chat(proxy)
    plain, told = await got(proxy, chat, "/view"), await got(proxy, chat, "/view?explain=1")
    explanation = told.pop("explanation")
    costs = [part.pop("cost_per_turn") for part in told["parts"]]
    assert told | {"explanation": None} == plain
    prices, ratio = explanation["prices"], plain["window"]["ratio"]
    for part, cost in zip(plain["parts"], costs, strict=True):
        assert cost["uncached"] == pytest.approx(part["tokens"] * ratio * prices["input"])
        assert cost["cached"] == pytest.approx(part["tokens"] * ratio * prices["cached"])
    whole = explanation["cost_per_turn"]["uncached"]
    assert whole == pytest.approx(plain["tokens"] * ratio * prices["input"])
    assert sum(cost["uncached"] for cost in costs) <= whole
    marks = {mark["mark"]: mark for mark in explanation["marks"]}
    trigger = plain["budget"]["trigger_tokens"]
    assert marks["trigger"]["tokens"] == trigger
    assert marks["trigger"]["distance_tokens"] == trigger - plain["tokens"] > 0
    assert [mark["tokens"] for mark in explanation["marks"]] == sorted(m["tokens"] for m in marks.values())


async def test_nothing_was_spent_by_a_caller_whose_conversations_are_short(proxy: Proxy, chat: Chat) -> None:
    spending = (await got(proxy, chat, "/status"))["spending"]
    assert (spending["calls"], spending["prompt_tokens"], spending["completion_tokens"]) == (0, 0, 0)
    assert len(spending["day"]) == len("2026-11-22")
