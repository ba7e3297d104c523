"""Clients that send no answer back as it was relayed: smolagents tells calls as text, others what they read.

Their conversations are found by the place of our answer, never by a beginning that others share (S2, W42).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat, message_of
from tests.kit.judge import are_sound, rewritten
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 3_000
TURNS = 16


def reports(seen: Seen) -> Says:
    """A call for everything: the model is asked to answer by one."""
    arguments = json.dumps({"note": f"Noted, {len(seen.messages)}."})
    call = {
        "id": f"call_{len(seen.raw)}",
        "type": "function",
        "function": {"name": "report", "arguments": arguments},
    }
    return Says({"role": "assistant", "content": None, "tool_calls": [call]}, finish="tool_calls")


def as_smolagents(answer: Json) -> list[Json]:
    """As version 1.26 sends it: the call as an assistant's text, the result as a user's."""
    calls = [
        {
            "id": c["id"],
            "type": "function",
            "function": c["function"] | {"arguments": json.loads(c["function"]["arguments"])},
        }
        for c in answer["tool_calls"]
    ]
    told = f"Calling tools:\n{calls}"
    return [
        {"role": "assistant", "content": [{"type": "text", "text": told}]},
        {"role": "user", "content": [{"type": "text", "text": "Observation:\nIt is done."}]},
    ]


def as_read(answer: Json) -> list[Json]:
    """As programs built on instructor keep it: the arguments alone."""
    return [{"role": "assistant", "content": answer["tool_calls"][0]["function"]["arguments"]}]


class Retelling:
    """A conversation whose client keeps answers in its own words."""

    def __init__(self, proxy: Proxy, retold: Any = as_smolagents, *, key: str = "key-1") -> None:
        self.chat: Chat = proxy.chat(key=key)
        self.said: list[Json] = [{"role": "system", "content": "You keep the records of a harbour."}]
        self.retold = retold
        self.found: list[str] = []
        self.sessions: list[str] = []
        self.answer: Json = {}

    async def says(self, text: str) -> None:
        self.said.append({"role": "user", "content": text})
        reply = await self.chat.posts(list(self.said))
        assert reply.status_code == 200, reply.text
        self.found.append(reply.headers["x-palimpsest-mode"].rpartition("found=")[2])
        self.sessions.append(self.chat.session)
        self.answer = message_of(reply)
        self.said += self.retold(self.answer)


@pytest.mark.spec("S12", "W22", "P4", "P9", "P10")
@pytest.mark.parametrize("retold", [as_smolagents, as_read])
async def test_a_conversation_whose_answers_are_retold_is_one_session(tmp_path: Path, retold: Any) -> None:
    model = ModelServer(window=WINDOW, script=reports)
    async with proxied(model, tmp_path) as proxy:
        talk = Retelling(proxy, retold)
        for turn in range(TURNS):
            await talk.says(f"Turn {turn}. {prose(turn, 260)}")
        assert talk.found == ["new", *["anchor"] * (TURNS - 1)]
        assert len(set(talk.sessions)) == 1
        are_sound(model.prompts, talk.chat.sent, WINDOW)
        compactions = await talk.chat.compactions()
        assert 1 < len(compactions) < TURNS / 2
        assert rewritten(model.prompts) == len(compactions)
        assert await talk.chat.transcript() == [*talk.chat.sent[-1], talk.answer]


@pytest.mark.spec("S2", "W42")
async def test_retold_twins_stay_apart(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, script=reports)
    async with proxied(model, tmp_path) as proxy:
        left, right = Retelling(proxy, as_read), Retelling(proxy, as_read)
        for twin in (left, right):
            await twin.says("Same opening")
        for turn in range(TURNS):
            await left.says(f"Turn {turn} of alder. {prose(turn, 150)}")
            await right.says(f"Turn {turn} of birch. {prose(turn, 150)}")
        assert {*left.sessions}.isdisjoint(right.sessions)
        # What was said before anything told them apart is in a session of its own.
        assert len({*left.sessions[1:]}) == len({*right.sessions[1:]}) == 1
        assert [seen for seen in model.prompts if "alder" in seen.text and "birch" in seen.text] == []
        assert await left.chat.compactions()
        for twin in (left, right):
            assert await twin.chat.transcript() == [*twin.chat.sent[-1], twin.answer]


@pytest.mark.spec("S2", "P5")
async def test_a_retold_conversation_of_another_key_is_not_found(tmp_path: Path) -> None:
    async with proxied(ModelServer(script=reports), tmp_path) as proxy:
        mine, theirs = Retelling(proxy, as_read), Retelling(proxy, as_read, key="key-2")
        await mine.says("Same opening")
        theirs.said = list(mine.said)
        await theirs.says("And on.")
        assert theirs.found == ["new"]


@pytest.mark.spec("P6")
async def test_what_is_blocked_comes_back_in_no_session_that_began_alike(tmp_path: Path) -> None:
    async with proxied(ModelServer(script=reports), tmp_path) as proxy:
        erased = Retelling(proxy, as_read)
        await erased.says("Same opening")
        await erased.says("And on.")
        headers = {"authorization": "Bearer key-1"}
        await proxy.http.delete(f"/api/sessions/{erased.sessions[0]}?block=true", headers=headers)
        await Retelling(proxy, as_read).says("Same opening")
        reply = await erased.chat.posts([*erased.said, {"role": "user", "content": "Again."}])
        assert reply.status_code == 410
