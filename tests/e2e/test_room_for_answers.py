"""Room for an answer: what a large `max_tokens`, large instructions and small windows do to a talk."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.judge import are_sound
from tests.kit.model import ModelServer, Says, tokens_of
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
pytestmark = pytest.mark.timeout(120)


def instructions(tokens: int) -> str:
    """A system prompt of about so many tokens, hardly fewer."""
    text, at = "", 0
    while (missing := tokens - tokens_of([{"role": "system", "content": text}])) > 30:
        text += f" {prose(at, min(1_000, missing - 10))}"
        at += 1
    return text


def fact(number: int) -> str:
    return f"Room {number} has the code R-{number * 7_919 + 104_729}."


async def tells(chat: Chat, turns: int, tokens: int = 250) -> None:
    """So many turns, each with a fact in it."""
    for number in range(turns):
        await chat.says(f"{fact(number)} {prose(number, tokens)}")


@pytest.mark.spec("P1", "A02", "E11")
async def test_nothing_is_touched_before_the_trigger_and_then_one_step_leads_down(tmp_path: Path) -> None:
    model, window = ModelServer(window=16_000), 16_000
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="log")
        while not (chat.replies and await chat.compactions()):
            await chat.says(f"Entry {len(chat.replies)}. {prose(len(chat.replies), 300)}")
        (made,) = await chat.compactions()
    untouched = model.prompts[:-1]
    assert [seen.body["messages"] for seen in untouched] == chat.sent[:-1]
    assert untouched[-1].tokens > 0.85 * window
    assert made["tokens_before"] >= 0.9 * window
    assert made["reason"] == f"{made['tokens_before']:,} tokens of {window:,} (0.90 asked)"
    assert made["tokens_after"] <= 0.55 * window


@pytest.mark.parametrize(
    ("window", "fixed", "output"),
    [
        # An agent that asks for as much as it can get, behind large instructions.
        (24_000, 13_900, 65_536),
        (16_000, 60, 8_000),
        (32_000, 20_000, 32_000),
        (8_000, 2_500, 200_000),
    ],
)
@pytest.mark.parametrize("preset", ["auto", "handoff"])
async def test_a_prompt_that_fits_goes_out_whole_whatever_max_tokens_is(
    preset: str, window: int, fixed: int, output: int, tmp_path: Path
) -> None:
    model = ModelServer(window=window)
    settings = {"window.window_tokens": window, "policy.name": preset}
    async with proxied(model, tmp_path, settings) as proxy:
        chat = proxy.chat(system=instructions(fixed), extra={"max_tokens": output})
        # All turns together leave a quarter of what the instructions leave, whatever is asked.
        await tells(chat, 16, int(0.6 * (window - fixed) / 16) - 40)
        await chat.says("Which code has room 3?")
        assert await chat.compactions() == []
    assert [prompt.messages for prompt in model.prompts] == chat.sent
    assert all(fact(number) in model.prompts[-1].text for number in range(16))
    assert model.prompts[-1].tokens > fixed + 0.5 * (window - fixed)


@pytest.mark.parametrize("preset", ["auto", "handoff", "rolling", "working_state", "batch", "worker"])
@pytest.mark.parametrize(("window", "fixed"), [(16_000, 3_000), (32_000, 20_000), (8_000, 6_800)])
async def test_no_preset_folds_more_often_than_its_room_fills_up(
    preset: str, window: int, fixed: int, tmp_path: Path
) -> None:
    model = ModelServer(window=window)
    settings = {"window.window_tokens": window, "policy.name": preset, "compaction.background": False}
    room, step = window - fixed, (window - fixed) // 40
    async with proxied(model, tmp_path, settings) as proxy:
        chat = proxy.chat(system=instructions(fixed), extra={"max_tokens": 32_000})
        await tells(chat, 100, step - 25)
        made = await chat.compactions()
        least = (await chat.view())["budget"]["summary_tokens"]
        are_sound(model.prompts, chat.sent, window)
    # `rolling` guesses by characters, which is more.
    assert preset == "rolling" or all(one["tokens_before"] >= fixed + 0.45 * room for one in made)
    # 100 turns fill the room two and a half times; a fold frees a sixth of it at least.
    freed = room / (12 if preset == "rolling" else 6)
    assert len(made) <= 1 + math.ceil((100 * step - 0.3 * room) / freed)
    # No question whose answer would have no room: code writes.
    wanted = 700 if preset == "auto" else 500
    assert all(asked.body["max_tokens"] >= wanted for asked in model.summaries)
    assert bool(model.summaries) <= (least >= wanted)


@pytest.mark.spec("A29", "E06")
async def test_what_only_max_tokens_makes_too_long_is_folded_once_down_to_half(tmp_path: Path) -> None:
    """An upstream that counts the answer into the window, as vLLM does."""
    model = ModelServer(window=16_000, counts_output=True)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system="You keep the log.", extra={"max_tokens": 6_000})
        await tells(chat, 60, 250)
        made = await chat.compactions()
    refused = [prompt for prompt in model.prompts if prompt.tokens + 6_000 > 16_000]
    answered = [prompt for prompt in model.prompts if prompt not in refused]
    are_sound(answered, chat.sent, 10_000)
    # One refusal a fold, and as much of the conversation left as half of the window holds.
    assert len(made) == len(refused) >= 2
    assert {one["trigger"] for one in made} == {"overflow"}
    assert all(6_000 < one["tokens_after"] <= 8_100 for one in made)


@pytest.mark.spec("A29")
async def test_where_no_fold_makes_room_for_max_tokens_the_error_passes_through(tmp_path: Path) -> None:
    model = ModelServer(window=16_000, counts_output=True)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system=instructions(8_500), extra={"max_tokens": 8_000})
        for number in range(3):
            reply = await chat.posts([*chat.said, {"role": "user", "content": f"{fact(number)}"}])
            assert reply.status_code == 400
            assert "maximum context length is 16000" in reply.json()["error"]["message"]
        assert len(model.seen) == 3
        chat.extra = {"max_tokens": 1_000}
        await tells(chat, 8, 300)
        chat.extra = {"max_tokens": 5_500}
        reply = await chat.posts([*chat.said, {"role": "user", "content": "More, please."}])
        # Messages would keep less than half of what the instructions leave.
        assert (reply.status_code, len(model.seen)) == (400, 12)
        assert await chat.compactions() == []


@pytest.mark.spec("A29")
async def test_a_fold_that_did_not_help_is_not_tried_again(tmp_path: Path) -> None:
    model = ModelServer(window=16_000, models=False)
    async with proxied(model, tmp_path, {"window.window_tokens": 16_000}) as proxy:
        chat = proxy.chat(system="You keep the log.", extra={"max_tokens": 4_000})
        await tells(chat, 38, 250)
        said = (
            "This model's maximum context length is 16000 tokens. However, you requested 16900 tokens (12900 "
            "in the messages, 4000 in the completion). Reduce the length of the messages or completion."
        )
        error = {
            "error": {"message": said, "type": "invalid_request_error", "code": "context_length_exceeded"}
        }
        sent = len(model.prompts)
        model.answers.extend(Says(status=400, error=error) for _ in range(5))
        reply = await chat.posts([*chat.said, {"role": "user", "content": "Go on."}])
        assert (reply.status_code, reply.json()) == (400, error)
        assert len(model.prompts) == sent + 2
        assert len(await chat.compactions()) == 1


@pytest.mark.parametrize(
    ("model", "settings", "trigger"),
    [
        # Published: the whole prompt costs more from 272,000 and from 200,000 tokens on.
        ("gpt-5.4", {"policy.trigger_tokens": 0}, 264_000),
        ("gpt-5.4", {}, 250_000),
        ("gemini-2.5-pro", {}, 192_000),
        ("gemini-2.5-pro", {"window.window_tokens": 100_000}, 90_000),
        ("gpt-4.1", {"policy.trigger_tokens": 0}, 900_000),
    ],
)
async def test_prompts_stay_below_a_step_of_the_published_price(
    model: str, settings: Json, trigger: int, tmp_path: Path
) -> None:
    async with proxied(ModelServer(), tmp_path, {"window.window_tokens": 1_000_000} | settings) as proxy:
        chat = proxy.chat(extra={"model": model})
        await chat.says("Hello.")
        assert abs((await chat.view())["budget"]["trigger_tokens"] - trigger) <= 40
