"""What is kept beside a conversation: events, memories, checkpoints, completion (A23, A30, A38, B16)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.journal import events, memories
from tests.kit.model import Says
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
# What an entry of the timeline must hold, and of which JSON type (A23, E11).
SCHEMA = {
    **dict.fromkeys(("title", "summary", "compactionId", "trigger", "reason", "summarizerRunId"), str),
    **dict.fromkeys(("watermarkFrom", "watermarkTo"), str),
    **dict.fromkeys(("removedCount", "tokensBefore", "tokensAfter", "tokensFreed"), int),
    **dict.fromkeys(("turnsSummarised", "passes"), int),
    "proactive": bool,
    "layersApplied": list,
}


@pytest.mark.spec("A23", "A25")
async def test_a_compaction_is_an_event_with_the_numbers_of_its_record(proxy: Proxy, chat: Chat) -> None:
    await chat.talks()
    record = await chat.compacts()
    (event,) = await events(proxy.http, chat, ["context_summarized"])
    assert event.keys() == {"seq", "id", "type", "created_at", "payload"}
    payload = event["payload"]
    assert {key: type(payload[key]) for key in SCHEMA} == SCHEMA
    assert (payload["title"], payload["proactive"]) == ("Session context compacted", True)
    assert (payload["compactionId"], payload["summary"]) == (record["id"], record["summary"])
    told = [payload[name] for name in ("tokensBefore", "tokensAfter", "tokensFreed", "removedCount")]
    names = ("tokens_before", "tokens_after", "tokens_freed", "messages_folded")
    assert told == [record[name] for name in names]


async def test_events_come_in_order_and_in_pages(chat: Chat) -> None:
    assert (await chat.asks("GET", "/events"))["events"] == []
    await chat.talks()
    await chat.compacts()
    whole = await chat.asks("GET", "/events")
    seqs = [event["seq"] for event in whole["events"]]
    assert seqs == sorted(set(seqs))
    assert (len(seqs) > 2, whole["next"]) == (True, None)
    pages, after = [], 0
    while after is not None:
        page = await chat.asks("GET", "/events", after=after, limit=2)
        pages += page["events"]
        after = page["next"]
    assert pages == whole["events"]
    types = [event["type"] for event in whole["events"]]
    some = await chat.asks("GET", "/events", types=f"{types[0]}, {types[-1]}")
    assert {event["type"] for event in some["events"]} == {types[0], types[-1]}
    for name, value in (("types", "nothing"), ("after", "-1"), ("limit", "0"), ("after", "9" * 31)):
        assert (await chat.asks("GET", "/events", status=400, **{name: value}))["param"] == name


async def remember(chat: Chat, numbers: range, fact: str = "Fact {0} is noted.") -> Json:
    """Facts are added to the memory; what the last one led to."""
    done: Json = {}
    for number in numbers:
        done = await chat.asks("POST", "/memory-block", {"text": fact.format(number)}, status=201)
    return done


@pytest.mark.spec("A30", "P5")
async def test_every_summary_is_found_from_any_session_of_its_caller(proxy: Proxy) -> None:
    chats = {name: proxy.chat(session=name) for name in ("harbour", "orchard")}
    for name, chat in chats.items():
        for turn in range(8):
            await chat.says(f"Question {turn} about the {name}: " + f"detail {turn} of the {name}. " * 60)
    (record, _), (harbour, orchard) = [await chat.compacts() for chat in chats.values()], chats.values()

    async def search(chat: Chat, words: str, **params: Any) -> list[Json]:
        found: list[Json] = (await chat.asks("GET", "memory/search", q=words, **params))["memories"]
        return found

    (found,) = await search(orchard, "HARBOUR detail")
    kept = harbour.session, "summary", record["id"]
    assert (found["session"], found["kind"], found["compaction"]) == kept
    assert found["text"].strip() in record["summary"]
    assert await search(orchard, "harbour orchard") == []
    assert [one["compaction"] for one in await memories(proxy.http, harbour, "summary")] == [record["id"]]
    assert [one["session"] for one in await search(orchard, "")] == [orchard.session, harbour.session]
    stranger = proxy.chat(key="stranger")
    await stranger.says("hello")
    assert await search(stranger, "harbour") == []
    await orchard.asks("GET", "memory/search", status=400, q="x" * 1_001)


async def test_at_fifteen_the_ten_oldest_become_the_block(proxy: Proxy, chat: Chat) -> None:
    for number in range(14):
        done = await remember(chat, range(number, number + 1))
        assert (done["folded"], done["block"], len(done["entries"])) == (0, "", number + 1)
    assert await memories(proxy.http, chat, "block") == []
    done = await remember(chat, range(14, 15))
    assert (done["folded"], done["entries"]) == (10, [f"Fact {number} is noted." for number in range(10, 15)])
    entries, blocks = [await memories(proxy.http, chat, kind) for kind in ("entry", "block")]
    assert [one["text"] for one in reversed(entries)] == done["entries"]
    assert [one["text"] for one in blocks] == [done["block"]]
    # The next fold continues the block.
    done = await remember(chat, range(15, 25))
    assert (done["folded"], len(done["entries"])) == (10, 5)
    assert all(f"Fact {number} is noted." in done["block"] for number in range(20))
    assert len(await memories(proxy.http, chat, "block")) == 1


async def test_entries_added_at_once_are_all_kept_and_come_page_by_page(proxy: Proxy, chat: Chat) -> None:
    await asyncio.gather(*(remember(chat, range(number, number + 1)) for number in range(20)))
    entries, blocks = [await memories(proxy.http, chat, kind) for kind in ("entry", "block")]
    whole = "\n".join(one["text"] for one in (*blocks, *entries))
    assert all(f"Fact {number} is noted." in whole for number in range(20))
    assert (len(blocks), len(entries)) == (1, 10)
    for path in ("/memory", "memory/search"):
        texts, after = [], dict[str, Any]()
        while after.get("after", "") is not None:
            page = await chat.asks("GET", path, limit=2, **after)
            assert len(page["memories"]) <= 2
            texts += [one["text"] for one in page["memories"]]
            after = {"after": page["next"]}
        assert sorted(texts) == sorted(one["text"] for one in (*blocks, *entries))
    for body, param in (({}, "text"), ({"text": " \n"}, "text"), ({"text": "x", "kind": "block"}, "kind")):
        assert (await chat.asks("POST", "/memory-block", body, status=400))["param"] == param


@pytest.mark.spec("B16")
async def test_a_model_folds_the_memory(proxy: Proxy, chat: Chat) -> None:
    await remember(chat, range(14), FACT)
    before = len(proxy.model.seen)
    proxy.model.summary = lambda _: Says({"role": "assistant", "content": FOLDED})
    done = await remember(chat, range(14, 15), FACT)
    assert len(proxy.model.seen) == before + 1
    asked = proxy.model.seen[-1].messages[-1]["content"]
    assert [FACT.format(number) in asked for number in range(11)] == [True] * 10 + [False]
    assert (done["author"], done["folded"], done["block"], len(done["entries"])) == ("model", 10, FOLDED, 5)


@pytest.mark.parametrize(
    "says", [Says({"role": "assistant", "content": "I'm sorry, I cannot help with that."}), Says(status=500)]
)
async def test_what_a_model_says_that_is_no_memory_is_left_to_code(
    proxy: Proxy, chat: Chat, says: Says
) -> None:
    await remember(chat, range(14), FACT)
    proxy.model.summary = lambda _: says
    done = await remember(chat, range(14, 15), FACT)
    assert (done["author"], done["folded"]) == ("deterministic", 10)
    assert all(FACT.format(number) in done["block"] for number in range(10))


FACT = "Fact {0} is noted: the service of room {0} listens on port 8443 and logs to /var/log/room{0}."
FOLDED = "The services of rooms 0 to 9 listen on port 8443; each logs to /var/log/room and its own number."


@pytest.mark.spec("A38")
async def test_what_was_produced_gets_a_checkpoint_once(proxy: Proxy, chat: Chat) -> None:
    proxy.model.says("Ok.", "The parser is released as version 2.1; its tests are in tests/parser.py.")
    await chat.says("Thanks!")
    # What says nothing gets none.
    assert (await chat.asks("POST", "/complete", {"marker": "done"}))["checkpoint"] is None
    assert (await chat.asks("GET", "/checkpoints"))["checkpoints"] == []
    await chat.says("Release the parser.")
    first = await chat.asks("POST", "/complete", {"marker": "released as 2.1"})
    made = first["checkpoint"]
    assert (first["session"], made is None) == (chat.session, False)
    listed = (await chat.asks("GET", "/checkpoints"))["checkpoints"]
    assert [(one["id"], one["kind"]) for one in listed] == [(made, "completion")]
    assert (await chat.asks("POST", "/complete"))["checkpoint"] is None
    assert (await chat.asks("GET", f"/checkpoints/{made}"))["payload"]["kind"] == "completion"
    told = await events(proxy.http, chat, ["checkpoint"])
    assert [event["payload"] for event in told] == [{"checkpointId": made, "kind": "completion"}]
    # Of another session, and of another caller, it is not there.
    other, stranger = proxy.chat(session="other"), proxy.chat(key="stranger")
    for one in (other, stranger):
        await one.says("The port is 8443, as decided.")
    for name in (made, "nothing"):
        assert (await other.asks("GET", f"/checkpoints/{name}", status=404))["code"] == "not_found"
    stranger.replies = chat.replies
    await stranger.asks("POST", "/complete", {"marker": "released as 2.1"}, status=404)
