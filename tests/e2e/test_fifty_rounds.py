"""Fifty compactions of one session (25 of some presets): nothing grows, nothing is lost."""

from __future__ import annotations

import hashlib
import json
import statistics
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from palimpsest.core.presets import PRESETS

from tests.kit.chat import Chat
from tests.kit.extract import extract
from tests.kit.judge import are_sound, rewritten
from tests.kit.model import ModelServer, tokens_of
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 4_000
ROUNDS = 50
# Of presets whose blocks are code's alone, so that nothing grows but time; `worker` has fifty of its own.
FEWER_ROUNDS = {"by_content": 25, "working_state": 25, "worker": 25}
# Tails that leave room for rounds in so small a window.
NUMBERS: dict[str, Json] = {
    "rolling": {
        "policy.advanced.trigger_reserve_tokens": 0,
        "policy.tail_messages": 2,
        # By the preset's own guess two messages are already more than the trigger.
    },
    "worker": {"policy.tail_messages": 2},
}
# How a summary's block begins.
FENCES = ("<palimpsest_summary>", "<cowork_compaction_summary>")
# Who asks a model in every round.
# In a window this small `auto` asks nobody: a question would cost more than what it wins.
ASKING = ("handoff", "rolling", "batch", "worker")
pytestmark = pytest.mark.timeout(120)


def planted(number: int) -> str:
    """An identifier of one of five kinds, of which no two are equal."""
    kinds = (
        str(UUID(int=number * 2**97 + number)),
        f"/var/lib/harbour/{number}/part-{number * 37}.db",
        f"gate-{number}.harbour.example:{9_000 + number * 13}",
        f"{(number + 3) ** 17:040x}",
        f"OPS-{number * 977 + 10_000}",
    )
    return kinds[number % len(kinds)]


def digest(rows: list[Json]) -> str:
    """One hash of rows with their ids."""
    kept = [(row["id"], row["role"], row["message"]) for row in rows]
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()


async def until(chat: Chat, model: ModelServer, rounds: int) -> None:
    """So many compactions have been in force; each round begins with an identifier."""
    seen = list(dict.fromkeys(in_force(chat)))
    told = len(seen) - 1
    while len(seen) < rounds:
        if len(seen) > told:
            told = len(seen)
            await chat.says(f"Write down {planted(told)}. {prose(told, 60)}")
        else:
            model.says(prose(10_000 + len(chat.said), 900))
            await chat.says("Go on with the story.")
        seen = list(dict.fromkeys(in_force(chat)))
        assert len(chat.said) < 1_000


def in_force(chat: Chat) -> list[str]:
    """The compaction under which each answer was given, where there was one."""
    replies = (reply.headers.get("x-palimpsest-compaction") for reply in chat.replies)
    return [ident for ident in replies if ident]


async def is_found(chat: Chat, view: str, wanted: list[str]) -> bool:
    """Each stands in the view, or in exactly one message of the archive, readable by its id."""
    rows = await chat.rows()
    for text in wanted:
        holding = [row["id"] for row in rows if text in str(row["message"]["content"])]
        if text not in view and (len(holding) != 1 or text not in await chat.recalls(holding[0])):
            return False
    return True


@pytest.mark.spec("E01", "E05", "F29", "F30", "P11")
@pytest.mark.parametrize("preset", sorted(PRESETS))
async def test_fifty_rounds(preset: str, tmp_path: Path) -> None:
    rounds = FEWER_ROUNDS.get(preset, ROUNDS)
    model = ModelServer(window=WINDOW, summary=extract)
    overrides = {"policy.name": preset, "database.synchronous": "normal", **NUMBERS.get(preset, {})}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await chat.says("You will keep the harbour's notes.")
        await until(chat, model, rounds // 2)
        before = await chat.rows()
        await until(chat, model, rounds)
        await chat.says("And on.")
        made = await chat.compactions()
        after = await chat.rows()
        assert digest(after[: len(before)]) == digest(before)
        assert [row["message"] for row in after] == chat.said
        are_sound(model.prompts, chat.sent, WINDOW)
        # Where one that was begun earlier frees too little, the next one follows in the same turn.
        assert rounds <= rewritten(model.prompts) <= len(made)
        sizes = [tokens_of([{"role": "user", "content": one["summary"]}]) for one in made if one["summary"]]
        asked = [seen.tokens for seen in model.summaries]
        assert max(sizes[rounds // 2 :]) <= 1.5 * max(sizes[: rounds // 2])
        first = next(
            at for at, reply in enumerate(chat.replies) if "x-palimpsest-compaction" in reply.headers
        )
        for at, prompt in enumerate(model.prompts):
            blocks = sum(prompt.text.count(fence) for fence in FENCES)
            assert blocks == (at >= first)
        if preset in ASKING:
            # In a window this small a record is full at nearly each fold, and this model settles none. What
            # `rolling` asks for takes a quarter of it, so that a stretch may take two questions.
            most = 4 if preset == "rolling" else 3
            assert rounds // 2 <= len(asked) <= most * len(made) + 3
            assert max(asked) < 2 * statistics.median(asked)
        assert await is_found(chat, model.prompts[-1].text, [planted(at) for at in range(rounds)])
