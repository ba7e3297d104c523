"""Records are written anew from the messages, so that what one fold lost the next but three has again.

The summarizer here forgets all that an earlier record says: what its answer knows, the question told it as
messages.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.summary.cached_prefix import INSTRUCTION

from tests.kit.chat import Chat
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import Proxy, proxied
from tests.kit.summaries import broken, quiet
from tests.kit.words import prose

Json = dict[str, Any]
# Folds come soon, and a question of its own holds every message.
WINDOW = 6_000
ONE_CALL: Json = {
    "models": [{"match": "*", "window_tokens": WINDOW}],
    "summarizer.window_tokens": 60_000,
    "policy.advanced.rebuild_after_folds": 4,
    "policy.advanced.summary_input_chars": 200_000,
}
WORDS = 350
_NOTE = re.compile(r"entry-(\d+)\b")
pytestmark = pytest.mark.timeout(120)


def told_of(seen: Seen) -> tuple[set[int], set[int]]:
    """The entries that a question tells as messages, or as records of parts, and of an earlier record."""
    last = str(seen.messages[-1]["content"])
    if INSTRUCTION in last:
        said = [str(message["content"]) for message in seen.messages[:-1]]
        earlier = [text for text in said if "Handoff from a previous agent" in text]
        said = [text for text in said if text not in earlier]
    else:
        before, _, rest = last.partition("\nCONVERSATION\n")
        said, earlier = [rest], [before.partition("PREVIOUS_SUMMARY\n")[2]]
    return _entries("\n".join(said)), _entries("\n".join(earlier))


def is_rebuilding(seen: Seen) -> bool:
    """True of a question that is given no record to go on from, but for the first fold's."""
    return "PREVIOUS_SUMMARY\n(none)" in str(seen.messages[-1]["content"])


def forgetful(seen: Seen) -> Says:
    said, _ = told_of(seen)
    lines = "\n".join(f"- kept entry-{number} as it was given" for number in sorted(said))
    text = f"## 1. Primary request and intent\nThe user keeps entries.\n## 5. Key technical details\n{lines}"
    return Says({"role": "assistant", "content": text})


def _entries(text: str) -> set[int]:
    return {int(number) for number in _NOTE.findall(text)}


async def noted(chat: Chat) -> None:
    """One more entry is said."""
    number = len(chat.replies)
    await chat.says(f"entry-{number} is this: {prose(number, WORDS)}")


async def folds(proxy: Proxy, chat: Chat, wanted: int, *, author: str = "model") -> list[Json]:
    """So many folds are in force, each written beside the turns where it can be."""
    made: list[Json] = []
    async with asyncio.timeout(100):
        while len(made) < wanted:
            await noted(chat)
            await quiet(proxy, chat)
            made = [one for one in await chat.compactions() if one["kind"] == "message_removal"]
    assert made[-1]["author"] == author
    return made


def record_of(compaction: Json) -> set[int]:
    """The entries in what the model wrote, without what code adds."""
    found = {int(number) for number in re.findall(r"kept entry-(\d+) as", compaction["summary"])}
    # The first message is in every view.
    return found - {0}


async def test_the_fifth_fold_is_written_from_the_messages(tmp_path: Path) -> None:
    model = ModelServer(summary=forgetful)
    async with proxied(model, tmp_path, ONE_CALL) as proxy:
        chat = proxy.chat(system="You keep entries.")
        made = await folds(proxy, chat, 6)
        assert [one["rebuilt"] > 0 for one in made] == [False, False, False, False, True, False]
        # The fourth has forgotten what the first knew, the fifth knows it again.
        first = record_of(made[0])
        assert first
        assert not first & record_of(made[3])
        assert first <= record_of(made[4])
        # It was asked once, in a question that holds all and no earlier record.
        assert made[4]["passes"] == 1
        (asked,) = filter(is_rebuilding, model.summaries)
        assert first <= told_of(asked)[0]
        assert await chat.transcript() == chat.said


async def test_records_are_never_written_anew_where_that_is_off(tmp_path: Path) -> None:
    model = ModelServer(summary=forgetful)
    async with proxied(model, tmp_path, ONE_CALL | {"policy.advanced.rebuild_after_folds": 0}) as proxy:
        chat = proxy.chat(system="You keep entries.")
        made = await folds(proxy, chat, 6)
        assert not any(one["rebuilt"] for one in made)
        assert not any(record_of(made[0]) & record_of(one) for one in made[3:])
        assert not any(map(is_rebuilding, model.summaries))


