"""What a compaction leaves behind: events in their order, a checkpoint before it, a note, its snapshot."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.journal import (
    AT_THE_END,
    carries_out,
    checkpoints,
    compacted,
    events,
    memories,
    of_compactions,
)
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
pytestmark = pytest.mark.timeout(60)
# Not every compaction flushes behind its checkpoint, nor shortens its summary.
ALWAYS = [
    *("checkpoint", "compaction_started", "context_summarized"),
    *("pinned_insert", "memory", "compaction_completed"),
]


@pytest.mark.spec("A44", "A23", "E11")
async def test_the_events_of_a_compaction_stand_in_order_and_say_what_it_was(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await compacted(chat, rounds=2)
        told = of_compactions(await events(proxy.http, chat))
        first, second = await chat.compactions()
        ends = [place for place, event in enumerate(told) if event["type"] == "conversation_snapshot"]
        assert len(ends) == 2
        one, two = told[: ends[0] + 1], told[ends[0] + 1 :]
        flushed = [*ALWAYS[:1], "flush", *ALWAYS[1:]]
        assert [event["type"] for event in one] == [*flushed, "conversation_snapshot"]
        # So soon after the first there is no second note (A43).
        assert [event["type"] for event in two] == [*ALWAYS, "conversation_snapshot"]
        by_type = {event["type"]: event["payload"] for event in two}
        summarized = by_type["context_summarized"]
        assert summarized["title"] == "Session context compacted"
        assert summarized["summary"] == second["summary"]
        assert summarized["proactive"] is True
        assert (summarized["tokensBefore"], summarized["tokensAfter"]) == (
            second["tokens_before"],
            second["tokens_after"],
        )
        assert summarized["foldedCount"] == second["messages_folded"]
        assert summarized["removedCount"] == second["messages_folded"] - first["messages_folded"] > 0
        assert (summarized["trigger"], summarized["reason"]) == (second["trigger"], second["reason"])
        assert summarized["reason"]
        assert summarized["watermarkFrom"] == first_watermark(one)
        assert summarized["watermarkTo"] not in ("", summarized["watermarkFrom"])
        assert 0 < summarized["turnsSummarised"] < len(chat.said)
        assert summarized["passes"] == 1
        assert summarized["author"] == "model"
        assert summarized["layersApplied"] == ["summarisation"]
        assert by_type["pinned_insert"] == {"compactionId": second["id"], "replaces": first["id"]}
        assert await chat.transcript() == chat.said


@pytest.mark.spec("A35")
async def test_every_section_of_a_snapshot_says_what_happened(tmp_path: Path) -> None:
    failing = deque([Says(status=500, error={"error": {"message": "broke"}})] * 2)
    model = ModelServer(window=WINDOW, models=False)
    model.summary = lambda seen: failing.popleft() if failing else _told(seen)
    overrides = AT_THE_END | {"window.default_window_tokens": 2 * WINDOW}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        for number in range(2):
            model.calls((f"call-{number}", "read_file", {"path": f"/srv/part{number}.txt"}))
            await chat.says(f"Read part {number}.")
            await chat.sends({"role": "tool", "tool_call_id": f"call-{number}", "content": prose(number, 60)})
        # The window is half of what is assumed: the upstream refuses, and the second try is smaller.
        await compacted(chat)
        await compacted(chat, rounds=2)
        last = (await chat.compactions())[-1]
        payload = (await events(proxy.http, chat, ["conversation_snapshot"]))[-1]["payload"]
        rows = [row["id"] for row in await chat.rows() if row["id"]]
        sections = {
            *("transcript", "tooling", "files", "loop", "recovery"),
            *("queues", "worker", "verification", "usage"),
        }
        assert payload.keys() == {"schema", "version", *sections}
        assert (payload["schema"], payload["version"]) == ("session_runtime_v2", 2)
        # All but the answer to the request that was compacted.
        transcript = payload["transcript"]
        assert transcript["messageCount"] == len(rows) - 1
        assert transcript["ids"] == rows[rows.index(last["watermark"]) + 1 : -1]
        assert transcript["view"]["compactionId"] == last["id"]
        assert payload["tooling"] == {"calls": {"read_file": 2}, "openCalls": []}
        assert payload["files"]["touched"] == ["/srv/part0.txt", "/srv/part1.txt"]
        counted(payload, chat, await chat.compactions())
        # Stated by other systems alone.
        assert payload["queues"] == payload["worker"] == payload["verification"] == {}


def counted(payload: Json, chat: Chat, made: list[Json]) -> None:
    """What the sections count is what happened until the last of these compactions."""
    loop, last = payload["loop"], made[-1]
    assert loop["compactionCount"] == len(made)
    assert loop["lastCompactionAt"] > 1_700_000_000_000
    sizes = (loop["lastCompactionTokensBefore"], loop["lastCompactionTokensAfter"])
    assert sizes == (last["tokens_before"], last["tokens_after"])
    assert loop["turns"] == len(chat.replies) - 1
    assert loop["lastFlush"]["at"] > 1_700_000_000_000
    assert payload["recovery"]["overflowAttempts"] >= 1
    assert payload["recovery"]["overflowRecovered"] == 1
    assert payload["usage"]["requests"] == len(chat.replies) - 1
    assert payload["usage"]["inputTokens"] > WINDOW


def _told(seen: Seen) -> Says:
    return Says({"role": "assistant", "content": plain_summary(seen)})


@pytest.mark.spec("A34", "A35")
async def test_a_snapshot_after_every_compaction_tells_what_the_model_saw_and_counts_on(
    tmp_path: Path,
) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await compacted(chat, rounds=2)
        # The view has grown by the answer since.
        sent = (await chat.view())["parts"][:-1]
        _, second = await chat.compactions()
        snapshots = await events(proxy.http, chat, ["conversation_snapshot"])
        assert len(snapshots) == 2
        snapshot = snapshots[-1]["payload"]
        assert snapshot["schema"] == "session_runtime_v2"
        kinds = [part["kind"] for part in snapshot["transcript"]["view"]["parts"]]
        assert kinds == [part["kind"] for part in sent]
        assert snapshot["transcript"]["view"]["compactionId"] == second["id"]
        assert snapshot["loop"]["compactionCount"] == 2
        assert snapshot["loop"]["lastCompactionTokensAfter"] == second["tokens_after"]
        assert snapshot["loop"]["turns"] == len(chat.replies) - 1
        # Every answer but the one that this compaction was made for had been counted.
        assert snapshot["usage"]["requests"] == len(chat.replies) - 1
        assert snapshot["usage"]["inputTokens"] == sum(seen.tokens for seen in model.prompts[:-1])
        page = await proxy.http.get(f"/ui/sessions/{chat.session}/events", headers=chat.headers)
        assert page.status_code == 200
        assert "cannot be read" not in page.text
    # Of a state its place is stored, of a checkpoint its place and its kind.
    sizes = "SELECT length(payload) FROM events WHERE type = 'conversation_snapshot'"
    assert carries_out(tmp_path, sizes) == ["76", "76"]
    columns = carries_out(tmp_path, "SELECT name FROM pragma_table_info('checkpoints')")
    assert set(columns) == {"session", "id", "namespace", "arrival", "kind", "point", "created_at"}


def first_watermark(told: list[Json]) -> str:
    (found,) = [event["payload"]["watermarkTo"] for event in told if event["type"] == "context_summarized"]
    return str(found)


@pytest.mark.spec("A36", "A39")
async def test_a_checkpoint_precedes_every_removal_and_cites_word_for_word(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await compacted(chat, rounds=3)
        kept = await checkpoints(proxy.http, chat, "pre_compaction")
        started = of_compactions(await events(proxy.http, chat, ["checkpoint", "compaction_started"]))
        assert [event["type"] for event in started] == ["checkpoint", "compaction_started"] * 3
        assert len(kept) == 3
        texts = {row["id"]: row["message"]["content"] for row in await chat.rows()}
        for checkpoint in kept:
            spans = checkpoint["payload"]["evidence"]
            assert 0 < len(spans) <= 12
            for span in spans:
                assert len(span["excerpt"]) <= 500
                assert span["excerpt"] in texts[span["id"]]
            assert checkpoint["payload"]["summary"]["decisions"]
        states = [checkpoint["payload"]["runtime"] for checkpoint in kept]
        assert [state["loop"]["compactionCount"] for state in states] == [0, 1, 2]


@pytest.mark.spec("A43")
async def test_a_note_is_flushed_where_room_is_short_and_not_again_at_once(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(system="You keep notes.")
        while not chat.replies or not await chat.compactions():
            number = len(chat.replies)
            # More is worth noting than a note may hold.
            reason = prose(number, 20).replace(".", "").lower()
            await chat.says(f"We decided to use port {8_000 + number} because {reason}. {prose(number, 500)}")
    # The next server knows of the note, too.
    async with proxied(model, tmp_path, AT_THE_END) as proxy:
        again = proxy.chat(system="You keep notes.")
        again.said, again.replies = chat.said, chat.replies
        await compacted(again, rounds=2)
        assert len(await again.compactions()) >= 2
        (flush,) = await events(proxy.http, again, ["flush"])
        (note,) = await memories(proxy.http, again, "flush")
    told = flush["payload"]
    assert note["text"] == told["text"]
    assert told["slackTokens"] < 1_200
    assert 190 < told["tokens"] <= 220
    for title in ("Decisions", "Open loops", "Next actions", "Key findings"):
        assert f"## {title}\n" in note["text"]
    assert "We decided to use port 80" in note["text"]


@pytest.mark.spec("E11", "A44")
async def test_masks_alone_have_a_beginning_and_an_end(tmp_path: Path) -> None:
    model = ModelServer(window=20_000)
    async with proxied(model, tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(system="You read files.")
        for number in range(20):
            path = f"/srv/part{number}.txt"
            model.calls((f"call-{number}", "read_file", {"path": path}))
            await chat.says(f"Read part {number}.")
            await chat.sends(
                {"role": "tool", "tool_call_id": f"call-{number}", "content": prose(number, 900)}
            )
            if chat.reply.headers["x-palimpsest-view"] == "compacted":
                break
        (compaction,) = await chat.compactions()
        assert compaction["kind"] == "tool_truncation_only"
        told = of_compactions(await events(proxy.http, chat))
        assert [event["type"] for event in told] == [
            "compaction_started",
            "compaction_completed",
            "conversation_snapshot",
        ]
        assert told[1]["payload"]["maskedCount"] > 0
        snapshot = told[2]["payload"]
        assert snapshot["tooling"]["calls"] == {"read_file": number + 1}
        assert snapshot["files"]["touched"] == [f"/srv/part{place}.txt" for place in range(number + 1)]
        assert any(part["masked"] for part in snapshot["transcript"]["view"]["parts"])
        assert await checkpoints(proxy.http, chat, "pre_compaction") == []


@pytest.mark.spec("A26", "A44")
async def test_a_compaction_that_nothing_came_before_has_the_same_order(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(system="You keep notes.")
        for number in range(4):
            await chat.says(f"Note {number}: we decided to use port {8_000 + number}. {prose(number, 700)}")
        assert await chat.compactions() == []
        await chat.says(f"All at once. {prose(9, 4_600)}")
        told = of_compactions(await events(proxy.http, chat))
        types = [event["type"] for event in told]
        flushed = [*ALWAYS[:1], "flush", *ALWAYS[1:]]
        assert [step for step in types if step != "overflow_guard"] == [*flushed, "conversation_snapshot"]
        (summarized,) = [event["payload"] for event in told if event["type"] == "context_summarized"]
        assert (summarized["proactive"], summarized["trigger"]) == (False, "reactive")


@pytest.mark.spec("A43", "A07")
async def test_with_room_left_nothing_is_flushed(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    # Some 1,600 tokens are left where it is compacted.
    overrides = AT_THE_END | {"policy.trigger_ratio": 0.75}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await compacted(chat, words=300)
        (made,) = await chat.compactions()
        assert 1_200 < WINDOW - made["tokens_before"] < 2_000
        types = [event["type"] for event in of_compactions(await events(proxy.http, chat))]
        assert types == [*ALWAYS, "conversation_snapshot"]
