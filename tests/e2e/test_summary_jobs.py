"""Summary jobs: one for a conversation, two at once, two attempts, a lease; begun with the answer."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.journal import carries_out, events, read
from tests.kit.judge import are_sound
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import Proxy, fronting, proxied
from tests.kit.serving import served
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
# Begins at 5,600 tokens, and asks one question an attempt.
ROLLING: Json = {
    "policy.name": "rolling",
    "policy.trigger_reserve_tokens": 0,
    "policy.breaker_failures": 100,
    "compaction.summary_backoff_seconds": 0.1,
}
LONG = 3_600.0
pytestmark = pytest.mark.timeout(60)


class Writer:
    """Writes summaries, or fails as it is told to; `held` it waits until it is let go.

    `calls` are the times at which calls began and ended, in that order.
    """

    def __init__(self, *failures: Says, held: bool = False) -> None:
        self.failures = deque(failures)
        self.asked = asyncio.Queue[Seen]()
        self.let_go = asyncio.Event()
        self.running = 0
        self.most = 0
        self.calls: list[tuple[str, float]] = []
        if not held:
            self.let_go.set()

    async def __call__(self, seen: Seen) -> Says:
        self.running += 1
        self.most = max(self.most, self.running)
        self.calls.append(("began", time.monotonic()))
        self.asked.put_nowait(seen)
        await self.let_go.wait()
        self.calls.append(("ended", time.monotonic()))
        self.running -= 1
        if self.failures:
            return self.failures.popleft()
        return Says({"role": "assistant", "content": plain_summary(seen)})

    async def is_asked(self) -> Seen:
        """The next question, as soon as there is one."""
        async with asyncio.timeout(20):
            return await self.asked.get()


def broken(status: int = 500) -> Says:
    return Says(status=status, error={"error": {"message": "broke", "type": "server_error"}})


async def grown(chat: Chat, tokens: int = 5_600) -> None:
    """The conversation stands at or above so many tokens, by its newest question."""
    while not chat.replies or int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0]) < tokens:
        await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 390)}")


async def is_compacting(proxy: Proxy, chat: Chat) -> bool:
    status = await read(proxy.http, chat, f"sessions/{chat.session}/status")
    return bool(status["compacting"])


async def quiet(proxy: Proxy, chat: Chat) -> None:
    """No summary is being written for the conversation any more."""
    async with asyncio.timeout(20):
        while await is_compacting(proxy, chat):
            pass


async def failures(proxy: Proxy, chat: Chat) -> list[Json]:
    return [event["payload"] for event in await events(proxy.http, chat, ["compaction_failed"])]


async def failed(proxy: Proxy, chat: Chat) -> list[Json]:
    """As `failures`, when there is one."""
    async with asyncio.timeout(20):
        while not (told := await failures(proxy, chat)):
            pass
    return told


@pytest.mark.spec("B17")
async def test_five_triggers_are_one_job(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat)
        await writer.is_asked()
        for _ in range(3):
            await chat.says("Small talk.")
        # Two more of the same place, at the same time.
        again = [*chat.said, {"role": "user", "content": "Twice."}]
        await asyncio.gather(chat.posts(again), chat.posts(again))
        writer.let_go.set()
        await quiet(proxy, chat)
        await chat.says("The next one uses it.")
        (compaction,) = await chat.compactions()
        assert compaction["author"] == "model"
        assert len(model.summaries) == 1


@pytest.mark.spec("B17")
async def test_of_three_sessions_two_are_written_at_once(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chats = [proxy.chat(session=f"session {number}") for number in range(3)]
        for chat in chats:
            await grown(chat)
        await writer.is_asked()
        await writer.is_asked()
        # The third is on its way, and has asked nobody.
        assert [await is_compacting(proxy, chat) for chat in chats] == [True] * 3
        assert writer.running == 2
        writer.let_go.set()
        await writer.is_asked()
        for chat in chats:
            await quiet(proxy, chat)
            await chat.says("The next one uses it.")
            assert [row["author"] for row in await chat.compactions()] == ["model"]
        assert writer.most == 2
        assert len(model.summaries) == 3


@pytest.mark.spec("B17", "B18")
async def test_a_request_that_waits_does_not_stand_behind_background_work(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING | {"compaction.concurrent_summaries": 1}) as proxy:
        first, second = proxy.chat(session="first"), proxy.chat(session="second")
        await grown(first)
        await writer.is_asked()
        # Its own summary stands in line behind the other one until a turn needs it.
        await grown(second)
        assert await is_compacting(proxy, second)
        assert writer.running == 1
        large = asyncio.create_task(second.says(f"This one does not fit. {prose(99, 1_800)}"))
        await writer.is_asked()
        writer.let_go.set()
        await large
        assert [row["author"] for row in await second.compactions()] == ["model"]
        assert len(model.summaries) == 2


async def test_what_a_request_waits_for_takes_no_place_of_background_work(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING | {"compaction.concurrent_summaries": 1}) as proxy:
        first, second = proxy.chat(session="first"), proxy.chat(session="second")
        await grown(first, 4_000)
        large = asyncio.create_task(first.says(f"This one does not fit. {prose(99, 3_500)}"))
        await writer.is_asked()
        await grown(second)
        await writer.is_asked()
        writer.let_go.set()
        await large
        assert writer.most == 2


@pytest.mark.spec("B17")
async def test_a_failing_job_is_tried_twice_and_leaves_an_event(tmp_path: Path) -> None:
    pause = 0.3
    writer = Writer(broken(), broken())
    model = ModelServer(window=WINDOW, summary=writer)
    overrides = ROLLING | {"compaction.summary_backoff_seconds": pause}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat)
        (told,) = await failed(proxy, chat)
        assert [word for word, _ in writer.calls] == ["began", "ended"] * 2
        assert writer.calls[2][1] - writer.calls[1][1] >= pause
        assert (told["reason"], told["trigger"]) == ("status_500", "proactive")
        assert told["watermark"]
        assert await chat.compactions() == []
        # The next turn begins another job, and that one is written.
        await chat.says("Small talk.")
        await writer.is_asked()
        await quiet(proxy, chat)
        await chat.says("More of it.")
        assert [row["author"] for row in await chat.compactions()] == ["model"]
        assert len(await failures(proxy, chat)) == 1


@pytest.mark.spec("B17")
async def test_the_second_attempt_may_succeed(tmp_path: Path) -> None:
    writer = Writer(broken())
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat)
        await writer.is_asked()
        await writer.is_asked()
        await quiet(proxy, chat)
        await chat.says("The next one uses it.")
        assert [row["author"] for row in await chat.compactions()] == ["model"]
        assert len(model.summaries) == 2
        assert await failures(proxy, chat) == []


async def test_a_refused_key_is_not_tried_again(tmp_path: Path) -> None:
    writer = Writer(broken(401))
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat)
        (told,) = await failed(proxy, chat)
        assert told["reason"] == "key_refused"
        assert len(model.summaries) == 1


@pytest.mark.spec("B18")
async def test_a_request_does_not_wait_for_the_pause_before_the_second_attempt(tmp_path: Path) -> None:
    writer = Writer(broken())
    model = ModelServer(window=WINDOW, summary=writer)
    overrides = ROLLING | {"compaction.summary_backoff_seconds": 300, "compaction.deadline_seconds": 20}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat)
        await writer.is_asked()
        await chat.says(f"This one does not fit. {prose(99, 1_800)}")
        assert [row["author"] for row in await chat.compactions()] == ["model"]
        assert len(model.summaries) == 2


@pytest.mark.spec("B18", "A45")
async def test_where_a_request_waits_one_attempt_is_made_and_the_record_says_who_wrote(
    tmp_path: Path,
) -> None:
    writer = Writer(broken(), broken())
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING | {"compaction.background": False}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 5_100)
        await chat.says(f"This one is above the mark. {prose(99, 600)}")
        assert [row["author"] for row in await chat.compactions()] == ["deterministic"]
        assert len(model.summaries) == 1
        assert await failures(proxy, chat) == []
        are_sound(model.prompts, chat.sent, WINDOW)


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


@pytest.mark.spec("B17")
async def test_a_lease_is_renewed_while_its_job_lives(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    ends = "SELECT expires_at FROM leases WHERE key LIKE 'compact:%'"
    async with proxied(model, tmp_path, ROLLING | {"compaction.summary_lease_seconds": 1}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat)
        await writer.is_asked()
        (first,) = carries_out(tmp_path, ends)
        async with asyncio.timeout(20):
            # The server's own loop goes on beside the reading.
            while await asyncio.to_thread(carries_out, tmp_path, ends) == [first]:
                pass
        assert await is_compacting(proxy, chat)
        writer.let_go.set()


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
        async with fronting(f"{upstream}/v1", tmp_path, ROLLING) as second:
            chat = second.chat()
            chat.said = said
            asked = len(model.summaries)
            await chat.says("Still there?")
            await chat.says("The next one uses it.")
            assert len(model.summaries) == asked + 1


@pytest.mark.spec("B03")
async def test_an_answer_that_crosses_the_mark_begins_the_summary_itself(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 4_600)
        model.says(f"A long story. {prose(77, 1_000)}")
        await chat.says("Tell me a story.")
        # Below the mark as it was sent; nobody says anything more.
        assert int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0]) < 5_600
        await writer.is_asked()
        assert model.prompts[-1].messages == chat.sent[-1]
        writer.let_go.set()
        await quiet(proxy, chat)
        assert await chat.compactions() == []
        await chat.says("And the next turn uses it.")
        (compaction,) = await chat.compactions()
        assert (compaction["author"], len(model.summaries)) == ("model", 1)
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("B03")
async def test_a_question_never_rides_behind_calls_that_wait_for_their_results(tmp_path: Path) -> None:
    writer = Writer()
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, {"policy.objective": "off"}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 5_400)
        before = len(chat.said)
        model.calls(("call-1", "write_file", {"text": prose(77, 1_300)}))
        await chat.says("Write it down.")
        asked = await writer.is_asked()
        assert asked.faults == ()
        # The conversation up to the question whose answer calls the tool, then ours.
        assert asked.messages[:-1] == chat.said[: before + 1]
        await quiet(proxy, chat)
        await chat.sends({"role": "tool", "tool_call_id": "call-1", "content": "done"})
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("E11")
async def test_the_log_entry_says_how_many_calls_a_summary_took_and_in_which_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ModelServer(window=WINDOW, summary=Writer())
    async with proxied(model, tmp_path, ROLLING | {"policy.chunk_chars": 8_000}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        while not chat.replies or not await chat.compactions():
            await grown(chat, 5_600)
            await quiet(proxy, chat)
            await chat.says("And on.")
        (entry,) = await events(proxy.http, chat, ["context_summarized"])
        assert entry["payload"]["passes"] == len(model.summaries) > 1
        run = entry["payload"]["summarizerRunId"]
        assert capsys.readouterr().out.count(run) == len(model.summaries)


@pytest.mark.spec("A27", "A44")
async def test_a_huge_summary_is_cut_below_the_ceiling_and_an_event_says_so(tmp_path: Path) -> None:
    def huge(seen: Seen) -> Says:
        return Says({"role": "assistant", "content": f"{plain_summary(seen)}\n{prose(55, 4_500)}"})

    model = ModelServer(window=WINDOW, summary=huge)
    overrides = {
        "compaction.background": False,
        "policy.objective": "off",
        "summarizer.window_tokens": 100_000,
    }
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 6_000)
        await chat.says(f"This one does not fit. {prose(99, 1_900)}")
        (compaction,) = await chat.compactions()
        assert compaction["author"] == "model"
        told = await events(proxy.http, chat)
        types = [event["type"] for event in told]
        place = types.index("overflow_guard")
        assert types[place - 1] == "context_summarized"
        assert types[place + 1] == "pinned_insert"
        guard = told[place]["payload"]
        assert guard["compactionId"] == compaction["id"]
        assert guard["tokensAfter"] < guard["tokensBefore"]
        assert compaction["tokens_after"] <= guard["ceilingTokens"] <= 0.95 * WINDOW
        assert compaction["summary"].startswith("<palimpsest_summary>")
        assert compaction["summary"].endswith("</palimpsest_summary>")
        are_sound(model.prompts, chat.sent, WINDOW)
