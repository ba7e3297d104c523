"""Beyond its quota a caller gets no more answers today, and still reads what it has; keys expire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from palimpsest.cli.keys import change_key, create_key
from palimpsest.settings.settings import Settings

from tests.kit.replicas import until
from tests.kit.wire import Line, Reply, answer_body, chat_body, event, opened, post, settings_for, wired
from tests.upstream.scripted import Script, Wire, head, replies, stalls_after, streams

KEYS = {"access.mode": "keys", "upstream.api_key": "sk-operator"}
DAILY = {"access.daily_tokens": 100}
NEXT_DAY = 86_400
# What an answer states: 60 tokens, of which 20 were written.
USAGE = {"prompt_tokens": 40, "completion_tokens": 20}


def stating(prompt: int = 40, completion: int = 20) -> Script:
    """An answer that states this usage."""
    return replies(answer_body(usage={"prompt_tokens": prompt, "completion_tokens": completion}))


@asynccontextmanager
async def keyed(
    folder: Path, terms: Mapping[str, Any] | None = None, **more: Any
) -> AsyncIterator[tuple[Line, str]]:
    """A proxy in keys mode, and a key under these terms."""
    overrides = {**KEYS, **{name.replace("__", "."): value for name, value in more.items()}}
    async with wired(folder, overrides) as line:
        _, key = await create_key(settings_of(line, folder), "ann", **(terms or {}))
        yield line, key


def settings_of(line: Line, folder: Path) -> Settings:
    return settings_for(folder, line.upstream.url, KEYS)


def is_refused(reply: Reply) -> bool:
    """A refusal for the quota, as OpenAI's SDKs and a person read it."""
    assert reply.code == "quota_exceeded"
    assert reply.json()["error"]["type"] == "insufficient_quota"
    assert reply.header("x-should-retry") == "false"
    left = int(reply.header("retry-after") or 0)
    # At midnight: whatever the time is, to the second that passed since.
    assert abs(left - (NEXT_DAY - time.time() % NEXT_DAY)) % NEXT_DAY <= 60
    return reply.status == 429


async def test_beyond_the_quota_nothing_is_forwarded_and_everything_can_be_read(tmp_path: Path) -> None:
    async with wired(tmp_path, DAILY) as line:
        line.upstream.always(stating())
        ask = post(chat_body("one"), [(b"X-Session-Id", b"s")])
        # 60, then 120 of 100: the second began below.
        assert [(await line.asks(ask)).status for _ in range(2)] == [200, 200]
        forwarded = len(line.upstream.requests)
        refused = await line.asks(ask)
        assert is_refused(refused)
        message = refused.json()["error"]["message"]
        assert "120 of 100 tokens" in message
        assert "access.daily_tokens" in message
        for path in ("/v1/responses", "/v1/embeddings", "/v1/completions"):
            assert is_refused(await line.asks(post(b'{"model":"m","input":"x"}', path=path)))
        assert is_refused(await line.asks(post(chat_body(), [(b"X-Palimpsest", b"no-store")])))
        assert is_refused(await line.asks(post(chat_body(), [(b"X-Palimpsest", b"off")])))
        assert len(line.upstream.requests) == forwarded
        assert len(await line.rows("s")) == 2
        headers = {"authorization": "Bearer key-1"}
        assert (await line.http.get("/api/sessions", headers=headers)).status_code == 200
        # A list of models costs nothing.
        assert (await line.http.get("/v1/models", headers=headers)).status_code == 200
        # Another caller has a quota of its own.
        assert (await line.asks(post(chat_body(), key="key-2"))).status == 200


async def test_what_is_in_progress_runs_to_its_end_and_holds_what_it_may_use(tmp_path: Path) -> None:
    async with wired(tmp_path, DAILY) as line:
        opens = asyncio.Event()

        async def late(wire: Wire) -> None:
            await opens.wait()
            await stating(100, 0)(wire)

        line.upstream.always(late)
        first = asyncio.create_task(line.asks(post(chat_body("one", max_tokens=70))))
        await line.upstream.arrived(1)
        # What the first one leaves is enough to begin; with the second one all is reserved.
        second = asyncio.create_task(line.asks(post(chat_body("two", max_tokens=70))))
        await line.upstream.arrived(2)
        third = await line.asks(post(chat_body()))
        assert (third.status, third.code) == (429, "quota_exceeded")
        assert "reserved" in third.json()["error"]["message"]
        # It may succeed once they have ended.
        assert (third.header("retry-after"), third.header("x-should-retry")) == ("5", None)
        opens.set()
        assert [(await reply).status for reply in (first, second)] == [200] * 2
        assert line.query("SELECT tokens FROM usage") == [(200,)]
        assert line.query("SELECT tokens FROM reserved") == [(0,)]
        assert is_refused(await line.asks(post(chat_body())))


