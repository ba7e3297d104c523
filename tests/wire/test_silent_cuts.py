"""An upstream that cuts prompts without a word, as Ollama does, is found out by its own counts (W39)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.kit.model import tokens_of
from tests.kit.wire import Line, Reply, answer_body, post, wired
from tests.kit.words import prose
from tests.upstream.scripted import Scripted, Wire, replies

Json = dict[str, Any]
NUM_CTX = 4_096
QUIET = {"window.lookup_seconds": 0, "compaction.deadline_seconds": 0, "compaction.background": False}
NOTHING_SET = {"models": [{"match": "never"}], **QUIET}


class Ollama:
    """Answers every prompt; of what is longer than its window it reads the newest messages."""

    def __init__(self) -> None:
        self.prompts: list[list[Json]] = []

    async def __call__(self, wire: Wire) -> None:
        messages: list[Json] = json.loads(wire.request.body)["messages"]
        self.prompts.append(messages)
        read = messages
        while tokens_of(read) > NUM_CTX:
            read = read[1:]
        usage = {"prompt_tokens": tokens_of(read), "completion_tokens": 3}
        await replies(answer_body("Noted.", usage=usage))(wire)


async def converse(line: Line, turns: int, words: int, model: str = "llama3-tiny") -> list[Reply]:
    said: list[Json] = []
    heard = []
    for turn in range(turns):
        said.append({"role": "user", "content": f"Entry {turn}. {prose(turn, words)}"})
        heard.append(await line.asks(post(json.dumps({"model": model, "messages": said}).encode())))
        said.append({"role": "assistant", "content": "Noted."})
    return heard


async def cuts_told(line: Line, reply: Reply) -> list[Json]:
    found = await line.http.get(
        f"/api/sessions/{reply.header('x-palimpsest-session')}/events",
        params={"types": "prompt_cut"},
        headers={"authorization": "Bearer key-1"},
    )
    return [event["payload"] for event in found.json()["events"]]


@pytest.mark.spec("W39")
async def test_it_is_told_and_its_window_assumed(tmp_path: Path) -> None:
    ollama = Ollama()
    with capture_logs() as log:
        async with wired(tmp_path, NOTHING_SET) as line:
            line.upstream.always(ollama)
            heard = await converse(line, 9, 800)
            told = await cuts_told(line, heard[-1])
    assert [event["window"] for event in told] == [None, NUM_CTX]
    assert all(event["counted"] <= NUM_CTX < event["tokens"] for event in told)
    logged = [entry for entry in log if entry["event"] == "prompt_cut"]
    assert [entry["window"] for entry in logged] == [None, NUM_CTX]
    # From then on the proxy folds what would have been cut.
    assert heard[-1].header("x-palimpsest-view") == "compacted"
    assert tokens_of(ollama.prompts[-1]) <= NUM_CTX
    assert tokens_of(ollama.prompts[4]) > NUM_CTX


@pytest.mark.spec("W39")
async def test_it_is_known_after_a_restart_and_forgotten_when_more_is_read(tmp_path: Path) -> None:
    async with Scripted() as upstream:
        there = NOTHING_SET | {"upstream.base_url": f"{upstream.url}/v1"}
        upstream.always(Ollama())
        async with wired(tmp_path, there) as line:
            await converse(line, 7, 900)
        async with wired(tmp_path, there) as line:
            assert line.query("SELECT tokens, source FROM learned_windows") == [(NUM_CTX, "observed")]
            heard = await converse(line, 5, 900)
            assert heard[-1].header("x-palimpsest-view") == "compacted"
            # One message that is larger goes out as it is: the window is no more than a guess.
            usage = {"prompt_tokens": 9_000, "completion_tokens": 3}
            upstream.expects(replies(answer_body("Noted.", usage=usage)))
            await converse(line, 1, 6_500)
            async with asyncio.timeout(20):
                while line.query("SELECT count(*) FROM learned_windows") != [(0,)]:
                    await line.http.get("/healthz")
            heard = await converse(line, 5, 900)
            assert heard[-1].header("x-palimpsest-view") == "original"


@pytest.mark.spec("W39")
async def test_a_configured_window_stays(tmp_path: Path) -> None:
    configured = {"models": [{"match": "*", "window_tokens": 32_000}], **QUIET}
    async with wired(tmp_path, configured) as line:
        line.upstream.always(Ollama())
        heard = await converse(line, 8, 900)
        assert {reply.header("x-palimpsest-view") for reply in heard} == {"original"}
        assert [event["window"] for event in await cuts_told(line, heard[-1])] == [None]
        assert line.query("SELECT count(*) FROM learned_windows") == [(0,)]


@pytest.mark.spec("W39")
async def test_nothing_is_said_of_an_upstream_that_reads_all(tmp_path: Path) -> None:
    async def honest(wire: Wire) -> None:
        messages = json.loads(wire.request.body)["messages"]
        usage = {"prompt_tokens": int(0.8 * tokens_of(messages)), "completion_tokens": 3}
        await replies(answer_body("Noted.", usage=usage))(wire)

    async with wired(tmp_path, NOTHING_SET) as line:
        line.upstream.always(honest)
        heard = await converse(line, 8, 900)
        assert await cuts_told(line, heard[-1]) == []


THOUGHTS = {"reasoning_content": prose(99, 2_500)}
UNKNOWN = {"x-note": prose(98, 2_500)}
TOOLS: list[Json] = [{"type": "function", "function": {"name": "f", "description": prose(97, 2_500)}}]


async def _half_reading(wire: Wire) -> None:
    """Of messages it reads role and content, as servers do that drop thoughts and have no place for tools."""
    messages = json.loads(wire.request.body)["messages"]
    read = tokens_of([{"role": message["role"], "content": message["content"]} for message in messages])
    await replies(answer_body("Noted.", usage={"prompt_tokens": read, "completion_tokens": 3}))(wire)


@pytest.mark.spec("W39", "P5")
@pytest.mark.parametrize(
    ("own", "beside"), [(THOUGHTS, {}), (UNKNOWN, {}), ({}, {"tools": TOOLS})], ids=["thoughts", "x", "tools"]
)
async def test_what_a_server_need_not_read_is_no_cut(own: Json, beside: Json, tmp_path: Path) -> None:
    """Else one caller's requests would shrink a model's window for everybody."""
    async with wired(tmp_path, NOTHING_SET) as line:
        line.upstream.always(_half_reading)
        said: list[Json] = []
        for turn in range(4):
            said.append({"role": "user", "content": f"Entry {turn}. {prose(turn, 800)}"})
            body = {"model": "some-model", "messages": said, **beside}
            reply = await line.asks(post(json.dumps(body).encode()))
            said.append({"role": "assistant", "content": "Noted.", **own})
        assert await cuts_told(line, reply) == []
        assert line.query("SELECT count(*) FROM learned_windows") == [(0,)]


@pytest.mark.spec("H15")
async def test_the_first_long_prompt_that_is_cut_is_noticed(tmp_path: Path) -> None:
    """Behind short ones, whose counts say how the model counts; the cut count changes nothing of that."""
    ollama = Ollama()
    async with wired(tmp_path, NOTHING_SET) as line:
        line.upstream.always(ollama)
        heard = await converse(line, 3, 300, "unknown")
        assert await cuts_told(line, heard[-1]) == []
        known = line.query("SELECT ratio, samples FROM calibrations")
        pages = [{"role": "user", "content": f"Page {turn}. {prose(turn, 1_000)}"} for turn in range(13)]
        body = {"model": "unknown", "messages": pages}
        large = await line.asks(post(json.dumps(body).encode()))
        async with asyncio.timeout(20):
            while not (told := await cuts_told(line, large)):
                pass
        assert told[0]["tokens"] > 3 * NUM_CTX > told[0]["counted"]
        assert line.query("SELECT ratio, samples FROM calibrations") == known


@pytest.mark.spec("H15")
async def test_a_conversation_that_creeps_past_the_window_is_noticed(tmp_path: Path) -> None:
    """Each turn is a fiftieth of the prompt: the count stands still, and is not taken for a tokenizer's."""
    async with wired(tmp_path, NOTHING_SET) as line:
        line.upstream.always(Ollama())
        heard = await converse(line, 62, 60)
        assert await cuts_told(line, heard[-1])
        ((ratio,),) = line.query("SELECT ratio FROM calibrations")
        assert ratio == pytest.approx(1.0, rel=0.03)
