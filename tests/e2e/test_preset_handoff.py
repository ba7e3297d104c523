"""`handoff` and chat mode: when a summary is asked for, how often, and who is asked."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.judge import are_sound, rewritten
from tests.kit.model import SUMMARY_MODEL, ModelServer, tokens_of
from tests.kit.proxy import proxied
from tests.kit.snippets import snippet
from tests.kit.summaries import quiet
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
pytestmark = pytest.mark.timeout(60)


def padded(said: list[Json], tokens: int) -> str:
    """A user message with which the whole prompt takes exactly so many tokens."""
    low = tokens - tokens_of([*said, {"role": "user", "content": ""}])
    text = " ".join(["word"] * low)
    while (over := tokens_of([*said, {"role": "user", "content": text}]) - tokens) != 0:
        text = text[: -5 * over] if over > 0 else text + " word" * -over
    return text


async def grown(chat: Chat) -> None:
    """Ten turns of about 500 tokens."""
    for turn in range(10):
        await chat.says(f"Note {turn}. {prose(turn, 380)}")


@pytest.mark.spec("A02", "F03")
@pytest.mark.parametrize(("tokens", "calls"), [(7_192, 0), (7_199, 0), (7_200, 1), (7_300, 1)])
async def test_at_ninety_per_cent_one_summary_is_asked_for_in_the_turn(
    tokens: int, calls: int, tmp_path: Path
) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, {"policy.name": "handoff"}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat)
        text = padded(chat.said, tokens)
        await chat.says(text)
        assert chat.reply.headers["x-palimpsest-tokens"].startswith(f"{tokens}/")
        assert len(model.summaries) == calls
        # In the turn: the summary was there before the prompt went out, and stands in it.
        assert model.seen[-1] is model.prompts[-1]
        assert [one["trigger"] for one in await chat.compactions()] == ["proactive"] * calls
        shown = "<cowork_compaction_summary>" in model.prompts[-1].text
        assert shown == bool(calls)
        # The next small turn reaches the mark, or was relieved of it (F03).
        await chat.says("And on.")
        assert len(model.summaries) == 1
        are_sound(model.prompts, chat.sent, WINDOW)


# What a client asks as the answer, and where compaction begins then: window less answer, never below half.
OUTPUTS: list[tuple[Json, int]] = [
    ({"max_tokens": 0}, 7_200),
    ({"max_tokens": 801}, 7_199),
    # At most a quarter of what the instructions leave.
    ({"max_completion_tokens": 2_500}, 6_003),
    ({"max_tokens": 32_000}, 6_003),
]


@pytest.mark.spec("A05")
async def test_what_a_client_asks_as_the_answer_is_kept_free(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, {"policy.name": "handoff"}) as proxy:
        for number, (asked, trigger) in enumerate(OUTPUTS):
            for tokens, view in ((trigger - 1, "original"), (trigger, "compacted")):
                chat = proxy.chat(key=f"{number} {tokens}", system="You keep notes.", extra=asked)
                for turn in range(6):
                    chat.said.append({"role": "user", "content": f"Note {turn}. {prose(turn, 150)}"})
                    chat.said.append({"role": "assistant", "content": f"So: {prose(90 + turn, 150)}"})
                await chat.says(padded(chat.said, tokens))
                assert chat.reply.headers["x-palimpsest-tokens"].startswith(f"{tokens}/")
                assert chat.reply.headers["x-palimpsest-view"] == view, (asked, tokens)


@pytest.mark.spec("A12", "A13")
async def test_how_long_a_summary_may_be_follows_from_the_window(tmp_path: Path) -> None:
    """8 % of what is available, at least 500 tokens and at most 4,096."""
    lengths = {"4k": (4_000, 500), "16k": (16_000, 0), "200k": (200_000, 4_096)}
    models = [{"match": name, "window_tokens": window} for name, (window, _) in lengths.items()]
    model = ModelServer(models=False, window=400_000)
    async with proxied(model, tmp_path, {"policy.name": "handoff", "models": models}) as proxy:
        for name, (window, length) in lengths.items():
            model.seen.clear()
            chat = proxy.chat(key=name, system="You keep notes.", extra={"model": name})
            for turn in range(7):
                chat.said.append({"role": "user", "content": f"Note {turn}. {prose(turn, 190)}"})
                chat.said.append({"role": "assistant", "content": f"Noted {turn}."})
            await chat.says("Go on.")
            path = f"/api/sessions/{chat.session}/compact"
            assert (await proxy.http.post(path, headers=chat.headers)).json()["compacted"]
            fixed = (await chat.view())["budget"]["fixed_tokens"]
            asked = length or int(0.08 * (window - 8_000 - fixed))
            assert 500 <= asked <= 4_096
            (question,) = model.summaries
            # Twice that, where the window has room beside the question.
            most = question.body["max_tokens"]
            assert most == 2 * asked if window > 4_000 else asked <= most <= window - question.tokens


@pytest.mark.spec("A05", "A06")
@pytest.mark.parametrize("window", [4_000, 8_000, 24_000])
async def test_what_is_kept_is_half_of_what_is_available(window: int, tmp_path: Path) -> None:
    """Available: the window less the reserve (8,000, of a small one half) and less what is fixed."""
    model = ModelServer(window=window)
    async with proxied(model, tmp_path, {"policy.name": "handoff"}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        words = window // 100
        while not chat.replies or not await chat.compactions():
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), words)}")
        view = await chat.view()
        budget = view["budget"]
        available = window - min(8_000, window // 2) - budget["fixed_tokens"]
        assert budget["available_tokens"] == available
        # Never less than two of the smallest summaries: with 4,000 tokens that is a little more.
        assert budget["target_tokens"] == budget["fixed_tokens"] + max(available // 2, 1_000)
        # The summary takes its room from it, whether it needs all of it or not.
        (made,) = await chat.compactions()
        assert 0.7 * budget["target_tokens"] < made["tokens_after"] <= budget["target_tokens"]
        kinds = ("preamble", "summary")
        kept = sum(part["tokens"] for part in view["parts"] if part["kind"] not in kinds)
        assert 0 < kept < available // 2


@pytest.mark.spec("A06")
async def test_our_own_preset_keeps_more_of_a_small_window(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, {"compaction.background": False}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await chat.says("We begin.")
        budget = (await chat.view())["budget"]
        free = WINDOW - budget["fixed_tokens"]
        # Half of what is available would be 2,000: 0.45 of the window less what is fixed is the least.
        assert budget["target_tokens"] == budget["fixed_tokens"] + int(0.45 * free)
        while not (made := await chat.compactions()):
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 300)}")
        assert budget["available_tokens"] // 2 < made[0]["tokens_after"] <= budget["target_tokens"]


PRESETS = ("auto", "handoff", "rolling", "batch", "worker")


@pytest.mark.spec("D18")
@pytest.mark.parametrize(
    ("own", "deployment", "asked"),
    [(SUMMARY_MODEL, "another", SUMMARY_MODEL), (None, SUMMARY_MODEL, SUMMARY_MODEL), (None, None, None)],
)
async def test_who_writes_summaries(
    own: str | None, deployment: str | None, asked: str | None, tmp_path: Path
) -> None:
    model = ModelServer(window=4_000, names=PRESETS)
    policy = {"advanced": {"trigger_reserve_tokens": 0}, **({"summary_model": own} if own else {})}
    overrides: Json = {"models": [{"match": name, "policy": {"name": name, **policy}} for name in PRESETS]}
    async with proxied(model, tmp_path, overrides | {"summarizer.model": deployment}) as proxy:
        for preset in PRESETS:
            chat = proxy.chat(system="You keep notes.", extra={"model": preset})
            while not chat.replies or not (made := await chat.compactions()):
                await chat.says(f"Of {preset}, note {len(chat.sent)}. {prose(len(chat.sent), 300)}")
                assert len(chat.sent) < 30
            # The next summary of an earlier conversation may be on its way.
            questions = [seen for seen in model.summaries if f"Of {preset}, note" in seen.text]
            assert {seen.body["model"] for seen in questions} == {asked or preset}
            assert (made[0]["author"], made[0]["model"]) == ("model", asked or preset)


@pytest.mark.spec("A14")
@pytest.mark.parametrize("preset", ["auto", "handoff"])
async def test_a_chat_is_folded_now_and_then_and_nothing_falls_between(preset: str, tmp_path: Path) -> None:
    model = ModelServer(window=200_000)
    # One that is written anew, and given up because a turn needs it, is a question more.
    overrides = snippet("chat") | {"policy.name": preset}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You are good company.")
        calls = []
        for turn in range(40):
            await chat.says(f"Thought {turn}. {prose(turn, 60)}")
            # On a busy machine a summary takes longer than turns: the tail is longer until it is there.
            await quiet(proxy, chat)
            calls.append(len(model.summaries))
            await _holds_everything(chat)
        # A summary serves several turns; it is refreshed by what has left the window since.
        asked = [turn for turn, (one, two) in enumerate(pairwise(calls)) if two > one]
        assert all(two - one <= 1 for one, two in pairwise(calls))
        assert 5 < len(asked) < 9
        assert all(later - earlier >= 3 for earlier, later in pairwise(asked))
        assert all(seen.body["max_tokens"] <= 2 * 1_536 for seen in model.summaries)
        assert rewritten(model.prompts) == len(await chat.compactions())
        assert all(len(prompt.messages) <= 1 + 2 + 26 for prompt in model.prompts)
        assert await chat.transcript() == chat.said


@pytest.mark.spec("A14")
@pytest.mark.parametrize(("tokens", "view"), [(11_999, "original"), (12_000, "compacted")])
async def test_a_chat_of_long_messages_is_folded_at_twelve_thousand_tokens(
    tokens: int, view: str, tmp_path: Path
) -> None:
    model = ModelServer(window=200_000)
    async with proxied(model, tmp_path, snippet("chat") | {"policy.name": "handoff"}) as proxy:
        chat = proxy.chat(system="You are good company.")
        for turn in range(4):
            chat.said.append({"role": "user", "content": f"Thought {turn}. {prose(turn, 900)}"})
            chat.said.append({"role": "assistant", "content": f"And {turn}: {prose(50 + turn, 900)}"})
        await chat.says(padded(chat.said, tokens))
        assert chat.reply.headers["x-palimpsest-tokens"].startswith(f"{tokens}/")
        assert chat.reply.headers["x-palimpsest-view"] == view
        assert len(model.summaries) == (view == "compacted")


async def _holds_everything(chat: Chat) -> None:
    """Every message is in the view or before the watermark of the summary that is."""
    parts = (await chat.view())["parts"]
    rows = [row["id"] for row in await chat.rows() if row["role"] != "system"]
    shown = [part["id"] for part in parts if part["kind"] == "tail"]
    assert rows[len(rows) - len(shown) :] == shown
    compactions = await chat.compactions()
    if len(shown) < len(rows):
        (block,) = [part for part in parts if part["kind"] == "summary"]
        (made,) = [one for one in compactions if one["id"] == block["compaction"]]
        assert made["watermark"] == rows[len(rows) - len(shown) - 1]
