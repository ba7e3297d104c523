"""What a policy's estimator changes: the turn at which a compaction is made, never what may go out (B04)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.judge import are_sound
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
TRIGGER = 7_200
# Asked for in the turn that reaches the trigger, so that the turn is exactly the one.
HANDOFF: Json = {"policy.name": "handoff"}
# What every prompt takes besides its messages.
PRIMING = 3
pytestmark = pytest.mark.timeout(120)


def whole(chat: Chat) -> int:
    """The newest request's prompt, unfolded, in our count."""
    return int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0])


def guessed(chat: Chat, characters: int) -> list[int]:
    """The guess of every request's prompt."""
    chars = [sum(len(message["content"]) for message in sent) for sent in chat.sent]
    return [PRIMING + -(-each // characters) for each in chars]


async def until_compacted(chat: Chat, text: str) -> list[int]:
    """The counts of all turns up to the first with a compaction."""
    counts: list[int] = []
    while not chat.replies or not await chat.compactions():
        await chat.says(f"{text} {len(chat.sent)}. {prose(len(chat.sent), 150)}")
        counts.append(whole(chat))
        assert len(counts) < 80
    return counts


@pytest.mark.spec("B04")
@pytest.mark.parametrize(("estimator", "characters"), [("chars3", 3), ("chars4", 4)])
async def test_characters_decide_the_turn(estimator: str, characters: int, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, HANDOFF | {"policy.advanced.estimator": estimator}) as proxy:
        chat = proxy.chat()
        counts = await until_compacted(chat, "Note")
        guesses = guessed(chat, characters)
        assert [guess >= TRIGGER for guess in guesses] == [False] * (len(counts) - 1) + [True]
        # Counted it would not have been due.
        assert counts[-1] < TRIGGER
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("B04")
async def test_the_count_decides_the_turn_unless_told_otherwise(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, HANDOFF) as proxy:
        chat = proxy.chat()
        counts = await until_compacted(chat, "Note")
        assert [count >= TRIGGER for count in counts] == [False] * (len(counts) - 1) + [True]


@pytest.mark.spec("B04")
async def test_what_the_upstream_said_last_decides_the_turn(tmp_path: Path) -> None:
    turns = {}
    for estimator in ("tiktoken", "usage"):
        folder = tmp_path / estimator
        folder.mkdir()
        model = ModelServer(window=3 * WINDOW, models=False)
        overrides = HANDOFF | {"policy.advanced.estimator": estimator, "window.window_tokens": WINDOW}
        async with proxied(model, folder, overrides) as proxy:
            chat = proxy.chat()
            for number in range(8):
                await chat.says(f"Note {number}. {prose(number, 150)}")
            # From here on it counts more than until now: the branch's own figures say so at once.
            model.counted = 1.6
            turns[estimator] = 8 + len(await until_compacted(chat, "Later note"))
    assert turns["usage"] < turns["tiktoken"]


@pytest.mark.spec("B04")
async def test_rolling_guesses_by_three_unless_told_otherwise(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    # Asked for in the turn, so that the turn is exactly the one.
    rolling = {
        "policy.name": "rolling",
        "policy.advanced.trigger_reserve_tokens": 0,
        "policy.advanced.in_background": False,
    }
    async with proxied(model, tmp_path, rolling) as proxy:
        chat = proxy.chat()
        counts = await until_compacted(chat, "Note")
        guesses = guessed(chat, 3)
        # At seven tenths of the window by its guess; counted it was far from there.
        assert [guess >= 5_600 for guess in guesses] == [False] * (len(guesses) - 1) + [True]
        assert counts[-1] < 4_500


@pytest.mark.spec("B04", "P9")
@pytest.mark.parametrize("preset", ["handoff", "auto", "rolling"])
async def test_a_guess_that_is_far_too_low_sends_nothing_that_does_not_fit(
    preset: str, tmp_path: Path
) -> None:
    model = ModelServer(window=WINDOW)
    random = Random(4)
    overrides = {
        "policy.name": preset,
        "policy.advanced.estimator": "chars4",
        "policy.advanced.trigger_reserve_tokens": 0,
    }
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat()
        for _ in range(24):
            await chat.says("".join(chr(random.randrange(0x4E00, 0x9FA5)) for _ in range(420)))
        assert len(await chat.compactions()) > 1
        assert not any(reply.status_code != 200 for reply in chat.replies)
        are_sound(model.prompts, chat.sent, WINDOW)
