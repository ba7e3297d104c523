"""A summary made in the background is asked for when the turn has its answer, never beside the turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import proxied
from tests.kit.summaries import Writer, quiet
from tests.kit.words import prose

TURNS = 24
# Passes of the event loop that an answer takes: time enough for any other request to arrive.
PASSES = 500


class Watch:
    """Answers turns slowly and notes of each summary whether the turn it is about was waiting then."""

    def __init__(self) -> None:
        self.model = ModelServer(window=16_000, summary=self.summary)
        self.is_answering = False
        self.besides: list[bool] = []
        self.about = 0

    async def answer(self) -> None:
        self.is_answering = True
        for _ in range(PASSES):
            await asyncio.sleep(0)
        self.is_answering = False

    def summary(self, seen: Seen) -> Says:
        # It rides on that turn's own prompt; where the answer made it due, the answer stands between.
        asked = (seen.messages[:-1], seen.messages[:-2])
        # A later turn may have arrived meanwhile: then the turn it is about has its answer.
        self.about += any(prompt.messages in asked for prompt in self.model.prompts)
        self.besides.append(self.is_answering and self.model.prompts[-1].messages in asked)
        return Says({"role": "assistant", "content": plain_summary(seen)})


@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_that_takes_one_request_at_a_time_answers_the_turn_first(
    stream: bool, tmp_path: Path
) -> None:
    watch = Watch()
    async with proxied(watch.model, tmp_path) as proxy:
        chat = proxy.chat(stream=stream)
        for turn in range(TURNS):
            watch.model.answers.append(Says({"role": "assistant", "content": "Noted."}, after=watch.answer))
            await chat.says(f"Entry {turn}. {prose(turn, 700)}")
        assert watch.about
        assert not any(watch.besides)


@pytest.mark.spec("B17", "F04")
async def test_a_summary_that_came_too_late_is_used_and_code_tells_what_came_since(tmp_path: Path) -> None:
    """The window has room for many more turns: a summary asked for now would come too late, too."""
    writer = Writer(held=True)
    model = ModelServer(window=100_000, summary=writer)
    settings = {"policy.trigger_tokens": 3_000, "policy.advanced.precompute_ratio": 0.5}
    async with proxied(model, tmp_path, settings) as proxy:
        chat = proxy.chat()
        while writer.asked.empty():
            await chat.says(f"Entry {len(chat.sent)}. {prose(len(chat.sent), 300)}")
        await chat.says("Never touch /srv/pier/9.toml.")
        for _ in range(8):
            await chat.says(f"Entry {len(chat.sent)}. {prose(len(chat.sent), 300)}")
        assert model.prompts[-1].tokens > 3_500
        writer.let_go.set()
        await quiet(proxy, chat)
        assert await chat.compactions() == []
        await chat.says("Go on.")
        assert model.prompts[-1].tokens < 3_000
        (row,) = await chat.compactions()
        assert row["author"] == "model"
        rules, _, record = row["summary"].partition("## Record\n")
        assert '- "Never touch /srv/pier/9.toml."' in rules
        assert "/srv/pier/9.toml" not in record.partition("\n## ")[0]
        assert len(model.summaries) == 1
