"""Compactions by hand and their undoing, pins, and where a session stands."""

from __future__ import annotations

import asyncio
import html
import re
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from palimpsest.core.presets import PRESETS

from tests.kit.chat import Chat
from tests.kit.journal import AT_THE_END, events
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(90)]

Json = dict[str, Any]
Twice = tuple[Chat, str, str]


@pytest_asyncio.fixture(loop_scope="module")
async def long_chat(proxy: Proxy) -> Chat:
    talk = proxy.chat(system="Be exact.", session="long")
    await talk.talks()
    return talk


@pytest_asyncio.fixture(loop_scope="module")
async def twice(proxy: Proxy) -> Twice:
    """A conversation that was compacted twice."""
    chat = proxy.chat(session="twice")
    await chat.talks()
    first = (await chat.compacts())["id"]
    await chat.talks(range(8, 22))
    return chat, first, (await chat.compacts())["id"]


async def chooses(chat: Chat, **policy: Any) -> None:
    await chat.asks("PATCH", "/settings", {"policy": policy})


@pytest.mark.spec("D25", "A25")
async def test_a_compaction_by_hand_says_what_it_did(proxy: Proxy, long_chat: Chat) -> None:
    before = await long_chat.view()
    done = await long_chat.asks("POST", "/compact", {"focus": "the number of the question"})
    record = done["compaction"]
    assert (done["compacted"], record["trigger"], record["kind"]) == (True, "manual", "message_removal")
    assert record["tokens_freed"] == record["tokens_before"] - record["tokens_after"] > 0
    assert "the number of the question" in proxy.model.summaries[0].text
    after = await long_chat.view()
    assert (after["view"], after["compaction"]) == ("compacted", record["id"])
    assert after["tokens"] < before["tokens"] == after["tokens_full"]
    assert [part["kind"] for part in after["parts"]][:3] == ["preamble", "task", "summary"]
    (listed,) = await long_chat.compactions()
    assert {key: listed[key] for key in record} == record
    assert await long_chat.transcript() == long_chat.said
    await long_chat.says("And now?")
    assert long_chat.reply.headers["x-palimpsest-compaction"] == record["id"]
    assert proxy.model.prompts[-1].messages[:-1] == [part["message"] for part in after["parts"]]


@pytest.mark.spec("D25")
@pytest.mark.parametrize("preset", sorted(PRESETS))
async def test_every_preset_is_told_what_to_keep_in_mind(proxy: Proxy, preset: str) -> None:
    chat = proxy.chat(session="wish")
    for turn in range(8):
        await chat.says(f"Question {turn}. {prose(turn, 150)}")
    await chooses(chat, name=preset, tail_messages=4)
    done = await chat.asks("POST", "/compact", {"focus": "the quokka of pier nine"})
    assert (done["compacted"], done["compaction"]["policy"]) == (True, preset)
    assert ["the quokka of pier nine" in seen.text for seen in proxy.model.summaries] == [True]


@pytest.mark.spec("F35")
async def test_where_there_is_nothing_to_fold_nothing_is_made(
    proxy: Proxy, chat: Chat, long_chat: Chat
) -> None:
    proxy.model.summary = lambda _: Says(status=401, error={"message": "no"})
    # A refused key leaves the summary to code.
    assert (await long_chat.compacts())["author"] == "deterministic"
    for one in (chat, long_chat):
        again = await one.asks("POST", "/compact")
        assert (again["compacted"], again["reason"]) == (False, "nothing_to_fold")
    assert len(await long_chat.compactions()) == 1


@pytest.mark.spec("A32")
async def test_a_pinned_message_stays_verbatim_from_the_next_compaction_on(long_chat: Chat) -> None:
    ident = (await long_chat.rows())[5]["id"]
    before = await long_chat.view()
    for _ in range(2):
        await long_chat.asks("POST", "/pins", {"message": ident})
    assert [pin["message"] for pin in (await long_chat.asks("GET", "/pins"))["pins"]] == [ident]
    assert await long_chat.view() == before
    await long_chat.compacts()
    parts = (await long_chat.view())["parts"]
    assert [p["message"] for p in parts if p["kind"] == "pin" and p["id"] == ident] == [long_chat.said[5]]
    await long_chat.asks("DELETE", f"/pins/{ident}", status=204)
    await long_chat.asks("DELETE", f"/pins/{ident}", status=404)
    assert (await long_chat.asks("GET", "/pins"))["pins"] == []


