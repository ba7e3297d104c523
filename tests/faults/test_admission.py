"""No caller can take every place: slow bodies and made-up keys keep nobody from being answered (H05)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.api.front import ConcurrencyLimit
from palimpsest.cli.keys import create_key
from palimpsest.errors import ServerBusy

from tests.kit.wire import Line, Reply, answer_body, chat_body, post, settings_for, wired
from tests.upstream.scripted import Wire, replies

pytestmark = pytest.mark.spec("H05")

PLACES = 10
SMALL = {
    "limits.concurrent_requests": PLACES,
    "limits.concurrent_uploads": PLACES,
    "limits.caller_share": 0.8,
}
KEYS = {"access.mode": "keys", "upstream.api_key": "sk-operator"}


def begun(key: str | None, path: str = "/v1/chat/completions") -> bytes:
    """A request whose body has begun, and never goes on."""
    head, _, _ = post(b"x" * 1_000, path=path, key=key).partition(b"\r\n\r\n")
    return head + b"\r\n\r\n{"


@asynccontextmanager
async def slow(line: Line, *keys: str | None, path: str = "/v1/chat/completions") -> AsyncIterator[None]:
    """So many callers whose bodies do not come; each has been let in or refused by then."""
    async with AsyncExitStack() as stack:
        for key in keys:
            caller = await stack.enter_async_context(line.caller())
            await caller.sends(begun(key, path))
        # The server has read what came before this was answered.
        for _ in range(3):
            await line.http.get("/healthz")
        yield


async def accepted(line: Line, key: str | None) -> None:
    """The upstream has answered this caller before."""
    for _ in range(2):
        assert (await line.asks(post(chat_body(), key=key))).status == 200


async def asked(line: Line, key: str | None) -> int:
    return (await line.asks(post(chat_body(), key=key))).status


async def is_healthy(line: Line) -> bool:
    return [(await line.http.get(path)).status_code for path in ("/healthz", "/readyz")] == [200, 200]


@asynccontextmanager
async def running(folder: Path, **more: Any) -> AsyncIterator[Line]:
    given = {name.replace("__", "."): value for name, value in more.items()}
    async with wired(folder, SMALL | given) as line:
        line.upstream.always(replies(answer_body()))
        yield line


async def test_slow_bodies_of_strangers_keep_nobody_out(tmp_path: Path) -> None:
    async with running(tmp_path) as line:
        await accepted(line, "mine")
        async with slow(line, *[f"made-up-{n}" for n in range(3 * PLACES)]):
            assert await is_healthy(line)
            assert [await asked(line, "mine") for _ in range(5)] == [200] * 5
            # Whom nobody has accepted yet waits with the strangers.
            assert await asked(line, "new") == 503
        assert (await line.http.get("/api/sessions")).status_code == 200


async def test_slow_bodies_without_any_key_keep_nobody_out(tmp_path: Path) -> None:
    async with running(tmp_path) as line:
        await accepted(line, "mine")
        async with slow(line, *[None] * (3 * PLACES)):
            assert await is_healthy(line)
            assert await asked(line, "mine") == 200
            reply = await line.asks(post(chat_body(), key=None))
            assert (reply.status, reply.code, reply.header("retry-after")) == (503, "server_busy", "1")


async def test_who_was_accepted_before_a_restart_is_known_after_it(tmp_path: Path) -> None:
    async with running(tmp_path) as line:
        await accepted(line, "mine")
    async with running(tmp_path) as line, slow(line, *[f"made-up-{n}" for n in range(3 * PLACES)]):
        assert await asked(line, "mine") == 200


async def test_a_caller_that_takes_its_share_leaves_places_for_others(tmp_path: Path) -> None:
    async with running(tmp_path) as line:
        for key in ("greedy", "mine"):
            await accepted(line, key)
        for path in ("/v1/chat/completions", "/v1/files"):
            async with slow(line, *["greedy"] * (3 * PLACES), path=path):
                assert await asked(line, "mine") == 200
                assert await asked(line, "greedy") == 503


async def test_answers_that_do_not_come_keep_nobody_out(tmp_path: Path) -> None:
    async with running(tmp_path) as line:
        for key in ("greedy", "mine"):
            await accepted(line, key)
        stuck = asyncio.Event()

        async def silent(wire: Wire) -> None:
            if (wire.request.header("authorization") or "").endswith("greedy"):
                await stuck.wait()
            await replies(answer_body())(wire)

        line.upstream.always(silent)
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[Reply]] = []
            for _ in range(3 * PLACES):
                caller = await stack.enter_async_context(line.caller())
                await caller.sends(post(chat_body(), key="greedy"))
                tasks.append(group.create_task(caller.reply()))
            # Those beyond its share are told so at once.
            done: set[asyncio.Task[Reply]] = set()
            while len(done) < 3 * PLACES - 8:
                now, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                done |= now
                tasks = [task for task in tasks if task not in done]
            assert {task.result().status for task in done} == {503}
            assert await is_healthy(line)
            assert await asked(line, "mine") == 200
            stuck.set()
        assert [task.result().status for task in tasks] == [200] * 8


async def test_without_a_valid_key_no_body_is_waited_for(tmp_path: Path) -> None:
    async with running(tmp_path, **{name.replace(".", "__"): value for name, value in KEYS.items()}) as line:
        _, key = await create_key(settings_for(tmp_path, line.upstream.url, KEYS), "mine")
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/files", "/s/x/v1/chat/completions"):
            for wrong in (None, "pk-palimpsest-wrong"):
                async with line.caller() as caller:
                    await caller.sends(begun(wrong, path))
                    reply = await caller.reply()
                    assert (reply.status, reply.code) == (401, "invalid_api_key")
        async with slow(line, *[None] * (3 * PLACES)):
            assert await is_healthy(line)
            assert await asked(line, key) == 200


async def test_with_all_places_for_one_caller_the_harness_sees_it(tmp_path: Path) -> None:
    """The control: where a caller may take everything, others are refused."""
    async with running(tmp_path, limits__caller_share=1.0) as line:
        await accepted(line, "mine")
        async with slow(line, *[f"made-up-{n}" for n in range(3 * PLACES)]):
            assert await asked(line, "mine") == 503
            assert await is_healthy(line)


async def test_places_are_free_again(tmp_path: Path) -> None:
    async with running(tmp_path) as line:
        await accepted(line, "mine")
        for _ in range(3):
            async with slow(line, *["mine"] * (2 * PLACES)):
                pass
            while await asked(line, "mine") != 200:
                await line.http.get("/healthz")


@given(st.integers(1, 200), st.floats(0.05, 1), st.lists(st.integers(0, 5), max_size=400))
def test_nobody_is_refused_while_it_holds_nothing_and_a_place_is_free(
    total: int, share: float, order: list[int]
) -> None:
    places = ConcurrencyLimit(total, share)
    held: dict[int, int] = {}
    for caller in order:
        free = total - sum(held.values())
        if not held.get(caller) and free:
            assert places.has_room(caller)
        try:
            places.take(caller)
        except ServerBusy:
            continue
        held[caller] = held.get(caller, 0) + 1
        assert sum(held.values()) <= total
    for caller, count in held.items():
        for _ in range(count):
            places.release(caller)
    assert all(places.has_room(caller) for caller in range(6))


def alone(total: int) -> int:
    """How many places one caller gets while nobody else asks."""
    places, count = ConcurrencyLimit(total, 0.8), 0
    while places.has_room("me"):
        places.take("me")
        count += 1
    return count


def test_one_user_alone_hardly_notices() -> None:
    assert {total: alone(total) for total in (1, 2, 4, 10, 1_000)} == {1: 1, 2: 2, 4: 4, 10: 8, 1_000: 800}


async def test_headers_beyond_the_limit_are_refused_before_anything_else(tmp_path: Path) -> None:
    async with running(tmp_path) as line:
        fits, large = [(b"x", b"y" * 60_000)], [(b"x", b"y" * 66_000)]
        assert (await line.asks(post(chat_body(), fits))).status == 200
        for path in ("/v1/chat/completions", "/v1/files", "/api/sessions/x/compact"):
            reply = await line.asks(post(chat_body(), large, path=path))
            assert (reply.status, reply.code) == (431, "headers_too_large")
