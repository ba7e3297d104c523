"""A coded request is read decoded and goes on as it came; what cannot be decoded is refused."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import brotli
import pytest
import pytest_asyncio
import zstandard

from tests.kit.wire import Headers, Line, Reply, answer_body, chat_body, post, wired
from tests.kit.words import prose
from tests.upstream.scripted import replies

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT = 200_000
SMALL = {
    "models": [{"match": "small", "window_tokens": 4_000}, {"match": "*", "window_tokens": 1_000_000}],
    "limits.body_bytes": LIMIT,
    "compaction.deadline_seconds": 0,
    "compaction.background": False,
}
CODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def small(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    """A proxy with a low limit, and one model with a small window."""
    async with wired(tmp_path_factory.mktemp("small"), SMALL) as running:
        yield running


def coded(body: bytes, coding: str, more: Headers | None = None) -> bytes:
    return post(body, [(b"Content-Encoding", coding.encode()), *(more or [])])


async def refused(line: Line, request: bytes, status: int, code: str) -> Reply:
    """The request is refused so, nothing was forwarded and nothing stored."""
    before, stored = len(line.upstream.requests), line.query("SELECT count(*) FROM exchanges")
    reply = await line.asks(request)
    assert (reply.status, reply.code) == (status, code), reply.body
    assert reply.header("x-should-retry") == "false"
    assert len(line.upstream.requests) == before
    assert line.query("SELECT count(*) FROM exchanges") == stored
    return reply


@pytest.mark.spec("P1")
@pytest.mark.parametrize("coding", CODERS)
async def test_a_coded_body_goes_on_coded_and_is_stored_decoded(small: Line, coding: str) -> None:
    text = f"Grüße 世界 in {coding}. " * 50
    body = CODERS[coding](chat_body(text))
    digest = hashlib.sha256(body).hexdigest().encode()
    small.upstream.expects(replies(answer_body()))
    reply = await small.asks(coded(body, coding, [(b"Content-Digest", digest)]))
    sent = small.upstream.requests[-1]
    assert (reply.status, sent.body) == (200, body)
    assert (sent.header("content-encoding"), sent.header("content-length")) == (coding, str(len(body)))
    assert sent.header("content-digest") == digest.decode()
    assert [row["message"]["content"] for row in await small.rows(reply)] == [text, "Hello."]


async def test_coded_and_plain_turns_are_one_conversation(small: Line) -> None:
    said: list[dict[str, Any]] = [{"role": "user", "content": "first, coded"}]
    sessions = set()
    for coding in ("gzip", "", "br"):
        small.upstream.expects(replies(answer_body(f"after {coding}")))
        body = json.dumps({"model": "m", "messages": said}).encode()
        reply = await small.asks(coded(CODERS[coding](body), coding) if coding else post(body))
        sessions.add(reply.header("x-palimpsest-session"))
        said += [{"role": "assistant", "content": f"after {coding}"}, {"role": "user", "content": "next"}]
    assert len(sessions) == 1
    assert [row["message"] for row in await small.rows(reply)] == said[:-1]


@pytest.mark.spec("W16")
async def test_a_body_that_was_coded_goes_on_plain_when_it_is_compacted(small: Line) -> None:
    said: list[dict[str, Any]] = [{"role": "system", "content": "You keep the log."}]
    for turn in range(12):
        said.append({"role": "user", "content": f"Entry {turn}. {prose(turn, 350)}"})
        body = gzip.compress(json.dumps({"model": "small", "messages": said, "seed": turn}).encode())
        small.upstream.expects(replies(answer_body(f"Noted {turn}.")))
        reply = await small.asks(coded(body, "gzip", [(b"Content-MD5", b"x"), (b"Repr-Digest", b"y")]))
        assert reply.status == 200
        said.append({"role": "assistant", "content": f"Noted {turn}."})
    assert reply.header("x-palimpsest-view") == "compacted"
    sent = small.upstream.requests[-1]
    assert sent.header("content-length") == str(len(sent.body))
    for name in ("content-encoding", "content-md5", "repr-digest"):
        assert sent.header(name) is None
    fields = json.loads(sent.body)
    assert (fields["model"], fields["seed"]) == ("small", 11)
    assert fields["messages"][0] == said[0]
    assert fields["messages"][-1] == said[-2]
    assert len(fields["messages"]) < len(said) - 1
    assert [row["message"] for row in await small.rows(reply)] == said


async def test_an_append_goes_on_plain_too(small: Line) -> None:
    mode: Headers = [(b"X-Session-Id", b"coded-append"), (b"X-Session-Mode", b"append")]
    for text in ("one", "two"):
        small.upstream.expects(replies(answer_body(f"to {text}")))
        await small.asks(coded(gzip.compress(chat_body(text)), "gzip", mode))
    sent = small.upstream.requests[-1]
    assert sent.header("content-encoding") is None
    said = [message["content"] for message in json.loads(sent.body)["messages"]]
    assert said == ["one", "to one", "two"]


@pytest.mark.parametrize("coding", CODERS)
async def test_a_body_too_large_once_decoded(small: Line, coding: str) -> None:
    body = CODERS[coding](chat_body("x" * LIMIT))
    assert len(body) < LIMIT / 100
    await refused(small, coded(body, coding), 413, "body_too_large")


async def test_a_coded_body_too_large_as_it_comes(small: Line) -> None:
    await refused(small, coded(bytes(LIMIT + 1), "gzip"), 413, "body_too_large")


WHOLE = chat_body("Some words that a coding makes shorter. " * 9)
BROKEN = {
    "plain": ("gzip", WHOLE),
    "empty": ("gzip", b""),
    "another coding": ("deflate", gzip.compress(WHOLE)),
    "more behind": ("gzip", gzip.compress(WHOLE) + b"more"),
    "a flipped bit": ("gzip", gzip.compress(WHOLE)[:-6] + b"\x00" + gzip.compress(WHOLE)[-5:]),
    **{f"cut {name}": (name, code(WHOLE)[:-3]) for name, code in CODERS.items()},
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_body_that_is_not_of_its_coding(small: Line, name: str) -> None:
    coding, body = BROKEN[name]
    reply = await refused(small, coded(body, coding), 400, "invalid_content_encoding")
    assert reply.json()["error"]["param"] == "Content-Encoding"


async def test_what_decodes_to_no_json_is_no_json(small: Line) -> None:
    await refused(small, coded(gzip.compress(b"hello"), "gzip"), 400, "invalid_json")


@pytest.mark.parametrize("coding", ["compress", "dcb", "gzip, compress", "gzip, gzip", "utf-8", "*"])
async def test_a_coding_that_is_not_read_is_the_upstreams_to_judge(small: Line, coding: str) -> None:
    body = gzip.compress(gzip.compress(WHOLE))
    small.upstream.expects(replies(b"no such coding", 415))
    reply = await small.asks(coded(body, coding))
    assert (reply.status, reply.body) == (415, b"no such coding")
    assert reply.header("x-palimpsest-store") == "not-understood"
    sent = small.upstream.requests[-1]
    assert (sent.body, sent.header("content-encoding")) == (body, coding)


@pytest.mark.spec("P1")
@pytest.mark.parametrize("coding", ["gzip", "compress"])
async def test_what_is_not_read_goes_on_in_any_coding(small: Line, coding: str) -> None:
    small.upstream.expects(replies(answer_body()))
    reply = await small.asks(coded(b"who knows", coding, [(b"X-Palimpsest", b"no-store")]))
    sent = small.upstream.requests[-1]
    assert (reply.status, sent.body, sent.header("content-encoding")) == (200, b"who knows", coding)


@pytest.mark.spec("P1")
@pytest.mark.parametrize("coding", ["identity", ""])
async def test_no_coding_by_name(small: Line, coding: str) -> None:
    body = chat_body()
    small.upstream.expects(replies(answer_body()))
    assert (await small.asks(coded(body, coding))).status == 200
    assert small.upstream.requests[-1].body == body


async def test_strangers_are_turned_away_before_anything_is_decoded(tmp_path: Path) -> None:
    async with wired(tmp_path, SMALL | {"access.mode": "keys"}) as line:
        reply = await line.asks(coded(b"not gzip", "gzip"))
        assert (reply.status, reply.code) == (401, "invalid_api_key")
