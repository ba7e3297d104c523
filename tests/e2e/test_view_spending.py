"""What summaries may spend a day, and folds that follow each other: then no model is asked (idea 5, F04)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.proxy.compacting.breaker import LoopBreaker
from palimpsest.proxy.compacting.costs import SpendingLimit
from palimpsest.storage.migrate import migrate
from palimpsest.storage.store import open_store

from tests.kit.chat import Chat
from tests.kit.judge import are_sound
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import Proxy, fronting, proxied
from tests.kit.serving import served
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 6_000
# One summary is one call.
IN_TURN: Json = {
    "compaction.background": False,
    "policy.objective": "fidelity",
    "summarizer.window_tokens": 100_000,
}
pytestmark = pytest.mark.timeout(120)


async def told(chat: Chat, turns: int, words: int = 300) -> None:
    for turn in range(len(chat.replies), len(chat.replies) + turns):
        await chat.says(f"Entry {turn}. {prose(turn, words)}")


async def events(proxy: Proxy, chat: Chat, kind: str) -> list[Json]:
    path = f"/api/sessions/{chat.session}/events?limit=500"
    rows: list[Json] = (await proxy.http.get(path, headers=chat.headers)).json()["events"]
    return [row for row in rows if row["type"] == kind]


def authors(compactions: list[Json]) -> list[str]:
    return [row["author"] for row in compactions if row["kind"] == "message_removal"]


@pytest.mark.spec("P8")
@pytest.mark.parametrize("background", [False, True])
async def test_beyond_the_limit_no_model_is_asked_and_an_event_says_so_once(
    background: bool, tmp_path: Path
) -> None:
    model = ModelServer(window=WINDOW)
    limit = IN_TURN | {"compaction.summary_tokens_per_day": 1_000, "compaction.background": background}
    async with proxied(model, tmp_path, limit) as proxy:
        chat = proxy.chat(session="log")
        await told(chat, 45)
        assert len(model.summaries) == 1
        assert authors(await chat.compactions())[0] == "model"
        assert set(authors(await chat.compactions())[1:]) == {"deterministic"}
        are_sound(model.prompts, chat.sent, WINDOW)
        (event,) = await events(proxy, chat, "spending_limit")
        said = event.get("payload", event)
        assert said["limit"] == 1_000
        assert said["spent"] == model.summaries[0].tokens + 9
        # The limit is the namespace's: another session of it asks nobody either, another key does.
        second = proxy.chat(session="second")
        await told(second, 20)
        assert len(model.summaries) == 1
        assert set(authors(await second.compactions())) == {"deterministic"}
        assert await events(proxy, second, "spending_limit") == []
        other = proxy.chat(session="other", key="key-2")
        await told(other, 20)
        assert len(model.summaries) == 2
    # A restart forgets nothing of the day, and says nothing again.
    async with proxied(model, tmp_path, limit) as proxy:
        chat = proxy.chat(session="third")
        await told(chat, 20)
        assert len(model.summaries) == 2
        assert await events(proxy, chat, "spending_limit") == []


async def test_calls_are_counted_also_without_a_limit_and_where_the_upstream_counts_nothing(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'spending.db'}"
    await migrate(url)
    store = await open_store(url, synchronous="full", deadline_seconds=5, new_id=lambda: "", sole=True)
    try:
        now = [1_800_000_000.0]
        spending = SpendingLimit(store.journal, 100, lambda: now[0], "a")
        await spending.add("ns", Usage(60, 20))
        assert not spending.is_spent("ns")
        await SpendingLimit(store.journal, 0, lambda: now[0], "b").add("ns", Usage(15, 5, 10))
        # Another server has spent the rest.
        await spending.look("ns")
        assert spending.is_spent("ns")
        assert not spending.is_spent("other")
        stored = await store.journal.spending("ns", "2027-01-15")
        assert (stored.calls, stored.prompt_tokens, stored.completion_tokens) == (2, 75, 25)
        assert stored.cached_tokens == 10
        now[0] += 24 * 3_600
        assert not spending.is_spent("ns")
    finally:
        await store.close()


class Uncounted:
    """A summarizer whose answers state no usage."""

    def __init__(self, model: ModelServer) -> None:
        self._model = model

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def without_usage(message: Json) -> None:
            body = message.get("body", b"")
            if body.startswith(b"{") and b'"usage"' in body:
                fields = json.loads(body)
                del fields["usage"]
                body = json.dumps(fields).encode()
                await send(message | {"body": body.ljust(len(message["body"]))})
            else:
                await send(message)

        await self._model(scope, receive, without_usage)


async def test_an_upstream_that_states_no_usage_is_estimated(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    limit = IN_TURN | {"compaction.summary_tokens_per_day": 1_000}
    async with (
        served(Uncounted(model), lifespan="off") as upstream,
        fronting(f"{upstream}/v1", tmp_path, limit) as front,
    ):
        chat = front.chat(session="log")
        await told(chat, 45)
        assert len(model.summaries) == 1
        assert authors(await chat.compactions())[:2] == ["model", "deterministic"]


def test_three_folds_in_three_turns_are_a_loop_and_it_ends_by_itself() -> None:
    now = [0.0]
    loops = LoopBreaker(60.0, lambda: now[0])
    for turn in (4, 5, 5, 5):
        loops.folded("s", turn)
    assert not loops.is_open("s")
    loops.folded("s", 7)
    assert not loops.is_open("s")
    loops.folded("s", 6)
    loops.folded("s", 7)
    loops.folded("s", 8)
    assert loops.is_open("s")
    assert not loops.is_open("other")
    now[0] = 60.0
    assert not loops.is_open("s")
    loops.folded("s", 9)
    assert not loops.is_open("s")


@pytest.mark.spec("F04")
async def test_a_session_folded_at_every_turn_is_masked_and_no_model_is_asked_for_it(tmp_path: Path) -> None:
    """Every turn brings nearly a window: whatever is folded, the next one is above the trigger again."""
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, IN_TURN | {"policy.objective": "fidelity"}) as proxy:
        chat = proxy.chat(session="log")
        await told(chat, 4, words=3_300)
        made = authors(await chat.compactions())
        # Of folds that the next one follows at once a model writes every second.
        assert made == ["deterministic", "model", "deterministic"]
        asked = len(model.summaries)
        await told(chat, 3, words=3_300)
        assert len(model.summaries) == asked
        assert authors(await chat.compactions())[3:] == ["deterministic"] * 3
        # What can be masked is masked now, and nothing is folded: the first result fits below the trigger.
        await told(chat, 1, words=2_600)
        folds = len(authors(await chat.compactions()))
        await reads(model, chat, 0, words=600)
        await reads(model, chat, 1, words=360)
        compactions = await chat.compactions()
        assert compactions[-1]["kind"] == "tool_truncation_only"
        assert len(authors(compactions)) == folds
        are_sound(model.prompts, chat.sent, WINDOW)
        assert await chat.transcript() == chat.said


async def reads(model: ModelServer, chat: Chat, number: int, words: int) -> None:
    """A call and its result."""
    model.calls((f"c{number}", "read", {}))
    await chat.says(f"Read log {number}.")
    await chat.sends({"role": "tool", "tool_call_id": f"c{number}", "content": prose(90 + number, words)})


async def test_an_echo_of_the_shown_conversation_is_no_summary(tmp_path: Path) -> None:
    """Many short messages: without their framing an echo is smaller than what it would replace."""

    def echo(seen: Seen) -> Says:
        is_riding = seen.messages[0].get("content") != "" and len(seen.messages) > 3
        said = "\n".join(str(message["content"]) for message in seen.messages[:-1])
        text = f"# Record\n{said}" if is_riding else plain_summary(seen)
        return Says({"role": "assistant", "content": text})

    model = ModelServer(window=WINDOW, summary=echo)
    # At the trigger of `fidelity` a question does not fit behind the prompt.
    async with proxied(model, tmp_path, IN_TURN | {"policy.trigger_ratio": 0.7}) as proxy:
        chat = proxy.chat(session="log")
        while not (chat.replies and await chat.compactions()):
            await chat.says("yes " + str(len(chat.replies)))
        assert len(model.summaries) == 2
        (made,) = await chat.compactions()
        assert made["author"] == "model"
        assert "# Record" not in made["summary"]