async def test_a_quota_that_cannot_be_read_opens_the_door_to_nobody(tmp_path: Path) -> None:
    async with wired(tmp_path, {**DAILY, "database.on_store_failure": "passthrough"}) as line:
        line.upstream.always(stating())
        assert (await line.asks(post(chat_body()))).status == 200
        with opened(line.database) as connection:
            connection.execute("ALTER TABLE usage RENAME TO lost")
            for headers in ([], [(b"X-Palimpsest", b"no-store")]):
                assert (await line.asks(post(chat_body(), headers))).status in (500, 503)
            connection.execute("ALTER TABLE lost RENAME TO usage")
        assert len(line.upstream.requests) == 1
        assert (await line.asks(post(chat_body()))).status == 200


@pytest.mark.parametrize("late", [False, True])
async def test_a_stream_is_counted_once_whenever_it_states_its_usage(tmp_path: Path, late: bool) -> None:
    ends = [event({}, "stop", usage=USAGE)]
    if late:
        ends = [event({}, "stop"), event({}, choices=[], usage=USAGE)]
    async with wired(tmp_path, DAILY) as line:
        said = event({"content": "four words are here"})
        line.upstream.expects(streams([said, *ends, b"data: [DONE]\n\n"]))
        assert (await line.asks(post(chat_body(stream=True)))).is_whole

        async def is_counted() -> bool:
            return line.query("SELECT tokens FROM usage") == [(60,)]

        await until(is_counted)


async def test_a_client_that_leaves_has_used_what_it_asked_for(tmp_path: Path) -> None:
    async with wired(tmp_path, DAILY) as line:
        said = event({"content": "some words of an answer"})
        line.upstream.expects(stalls_after(head(200, [(b"Content-Type", b"text/event-stream")]) + said))
        async with line.caller() as caller:
            await caller.sends(post(chat_body("a question of some words", stream=True)))
            await caller.until(b"answer")
            await caller.leaves()

        async def is_counted() -> bool:
            return line.query("SELECT tokens > 10 FROM usage") == [(1,)]

        await until(is_counted)


async def test_a_refusal_of_the_upstream_costs_nothing(tmp_path: Path) -> None:
    async with wired(tmp_path, DAILY) as line:
        for headers in ([], [(b"X-Palimpsest", b"no-store")]):
            line.upstream.expects(replies(b'{"error":{"message":"no"}}', status=400))
            assert (await line.asks(post(chat_body(), headers))).status == 400

        async def is_settled() -> bool:
            return line.query("SELECT u.tokens, r.tokens FROM usage u, reserved r") == [(0, 0)]

        await until(is_settled)


