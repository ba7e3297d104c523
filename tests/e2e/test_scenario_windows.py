"""Scenarios 8, 9 and 15: windows that shrink, counts that mislead, and a long history at first contact."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.summary.asking import APPENDED

from tests.kit.judge import are_sound, is_sound
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
pytestmark = pytest.mark.timeout(60)


def overflow(window: int, tokens: int) -> Says:
    """vLLM's words, for a prompt that this upstream does not take."""
    message = (
        f"This model's maximum context length is {window} tokens. However, you requested {tokens} tokens "
        "in the messages, Please reduce the length of the messages."
    )
    return Says(status=400, error={"object": "error", "message": message, "code": 400})


@pytest.mark.spec("S8", "A29", "E06", "P9")
async def test_the_window_halves_in_the_middle_of_a_session(tmp_path: Path) -> None:
    model = ModelServer(window=16_000)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system="You keep the log.", stream=True)
        for turn in range(12):
            await chat.says(f"Entry {turn}. {prose(turn, 700)}")
        model.window = 8_000
        for turn in range(12, 24):
            await chat.says(f"Entry {turn}. {prose(turn, 700)}")
        assert chat.reply.status_code == 200
        refused = [prompt for prompt in model.prompts[12:] if prompt.tokens > 8_000]
        # The error itself said what the window is: nothing beyond it was sent again.
        assert len(refused) == 1
        are_sound([prompt for prompt in model.prompts if prompt not in refused], chat.sent, 16_000)
        assert {compaction["trigger"] for compaction in await chat.compactions()} >= {"overflow"}
        assert await chat.transcript() == chat.said


@pytest.mark.spec("F08")
async def test_a_switch_to_a_model_with_a_smaller_window(tmp_path: Path) -> None:
    model = ModelServer(window=200_000)
    small = [{"match": "small-*", "window_tokens": 6_000}]
    async with proxied(model, tmp_path, {"models": small}) as proxy:
        chat = proxy.chat(system="You keep the log.")
        for turn in range(10):
            await chat.says(f"Entry {turn}. {prose(turn, 900)}")
        assert await chat.compactions() == []
        chat.extra["model"] = "small-model"
        await chat.says("And on a small model?")
        await chat.says("Still there?")
        for prompt, sent in zip(model.prompts[-2:], chat.sent[-2:], strict=True):
            is_sound(prompt, sent, 6_000)
        assert await chat.transcript() == chat.said


@pytest.mark.spec("A29")
@pytest.mark.parametrize("preset", ["auto", "handoff"])
async def test_a_refused_prompt_comes_down_to_a_target_of_its_own(preset: str, tmp_path: Path) -> None:
    model = ModelServer(window=100_000)
    async with proxied(model, tmp_path, {"policy.name": preset}) as proxy:
        chat = proxy.chat(system="You keep the log.")
        for turn in range(60):
            chat.said.append({"role": "user", "content": f"Entry {turn}. {prose(turn, 200)}"})
            chat.said.append({"role": "assistant", "content": f"Noted {turn}."})
        model.answers.append(overflow(16_000, 17_000))
        await chat.says("Refused once.")
        (made,) = await chat.compactions()
        assert made["trigger"] == "overflow"
        available = (await chat.view())["budget"]["available_tokens"]
        assert 0.28 * available < made["tokens_after"] <= 0.35 * available


@pytest.mark.spec("A29", "E06", "F31")
async def test_overflow_is_tried_again_a_bounded_number_of_times(tmp_path: Path) -> None:
    model = ModelServer(window=100_000)
    async with proxied(model, tmp_path, {"compaction.overflow_retries": 2}) as proxy:
        chat = proxy.chat(system="You keep the log.")
        for turn in range(8):
            await chat.says(f"Entry {turn}. {prose(turn, 500)}")
        model.answers.append(overflow(4_096, 5_000))
        await chat.says("Refused once.")
        assert len(model.prompts) == 8 + 2
        assert model.prompts[-1].tokens < 4_096
        # An upstream that refuses everything: its own words reach the client after the last try.
        model.answers.extend(overflow(4_096, 5_000) for _ in range(9))
        reply = await chat.posts([*chat.said, {"role": "user", "content": "Refused for ever."}])
        assert reply.status_code == 400
        assert "maximum context length is 4096" in reply.text
        assert len(model.prompts) == 8 + 2 + 3
        model.answers.clear()
        await chat.says("And it goes on.")
        compactions = len(await chat.compactions())
        sent = len(model.prompts)
        model.answers.append(Says(status=429, error={"error": {"message": "Rate limit: tokens per minute"}}))
        reply = await chat.posts([*chat.said, {"role": "user", "content": "Too fast."}])
        assert (reply.status_code, len(model.prompts)) == (429, sent + 1)
        assert len(await chat.compactions()) == compactions