@pytest.mark.spec("A32")
async def test_pins_that_leave_no_room_are_refused(proxy: Proxy) -> None:
    talk = proxy.chat()
    await talk.says("word " * 12_000)
    ident = (await talk.rows())[0]["id"]
    assert (await talk.asks("POST", "/pins", {"message": ident}, status=400))["code"] == "pins_too_large"
    assert (await talk.asks("POST", "/pins", {}, status=400))["param"] == "message"
    assert (await talk.asks("GET", "/pins"))["pins"] == []


RULE = "[PIN] Never push to the remote before I say so."
OTHER = "  Remember for this session: amounts are in kroner."


async def pinned(chat: Chat) -> list[str]:
    """What stands word for word in the view after a compaction."""
    await chat.asks("POST", "/compact")
    return [part["message"]["content"] for part in (await chat.view())["parts"] if part["kind"] == "pin"]


@pytest.mark.spec("A32")
async def test_what_a_user_marks_stays_in_every_view_until_it_is_taken_back(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=60_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(system="Be exact.")
        await chat.talks(range(2))
        for said in (RULE, OTHER, "I said [pin] somewhere in the middle."):
            await chat.says(said)
        for _ in range(3):
            await chat.talks(range(6))
            assert await pinned(chat) == [RULE, OTHER]
        pins = (await chat.asks("GET", "/pins"))["pins"]
        assert [(pin["origin"], pin["is_kept"]) for pin in pins] == [("text", True), ("text", True)]
        first = pins[0]["message"]
        await chat.asks("DELETE", f"/pins/{first}")
        left = (await chat.asks("GET", "/pins"))["pins"]
        assert [pin["message"] for pin in left] == [pins[1]["message"]]
        await chat.talks(range(6))
        assert await pinned(chat) == [OTHER]
        # It is taken back once; and pinned again by hand.
        await chat.asks("DELETE", f"/pins/{first}", status=404)
        await chat.asks("POST", "/pins", {"message": first}, status=201)
        assert {pin["origin"] for pin in (await chat.asks("GET", "/pins"))["pins"]} == {"hand", "text"}


@pytest.mark.spec("A32")
@pytest.mark.parametrize("share", [None, 0])
async def test_nobody_fills_a_window_with_them_and_the_newest_win(tmp_path: Path, share: int | None) -> None:
    off = {} if share is None else {"compaction.text_pins_share": share}
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END | off) as proxy:
        chat = proxy.chat(system="Be exact.")
        await chat.says("Let us begin.")
        told = [f"[pin] Rule {number}. " + "It holds for all of us. " * 20 for number in range(30)]
        for said in told:
            await chat.says(said)
        await chat.talks(range(4))
        kept, pins = await pinned(chat), (await chat.asks("GET", "/pins"))["pins"]
        if share == 0:
            assert (kept, pins) == ([], [])
            return
        assert kept == told[-len(kept) :]
        assert 1 <= len(kept) < 8
        assert [pin["is_kept"] for pin in pins] == [False] * (30 - len(kept)) + [True] * len(kept)


async def undo(chat: Chat, compaction: str, status: int = 200) -> Json:
    undone: Json = await chat.asks("POST", f"/compactions/{compaction}/undo", status=status)
    return undone


async def test_what_was_undone_is_not_in_force_and_no_message_is_lost(chat: Chat) -> None:
    await chat.talks()
    before = await chat.view()
    made = (await chat.compacts())["id"]
    assert (await chat.view())["compaction"] == made
    assert (await undo(chat, made))["restored"] is None
    # When a summary is prepared is measured as the conversation goes on.
    now = await chat.view()
    assert now | {"budget": None} == before | {"budget": None}
    await chat.says("And now?")
    assert chat.reply.headers["x-palimpsest-view"] == "original"
    assert await chat.transcript() == chat.said
    assert (await undo(chat, "01a2006d-0000-7000-8000-000000000000", 404))["code"] == "not_found"


async def test_the_one_before_is_in_force_again_and_an_event_says_so(proxy: Proxy, twice: Twice) -> None:
    chat, first, second = twice
    # One that another was made from stays.
    refused = await undo(chat, first, 409)
    assert refused["code"] == "not_undoable"
    assert second in refused["message"]
    assert [one["undone_at"] for one in await chat.compactions()] == [None, None]
    done = await undo(chat, second)
    assert (done["restored"], (await chat.view())["compaction"]) == (first, first)
    listed = {one["id"]: one["undone_at"] for one in await chat.compactions()}
    assert listed == {first: None, second: done["undone_at"]}
    told = await events(proxy.http, chat, ["compaction_undone"])
    assert [event["payload"] for event in told] == [{"compactionId": second, "restoredId": first}]
    assert (await undo(chat, second, 409))["code"] == "not_undoable"
    assert (await undo(chat, first))["restored"] is None
    assert (await chat.view())["view"] == "original"