@pytest.mark.parametrize(
    ("path", "body", "answer", "tokens"),
    [
        ("/v1/embeddings", b'{"input":"x"}', b'{"data":[],"usage":{"prompt_tokens":7}}', 7),
        ("/v1/audio/speech", b'{"input":"x"}', b"RIFF no JSON at all", 0),
        ("/v1/messages", b"{}", b'{"usage":{"input_tokens":3,"output_tokens":4}}', 7),
        ("", chat_body("12"), answer_body("x", usage=USAGE), 60),
        # A token for each event, and for every four bytes of the request.
        ("", chat_body("12"), b'data: {"a":1}\n\ndata: {"a":2}\n\n', 2 + -(-len(chat_body("12")) // 4)),
    ],
)
async def test_what_is_not_recorded_is_counted_by_what_it_states(
    tmp_path: Path, path: str, body: bytes, answer: bytes, tokens: int
) -> None:
    async with wired(tmp_path, DAILY) as line:
        line.upstream.expects(replies(answer))
        headers = [] if path else [(b"X-Palimpsest", b"no-store")]
        assert (await line.asks(post(body, headers, path=path or "/v1/chat/completions"))).status == 200

        async def is_counted() -> bool:
            return line.query("SELECT tokens FROM usage") == [(tokens,)]

        await until(is_counted)


async def test_a_key_with_a_budget_is_counted_by_itself(tmp_path: Path) -> None:
    async with keyed(tmp_path, {"daily_tokens": 50}, **{"access__daily_tokens": 10_000}) as (line, key):
        settings = settings_of(line, tmp_path)
        (row,) = line.query("SELECT id, namespace FROM keys")
        _, twin = await create_key(settings, "twin", row[0])
        line.upstream.always(stating())
        assert (await line.asks(post(chat_body(), key=key))).status == 200
        refused = await line.asks(post(chat_body(), key=key))
        assert is_refused(refused)
        assert f"palimpsest keys set {row[0]} --daily-tokens" in refused.json()["error"]["message"]
        # The same conversations with another key: its namespace has used nothing.
        assert (await line.asks(post(chat_body(), key=twin))).status == 200
        assert sorted(line.query("SELECT account, tokens FROM usage")) == sorted([(row[0], 60), (row[1], 60)])


async def test_an_expired_key_says_when_it_expired(tmp_path: Path) -> None:
    async with keyed(tmp_path, {"expires": "30d"}) as (line, key):
        ((key_id, expires_at),) = line.query("SELECT id, expires_at FROM keys")
        assert abs(expires_at - time.time() - 30 * NEXT_DAY) < 60
        with opened(line.database) as connection:
            connection.execute("UPDATE keys SET expires_at = 1795737540.0 - 86400 * 365")
        for path in ("/v1/chat/completions", "/v1/embeddings"):
            reply = await line.asks(post(chat_body(), path=path, key=key))
            assert (reply.status, reply.code) == (401, "invalid_api_key")
            assert "expired at 2025-11-26 23:59:00 UTC" in reply.json()["error"]["message"]
        assert line.upstream.requests == []
        line.upstream.always(replies(answer_body()))
        await change_key(settings_of(line, tmp_path), key_id, expires="never")
        assert (await line.asks(post(chat_body(), key=key))).status == 200


async def test_when_a_key_was_used_last_is_kept(tmp_path: Path) -> None:
    async with keyed(tmp_path) as (line, key):
        line.upstream.always(replies(answer_body()))
        assert line.query("SELECT last_used_at FROM keys") == [(None,)]
        before = time.time()
        await line.asks(post(chat_body(), key="pk-palimpsest-wrong"))
        for _ in range(3):
            assert (await line.asks(post(chat_body(), key=key))).status == 200

        async def is_kept() -> bool:
            ((at,),) = line.query("SELECT last_used_at FROM keys")
            return at is not None and before <= at <= time.time()

        await until(is_kept)


async def test_a_restart_and_an_erase_forget_nothing(tmp_path: Path) -> None:
    async with wired(tmp_path, DAILY) as line:
        line.upstream.always(stating(99, 1))
        assert (await line.asks(post(chat_body("one"), [(b"X-Session-Id", b"s")]))).status == 200
    async with wired(tmp_path, DAILY) as line:
        assert is_refused(await line.asks(post(chat_body())))
        headers = {"authorization": "Bearer key-1"}
        erased = await line.http.delete("/api/namespace?confirm=everything", headers=headers)
        assert erased.status_code == 200
        assert is_refused(await line.asks(post(chat_body())))
        assert line.upstream.requests == []
    # Without a quota there is nothing to be beyond of.
    async with wired(tmp_path) as line:
        line.upstream.always(stating())
        assert (await line.asks(post(chat_body()))).status == 200


async def test_a_quota_that_is_not_set_counts_nothing(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.always(stating())
        assert (await line.asks(post(chat_body()))).status == 200
        assert (await line.asks(post(chat_body(), [(b"X-Palimpsest", b"no-store")]))).status == 200
        assert line.query("SELECT count(*) FROM usage") == [(0,)]
        assert line.query("SELECT count(*) FROM reserved") == [(0,)]


async def test_without_a_stated_usage_our_own_count_stands(tmp_path: Path) -> None:
    async with wired(tmp_path, DAILY) as line:
        line.upstream.expects(replies(answer_body()))
        assert (await line.asks(post(chat_body("a question of some words")))).status == 200
        ((tokens,),) = line.query("SELECT tokens FROM usage")
        ((forwarded,),) = line.query("SELECT tokens_forwarded FROM exchanges")
        assert forwarded < tokens < 100
