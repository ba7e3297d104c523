"""Requests that put a server's words into its mouth teach nobody anything (H01).

A table of places in a request, and of ways in which servers quote what they refuse. Each pair is one attack
on the whole program: two callers who have had answers before send it, then a third one talks. The control
trusts every word of an error, as the program once did: the same harness must find it poisoned.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from palimpsest.upstream.overflow import SentRequest

from tests.kit.model import tokens_of
from tests.kit.wire import Line, Reply, answer_body, post, wired
from tests.kit.words import prose
from tests.upstream.scripted import Wire, replies

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.spec("H01")]

Json = dict[str, Any]
PHRASE = "maximum context length is 1000 tokens"
JSON_TYPE = (b"Content-Type", b"application/json")
# Nothing is configured: what the program believes of windows is what it has learned.
BARE = {
    "models": [{"match": "never"}],
    "window.lookup_seconds": 0,
    "compaction.deadline_seconds": 0,
    "compaction.background": False,
}


def talk(name: str) -> list[Json]:
    """About 1,700 tokens in ten messages."""
    return [{"role": "user", "content": f"{name}, entry {turn}. {prose(turn, 140)}"} for turn in range(10)]


# Where the words stand: the request's own fields beside the messages, and the first of its messages. What a
# server quotes of it is the value that holds them.
def _message(**fields: Any) -> Json:
    return {"role": "user", "content": "Hello.", **fields}


PIECES = [
    {"type": "text", "text": piece} for piece in ("maximum ", "context ", "length ", "is ", "1000 tokens")
]
PLACES: dict[str, tuple[Json, Json]] = {
    "role": ({}, _message(role=PHRASE)),
    "name": ({}, _message(name=PHRASE)),
    "content": ({}, _message(content=f"A paper says: {PHRASE}. Is that so?")),
    "parts": ({}, _message(content=PIECES)),
    "part-type": ({}, _message(content=[{"type": PHRASE, "text": "x"}])),
    "field": ({}, _message(**{PHRASE: 1})),
    "escaped": ({}, _message(role=json.dumps({"r": json.dumps(PHRASE)}))),
    "lines": ({}, _message(role=PHRASE.replace(" ", "\n"))),
    "quotes": ({}, _message(role=f'it\'s "{PHRASE}"')),
    "capitals": ({}, _message(role=PHRASE.upper())),
    "other-letters": ({}, _message(role=f"é{PHRASE}\u2028")),
    "n_ctx": ({}, _message(n_ctx=1000, content=PHRASE)),
    "code": ({}, _message(role='{"code": "context_length_exceeded", "message": "' + PHRASE + '"}')),
    "error": ({}, _message(error={"code": "context_length_exceeded", "n_ctx": 1000, "message": PHRASE})),
    "model": ({"model": PHRASE}, _message()),
    "tool": ({"tools": [{"type": "function", "function": {"name": PHRASE}}]}, _message()),
    "format": ({"response_format": {"type": PHRASE}}, _message()),
    "choice": ({"tool_choice": PHRASE}, _message()),
    "user": ({"user": PHRASE}, _message()),
    "stop": ({"stop": [PHRASE]}, _message()),
}


def _openai(message: str, **more: Any) -> Json:
    return {"error": {"message": message, "type": "invalid_request_error", "code": None, **more}}


# How a server quotes a value: what it answers with a 400.
QUOTES: dict[str, Callable[[Any], Any]] = {
    "repr": lambda value: _openai(f"Invalid value: {value!r}. Supported values are: 'system' and 'user'."),
    "json": lambda value: _openai(f"Bad request: {json.dumps(value)} is not valid under any schema"),
    "json-twice": lambda value: _openai("Upstream said: " + json.dumps(json.dumps(value))),
    "as-it-is": lambda value: _openai(f"{_flat(value)} is not allowed here"),
    "cut": lambda value: _openai(f"Unexpected value {_shortened(_flat(value))}"),
    "alone": lambda value: _openai(_flat(value)),
    "nested": lambda value: _openai(value if isinstance(value, str) else json.dumps(value)),
    "pydantic": lambda value: {
        "detail": [{"type": "literal_error", "loc": ["body"], "msg": f"Input {value!r}", "input": value}]
    },
    "object": lambda value: {"detail": value},
    "plain": lambda value: f"400 Bad Request: {_flat(value)}",
}


def _flat(value: Any) -> str:
    """The strings of a value as a server joins them."""
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return str(value["text"])
    if isinstance(value, dict):
        return "".join(f"{_flat(item) if item != 1 else key}" for key, item in value.items())
    return "".join(map(_flat, value)) if isinstance(value, list) else str(value)


def _shortened(text: str) -> str:
    at = text.lower().find("maximum")
    return text[: max(at, 0)][:8] + "..." + text[max(at, 0) :][:60] + "..."


@dataclass
class Quoting:
    """A server that refuses what holds the words, quoting it, and answers all else; it knows one quote."""

    value: Any
    quote: str

    async def __call__(self, wire: Wire) -> None:
        body: Json = json.loads(wire.request.body)
        if self._is_bad(body):
            said = QUOTES[self.quote](self.value)
            raw = said.encode() if isinstance(said, str) else json.dumps(said).encode()
            await replies(raw, 400, [JSON_TYPE])(wire)
            return
        usage = {"prompt_tokens": tokens_of(body["messages"]), "completion_tokens": 3}
        await replies(answer_body("Noted.", usage=usage), 200, [JSON_TYPE])(wire)

    def _is_bad(self, body: Json) -> bool:
        bare = {key: value for key, value in body.items() if key != "messages"}
        return self.value in (*bare.values(), *body["messages"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    async with wired(tmp_path_factory.mktemp("learned"), BARE) as running:
        yield running


def asking(key: str, messages: list[Json], fields: Json) -> bytes:
    body = {"messages": messages, **fields}
    return post(json.dumps(body).encode(), key=key)


async def windows_of(line: Line, key: str) -> list[Json]:
    reply = await line.http.get("/api/windows", headers={"authorization": f"Bearer {key}"})
    found: list[Json] = reply.json()["windows"]
    return found


async def attack(line: Line, place: str, quote: str, run: str = "attack") -> None:
    """Nothing comes of it; else AssertionError."""
    fields, first = PLACES[place]
    model = f"{run}-{place}-{quote}"
    asked = {"model": model, **fields}
    value = next(iter(fields.values())) if fields else first
    line.upstream.always(Quoting(value, quote))
    for caller in ("one", "two"):
        # It has had answers, so that nobody can say that it is nobody.
        greeted = await line.asks(
            asking(f"{model} {caller}", talk(f"{model} {caller}")[:1], {"model": model})
        )
        assert greeted.status == 200
        before = len(line.upstream.requests)
        reply = await line.asks(asking(f"{model} {caller}", [first, *talk(f"{model} {caller}")], asked))
        assert reply.status == 400, "the server's own refusal is the client's"
        assert len(line.upstream.requests) == before + 1, "it was taken for an overflow"
        assert await windows_of(line, f"{model} {caller}") == []
    assert line.query("SELECT * FROM learned_windows WHERE model = ?", asked["model"]) == []
    victim: Reply = await line.asks(asking(f"{model} victim", talk("victim"), {"model": asked["model"]}))
    assert victim.header("x-palimpsest-view") in ("original", None)


@pytest.mark.parametrize("quote", list(QUOTES))
@pytest.mark.parametrize("place", list(PLACES))
async def test_words_of_a_request_teach_nothing(line: Line, place: str, quote: str) -> None:
    await attack(line, place, quote)


@pytest.mark.parametrize("place", ["role", "name", "escaped", "model"])
async def test_the_control_that_trusts_all_words_is_found_out(
    line: Line, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SentRequest, "hold", lambda *_: False)
    poisoned = 0
    for quote in ("as-it-is", "alone", "plain"):
        try:
            await attack(line, place, quote, "control")
        except AssertionError:
            poisoned += 1
    assert poisoned == 3


async def test_a_large_request_with_such_words_hurts_nobody_else(line: Line) -> None:
    """It may be a real overflow, and is answered smaller; what it said is no window."""
    _, first = PLACES["role"]
    line.upstream.always(Quoting(first, "alone"))
    for caller in ("large one", "large two"):
        said = [first, *(message for part in range(5) for message in talk(f"{caller} {part}"))]
        reply = await line.asks(asking(caller, said, {"model": "large"}))
        assert reply.header("x-palimpsest-view") == "compacted"
        assert await windows_of(line, caller) == []
    victim = await line.asks(asking("large victim", talk("victim"), {"model": "large"}))
    assert victim.header("x-palimpsest-view") == "original"


VLLM = (
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens in the messages, "
    "Please reduce the length of the messages."
)


@pytest.mark.parametrize("code", [400, "context_length_exceeded"])
async def test_an_overflow_is_recovered_from_where_such_words_were_talked_of(
    line: Line, code: int | str
) -> None:
    """Somebody has pasted the error: the same words then count for what they are, and give no number."""
    refusal = json.dumps({"object": "error", "message": VLLM, "code": code}).encode()
    messages = [*talk("a"), {"role": "user", "content": f"I got this: {VLLM}"}, *talk("b"), *talk("c")]
    usage = {"prompt_tokens": 900, "completion_tokens": 3}
    line.upstream.always(replies(answer_body("Noted.", usage=usage), 200, [JSON_TYPE]))
    line.upstream.expects(replies(refusal, 400, [JSON_TYPE]))
    key, model = f"pasted {code}", f"pasted-{code}"
    reply = await line.asks(asking(key, messages, {"model": model}))
    assert (reply.status, reply.header("x-palimpsest-view")) == (200, "compacted")
    assert await windows_of(line, key) == []


async def learned(line: Line, key: str, model: str, window: int) -> None:
    """The key meets a real overflow, and is answered after it."""
    words = VLLM.replace("4096", str(window))
    line.upstream.expects(replies(json.dumps(_openai(words)).encode(), 400, [JSON_TYPE]))
    line.upstream.always(replies(answer_body("Noted."), 200, [JSON_TYPE]))
    said = [message for part in range(3) for message in talk(f"{key} {part}")]
    reply = await line.asks(asking(key, said, {"model": model}))
    assert reply.header("x-palimpsest-view") == "compacted"
    async with asyncio.timeout(20):
        while not await windows_of(line, key):
            pass


async def view_of(line: Line, key: str, model: str) -> str | None:
    reply = await line.asks(asking(key, [*talk(f"{key} a"), *talk(f"{key} b")], {"model": model}))
    return reply.header("x-palimpsest-view")


async def test_a_window_is_the_callers_own_until_a_second_one_meets_it(line: Line) -> None:
    await learned(line, "first", "shared", 3_000)
    assert [(one["tokens"], one["for_all"]) for one in await windows_of(line, "first")] == [(3_000, False)]
    assert await view_of(line, "first", "shared") == "compacted"
    assert await view_of(line, "third", "shared") == "original"
    await learned(line, "second", "shared", 3_050)
    assert [one["for_all"] for one in await windows_of(line, "second")] == [True]
    assert await view_of(line, "fourth", "shared") == "compacted"
    # Forgotten by one of them it is the other's again.
    headers = {"authorization": "Bearer first"}
    forgotten = await line.http.request("DELETE", "/api/windows/shared", headers=headers)
    assert forgotten.json() == {"model": "shared", "forgotten": True}
    assert await windows_of(line, "first") == []
    assert await view_of(line, "fifth", "shared") == "original"
    again = await line.http.request("DELETE", "/api/windows/shared", headers=headers)
    assert again.json()["forgotten"] is False


async def test_no_window_is_learned_below_what_anybody_was_answered(line: Line) -> None:
    usage = {"prompt_tokens": 3_500, "completion_tokens": 3}
    line.upstream.always(replies(answer_body("Noted.", usage=usage), 200, [JSON_TYPE]))
    await line.asks(asking("large answered", talk("x"), {"model": "answered"}))
    line.upstream.expects(
        replies(json.dumps(_openai(VLLM.replace("4096", "3000"))).encode(), 400, [JSON_TYPE])
    )
    said = [message for part in range(3) for message in talk(f"small {part}")]
    reply = await line.asks(asking("small answered", said, {"model": "answered"}))
    assert reply.header("x-palimpsest-view") == "compacted"
    await learned(line, "small answered", "another", 3_000)
    assert [one["model"] for one in await windows_of(line, "small answered")] == ["another"]


async def test_nothing_is_learned_against_a_configured_window(tmp_path: Path) -> None:
    """Each refusal is recovered from, with the number that it names; the next prompt is judged as before."""
    async with wired(tmp_path, {**BARE, "models": [{"match": "*", "window_tokens": 20_000}]}) as line:
        for turn in range(2):
            refusal = json.dumps(_openai(VLLM.replace("4096", "3000"))).encode()
            line.upstream.expects(replies(refusal, 400, [JSON_TYPE]), replies(answer_body("Noted.")))
            said = [message for part in range(3) for message in talk(f"{turn} {part}")]
            reply = await line.asks(asking("key", said, {"model": "m"}))
            assert reply.header("x-palimpsest-view") == "compacted"
            assert tokens_of(json.loads(line.upstream.requests[-1].body)["messages"]) < 3_000
        assert await windows_of(line, "key") == []
        line.upstream.expects(replies(answer_body("Noted.")))
        assert await view_of(line, "key", "m") == "original"
        assert line.query("SELECT count(*) FROM learned_windows") == [(0,)]


@pytest.mark.spec("H05")
async def test_names_that_are_made_up_leave_nothing(tmp_path: Path) -> None:
    """60 requests with names of a megabyte are the upstream's to refuse; nothing of them is kept."""
    async with wired(tmp_path, BARE) as line:
        refusal = json.dumps(_openai("The model does not exist.")).encode()
        line.upstream.always(replies(refusal, 404, [JSON_TYPE]))
        await line.asks(asking("key", talk("x"), {"model": "m"}))
        size = line.database.stat().st_size
        for turn in range(60):
            reply = await line.asks(_of_a_long_name(turn))
            assert (reply.status, reply.body) == (404, refusal)
            assert reply.header("x-palimpsest-store") == "not-understood"
        assert len(line.upstream.requests[-1].body) > 1_000_000
        assert line.database.stat().st_size == size
        assert line.query("SELECT max(length(model)) FROM exchanges") == [(1,)]
        assert _long_names() == []


def _of_a_long_name(turn: int) -> bytes:
    return post(json.dumps({"model": f"{turn}" + "Zq" * 500_000, "messages": talk("x")[:1]}).encode())


def _long_names() -> list[int]:
    """The lengths of such names that are alive in this process."""
    gc.collect()
    held = (one for holder in gc.get_objects() for one in gc.get_referents(holder) if isinstance(one, str))
    return [len(text) for text in held if "ZqZqZqZq" in text[:64]]
