"""What a model of the Responses API looked up: told again, in chains, on the other API, after failures."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.items_recall import OURS, TOOLS, Recalled, compacted_items, grep, reads
from tests.kit.journal import carries_out
from tests.kit.proxy import proxied
from tests.kit.recalls import RECALLING
from tests.kit.responses import Asked, events_of, result_item, text_item, thought_item

pytestmark = pytest.mark.timeout(90)
Json = dict[str, Any]
# Compacted so early that the whole conversation still fits where the proxy is switched off.
FEW = {"recall.result_chars": 500, "policy.trigger_ratio": 0.7}
BOTH = pytest.mark.parametrize("stream", [True, False])


async def chained(talk: Recalled, before: str, text: str, **headers: str) -> str:
    """One request that goes on from an answer by its id; the id of its own."""
    body = {"model": "test-model", "input": text, "previous_response_id": before, "tools": TOOLS}
    session = talk.chat.session
    talk.chat.headers |= headers
    answer = await talk.chat.post(body | {"stream": talk.stream})
    for name in headers:
        del talk.chat.headers[name]
    talk.is_clean()
    assert talk.chat.session == session
    ident: str = answer["id"]
    return ident


def last_id(talk: Recalled) -> str:
    assert talk.chat.reply is not None
    told = events_of(talk.chat.reply.text)[-1]["response"] if talk.stream else talk.chat.reply.json()
    ident: str = told["id"]
    return ident


@pytest.mark.spec("W48", "P10", "F22")
@BOTH
@pytest.mark.parametrize("keeps", [True, False])
async def test_a_chain_goes_on_from_an_answer_behind_a_look_up(
    keeps: bool, stream: bool, tmp_path: Path
) -> None:
    """Under the id that the client knows the upstream may keep a call of ours that nobody answered there."""
    async with compacted_items(tmp_path, stream=stream, overrides=FEW, keeps=keeps) as talk:
        first = last_id(talk)
        said = [
            [text_item("Wait.", "msg_a"), grep("g1")],
            [thought_item("rs_b"), text_item("8000.", "msg_b")],
        ]
        talk.server.outputs.extend(said)
        second = await chained(talk, first, "Which port?")
        third = await chained(talk, second, "Thanks.")
        assert talk.asked[2].extends(talk.asked[1])
        assert "fc_g1" in talk.asked[2].text
        # Where nothing is folded and our tools are not told of, the words are told that the client knows.
        await chained(talk, second, "Sure?", **{"x-palimpsest": "off"})
        seen = talk.asked[-1]
        assert "previous_response_id" not in seen.body
        ids = [item["id"] for item in seen.body["input"] if "id" in item]
        assert ids[-3:] == ["msg_a", "rs_b", "msg_b"]
        # What came without a look-up is the upstream's to remember.
        await chained(talk, third, "And?", **{"x-palimpsest": "off"})
        assert talk.asked[-1].body.get("previous_response_id") == (third if keeps else None)
        assert not any(asked.faults for asked in talk.asked)


@pytest.mark.spec("W48", "F21")
@BOTH
async def test_a_chain_goes_on_from_a_mixed_turn(stream: bool, tmp_path: Path) -> None:
    async with compacted_items(tmp_path, stream=stream, overrides=FEW) as talk:
        first = last_id(talk)
        talk.server.outputs.append([thought_item("rs_a"), grep("g1"), reads("c1")])
        second = await chained(talk, first, "Look.")
        body = {"model": "test-model", "tools": TOOLS, "stream": stream, "previous_response_id": second}
        body["input"] = [result_item("c1", "x")]
        await talk.chat.post(body)
        assert talk.asked[1].extends(talk.asked[0])
        assert [item["call_id"] for item in talk.asked[1].items if "output" in item] == ["g1", "c1"]
        talk.chat.headers["x-palimpsest"] = "off"
        await talk.chat.post(body)
        talk.is_clean()
        assert [item["call_id"] for item in talk.asked[2].items if "output" in item] == ["c1"]
        assert not any(asked.faults for asked in talk.asked)


@pytest.mark.spec("C02", "F21", "W52")
async def test_they_are_told_on_the_api_of_the_request_and_where_our_tools_are(tmp_path: Path) -> None:
    async with compacted_items(tmp_path, overrides=FEW) as talk:
        talk.server.outputs.extend([[thought_item("rs_a"), grep("g1")], [text_item("8000.", "msg_a")]])
        await talk.says("Which port?")
        talk.server.outputs.append([thought_item("rs_b"), grep("g2"), reads("c1")])
        await talk.says("Look.")
        await talk.says(result_item("c1", "x"))
        headers = talk.chat.headers | {"x-session-id": talk.chat.session, "x-session-mode": "append"}
        tool = {"name": "read_file", "parameters": {"type": "object", "properties": {}}}
        body: Json = {"model": "test-model", "messages": [{"role": "user", "content": "And?"}]}
        body["tools"] = [{"type": "function", "function": tool}]
        reply = await talk.proxy.http.post("/v1/chat/completions", json=body, headers=headers)
        assert reply.status_code == 200, reply.text
        seen = talk.server.prompts[-1]
        assert [message["tool_call_id"] for message in seen.messages if message["role"] == "tool"] == [
            "g1", "g2", "c1",
        ]  # fmt: skip
        assert not seen.faults
        for switch, ids in (("off", ["c1"]), ("on", ["g1", "g2", "c1"])):
            talk.chat.headers["x-palimpsest-recall"] = switch
            await talk.says("And now?")
            shown = talk.asked[-1]
            assert [item["call_id"] for item in shown.items if "output" in item] == ids
            assert (OURS[0] in shown.tools) is (switch == "on")
            assert not shown.faults


@pytest.mark.spec("F20", "C22")
async def test_they_are_shown_only_where_they_are_asked_for(tmp_path: Path) -> None:
    async with compacted_items(tmp_path, overrides=FEW) as talk:
        talk.server.outputs.extend([[thought_item("rs_a"), grep("g1")], [text_item("8000.", "msg_a")]])
        await talk.says("Which port?")
        assert "context_grep" not in str(await talk.read("messages"))
        rows = (await talk.read("messages?hidden=1"))["messages"][-4:]
        assert [(row["origin"], row["role"]) for row in rows] == [
            ("client", "user"), ("hidden", "assistant"), ("hidden", "tool"), ("relayed", "assistant"),
        ]  # fmt: skip
        assert rows[1]["message"] == [thought_item("rs_a"), grep("g1")]
        moved = await talk.read("export?hidden=1")
        assert [e["type"] for e in moved["events"]].count("hidden_message") == 2


@pytest.mark.spec("F21")
@BOTH
async def test_a_mixed_turn_is_valid_without_our_result(stream: bool, tmp_path: Path) -> None:
    """A kill before it was stored; words of the round before it are told once all the same."""
    async with compacted_items(tmp_path, stream=stream, overrides=FEW) as talk:
        words = [thought_item("rs_a"), text_item("Hm.", "msg_a"), grep("g1")]
        talk.server.outputs.extend([words, [thought_item("rs_b"), grep("g2"), reads("c1")]])
        await talk.says("Look.")
    carries_out(tmp_path, "UPDATE hidden_rounds SET results = NULL WHERE written IS NOT NULL")
    async with proxied(talk.server, tmp_path, RECALLING | FEW) as proxy:
        talk.chat.http = proxy.http
        await talk.says(result_item("c1", "x"))
        await talk.says("Thanks.")
        first, second = talk.asked[-2:]
        assert second.extends(first)
        assert not first.faults + second.faults
        ids = [item.get("id") or item["call_id"] for item in first.items[-7:]]
        assert ids == ["rs_a", "msg_a", "fc_g1", "g1", "rs_b", "fc_c1", "c1"]


async def test_a_thought_that_nobody_keeps_is_not_sent_back(tmp_path: Path) -> None:
    """`store: false` without sealed thoughts: the upstream would not know what its id means."""
    async with compacted_items(tmp_path) as talk:
        talk.chat.options["store"] = False
        bare = thought_item("rs_a", sealed="")
        talk.server.outputs.extend([[bare, grep("g1")], [text_item("8000.", "msg_a")]])
        await talk.says("Which port?")
        assert [item["id"] for item in talk.asked[1].items if "id" in item][-1:] == ["fc_g1"]
        assert "rs_a" not in talk.asked[1].text


@pytest.mark.spec("C22")
@BOTH
async def test_an_upstream_that_refuses_our_tools_is_asked_without_them(stream: bool, tmp_path: Path) -> None:
    async with compacted_items(tmp_path, stream=stream) as talk:
        error = {"error": {"message": "unknown tool type", "type": "invalid_request_error"}}
        talk.server.refuses = lambda asked: (400, error) if OURS[0] in asked.tools else None
        await talk.says("Which port?")
        await talk.says("And which host?")
        assert [asked.tools[1:] for asked in talk.asked] == [OURS, [], []]
        assert await talk.transcript() == talk.chat.said


@BOTH
@pytest.mark.parametrize(("code", "attempts"), [("invalid", [OURS, []]), ("context_length_exceeded", [OURS])])
async def test_a_round_that_is_refused_costs_no_answer(
    code: str, attempts: list[list[str]], stream: bool, tmp_path: Path
) -> None:
    async with compacted_items(tmp_path, stream=stream) as talk:
        error = {"error": {"message": "no", "type": "invalid_request_error", "code": code}}

        def refusing(asked: Asked) -> tuple[int, Json] | None:
            return (400, error) if "output" in asked.items[-1] else None

        talk.server.refuses = refusing
        talk.server.outputs.extend(
            [[text_item("Hm.", "msg_a"), grep("g1")], [text_item("I do not know.", "msg_b")]]
        )
        output = await talk.says("Which port?")
        assert [item["id"] for item in output] == ["msg_a", "msg_b"]
        assert [asked.tools[1:] for asked in talk.asked] == [OURS, *attempts, []]
        talk.server.refuses = None
        await talk.says("Thanks.")
        assert not talk.asked[-1].faults
        # The id that the client has is of a round that was given up.
        await chained(talk, last_id(talk), "And?")


@BOTH
async def test_an_upstream_that_breaks_in_a_later_round_is_told(stream: bool, tmp_path: Path) -> None:
    """What came is kept as incomplete; told again it is told once."""
    async with compacted_items(tmp_path, stream=stream, overrides=FEW) as talk:
        error = {"error": {"message": "overloaded", "type": "server_error"}}
        talk.server.outputs.append([text_item("Wait.", "msg_a"), grep("g1")])
        talk.server.refuses = lambda asked: (503, error) if "output" in asked.items[-1] else None
        body = {"model": "test-model", "tools": TOOLS, "stream": stream}
        body["input"] = [*talk.chat.said, {"role": "user", "content": "Which port?"}]
        if not stream:
            reply = await talk.proxy.http.post("/v1/responses", json=body, headers=talk.chat.headers)
            assert (reply.status_code, reply.json()) == (503, error)
            return
        text = ""
        asking = talk.proxy.http.stream("POST", "/v1/responses", json=body, headers=talk.chat.headers)
        with suppress(httpx.RemoteProtocolError):
            async with asking as answer:
                async for piece in answer.aiter_text():
                    text += piece
        kinds = [event["type"] for event in events_of(text)]
        assert (kinds[0], kinds[-1]) == ("response.created", "error")
        assert "context_" not in text
        talk.server.refuses = None
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Wait."}]}
        talk.chat.said += [{"role": "user", "content": "Which port?"}, said | {"id": "msg_a"}]
        await talk.says("Well?")
        assert not talk.asked[-1].faults


@pytest.mark.parametrize(
    "options",
    [
        {"tools": []},
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "name": "read_file"}},
        {"tools": [{"type": "function", "name": "context_grep", "parameters": {}}]},
        {"tools": [{"type": "namespace", "name": "x", "tools": [{"name": "context_grep"}]}]},
        {"prompt": {"id": "pmpt_1"}},
        {"context_management": [{"type": "compaction", "compact_threshold": 100_000}]},
    ],
)
async def test_no_tools_are_offered_where_a_client_could_notice(options: Json, tmp_path: Path) -> None:
    async with compacted_items(tmp_path) as talk:
        talk.chat.tools = options.pop("tools", TOOLS)
        talk.chat.options |= options
        await talk.chat.says("Which port?")
        (asked,) = talk.asked
        assert asked.body.get("tools", []) == talk.chat.tools
        assert "<palimpsest_summary" in asked.text


@pytest.mark.spec("C22", "F20")
@BOTH
async def test_a_client_without_tools_may_be_given_recall_all_the_same(stream: bool, tmp_path: Path) -> None:
    async with compacted_items(tmp_path, stream=stream) as talk:
        talk.chat.tools = []
        talk.chat.headers["x-palimpsest-recall"] = "always"
        talk.server.outputs.extend([[grep("g1")], [text_item("Port 8000.", "msg_a")]])
        await talk.says("Which port?")
        assert [asked.tools for asked in talk.asked] == [OURS, OURS]
        assert talk.asked[1].items[-1]["type"] == "function_call_output"
