"""`working_state`: what code noted stands for history; a model is asked only for what it left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.core.summary.working.session import session
from tests.kit.agent import TOOLS, Call, works
from tests.kit.chat import Chat
from tests.kit.judge import are_sound, rewritten
from tests.kit.model import ModelServer, Says, Seen, tokens_of
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
STATE: Json = {"policy.name": "working_state"}
pytestmark = pytest.mark.timeout(60)


async def grown(chat: Chat, tokens: int, words: int = 700) -> None:
    """The conversation stands at or above so many tokens."""
    while not chat.replies or int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0]) < tokens:
        await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), words)}")


@pytest.mark.spec("D01", "D02", "D12", "D15")
async def test_work_with_tools_is_noted_without_a_model(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    steps: list[list[Call]] = [
        [(f"call_{step}", "read_file", {"path": f"src/part{step}.py"})] for step in range(75)
    ]

    def found(_: str, function: Json) -> str:
        path = json.loads(function["arguments"])["path"]
        return f"# {path}\n{prose(sum(path.encode()), 260)}"

    async with proxied(model, tmp_path, STATE) as proxy:
        chat = proxy.chat(system="You are a careful engineer.", extra={"tools": TOOLS})
        for goal in range(3):
            await works(chat, model, f"Goal {goal}: read every module.", steps[goal::3], found)
        made = await chat.compactions()
        assert len(made) == rewritten(model.prompts) > 2
        assert model.summaries == []
        assert {one["author"] for one in made} == {"deterministic"}
        # Cumulative: what the first compaction noted the last one still knows.
        assert "Goal 0: read every module." in made[-1]["summary"]
        assert "src/part3.py" in made[0]["summary"]
        assert "src/part3.py" in made[-1]["summary"]
        are_sound(model.prompts, chat.sent, WINDOW)
        assert await chat.transcript() == chat.said


@pytest.mark.spec("D09")
async def test_the_environment_is_filled_from_what_people_say(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, STATE | {"policy.advanced.llm_extraction": False}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await chat.says("Write the ledger. We are on Python 3.11.9, and the repository lives in /srv/ledger.")
        await chat.says("It runs on Kubernetes. We are not on Python 2.7 any more.")
        await chat.says("Go on: stay on the branch release/2.4 please.")
        while not (made := await chat.compactions()):
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 400)}")
        # Versions, and tools that the user names.
        environment = made[-1]["summary"].split("## Environment\n")[1].split("\n## ")[0]
        assert environment.split("\n") == ["- Python 3.11.9", "- Kubernetes"]
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("D02", "D11")
async def test_without_extraction_by_a_model_none_is_ever_asked(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, STATE | {"policy.advanced.llm_extraction": False}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        for turn in range(30):
            await chat.says(f"Note {turn}. {prose(turn, 400)}")
        assert len(await chat.compactions()) > 1
        assert model.summaries == []
        are_sound(model.prompts, chat.sent, WINDOW)


GAP = "- The harbour closes at nine, because the ferry leaves at ten."


def _answer(text: str) -> Callable[[Seen], Says]:
    return lambda _: Says({"role": "assistant", "content": text})


def _broken(_: Seen) -> Says:
    return Says(status=500, error={"error": {"message": "zanzibar broke", "type": "server_error"}})


@pytest.mark.spec("D11", "D12", "A45")
@pytest.mark.parametrize(
    ("summary", "author", "is_filled"),
    [
        (_answer(GAP), "model", True),
        (_answer("COMPLETE"), "model", False),
        (_broken, "deterministic", False),
        (_answer("I'm sorry, zanzibar, I cannot help with that."), "deterministic", False),
    ],
)
async def test_what_few_slots_leave_out_a_model_is_asked_for(
    summary: Callable[[Seen], Says], author: str, is_filled: bool, tmp_path: Path
) -> None:
    model = ModelServer(window=WINDOW, summary=summary)
    async with proxied(model, tmp_path, STATE) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 5_600)
        (compaction,) = await chat.compactions()
        assert compaction["author"] == author
        # One question, put once, and small (D11).
        (asked,) = model.summaries
        assert asked.body["max_tokens"] <= 2_048
        assert asked.body["temperature"] == 0
        assert len(asked.messages[-1]["content"]) <= 12_000
        assert "tools" not in asked.body
        view = model.prompts[-1].text
        assert "Note 0." in view
        assert ("closes at nine" in view) == is_filled
        assert "COMPLETE" not in view
        assert "zanzibar" not in view
        # It stays for the next round, whatever that one is told.
        model.summary = _broken
        while len(made := await chat.compactions()) < 2:
            await chat.says(f"Later {len(chat.sent)}. {prose(len(chat.sent), 500)}")
        assert ("closes at nine" in made[-1]["summary"]) == is_filled
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("D11", "D12")
async def test_fifteen_slots_are_enough_and_fourteen_are_not(tmp_path: Path) -> None:
    model = ModelServer(summary=_answer(GAP))
    async with proxied(model, tmp_path, STATE) as proxy:
        for slots, questions in ((14, 1), (15, 0)):
            model.seen.clear()
            chat = proxy.chat(session=f"{slots} slots")
            # Each request fills a slot; the two newest and what was answered are not folded.
            for number in range(slots + 1):
                boards = " ".join(f"board{number}x{at}" for at in range(200))
                request = f"Please paint pier {number} of the harbour green, all of it: {boards}."
                chat.said += [{"role": "user", "content": request}, {"role": "assistant", "content": "Ok."}]
            await chat.says("Go on.")
            path = f"/api/sessions/{chat.session}/compact"
            made = (await proxy.http.post(path, headers=chat.headers)).json()["compaction"]
            assert made["messages_folded"] == 2 * slots
            assert len(model.summaries) == questions
            assert made["author"] == ("model" if questions else "deterministic")
            # Small however large the window is (D11).
            for asked in model.summaries:
                assert asked.body["max_tokens"] == 2_048
                assert 10_000 < len(asked.messages[-1]["content"]) <= 12_000


@pytest.mark.spec("D13")
async def test_at_seven_tenths_and_six_messages(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, STATE | {"policy.advanced.llm_extraction": False}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        for turn in range(3):
            await chat.says(f"Note {turn}. {prose(turn, 1_700)}")
        # Five messages, above the mark.
        assert 5_600 <= model.prompts[-1].tokens < 7_000
        assert await chat.compactions() == []
        await chat.says("And on.")
        assert len(await chat.compactions()) == 1
        small = proxy.chat(system="You keep notes.", session="small")
        await grown(small, 4_500, words=300)
        while (tokens := tokens_of(small.said)) < 5_400:
            await small.says(f"Step {tokens}. {prose(tokens, 60)}")
        # Many messages, just below it.
        assert await small.compactions() == []


@pytest.mark.spec("D14")
async def test_around_the_mark_it_compacts_once(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, STATE | {"policy.advanced.llm_extraction": False}) as proxy:
        chat = proxy.chat(system="You keep notes.", session="notes")
        await grown(chat, 5_000, words=300)
        base = tokens_of(chat.said)
        small, large = (f"Now. {'word ' * (most - base)}" for most in (5_480, 5_640))
        for _ in range(5):
            for text in (small, large):
                reply = await chat.posts([*chat.said, {"role": "user", "content": text}])
                assert reply.status_code == 200
        counts = {reply.headers["x-palimpsest-tokens"].split("/")[0] for reply in chat.replies[-10:]}
        assert {int(count) >= 5_600 for count in counts} == {True, False}
        assert len(await chat.compactions()) == 1


@pytest.mark.spec("F06", "D14")
@pytest.mark.parametrize("preset", ["working_state", "batch", "worker"])
async def test_landing_above_the_lower_mark_it_fires_again(preset: str, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    overrides = {"policy.name": preset, "policy.tail_messages": 12}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        for turn in range(26):
            await chat.says(f"Note {turn}. {prose(turn, 440)}")
        made = await chat.compactions()
        assert len(made) > 2
        # Nearly all of them landed above 0.4 of the window, and none was the last.
        assert sum(one["tokens_after"] > 0.4 * WINDOW for one in made) >= len(made) - 1
        are_sound(model.prompts, chat.sent, WINDOW)


async def chooses(proxy: Proxy, chat: Chat, preset: str) -> None:
    """The session has this preset from now on."""
    path = f"/api/sessions/{chat.session}/settings"
    reply = await proxy.http.patch(path, json={"policy": {"name": preset}}, headers=chat.headers)
    assert reply.status_code == 200, reply.text


async def until_compacted(chat: Chat) -> Json:
    """The next compaction."""
    known = len(await chat.compactions())
    while len(made := await chat.compactions()) == known:
        await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 500)}")
        assert len(chat.sent) < 80
    return made[-1]


@pytest.mark.spec("D17", "D01", "P10")
async def test_presets_are_switched_while_the_session_goes_on(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=_answer(f"## Current State\n{GAP}\n- It was told by a model."))
    overrides = STATE | {"policy.advanced.llm_extraction": False}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        model.says("I found that the lantern needs oil. I'll use the copper one.")
        await chat.says("The task: light the harbour.")
        first = await until_compacted(chat)
        assert (first["policy"], first["author"], model.summaries) == ("working_state", "deterministic", [])
        await chooses(proxy, chat, "batch")
        # It takes effect with the next compaction; until then the view goes on as it was.
        await chat.says("Small talk.")
        assert model.prompts[-1].extends(model.prompts[-2])
        second = await until_compacted(chat)
        assert (second["policy"], second["author"]) == ("batch", "model")
        asked = len(model.summaries)
        assert asked
        assert "It was told by a model." in second["summary"]
        await chooses(proxy, chat, "working_state")
        third = await until_compacted(chat)
        assert (third["policy"], len(model.summaries)) == ("working_state", asked)
        # Made anew from the transcript: it knows the beginning, and nothing of the batch summary's text.
        assert "The task: light the harbour." in third["summary"]
        assert "copper one" in third["summary"]
        assert "told by a model" not in third["summary"]
        assert rewritten(model.prompts) == len(await chat.compactions())
        are_sound(model.prompts, chat.sent, WINDOW)
        assert await chat.transcript() == chat.said


@pytest.mark.spec("D22", "D25")
async def test_thirty_four_messages_become_five_without_a_model(tmp_path: Path) -> None:
    model = ModelServer()
    async with proxied(model, tmp_path, STATE) as proxy:
        chat = proxy.chat(system="You are a careful engineer.")
        messages = [json.loads(message.raw) for message in session()]
        chat.said += [
            message for message in messages[:-1] if message.get("content") != "Good. Keep the default at 3."
        ]
        await chat.sends(messages[-1])
        assert len(chat.said) - 1 == 34
        path = f"/api/sessions/{chat.session}/compact"
        reply = (await proxy.http.post(path, headers=chat.headers)).json()
        assert reply["compacted"]
        parts = [part for part in (await chat.view())["parts"] if part["kind"] != "preamble"]
        assert len(parts) == 5
        assert [part["message"] for part in parts[1:]] == chat.said[-4:]
        assert model.summaries == []
        assert reply["compaction"]["author"] == "deterministic"
        assert reply["compaction"]["tokens_after"] < 0.6 * reply["compaction"]["tokens_before"]
        again = (await proxy.http.post(path, headers=chat.headers)).json()
        assert not again["compacted"]


@pytest.mark.spec("D21")
@pytest.mark.parametrize("preset", ["working_state", "batch"])
async def test_for_fewer_than_two_older_messages_nothing_is_done(preset: str, tmp_path: Path) -> None:
    model = ModelServer()
    async with proxied(model, tmp_path, {"policy.name": preset}) as proxy:
        chat = proxy.chat()
        for turn in range(2):
            await chat.says(f"Note {turn}. {prose(turn, 200)}")
        path = f"/api/sessions/{chat.session}/compact"
        reply = (await proxy.http.post(path, headers=chat.headers)).json()
        assert (reply["compacted"], reply["reason"]) == (False, "nothing_to_fold")
        assert model.summaries == []
        await chat.says("One more.")
        reply = (await proxy.http.post(path, headers=chat.headers)).json()
        assert reply["compacted"]


@pytest.mark.spec("D19", "A46")
@pytest.mark.parametrize("preset", ["working_state", "batch"])
@pytest.mark.parametrize("strict", [True, False])
async def test_the_summary_is_acknowledged_where_roles_must_alternate(
    preset: str, strict: bool, tmp_path: Path
) -> None:
    model = ModelServer(window=WINDOW)
    overrides = {"policy.name": preset, "policy.strict_alternation": strict}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 5_600)
        await chat.says("And on.")
        system, block, second, *recent = model.prompts[-1].messages
        assert (system["role"], block["role"]) == ("system", "user")
        (compaction,) = await chat.compactions()
        assert block["content"] == compaction["summary"]
        if strict:
            assert second == {"role": "assistant", "content": second["content"]}
            assert second not in chat.said
            assert len(second["content"]) < 100
        else:
            recent = [second, *recent]
        assert recent == chat.sent[-1][-len(recent) :]
        roles = [message["role"] for message in model.prompts[-1].messages[1:]]
        assert all(one != two for one, two in pairwise(roles)) == strict
        are_sound(model.prompts, chat.sent, WINDOW)
        assert await chat.transcript() == chat.said
