"""A model looks up what was folded, and the client hears nothing of it but the answer (C22, rule 31)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.kit.chat import message_of
from tests.kit.journal import events, read
from tests.kit.model import Says, Seen
from tests.kit.recalls import GREP, OURS, READ, Json, Streamed, compacted_chat, names_in, saying

pytestmark = pytest.mark.timeout(60)


@pytest.mark.spec("C22", "F20", "F22", "S13")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_look_up_is_carried_out_and_leaves_no_trace(stream: bool, tmp_path: Path) -> None:
    priced: Json = {"models": [{"match": "*", "prices": {"input": 2.0, "output": 8.0}}]}
    async with compacted_chat(tmp_path, stream=stream, overrides=priced) as (proxy, chat):
        proxy.model.answers.extend([saying(None, GREP), saying("It was port 8000.")])
        made = len(await chat.compactions())
        answer = await chat.says("Which port?")
        first, second = proxy.model.prompts
        assert names_in(first) == names_in(second) == ["read_file", *OURS]
        assert second.extends(first)
        call, result = second.messages[-2:]
        assert (call["tool_calls"][0]["function"]["name"], result["tool_call_id"]) == ("context_grep", "g1")
        assert "8000" in result["content"]
        assert not second.faults
        assert answer == {"role": "assistant", "content": "It was port 8000."}
        assert "context_" not in chat.reply.text
        assert "g1" not in chat.reply.text
        counts = {"prompt_tokens": second.tokens, "completion_tokens": 18, "total_tokens": second.tokens + 18}
        if stream:
            heard = Streamed.of(chat.reply)
            assert (heard.roles, heard.calls, heard.finish) == (["assistant"], {}, ["stop"])
            assert heard.usage == [counts]
            assert chat.reply.text.count("[DONE]") == 1
        else:
            assert chat.reply.json()["usage"] == counts
        assert await chat.transcript() == chat.said
        assert len(await chat.compactions()) == made
        (told,) = await events(proxy.http, chat, ["context_recalled"])
        assert (told["payload"]["tool"], told["payload"]["via"]) == ("context_grep", "model")
        assert told["payload"]["effectiveSession"] == chat.session
        (turn, *_) = (await read(proxy.http, chat, "sessions/" + chat.session + "/exchanges"))["exchanges"]
        # Both prompts were billed, and both answers.
        assert turn["cost"]["total"] == pytest.approx(((first.tokens + second.tokens) * 2 + 18 * 8) / 1e6)


@pytest.mark.spec("F21", "F20")
@pytest.mark.parametrize("stream", [True, False])
async def test_of_a_mixed_turn_the_client_gets_its_own_call(stream: bool, tmp_path: Path) -> None:
    async with compacted_chat(tmp_path, stream=stream) as (proxy, chat):
        other = ("c2", "read_file", {"path": "b.py"})
        proxy.model.answers.extend([saying("Let me see.", GREP, READ, other), saying("Done.")])
        reply = await chat.posts([*chat.said, {"role": "user", "content": "Go on."}])
        assert "context_" not in reply.text
        assert "g1" not in reply.text
        if stream:
            heard = Streamed.of(reply)
            assert {at: (call["id"], call["name"]) for at, call in heard.calls.items()} == {
                0: ("c1", "read_file"),
                1: ("c2", "read_file"),
            }
            assert [json.loads(call["arguments"]) for call in heard.calls.values()] == [READ[2], other[2]]
            assert (heard.text, heard.finish) == ("Let me see.", ["tool_calls"])
            message: Json = message_of(reply)
            assert [call["function"]["arguments"] for call in message["tool_calls"]] == [
                call["arguments"] for call in heard.calls.values()
            ]
        else:
            message = reply.json()["choices"][0]["message"]
            assert [call["id"] for call in message["tool_calls"]] == ["c1", "c2"]
            assert reply.json()["choices"][0]["finish_reason"] == "tool_calls"
        assert len(proxy.model.prompts) == 1
        chat.said += [{"role": "user", "content": "Go on."}, message]
        results = [{"role": "tool", "tool_call_id": id_, "content": "x = 1"} for id_ in ("c1", "c2")]
        assert (await chat.sends(*results))["content"] == "Done."
        first, second = proxy.model.prompts
        assert second.extends(first)
        assert not second.faults
        written, *told = second.messages[-4:]
        assert [call["id"] for call in written["tool_calls"]] == ["g1", "c1", "c2"]
        assert [message["tool_call_id"] for message in told] == ["g1", "c1", "c2"]
        assert "8000" in told[0]["content"]
        await chat.says("Thanks.")
        assert proxy.model.prompts[-1].extends(second)
        assert await chat.transcript() == chat.said


@pytest.mark.spec("F24")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("obeys", [True, False])
async def test_a_model_that_always_looks_up_is_stopped(stream: bool, obeys: bool, tmp_path: Path) -> None:
    few = {"recall.result_chars": 1_000, "recall.max_rounds": 3}
    async with compacted_chat(tmp_path, stream=stream, overrides=few) as (proxy, chat):

        def always(seen: Seen) -> Says | None:
            stops = obeys and seen.body.get("tool_choice") == "none"
            return saying("I give up.") if stops or OURS[0] not in names_in(seen) else saying("Hm. ", GREP)

        proxy.model.script = always
        answer = await chat.says("Which port?")
        told = [seen.body.get("tool_choice") for seen in proxy.model.prompts]
        assert told == [None] * 3 + ["none"] + ([] if obeys else [None])
        # One that calls all the same is asked once more, with nothing of ours to call.
        assert names_in(proxy.model.prompts[-1])[1:] == (OURS if obeys else [])
        results = [
            message["content"] for message in proxy.model.prompts[-1].messages if message["role"] == "tool"
        ]
        assert [json.loads(result)["truncated"] for result in results] == [True] * 3
        assert max(map(len, results)) < 1_000 + 400
        heard = "Hm. " * (3 if obeys else 4) if stream else ""
        assert answer == {"role": "assistant", "content": heard + "I give up."}
        assert "context_" not in chat.reply.text
        assert '"stop"' in chat.reply.text
        assert '"tool_calls"' not in chat.reply.text
        proxy.model.script = None
        await chat.says("Never mind.")
        assert proxy.model.prompts[-1].extends(proxy.model.prompts[-2])
        assert not proxy.model.prompts[-1].faults
        assert await chat.transcript() == chat.said


@pytest.mark.spec("F23")
async def test_words_are_relayed_while_the_model_writes(tmp_path: Path) -> None:
    """In the hidden round as in the one after it: the model waits until its beginning was heard."""
    async with compacted_chat(tmp_path, stream=True) as (proxy, chat):
        heard = [asyncio.Event(), asyncio.Event()]

        async def first() -> None:
            async with asyncio.timeout(20):
                await heard[0].wait()

        async def second() -> None:
            async with asyncio.timeout(20):
                await heard[1].wait()

        proxy.model.answers.extend(
            [
                saying("One moment, I am looking that up. ", GREP, midway=first),
                saying("It was port 8000, as was decided.", midway=second),
            ]
        )
        body = {
            "model": "test-model",
            "stream": True,
            "messages": [*chat.said, {"role": "user", "content": "Which port?"}],
            **chat.extra,
        }
        text = ""
        async with proxy.http.stream(
            "POST", "/v1/chat/completions", json=body, headers=chat.headers
        ) as reply:
            async for piece in reply.aiter_text():
                text += piece
                for word, event in zip(("One moment", "It was port"), heard, strict=True):
                    if word in text:
                        event.set()
        assert text.rstrip().endswith("[DONE]")
        assert "context_" not in text
        assert len(proxy.model.prompts) == 2


@pytest.mark.spec("C22")
async def test_an_answer_without_look_ups_is_relayed_byte_for_byte(tmp_path: Path) -> None:
    """With recall on and off the client gets the same bytes, of words as of its own calls."""
    answers = [saying("Some words."), saying("More.", READ)]
    told: list[list[bytes]] = []
    for name, is_on in (("on", True), ("off", False)):
        (tmp_path / name).mkdir()
        for stream in (True, False):
            async with compacted_chat(tmp_path / name, stream=stream, overrides={"recall.tools": is_on}) as (
                proxy,
                chat,
            ):
                bodies = []
                for answer in answers:
                    proxy.model.answers.append(answer)
                    chat.extra.pop("stream_options", None)
                    reply = await chat.posts([*chat.said, {"role": "user", "content": "And?"}])
                    content = reply.content
                    if not stream:
                        usage = reply.json()["usage"]
                        for count in sorted(set(usage.values()), reverse=True):
                            content = content.replace(str(count).encode(), b"0")
                    bodies.append(content)
                told.append(bodies)
    assert told[:2] == told[2:]
