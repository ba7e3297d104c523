"""Scenarios 2, 6 and 11: twins, edits and returns after a compaction, clients that send only what is new."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat, message_of
from tests.kit.judge import are_sound, is_sound
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
pytestmark = pytest.mark.timeout(60)
WINDOW = 6_000


@pytest.mark.spec("S2", "P5", "F37")
@pytest.mark.parametrize(("keys", "same_greeting"), [(("key-1", "key-1"), True), (("key-1", "key-2"), False)])
async def test_twins_share_nothing(keys: tuple[str, str], same_greeting: bool, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path) as proxy:
        twins = {
            name: proxy.chat(system="You are helpful.", key=key)
            for name, key in zip(("alpha", "omega"), keys, strict=True)
        }
        for name, chat in twins.items():
            model.says("Hello, how can I help?" if same_greeting else f"Hello from {len(name)}{name[0]}.")
            await chat.says("Hello!")
        for turn in range(14):
            for name, chat in twins.items():
                model.says(f"Kept: {name}-answer-{turn}.")
                await chat.says(f"My secret is {name}-secret-{turn}. {prose(turn, 400)}")
        for name, chat in twins.items():
            other = "omega" if name == "alpha" else "alpha"
            assert other not in (await _archived(chat, name))
            assert await chat.compactions()
        for seen in model.seen:
            assert not ("alpha-" in seen.text and "omega-" in seen.text)
        alpha = [seen for seen in model.prompts if "alpha-" in seen.messages[-1]["content"]]
        are_sound(alpha, twins["alpha"].sent[1:], WINDOW)
        summaries = {name: sum(f"{name}-" in seen.text for seen in model.summaries) for name in twins}
        assert summaries["alpha"] == summaries["omega"]


async def _archived(chat: Chat, name: str) -> str:
    """The texts of the branch that holds the twin's own secrets."""
    session = (await chat.session_fields())["branches"]
    texts = [str(await chat.transcript(branch["branch"])) for branch in session]
    return "\n".join(text for text in texts if f"{name}-secret" in text)


@pytest.mark.spec("S6", "F27", "F36")
async def test_edit_rewind_return_and_retry_after_a_compaction(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, {"compaction.background": False}) as proxy:
        chat = proxy.chat(system="You keep the log.", stream=True)
        for turn in range(12):
            await chat.says(f"Entry {turn}: the {_word(turn)} arrived. {prose(turn, 400)}")
        assert len(await chat.compactions()) == 1
        asked = len(model.summaries)
        whole = list(chat.said)
        # Message 5 is edited: what it said, and what followed, is nowhere to be seen.
        edited = [*whole[:5], {"role": "user", "content": "Entry 2, edited: the zeppelin arrived."}]
        await chat.posts(edited)
        is_sound(model.prompts[-1], edited, WINDOW)
        assert model.prompts[-1].messages == edited
        # Rewound to message 9: still within the window, so nothing is folded at all.
        rewound = [*whole[:9], {"role": "user", "content": "From here another way."}]
        await chat.posts(rewound)
        assert model.prompts[-1].messages == rewound
        # The return finds its summary again, and so does a retry.
        for text in ("Back again.", "Back again."):
            returned = [*whole, {"role": "user", "content": text}]
            await chat.posts(returned, {"x-stainless-retry-count": "1"})
            is_sound(model.prompts[-1], returned, WINDOW)
            assert chat.reply.headers["x-palimpsest-view"] == "compacted"
            assert "zeppelin" not in model.prompts[-1].text
            assert "another way" not in model.prompts[-1].text
        assert len(model.summaries) == asked
        assert len(await chat.compactions()) == 1
        rows = [row["id"] for row in await chat.rows() if row["id"]]
        assert len(set(rows)) == len(rows)
        assert (await chat.transcript())[: len(whole)] == whole


def _word(turn: int) -> str:
    return ("ferry", "schooner", "dredger", "tug", "trawler", "cutter")[turn % 6] + f"-{turn}"


@pytest.mark.spec("S11")
@pytest.mark.parametrize(("header", "stream"), [("append", False), (None, True)])
async def test_a_client_that_sends_only_what_is_new(header: str | None, stream: bool, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path) as proxy:
        headers = {"x-session-mode": "append"}
        chat = proxy.chat(session="log of the day", stream=stream)
        kept: list[Json] = []
        for turn in range(14):
            if turn and not header:
                # Asked for once, it goes without saying.
                headers = {}
            new = {"role": "user", "content": f"Entry {turn}. {prose(turn, 450)}"}
            reply = await chat.posts([new], headers)
            assert reply.status_code == 200, reply.text
            kept += [new]
            is_sound(model.prompts[-1], kept, WINDOW)
            if "x-palimpsest-compaction" not in reply.headers:
                assert model.prompts[-1].messages == kept
            kept += [message_of(reply)]
        assert await chat.compactions()
        assert re.search("Entry 0", model.prompts[-1].text)
        assert await chat.transcript() == kept
        # Sent again after a lost connection: it is recognised and stored once.
        again = {"role": "user", "content": "Did this arrive?"}
        for retry in ("0", "1"):
            await chat.posts([again], headers | {"x-stainless-retry-count": retry})
        assert [message for message in await chat.transcript() if message == again] == [again]