def _pictures(turn: int) -> Json:
    """A picture whose base64 would be 60,000 tokens as text."""
    noise = base64.b64encode(bytes((turn + at * at) % 256 for at in range(60_000))).decode()
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{noise}", "detail": "low"}}
    return {"role": "user", "content": [{"type": "text", "text": f"{turn}: {prose(turn, 420)}"}, picture]}


def _chinese(turn: int) -> Json:
    return {
        "role": "user",
        "content": f"第{turn}条：" + "港口的灯笼在河上慢慢移动，船长记录每一件事情。" * 32,
    }


def _english(turn: int) -> Json:
    return {"role": "user", "content": f"{turn}: {prose(turn, 450)}"}


SCHEMAS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{at}",
            "description": prose(at, 90),
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
    for at in range(25)
]


@dataclass(frozen=True)
class Trap:
    """What a model does to counts, and a conversation that walks into it. Each is a model of its own."""

    message: Callable[[int], Json]
    extra: Json = field(default_factory=dict)
    counted: float = 1.0
    counts_output: bool = False
    says_its_window: bool = True


TRAPS = {
    "chinese": Trap(_chinese),
    "pictures": Trap(_pictures),
    "schemas": Trap(_english, {"tools": SCHEMAS}),
    "output-counted": Trap(_english, {"max_tokens": 2_000}, counts_output=True),
    "another-tokenizer": Trap(_english, counted=1.3),
    "another-tokenizer-silent": Trap(_english, counted=1.3, says_its_window=False),
}


@pytest.mark.spec("S9", "F13", "F14", "A22")
async def test_no_overflow_that_compaction_cures_reaches_the_client(tmp_path: Path) -> None:
    names = tuple(name for name, trap in TRAPS.items() if trap.says_its_window)
    model = ModelServer(window=9_000, names=names)
    async with proxied(model, tmp_path) as proxy:
        for name, trap in TRAPS.items():
            model.counted, model.counts_output = trap.counted, trap.counts_output
            chat = proxy.chat(system="You keep the log.", extra={"model": name, **trap.extra})
            before = len(model.prompts)
            for turn in range(18):
                # A refusal that reached the client would end the conversation here.
                await chat.sends(trap.message(turn))
            # Who knows the window and has learned how the model counts is not refused in the first place.
            assert len(model.prompts) == before + 18 or not trap.says_its_window, name
            assert await chat.compactions(), name
            assert await chat.transcript() == chat.said
        assert all(prompt.faults == () for prompt in model.prompts)
        own = [seen for seen in model.summaries if not seen.messages[-1]["content"].startswith(APPENDED)]
        assert not any(";base64," in seen.text for seen in own)


MANY = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{at}",
            "description": prose(at, 60),
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
    for at in range(36)
]


@pytest.mark.spec("F13")
@pytest.mark.parametrize("rendered", [1.15, 1.4])
async def test_tools_that_a_server_renders_as_json_cause_no_overflow(rendered: float, tmp_path: Path) -> None:
    """36 tools in 26 turns of a small window: they weigh more than we count, the text does not."""
    model = ModelServer(window=8_000, tools_counted=rendered)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(extra={"tools": MANY})
        for turn in range(26):
            await chat.says(f"Entry {turn}. {prose(turn, 110)}")
        assert len(model.prompts) == 26
        assert max(prompt.tokens for prompt in model.prompts) > 0.8 * 8_000
        assert await chat.compactions()


@pytest.mark.spec("S15", "A28", "F32", "P9")
@pytest.mark.parametrize(("window", "hangs"), [(200_000, True), (50_000, False)])
async def test_first_contact_with_a_long_history(window: int, hangs: bool, tmp_path: Path) -> None:
    let_go = asyncio.Event()

    async def summary(seen: Seen) -> Says:
        if hangs:
            await let_go.wait()
        return Says({"role": "assistant", "content": plain_summary(seen)})

    model = ModelServer(window=window, summary=summary)
    overrides = {"compaction.deadline_seconds": 0.2} if hangs else {}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep the log.")
        # The client has talked to the model directly so far; then its base_url was switched.
        for turn in range(60):
            chat.said.append({"role": "user", "content": f"Entry {turn}. {prose(turn, window * 14 // 1000)}"})
            chat.said.append({"role": "assistant", "content": f"Noted {turn}."})
        await chat.says("What came before this?")
        full = int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0])
        assert full >= 0.9 * window
        await chat.says("And now?")
        let_go.set()
        are_sound(model.prompts, chat.sent, window)
        (compaction,) = await chat.compactions()
        assert compaction["author"] == ("deterministic" if hangs else "model")
        assert compaction["tokens_after"] < 0.6 * window
        assert await chat.transcript() == chat.said
