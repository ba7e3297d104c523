"""What a model looked up it is told again, byte for byte, where it may look things up (rule 31, P10)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.kit.chat import Chat
from tests.kit.journal import carries_out, compacted
from tests.kit.model import Seen
from tests.kit.proxy import Proxy
from tests.kit.recalls import GREP, OURS, READ, compacted_chat, names_in, resumed, saying

pytestmark = pytest.mark.timeout(90)
SECOND = ("g2", *GREP[1:])
THIRD = ("g3", *GREP[1:])
# Several results before the next fold.
FEW = {"recall.result_chars": 500}


def ids_in(seen: Seen) -> list[str]:
    """Which calls the results in a prompt answer."""
    return [message["tool_call_id"] for message in seen.messages if message["role"] == "tool"]


async def looked_up(proxy: Proxy, chat: Chat, question: str = "Which port?") -> None:
    """The conversation has one hidden round more, g1, and an answer."""
    proxy.model.answers.extend([saying(None, GREP), saying("Port 8000.")])
    await chat.says(question)
    assert chat.said[-1]["content"] == "Port 8000."


@pytest.mark.spec("F22", "P10", "C22", "F20")
@pytest.mark.parametrize("stream", [True, False])
async def test_every_prompt_extends_the_last_round(stream: bool, tmp_path: Path) -> None:
    async with compacted_chat(tmp_path, stream=stream, overrides=FEW) as (proxy, chat):
        model = proxy.model
        model.answers.extend([saying("Hm. ", GREP), saying(None, SECOND), saying("Port 8000.")])
        await chat.says("Which port?")
        await chat.says("Thanks.")
        model.answers.extend([saying(None, THIRD), saying("Yes.")])
        await chat.says("Are you sure?")
        await chat.says("Good.")
        assert all(later.extends(earlier) for earlier, later in pairwise(model.prompts))
        assert not any(seen.faults for seen in model.prompts)
        assert all(names_in(seen) == ["read_file", *OURS] for seen in model.prompts)
        roles = [message["role"] for message in model.prompts[-1].messages[-12:]]
        told = ["assistant", "tool"]
        expected = [*told, *told, "assistant", "user", "assistant", "user", *told, "assistant", "user"]
        assert roles == expected
        assert await chat.transcript() == chat.said
        assert not any("context_" in reply.text for reply in chat.replies)


@pytest.mark.spec("C02", "F21")
async def test_they_are_told_only_where_our_tools_are(tmp_path: Path) -> None:
    """An upstream may refuse calls of a tool that it is not told of."""
    async with compacted_chat(tmp_path, overrides=FEW) as (proxy, chat):
        await looked_up(proxy, chat)
        proxy.model.answers.append(saying("Both.", SECOND, READ))
        await chat.says("Look.")
        await chat.sends({"role": "tool", "tool_call_id": "c1", "content": "x"})

        async def ids(recall: str | None = None) -> list[str]:
            chat.headers.pop("x-palimpsest-recall", None)
            if recall:
                chat.headers["x-palimpsest-recall"] = recall
            await chat.says("And?")
            seen = proxy.model.prompts[-1]
            assert not seen.faults
            assert (len(names_in(seen)) > 1) is ("context_" in seen.text)
            return ids_in(seen)

        assert await ids() == ["g1", "g2", "c1"]
        assert await ids("off") == ["c1"]
        path = f"/api/sessions/{chat.session}/settings"
        await proxy.http.patch(path, headers=chat.headers, json={"recall": {"tools": False}})
        assert await ids() == ["c1"]
        assert await ids("on") == ["g1", "g2", "c1"]
        chat.extra["n"] = 2
        assert await ids("on") == ["c1"]


@pytest.mark.spec("F27")
async def test_each_answer_to_a_question_has_its_own(tmp_path: Path) -> None:
    async with compacted_chat(tmp_path, overrides=FEW) as (proxy, chat):
        await looked_up(proxy, chat)
        asked, first = chat.said[:-1], chat.said[-1]
        proxy.model.answers.extend([saying(None, SECOND), saying("It was 8000.")])
        second = (await chat.posts(asked)).json()["choices"][0]["message"]
        assert ids_in(proxy.model.prompts[-2]) == []
        for answer, ids in ((first, ["g1"]), (second, ["g2"]), (first, ["g1"])):
            chat.said = [*asked, answer]
            await chat.says(f"You said {answer['content']}")
            assert ids_in(proxy.model.prompts[-1]) == ids
        chat.said = [*asked[:-1], {"role": "user", "content": "Which host?"}]
        await chat.says("Please.")
        assert ids_in(proxy.model.prompts[-1]) == []


@pytest.mark.spec("F21")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_mixed_turn_is_valid_without_our_result(stream: bool, tmp_path: Path) -> None:
    """A kill before it was stored; the conversation goes on without it for good."""
    async with compacted_chat(tmp_path, stream=stream, overrides=FEW) as (proxy, chat):
        await looked_up(proxy, chat)
        proxy.model.answers.append(saying("Both.", SECOND, READ))
        await chat.says("Look.")
    carries_out(tmp_path, "UPDATE hidden_rounds SET results = NULL WHERE written IS NOT NULL")
    async with resumed(proxy, chat, tmp_path) as (after, again):
        await again.sends({"role": "tool", "tool_call_id": "c1", "content": "x"})
        await again.says("Thanks.")
        first, second = after.model.prompts[-2:]
        assert second.extends(first)
        assert ids_in(second) == ["g1", "c1"]
        assert not first.faults + second.faults
        assert "g2" not in second.text


async def test_they_are_told_to_a_client_of_deltas(tmp_path: Path) -> None:
    async with compacted_chat(tmp_path, overrides=FEW) as (proxy, chat):
        await looked_up(proxy, chat)
        chat.headers |= {"x-session-id": chat.session, "x-session-mode": "append"}
        chat.said = []
        proxy.model.answers.extend([saying(None, SECOND), saying("Yes.")])
        await chat.says("Are you sure?")
        chat.said = []
        await chat.says("Thanks.")
        assert proxy.model.prompts[-1].extends(proxy.model.prompts[-2])
        assert ids_in(proxy.model.prompts[-1]) == ["g1", "g2"]


async def test_a_list_that_the_client_rewrote_has_none_of_before(tmp_path: Path) -> None:
    """What it dropped does not come back; what is looked up behind that is told again."""
    async with compacted_chat(tmp_path, overrides=FEW) as (proxy, chat):
        await looked_up(proxy, chat)
        chat.said = [chat.said[0], *chat.said[-2:]]
        await chat.says("And now?")
        await compacted(chat, words=1_500)
        await looked_up(proxy, chat, "Which port was it?")
        await chat.says("Thanks.")
        later, earlier = proxy.model.prompts[-1], proxy.model.prompts[-2]
        assert later.extends(earlier)
        assert ids_in(later) == ["g1"]
        assert not any(seen.faults for seen in proxy.model.prompts)
