"""A model of the Responses API looks up what was folded, and the client hears nothing but the answer."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from tests.kit.items_recall import OURS, compacted_items, grep, is_whole, reads
from tests.kit.responses import Asked, Outputs, events_of, result_item, text_item, thought_item

pytestmark = pytest.mark.timeout(90)
FEW = {"recall.result_chars": 500}
BOTH = pytest.mark.parametrize("stream", [True, False])


@pytest.mark.spec("C22", "F20", "F22", "S13")
@BOTH
async def test_a_look_up_is_carried_out_and_leaves_no_trace(stream: bool, tmp_path: Path) -> None:
    async with compacted_items(tmp_path, stream=stream) as talk:
        thoughts = [thought_item("rs_a", short="Hm."), thought_item("rs_b", short="So it is.")]
        answer = text_item("It was port 8000.", "msg_b")
        talk.server.outputs.extend([[thoughts[0], grep("g1")], [thoughts[1], answer]])
        assert await talk.says("Which port?") == [thoughts[1], answer]
        first, second = talk.asked
        assert first.tools == second.tools == ["read_file", *OURS]
        assert [tool.get("strict") for tool in first.body["tools"][1:]] == [False, False]
        assert second.extends(first)
        thought, call, result = second.body["input"][-3:]
        assert [thought, call] == [thoughts[0], grep("g1")]
        assert (result["type"], result["call_id"]) == ("function_call_output", "g1")
        assert "8000" in result["output"]
        assert talk.chat.reply is not None
        assert "g1" not in talk.chat.reply.text
        assert "rs_a" not in talk.chat.reply.text
        whole = events_of(talk.chat.reply.text)[-1]["response"] if stream else talk.chat.reply.json()
        counts = {key: whole["usage"][key] for key in ("input_tokens", "output_tokens", "total_tokens")}
        assert list(counts.values()) == [second.tokens, 18, second.tokens + 18]
        assert (whole["tools"], whole["tool_choice"]) == (talk.chat.tools, "auto")
        assert await talk.transcript() == talk.chat.said
        events = (await talk.read("events?limit=1000&types=context_recalled"))["events"]
        assert [event["payload"]["tool"] for event in events] == ["context_grep"]


@pytest.mark.spec("F22", "P10", "C22", "F20")
@BOTH
async def test_every_prompt_extends_the_last_round(stream: bool, tmp_path: Path) -> None:
    """Words and thoughts of a hidden round are heard, and told to the model once."""
    async with compacted_items(tmp_path, stream=stream, overrides=FEW) as talk:
        words = text_item("Let me see. ", "msg_a")
        talk.server.outputs.extend(
            [
                [thought_item("rs_a"), words, grep("g1")],
                [thought_item("rs_b"), grep("g2")],
                [thought_item("rs_c"), text_item("Port 8000.", "msg_c")],
            ]
        )
        output = await talk.says("Which port?")
        assert [item["id"] for item in output] == ["rs_a", "msg_a", "rs_c", "msg_c"]
        await talk.says("Thanks.")
        talk.server.outputs.extend([[grep("g3")], [text_item("Yes.", "msg_d")]])
        await talk.says("Are you sure?")
        await talk.says("Good.")
        asked = talk.asked
        assert len(asked) == 7
        assert all(later.extends(earlier) for earlier, later in pairwise(asked))
        assert not any(each.faults for each in asked)
        assert [item.get("call_id") for item in asked[-1].items if "output" in item] == ["g1", "g2", "g3"]
        assert [item["id"] for item in asked[3].items[-8:] if "id" in item] == [
            "fc_g1", "rs_b", "fc_g2", "rs_c", "msg_c",
        ]  # fmt: skip
        assert await talk.transcript() == talk.chat.said


@pytest.mark.spec("F21", "F20")
@BOTH
async def test_of_a_mixed_turn_the_client_gets_its_own_calls(stream: bool, tmp_path: Path) -> None:
    async with compacted_items(tmp_path, stream=stream, overrides=FEW) as talk:
        thought = thought_item("rs_a")
        said = [thought, text_item("Let me see.", "msg_a"), grep("g1"), reads("c1"), reads("c2")]
        talk.server.outputs.extend([said, [text_item("Done.", "msg_b")]])
        assert await talk.says("Go on.") == [said[0], said[1], said[3], said[4]]
        assert len(talk.asked) == 1
        await talk.says(result_item("c1", "x = 1"), result_item("c2", "x = 2"))
        first, second = talk.asked
        assert second.extends(first)
        assert not second.faults
        assert second.body["input"][-8:-3] == said
        found, *rest = second.body["input"][-3:]
        assert (found["call_id"], [item["call_id"] for item in rest]) == ("g1", ["c1", "c2"])
        assert "use port 800" in found["output"]
        await talk.says("Thanks.")
        assert talk.asked[-1].extends(second)
        assert await talk.transcript() == talk.chat.said


@pytest.mark.spec("F24")
@BOTH
@pytest.mark.parametrize("obeys", [True, False])
async def test_a_model_that_always_looks_up_is_stopped(stream: bool, obeys: bool, tmp_path: Path) -> None:
    few = {"recall.result_chars": 600, "recall.max_rounds": 3}
    async with compacted_items(tmp_path, stream=stream, overrides=few) as talk:
        number = iter(range(100))

        def always(asked: Asked) -> Outputs | None:
            stops = obeys and asked.body.get("tool_choice") == "none"
            here = next(number)
            if stops or OURS[0] not in asked.tools:
                return [text_item("I give up.", f"msg_x{here}")]
            return [thought_item(f"rs_x{here}"), grep(f"g{here}")]

        talk.server.plays = always
        output = await talk.says("Which port?")
        assert [item["content"][0]["text"] for item in output] == ["I give up."]
        told = [asked.body.get("tool_choice") for asked in talk.asked]
        assert told == [None] * 3 + ["none"] + ([] if obeys else [None])
        assert talk.asked[-1].tools[1:] == (OURS if obeys else [])
        assert talk.chat.reply is not None
        assert '"none"' not in talk.chat.reply.text
        talk.server.plays = None
        await talk.says("Never mind.")
        assert talk.asked[-1].extends(talk.asked[-2])
        assert not talk.asked[-1].faults
        assert await talk.transcript() == talk.chat.said


@pytest.mark.spec("F23")
async def test_words_are_relayed_while_the_model_writes(tmp_path: Path) -> None:
    """In the hidden round as in the one after it: the model waits until its beginning was heard."""
    async with compacted_items(tmp_path, stream=True) as talk:
        heard = {len(talk.server.asked) + at: asyncio.Event() for at in (1, 2)}

        async def waits(number: int) -> None:
            async with asyncio.timeout(30):
                await heard[number].wait()

        talk.server.midway = waits
        words = ("One moment, I am looking that up.", "It was port 8000, as was decided.")
        talk.server.outputs.extend(
            [[text_item(words[0], "msg_a"), grep("g1")], [text_item(words[1], "msg_b")]]
        )
        body = {"model": "test-model", "stream": True, "tools": talk.chat.tools}
        body["input"] = [*talk.chat.said, {"role": "user", "content": "Which port?"}]
        text = ""
        async with talk.proxy.http.stream(
            "POST", "/v1/responses", json=body, headers=talk.chat.headers
        ) as reply:
            async for piece in reply.aiter_text():
                text += piece
                for begins, event in zip(("One moment", "It was port"), heard.values(), strict=True):
                    if begins in text:
                        event.set()
        is_whole(events_of(text))
        assert "context_" not in text
        assert len(talk.asked) == 2


@pytest.mark.spec("C22")
@BOTH
async def test_an_answer_without_look_ups_is_relayed_as_it_came(stream: bool, tmp_path: Path) -> None:
    """Byte for byte what a client hears without our tools."""
    output = [thought_item("rs_z", short="Hm, hm."), text_item("So.", "msg_z"), reads("c9")]
    async with compacted_items(tmp_path, stream=stream) as talk:
        body = {"model": "test-model", "tools": talk.chat.tools, "stream": stream}
        body["input"] = [*talk.chat.said, {"role": "user", "content": "And?"}]
        told: list[bytes] = []
        for switch in ("on", "off"):
            talk.server.outputs.append(output)
            headers = talk.chat.headers | {"x-palimpsest-recall": switch}
            reply = await talk.proxy.http.post("/v1/responses", json=body, headers=headers)
            asked, content = talk.asked[-1], reply.content
            assert (OURS[0] in asked.tools) is (switch == "on")
            for own in (f"resp_{len(talk.server.asked)}", str(asked.tokens + 9), str(asked.tokens)):
                assert own.encode() in content
                content = content.replace(own.encode(), b"0")
            told.append(content)
        assert told[0] == told[1]
