"""`worker`: a summarizer with a prompt of one's own, asked only about what is new."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.kit.agent import TOOLS
from tests.kit.judge import are_sound, rewritten
from tests.kit.model import SUMMARY_MODEL, ModelServer, Says, Seen, tokens_of
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
# Fewer waits for the disk: none of this is about power cuts.
WORKER: Json = {"policy.name": "worker", "database.synchronous": "normal"}
TEMPLATE = "KEEPER OF THE LOG.\nSO FAR <<{{PREVIOUS_SUMMARY}}>>\nNEW <<{{CONVERSATION}}>>\nWrite it up."
pytestmark = pytest.mark.timeout(60)


def told(seen: Seen) -> Says:
    """A short text that no two calls share, in no particular form and without an invented number."""
    page = "".join(chr(ord("a") + int(digit)) for digit in str(len(seen.raw)))
    return Says({"role": "assistant", "content": f"The log, page {page}: {prose(len(seen.raw), 40)}"})


@pytest.mark.spec("E02")
@pytest.mark.parametrize(("tokens", "calls"), [(6_399, 0), (6_400, 1)])
async def test_it_begins_at_eighty_per_cent(tokens: int, calls: int, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    async with proxied(model, tmp_path, WORKER) as proxy:
        chat = proxy.chat(system="You keep notes.")
        for turn in range(20):
            await chat.says(f"Note {turn}. {prose(turn, 190)}")
        base = tokens_of([*chat.said, {"role": "user", "content": ""}])
        await chat.says(" ".join(["word"] * (tokens - base)))
        assert chat.reply.headers["x-palimpsest-tokens"].startswith(f"{tokens}/")
        assert len(model.summaries) == calls == len(await chat.compactions())


@pytest.mark.spec("E03", "E04")
@pytest.mark.parametrize("by_share", [False, True])
async def test_the_recent_window_and_the_task_stay_word_for_word(by_share: bool, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    share: Json = {"policy.tail_messages": 0, "policy.advanced.tail_ratio": 0.25} if by_share else {}
    async with proxied(model, tmp_path, WORKER | share) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await chat.says("The task: keep the log of the harbour.")
        while not (made := await chat.compactions()):
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 130)}")
        system, task, block, *recent = model.prompts[-1].messages
        assert [system, task] == chat.said[:2]
        assert block["content"].count("The log, page") == 1
        sent = chat.sent[-1]
        assert recent == sent[len(sent) - len(recent) :]
        if by_share:
            # As many as a quarter of the window holds, and not one more.
            assert tokens_of(recent) - 3 <= 0.25 * WINDOW < tokens_of(sent[len(sent) - len(recent) - 2 :])
        else:
            assert len(recent) == 30
        assert made[0]["messages_folded"] == len(sent) - 2 - len(recent)


@pytest.mark.spec("E05", "F30")
# Every fold reads every message anew: a second a fold at the end on a busy machine.
@pytest.mark.timeout(180)
async def test_fifty_rounds_read_only_what_is_new(tmp_path: Path) -> None:
    model = ModelServer(window=4_000, summary=told)
    overrides = WORKER | {"policy.tail_messages": 2}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        while len(model.summaries) < 50:
            # A sentence with "never" is a rule, and fills the block of so small a window.
            said = prose(len(chat.sent), 600)
            await chat.says(f"Note {len(chat.sent)}. {said}")
            assert len(chat.sent) < 200
        asked = [seen.tokens for seen in model.summaries]
        assert len(asked) == rewritten(model.prompts)
        assert max(asked) < 2 * statistics.median(asked)
        # Every note is asked about, and none twice.
        texts = [seen.text for seen in model.summaries]
        folded = len(chat.sent) - 4
        assert all(sum(f"Note {number}. " in text for text in texts) == 1 for number in range(1, folded))
        are_sound(model.prompts, chat.sent, 4_000)


@pytest.mark.spec("E07")
async def test_a_prompt_of_ones_own_with_its_two_variables(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    overrides = WORKER | {
        "policy.tail_messages": 6,
        "policy.advanced.worker_template": TEMPLATE,
        "policy.summary_model": SUMMARY_MODEL,
    }
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.", extra={"tools": TOOLS})
        while not chat.replies or len(await chat.compactions()) < 2:
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 400)}")
        first, second = model.summaries
        (asked,) = first.messages
        assert asked["role"] == "user"
        assert asked["content"].startswith("KEEPER OF THE LOG.\nSO FAR <<(none)>>\nNEW <<")
        assert "Note 1." in asked["content"].partition("NEW <<")[2]
        so_far = second.messages[0]["content"].partition("NEW <<")[0]
        answer = (await chat.compactions())[0]["summary"]
        assert so_far.startswith("KEEPER OF THE LOG.\nSO FAR <<The log, page")
        page = so_far.partition("<<")[2].partition(":")[0]
        assert page in answer
        # Whoever writes is never offered to the model, and offered nothing itself.
        assert all(prompt.body["tools"][: len(TOOLS)] == TOOLS for prompt in model.prompts)
        assert not any("tools" in seen.body for seen in model.summaries)
        assert not any("KEEPER OF THE LOG" in prompt.text for prompt in model.prompts)


@pytest.mark.spec("E11")
async def test_what_a_record_says(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    async with proxied(model, tmp_path, WORKER | {"policy.tail_messages": 6}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        while not chat.replies or len(await chat.compactions()) < 2:
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 400)}")
        first, second = await chat.compactions()
        at = [index for index, prompt in enumerate(model.prompts) if "The log, page" in prompt.text]
        ids = [row["id"] for row in await chat.rows()]
        assert first["reason"] == f"{first['tokens_before']:,} tokens of {WINDOW:,} (0.80 asked)"
        # The block's framing is rounded up.
        assert 0 <= first["tokens_after"] - model.prompts[at[0]].tokens <= 8
        assert first["tokens_freed"] == first["tokens_before"] - first["tokens_after"]
        assert (first["trigger"], first["kind"]) == ("proactive", "message_removal")
        assert (first["author"], first["model"], first["policy"]) == ("model", "test-model", "worker")
        assert second["parents"] == [first["id"]]
        # From watermark to watermark, and how many messages lie before it.
        assert ids.index(second["watermark"]) > ids.index(first["watermark"])
        kept = len(first["kept"])
        assert ids.index(first["watermark"]) == first["messages_folded"] + kept
        assert first["summary"] in [message["content"] for message in model.prompts[at[0]].messages]
        assert first["created_at"] <= second["created_at"]