@pytest.mark.spec("B13")
async def test_each_message_says_whether_a_summary_stands_for_it(twice: Twice) -> None:
    chat, _, second = twice

    async def compacted() -> list[Json]:
        return [row["message"] for row in await chat.rows() if row["is_compacted"]]

    async def hidden_from_the_model() -> list[Json]:
        shown = [part["message"] for part in (await chat.view())["parts"]]
        return [message for message in chat.said if message not in shown]

    after_two = await compacted()
    # The task stays word for word, so it is folded into no summary.
    assert chat.said[0] not in after_two
    assert after_two == await hidden_from_the_model()
    await undo(chat, second)
    after_one = await compacted()
    assert after_one == await hidden_from_the_model()
    assert 0 < len(after_one) < len(after_two)
    # On another branch, of which nothing was folded, none is.
    short = await branched(chat)
    assert [row["is_compacted"] for row in await chat.rows(branch=short)] == [False] * 4


async def branched(chat: Chat) -> str:
    """The conversation goes another way after its first turn; the new branch."""
    await chat.posts([*chat.said[:2], {"role": "user", "content": "Something else."}])
    branches = (await chat.session_fields())["branches"]
    (short,) = [branch["branch"] for branch in branches if branch["messages"] == 4]
    return str(short)


@pytest.mark.spec("A36", "A40")
async def test_a_session_goes_back_to_a_checkpoint_of_its_own(proxy: Proxy, twice: Twice) -> None:
    chat, first, second = twice
    points = (await chat.asks("GET", "/checkpoints"))["checkpoints"]
    before_two, before_one = [one["id"] for one in points if one["kind"] == "pre_compaction"]

    async def restore(checkpoint: str) -> tuple[list[str], str | None]:
        done = await chat.asks("POST", f"/checkpoints/{checkpoint}/restore")
        return done["undone"], done["restored"]

    assert await restore(before_two) == ([second], first)
    assert (await chat.view())["compaction"] == first
    await chat.says("And now?")
    assert chat.reply.headers["x-palimpsest-compaction"] == first
    # Both at once, newest first; nothing that was said is lost.
    third = (await chat.compacts())["id"]
    assert await restore(before_one) == ([third, first], None)
    await chat.says("And on?")
    assert chat.reply.headers["x-palimpsest-view"] == "original"
    assert await chat.transcript() == chat.said
    undone = await events(proxy.http, chat, ["compaction_undone"])
    assert [event["payload"]["compactionId"] for event in undone] == [second, third, first]
    # Once more there is nothing to do; and a checkpoint of nobody or of another branch is not there.
    assert await restore(before_one) == ([], None)
    await chat.asks("POST", "/checkpoints/none/restore", status=404)
    await chat.asks("POST", f"/checkpoints/{before_two}/restore", status=404, branch=await branched(chat))


@pytest.mark.spec("D23")
async def test_the_status_says_how_full_the_window_is_and_what_a_compaction_won(long_chat: Chat) -> None:
    before, view = await long_chat.asks("GET", "/status"), await long_chat.view()
    assert (before["strategy"], before["compacting"], before["armed"]) == ("auto", False, True)
    window = view["budget"]["window_tokens"]
    assert before["pct"]["before"] == before["pct"]["after"] == round(100 * view["tokens"] / window, 1) > 0
    assert (before["last_compaction"], before["slots"]) == (None, None)
    for mark in ("trigger_tokens", "target_tokens", "window_tokens"):
        assert before[mark] == view["budget"][mark]
    assert (before["spending"]["calls"], before["spending"]["prompt_tokens"]) == (0, 0)
    record = await long_chat.compacts()
    status, view = await long_chat.asks("GET", "/status"), await long_chat.view()
    assert status["pct"]["after"] < status["pct"]["before"] == before["pct"]["before"]
    assert (status["tokens"], status["tokens_full"]) == (view["tokens"], view["tokens_full"])
    last = status["last_compaction"]
    sizes = record["tokens_before"], record["tokens_after"]
    assert (last["id"], last["tokens_before"], last["tokens_after"]) == (record["id"], *sizes)
    assert tuple(last["pct"].values()) == tuple(round(100 * size / window, 1) for size in sizes)
    # The preset keeps no state.
    told = await long_chat.asks("GET", "/state")
    assert (told["compaction"], told["state"]) == (record["id"], {})


async def slots_told(chat: Chat) -> int:
    """How many slots the status says are filled; the state has as many."""
    status, state = await chat.asks("GET", "/status"), (await chat.asks("GET", "/state"))["state"]
    slots = [value for name, value in state.items() if name not in ("gap", "open_calls", "task")]
    told = sum(map(len, slots)) + bool(state["task"])
    assert (status["strategy"], status["slots"]) == ("working_state", f"v2:{told}")
    assert state["task"].startswith("Question 0")
    return told