async def test_what_code_folded_is_told_again_when_the_model_answers(tmp_path: Path) -> None:
    model = ModelServer(summary=lambda _: broken())
    how = ONE_CALL | {"policy.advanced.breaker_failures": 100}
    async with proxied(model, tmp_path, how) as proxy:
        chat = proxy.chat(system="You keep entries.")
        (by_code,) = await folds(proxy, chat, 1, author="deterministic")
        assert not record_of(by_code)
        model.summary = forgetful
        again = by_code
        async with asyncio.timeout(30):
            while again["id"] == by_code["id"]:
                await chat.says("Nothing new.")
                again = (await chat.compactions())[-1]
        # It is the same fold, in a model's words.
        assert (again["watermark"], again["kept"]) == (by_code["watermark"], by_code["kept"])
        assert (again["author"], again["passes"]) == ("model", 1)
        assert again["rebuilt"] == by_code["messages_folded"]
        assert "a better record" in again["reason"]
        assert {1, 2, 3} <= record_of(again)


async def test_a_history_of_several_questions_is_one_record(tmp_path: Path) -> None:
    model = ModelServer(summary=forgetful)
    # Two thirds of what is folded at the fifth fold fit into none.
    how = ONE_CALL | {"policy.advanced.summary_input_chars": 9_000, "summarizer.window_tokens": 20_000}
    async with proxied(model, tmp_path, how) as proxy:
        chat = proxy.chat(system="You keep entries.")
        made = await folds(proxy, chat, 5)
        rebuilt = made[4]
        # What came while it was written is told by code.
        assert 0.8 * rebuilt["messages_folded"] <= rebuilt["rebuilt"] <= rebuilt["messages_folded"]
        assert rebuilt["passes"] >= 3
        asked = [seen for seen in model.summaries if is_rebuilding(seen)][-rebuilt["passes"] :]
        *parts, merging = asked
        assert "Records of consecutive parts" in str(merging.messages[-1]["content"])
        assert "PART 2" in str(merging.messages[-1]["content"])
        # Every message is in the parts, and what was written of any of them is in the record.
        told = set().union(*(told_of(seen)[0] for seen in parts))
        assert record_of(made[0]) <= told
        assert record_of(made[0]) <= record_of(rebuilt)
        assert all(len(str(seen.messages)) < 10_500 for seen in asked)


FAILURES = {"error": broken(), "empty": Says({"role": "assistant", "content": ""})}


@pytest.mark.parametrize("kind", ["error", "empty"])
async def test_where_writing_anew_fails_the_record_goes_on(kind: str, tmp_path: Path) -> None:
    model = ModelServer(summary=lambda seen: FAILURES[kind] if is_rebuilding(seen) else forgetful(seen))
    async with proxied(model, tmp_path, ONE_CALL | {"policy.advanced.breaker_failures": 3}) as proxy:
        chat = proxy.chat(system="You keep entries.")
        made = await folds(proxy, chat, 6)
        assert any(map(is_rebuilding, model.summaries))
        assert not any(one["rebuilt"] for one in made)
        assert {one["author"] for one in made} == {"model"}
        # It is due until it is done.
        model.summary = forgetful
        made = await folds(proxy, chat, 7)
        assert made[-1]["rebuilt"]
        assert record_of(made[0]) <= record_of(made[-1])


async def test_no_turn_waits_for_it(tmp_path: Path) -> None:
    asked, let_go = asyncio.Event(), asyncio.Event()

    async def held(seen: Seen) -> Says:
        if is_rebuilding(seen):
            asked.set()
            await let_go.wait()
        return forgetful(seen)

    model = ModelServer(summary=held)
    async with proxied(model, tmp_path, ONE_CALL | {"compaction.deadline_seconds": 60}) as proxy:
        chat = proxy.chat(system="You keep entries.")
        made = await folds(proxy, chat, 4)
        async with asyncio.timeout(30):
            while not asked.is_set():
                await noted(chat)
            # It hangs: the turn that needs a fold has an ordinary one, long before the deadline.
            while len(made) < 5:
                await noted(chat)
                made = [one for one in await chat.compactions() if one["kind"] == "message_removal"]
        assert (made[4]["author"], made[4]["rebuilt"]) == ("model", 0)
        let_go.set()
