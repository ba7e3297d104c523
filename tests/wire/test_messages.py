"""What stands in messages survives the way through the proxy: as it came, in a view, and stored."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

import pytest

from tests.kit.wire import Line, Reply, answer_body, event, post
from tests.kit.words import prose
from tests.upstream.scripted import Script, replies, streams

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
NOISE = base64.b64encode(bytes((at * at + at // 7) % 256 for at in range(300_000))).decode()


def user(content: Any, **more: Any) -> Json:
    return {"role": "user", "content": content, **more}


def assistant(content: Any = None, **more: Any) -> Json:
    return {"role": "assistant", "content": content, **more}


def call(ident: str, name: str = "look", **more: Any) -> Json:
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": '{"at": 1e2}'}, **more}


def custom(ident: str, text: str) -> Json:
    return {"id": ident, "type": "custom", "custom": {"name": "shell", "input": text}}


def result(ident: str, text: str = "done") -> Json:
    return {"role": "tool", "tool_call_id": ident, "content": text}


def entries(start: int, stop: int) -> list[Json]:
    """Turns of 520 tokens or so, with words that no other test has."""
    tag, made = uuid.uuid4(), []
    for turn in range(start, stop):
        made += [user(f"Entry {turn} of {tag}. {prose(turn, 420)}"), assistant(f"Noted {turn} of {tag}.")]
    return made


async def asks(
    line: Line, messages: list[Json], script: Script | None = None, model: str = "large", **fields: Any
) -> tuple[Reply, list[Json]]:
    """The answer, and the messages that the upstream was sent."""
    line.upstream.expects(script or replies(answer_body()))
    reply = await line.asks(post(json.dumps({"model": model, "messages": messages, **fields}).encode()))
    assert reply.status == 200, reply.body
    sent: list[Json] = json.loads(line.upstream.requests[-1].body)["messages"]
    return reply, sent


async def folded(line: Line, messages: list[Json], **fields: Any) -> list[Json]:
    """What of a conversation too long for the model `small` is sent."""
    reply, sent = await asks(line, messages, model="small", **fields)
    assert reply.header("x-palimpsest-view") == "compacted"
    return sent


@pytest.mark.spec("W01")
async def test_instructions_keep_their_order_wherever_they_stand(line: Line) -> None:
    first, second = {"role": "developer", "content": "Be brief."}, {"role": "system", "content": "Be kind."}
    third = {"role": "developer", "content": [{"type": "text", "text": "From now on in French."}]}
    talk = [first, *entries(0, 3), second, *entries(3, 8), third, user("And now?")]
    _, sent = await asks(line, talk)
    assert sent == talk
    view = await folded(line, talk)
    assert [m for m in view if m["role"] in ("developer", "system")] == [first, second, third]
    assert view[0] == first
    assert view[-2:] == talk[-2:]


PARTS = [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64," + NOISE, "detail": "low"}},
    {"type": "input_audio", "input_audio": {"data": NOISE, "format": "wav"}},
    {"type": "file", "file": {"file_data": "data:application/pdf;base64," + NOISE, "filename": "a.pdf"}},
    {"type": "hologram", "hologram": {"data": NOISE, "depth": 3}},
    {"type": "hologram", "url": "data:model/x;base64," + NOISE},
]


@pytest.mark.spec("W02")
@pytest.mark.parametrize("part", PARTS, ids=["image", "audio", "file", "unknown", "unknown_url"])
async def test_no_part_is_changed_or_counted_as_text(line: Line, part: Json) -> None:
    talk = [user([{"type": "text", "text": f"What is this? {uuid.uuid4()}"}, part])]
    reply, sent = await asks(line, talk)
    assert sent == talk
    whole = int((reply.header("x-palimpsest-tokens") or "").partition("/")[0])
    # As text it would be 250,000 tokens and more.
    assert whole < 20_000
    assert (await line.rows(reply))[0]["message"] == talk[0]


@pytest.mark.spec("W02")
async def test_a_refusal_part_and_an_unknown_one_of_the_assistant_come_back(line: Line) -> None:
    answer = assistant([{"type": "refusal", "refusal": "No."}, {"type": "thought", "x": [1]}], note={"a": 1})
    talk = [user("Do it."), answer, user("Why not?")]
    _, sent = await asks(line, talk)
    assert sent == talk


HINT = {"type": "ephemeral"}


@pytest.mark.spec("W03")
async def test_cache_hints_stay_where_they_are(line: Line) -> None:
    system = {"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": HINT}]}
    last = user([{"type": "text", "text": "And now?", "prompt_cache_breakpoint": {"mode": "auto"}}])
    talk = [system, *entries(0, 8), last]
    options: Json = {"prompt_cache_options": {"ttl": "24h"}, "prompt_cache_key": "k"}
    _, sent = await asks(line, talk, **options)
    assert sent == talk
    view = await folded(line, talk, **options)
    assert (view[0], view[-1]) == (system, last)
    body = json.loads(line.upstream.requests[-1].body)
    assert {key: body[key] for key in options} == options


@pytest.mark.spec("W03", "W41")
async def test_hints_that_move_make_no_new_conversation(line: Line) -> None:
    opening = f"Begin {uuid.uuid4()}"
    first, _ = await asks(line, [user([{"type": "text", "text": opening, "cache_control": HINT}])])
    again = [user([{"type": "text", "text": opening}]), assistant("Hello."), user("On.")]
    second, _ = await asks(line, again)
    assert second.header("x-palimpsest-session") == first.header("x-palimpsest-session")


SIGNED = call("a", extra_content={"google": {"thought_signature": "c2ln"}})
PARALLEL = assistant(None, tool_calls=[SIGNED, custom("b", "ls -la\n"), call("c")])
RESULTS = [result("c"), result("a"), result("b", "total 0")]


@pytest.mark.spec("W04")
async def test_parallel_and_custom_calls_are_one_with_their_results(line: Line) -> None:
    talk = [user(f"Look. {uuid.uuid4()}")]
    message = {**PARALLEL, "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    first, _ = await asks(line, talk, replies(json.dumps({"choices": [choice]}).encode()))
    assert (await line.rows(first))[-1]["message"] == message
    talk += [PARALLEL, *RESULTS]
    second, sent = await asks(line, talk)
    assert sent == talk
    assert second.header("x-palimpsest-session") == first.header("x-palimpsest-session")


@pytest.mark.spec("W04")
@pytest.mark.parametrize("before", range(4, 10))
async def test_no_view_parts_a_call_from_its_results(line: Line, before: int) -> None:
    group = [PARALLEL, *RESULTS]
    view = await folded(line, [*entries(0, before), user("Look."), *group, *entries(before, 10), user("So?")])
    stays = [m for m in view if m in group]
    assert stays in ([], group)
    assert not [m for m in view if m["role"] == "tool" and m not in group]


THOUGHT = {"reasoning_content": "hm, the list", "reasoning_details": [{"type": "x", "data": "AA=="}]}


@pytest.mark.spec("W05")
@pytest.mark.parametrize("model", ["large", "small"])
async def test_reasoning_stays_on_turns_with_calls(line: Line, model: str) -> None:
    group = [assistant("", tool_calls=[call("a")], **THOUGHT), result("a")]
    talk = [*entries(0, 8), user("Look."), *group]
    _, sent = await asks(line, talk, model=model)
    assert sent[-2:] == group
    # Where a turn with calls is folded, nothing of it is left outside the summary.
    view = await folded(line, [user("Look."), *group, *entries(0, 9), user("So?")])
    assert not [m for m in view if m.get("tool_calls") or m["role"] == "tool"]


@pytest.mark.spec("W05")
async def test_reasoning_of_a_stored_answer_goes_back_in_append_mode(line: Line) -> None:
    name = [(b"X-Session-Id", uuid.uuid4().hex.encode()), (b"X-Session-Mode", b"append")]
    message = assistant("", tool_calls=[call("a")], **THOUGHT)
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    line.upstream.expects(replies(json.dumps({"choices": [choice]}).encode()), replies(answer_body()))
    for new in (user("Look."), result("a")):
        body = json.dumps({"model": "large", "messages": [new]}).encode()
        assert (await line.asks(post(body, name))).status == 200
    sent = json.loads(line.upstream.requests[-1].body)["messages"]
    assert sent == [user("Look."), message, result("a")]


@pytest.mark.spec("W06")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_sound_is_stored_and_its_id_goes_on_with_it(line: Line, stream: bool) -> None:
    talk = [user(f"Say it. {uuid.uuid4()}")]
    sound = {"id": "audio_1", "data": NOISE[:4000], "transcript": "Hello.", "expires_at": 1}
    choice = {"index": 0, "message": assistant(None, audio=sound), "finish_reason": "stop"}
    pieces: list[Json] = [
        {"id": "audio_1", "transcript": "Hel"},
        {"data": NOISE[:2000]},
        {"transcript": "lo."},
    ]
    pieces += [{"data": NOISE[2000:4000]}, {"expires_at": 1}]
    frames = [event({"role": "assistant", "audio": piece}) for piece in pieces]
    spoken = streams([*frames, event({}, "stop"), b"data: [DONE]\n\n"])
    answer = spoken if stream else replies(json.dumps({"choices": [choice]}).encode())
    first, _ = await asks(line, talk, answer, stream=stream, modalities=["text", "audio"])
    assert (await line.rows(first))[-1]["message"]["audio"] == sound
    talk += [assistant(None, audio={"id": "audio_1"}), user("Again.")]
    second, sent = await asks(line, talk)
    assert sent == talk
    assert second.header("x-palimpsest-session") == first.header("x-palimpsest-session")


@pytest.mark.spec("W07")
@pytest.mark.parametrize("stream", [False, True])
async def test_the_choice_that_comes_back_is_the_one_gone_on_from(line: Line, stream: bool) -> None:
    talk = [user(f"Three, please. {uuid.uuid4()}")]
    odds = {"content": [{"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}]}
    texts = ["one", "two", "three"]
    whole = [
        {"index": at, "message": assistant(text), "finish_reason": "stop", "logprobs": odds, "new": at}
        for at, text in enumerate(texts)
    ]
    answer = json.dumps({"choices": whole, "system_fingerprint": "f"}).encode()
    parts = [json.dumps({"choices": [{**c, "delta": c.pop("message")}]}).encode() for c in map(dict, whole)]
    frames = [b"data: " + part + b"\n\n" for part in (*parts, b"[DONE]")]
    script = streams(frames) if stream else replies(answer)
    first, _ = await asks(line, talk, script, n=3, stream=stream, logprobs=True)
    assert first.body == (b"".join(frames) if stream else answer)
    second, _ = await asks(line, [*talk, assistant("two"), user("That one.")])
    assert second.header("x-palimpsest-session") == first.header("x-palimpsest-session")
    rows = await line.rows(second)
    assert [row["message"]["content"] for row in rows[1:]] == ["two", "That one.", "Hello."]