@pytest.mark.spec("D17", "D23")
async def test_a_working_state_shows_how_many_slots_are_filled(proxy: Proxy, long_chat: Chat) -> None:
    await chooses(long_chat, name="working_state")
    # As messages pass: nothing has been compacted yet, and nobody was asked (D02).
    before = await slots_told(long_chat)
    await long_chat.says("I found that the lantern leaks, so always fill it in the morning.")
    assert await slots_told(long_chat) == before + 1
    assert proxy.model.summaries == []
    await long_chat.compacts()
    assert await slots_told(long_chat) == before + 1
    for preset in ("rolling", "handoff", "batch"):
        await chooses(long_chat, name=preset)
        status, state = await long_chat.asks("GET", "/status"), await long_chat.asks("GET", "/state")
        assert (status["strategy"], state["strategy"], status["slots"]) == (preset, preset, None)
        assert state["state"] == {}
    await long_chat.talks(range(8, 22))
    assert (await long_chat.compacts())["policy"] == "batch"
    assert (await long_chat.asks("GET", "/status"))["slots"] is None
    # Switched back it is made anew from the transcript.
    await chooses(long_chat, name="working_state")
    assert await slots_told(long_chat) >= 8


@pytest.mark.spec("D23")
async def test_one_line_says_strategy_and_shares(proxy: Proxy, long_chat: Chat) -> None:
    await chooses(long_chat, name="working_state")
    before = (await long_chat.asks("GET", "/status"))["pct"]["before"]
    record = await long_chat.compacts()
    after = (await long_chat.asks("GET", "/status"))["pct"]["after"]
    (told,) = await events(proxy.http, long_chat, ["compaction_completed"])
    was, now = (record["tokens_before"], record["tokens_after"])
    shares = f"{round(was / 200, 1)} % -> {round(now / 200, 1)} % of 20,000 tokens"
    assert re.fullmatch(rf"working_state v2:\d+: {shares}", told["payload"]["note"])
    page = await proxy.http.get(f"/ui/sessions/{long_chat.session}/events", headers=long_chat.headers)
    assert shares in html.unescape(page.text)
    await long_chat.says("And?")
    said = long_chat.reply.headers["x-palimpsest-policy"]
    found = re.fullmatch(r"working_state; before=([\d.]+)%; after=([\d.]+)%", said)
    assert found, said
    assert (float(found[1]), float(found[2])) == pytest.approx((before, after), abs=1)


@pytest.mark.spec("D23")
async def test_while_a_compaction_is_made_the_status_says_so(proxy: Proxy, long_chat: Chat) -> None:
    await chooses(long_chat, name="handoff")
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        asked.set()
        await go_on.wait()

    proxy.model.summary = lambda seen: Says(
        {"role": "assistant", "content": plain_summary(seen)}, after=waits
    )
    compacting = asyncio.ensure_future(long_chat.compacts())
    async with asyncio.timeout(20):
        await asked.wait()
    assert (await long_chat.asks("GET", "/status"))["compacting"] is True
    go_on.set()
    await compacting
    assert (await long_chat.asks("GET", "/status"))["compacting"] is False


@pytest.mark.spec("B09")
async def test_the_state_of_a_rolling_summary_is_what_the_model_said(proxy: Proxy, long_chat: Chat) -> None:
    await chooses(long_chat, name="rolling")
    assert (await long_chat.asks("GET", "/state"))["state"] == {}
    proxy.model.summary = rolling
    record = await long_chat.compacts()
    told = await long_chat.asks("GET", "/state")
    assert (record["author"], told["strategy"], told["compaction"]) == ("model", "rolling", record["id"])
    assert [entry["text"] for entry in told["state"]["decisions"]] == ["Use port 8443"]
    assert [entry["status"] for entry in told["state"]["tasks"]] == ["open"]
    assert told["state"]["risks"] == []


def rolling(_: Seen) -> Says:
    """A summary with a delta, as the style asks for it."""
    text = (
        "- The user asks about the details of a matter, one question after another, and wants exact ones.\n"
        "- Questions 0 to 5 were answered; the port of the service was settled on the way.\n\n"
        '```json\n{"decisions": [{"id": "d1", "text": "Use port 8443"}],'
        ' "tasks": [{"id": "t1", "text": "Answer question 7", "status": "open"}]}\n```'
    )
    return Says({"role": "assistant", "content": text})


async def test_a_view_is_explained_in_prices_and_marks(long_chat: Chat) -> None:
    plain, told = await long_chat.view(), await long_chat.asks("GET", "/view", explain=1)
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
