"""SIGHUP applies settings to new requests of a real process; nobody notices, and nothing is lost (H21)."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.kill_loop import server
from tests.kit.migrated import make_file
from tests.kit.model import SUMMARY_MODEL, ModelServer
from tests.kit.processes import Process, ran
from tests.kit.reloading import Json, Reloadable, reloadable, written
from tests.kit.remains import remains
from tests.kit.replicas import until
from tests.kit.serving import served
from tests.kit.wire import Caller, answer_body, chat_body, event, post
from tests.upstream.scripted import Scripted, Wire, chunk, head, replies

pytestmark = [pytest.mark.spec("H21"), pytest.mark.timeout(120)]

JSON_TYPE = (b"Content-Type", b"application/json")
SSE = [(b"Content-Type", b"text/event-stream"), (b"Transfer-Encoding", b"chunked")]
FIRST = event({"role": "assistant", "content": "Once"})
REST = event({"content": " upon a time."}) + event({}, "stop") + b"data: [DONE]\n\n"
ADMIN_KEY = "operator-0123456789abcdef"
WORD = "Kanarienvogel77"


def at(url: str, **more: Any) -> Json:
    """The section `upstream` for a server at this address."""
    return {"base_url": f"{url}/v1", **more}


def slow(may_end: asyncio.Event, rest: bytes = REST) -> Callable[[Wire], Any]:
    """A streamed answer that ends when it may."""

    async def script(wire: Wire) -> None:
        await wire.send(head(200, SSE) + chunk(FIRST))
        await may_end.wait()
        await wire.send(chunk(rest) + b"0\r\n\r\n")

    return script


@asynccontextmanager
async def caller(proxy: Reloadable) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield Caller(reader, writer)
    finally:
        writer.transport.abort()


async def rest_of(stream: Caller) -> bytes:
    """The chunks that are left of a stream."""
    body = b""
    while piece := await stream.chunk():
        body += piece
    return body


async def begun(stream: Caller, name: str) -> None:
    """A stream of this session has begun: its head and first event are here."""
    await stream.sends(post(chat_body(stream=True), [(b"X-Session-Id", name.encode())]))
    assert (await stream.head()).status == 200
    assert await stream.chunk() == FIRST


async def messages_of(proxy: Reloadable, name: str, key: str = "key-1") -> list[Json]:
    reply = await proxy.http.get(f"/api/sessions/{name}/messages", headers={"authorization": f"Bearer {key}"})
    assert reply.status_code == 200, reply.text
    return [{"state": row["state"], **row["message"]} for row in reply.json()["messages"]]


async def test_an_open_stream_ends_as_it_began_and_new_requests_go_to_the_new_upstream(
    tmp_path: Path,
) -> None:
    may_end = asyncio.Event()
    async with Scripted() as one, Scripted() as other:
        one.expects(slow(may_end))
        async with reloadable(tmp_path, upstream=at(one.url, api_key="old")) as proxy:
            async with caller(proxy) as stream, caller(proxy) as kept:
                await begun(stream, "long")
                said = await proxy.reload(upstream=at(other.url, api_key="new"))
                assert said["event"] == "reloaded"
                assert said["settings"] == ["upstream.base_url", "upstream.api_key"]
                other.expects(*[replies(answer_body(), 200, [JSON_TYPE])] * 2)
                # Twice on one connection: that is kept, too.
                for _ in range(2):
                    await kept.sends(post(chat_body()))
                    assert (await kept.reply()).status == 200
                assert [request.header("authorization") for request in other.requests] == ["Bearer new"] * 2
                may_end.set()
                assert await rest_of(stream) == REST
            rows = await messages_of(proxy, "long")
            assert [row["state"] for row in rows] == ["live", "live"]
            assert rows[1]["content"] == "Once upon a time."
        assert len(one.requests) == 1
        # Its connection, whose answer has ended, is closed with the generation that had opened it.
        await one.settled(0)


async def test_a_stop_waits_for_the_answers_of_all_generations(tmp_path: Path) -> None:
    may_end = asyncio.Event()
    async with Scripted() as upstream:
        upstream.expects(slow(may_end), slow(may_end))
        async with reloadable(tmp_path, upstream=at(upstream.url)) as proxy:
            async with caller(proxy) as first, caller(proxy) as second:
                await begun(first, "first")
                await proxy.reload(upstream=at(upstream.url), limits={"json_depth": 64})
                await begun(second, "second")
                await proxy.reload(upstream=at(upstream.url), limits={"json_depth": 65})
                proxy.running.process.terminate()

                async def stops() -> bool:
                    return any(line["event"] == "stopping" for line in proxy.log())

                await until(stops)
                may_end.set()
                assert [await rest_of(first), await rest_of(second)] == [REST, REST]
            assert await proxy.running.process.wait() == -signal.SIGTERM
            said = {line["event"]: line for line in proxy.log()}
            assert (said["stopping"]["answering"], said["stopped"]["cut"]) == (2, 0)
        async with (
            server(tmp_path, None) as running,
            httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False) as http,
        ):
            for name in ("first", "second"):
                reply = await http.get(
                    f"/api/sessions/{name}/messages", headers={"authorization": "Bearer key-1"}
                )
                assert [row["state"] for row in reply.json()["messages"]] == ["live", "live"]


@pytest.mark.spec("P6")
async def test_what_is_erased_while_an_older_generation_answers_leaves_no_byte(tmp_path: Path) -> None:
    may_end, log = asyncio.Event(), tmp_path / "old-log"
    log.mkdir()
    rest = event({"content": f" {WORD}."}) + event({}, "stop") + b"data: [DONE]\n\n"
    async with Scripted() as upstream:
        upstream.expects(slow(may_end, rest))
        async with reloadable(
            tmp_path, upstream=at(upstream.url), compaction={"daily_log_folder": str(log)}
        ) as proxy:
            async with caller(proxy) as stream:
                body = chat_body(f"What does the {WORD} say?", stream=True)
                await stream.sends(post(body, [(b"X-Session-Id", b"gone")]))
                assert (await stream.head()).status == 200
                assert await stream.chunk() == FIRST
                assert remains(tmp_path, WORD)
                await proxy.reload(upstream=at(upstream.url))
                key = {"authorization": "Bearer key-1"}
                reply = await proxy.http.delete("/api/sessions/gone", headers=key)
                assert (reply.status_code, reply.json()["files"]) == (200, "scrubbed")
                may_end.set()
                assert await rest_of(stream) == rest
            # What the older one would still store is stored before it is closed.
            await upstream.settled(0)
            assert (await proxy.http.get("/api/sessions/gone", headers=key)).status_code == 404
            assert remains(tmp_path, WORD) == {}


async def test_an_event_stream_ends_so_that_its_client_comes_back(tmp_path: Path) -> None:
    async with served(ModelServer(), lifespan="off") as url, reloadable(tmp_path, upstream=at(url)) as proxy:
        chat = proxy.chat(session="told")
        await chat.says("hello")
        headers = {**chat.headers, "accept": "text/event-stream"}
        async with proxy.http.stream("GET", "/api/sessions/told/events", headers=headers) as events:
            await proxy.reload(upstream=at(url))
            async for _ in events.aiter_raw():
                pass
        async with proxy.http.stream("GET", "/api/sessions/told/events", headers=headers) as events:
            assert events.status_code == 200


async def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    async with served(ModelServer(), lifespan="off") as url, reloadable(tmp_path, upstream=at(url)) as proxy:
        chat = proxy.chat()
        missing = str(tmp_path / "missing")
        refused: list[tuple[Json, str]] = [
            ({"upstream": at(url), "limits": {"dpeth": 1}}, "limits.json_depth"),
            ({}, "no upstream is set"),
            ({"upstream": at(url), "summarizer": {"prompt_file": missing}}, "summarizer.prompt_file"),
            ({"upstream": at(url, ca_bundle=missing)}, "upstream.ca_bundle"),
            ({"upstream": at(url), "compaction": {"daily_log_folder": missing}}, "there is no folder"),
            # Right by itself, but the address stays as it is until a restart.
            (
                {"upstream": at(url, api_key="k"), "server": {"host": "0.0.0.0"}, "access": {"mode": "open"}},
                "access.mode",
            ),
        ]
        for sections, reason in refused:
            said = await proxy.reload(**sections)
            assert (said["event"], said["level"]) == ("reload_refused", "error")
            assert reason in said["reason"]
            await chat.says(f"Is it {reason}?")
        proxy.write(upstream=at(url))
        (tmp_path / "palimpsest.yaml").write_text("limits: [", encoding="utf-8")
        assert "palimpsest.yaml, line 1" in (await proxy.hang_up())["reason"]
        assert await chat.transcript() == chat.said


async def test_settings_of_every_kind_apply(tmp_path: Path) -> None:
    one, other = ModelServer(), ModelServer()
    async with (
        served(one, lifespan="off") as first,
        served(other, lifespan="off") as second,
        reloadable(tmp_path, upstream=at(first)) as proxy,
    ):
        chat = proxy.chat(session="kinds")
        for number in range(8):
            await chat.says(f"{number}: " + "It was a long day, and nothing came of it. " * 40)
        assert chat.reply.headers["x-palimpsest-view"] == "original"
        # The window, the policy, and who writes summaries.
        smaller = {
            "window": {"window_tokens": 4_000},
            "policy": {"name": "handoff"},
            "compaction": {"background": False},
            "summarizer": {"model": SUMMARY_MODEL},
        }
        said = await proxy.reload(upstream=at(first), **smaller)
        assert {"window.window_tokens", "policy.name", "summarizer.model"} <= set(said["settings"])
        await chat.says("And then?")
        assert chat.reply.headers["x-palimpsest-view"] == "compacted"
        assert chat.reply.headers["x-palimpsest-policy"].startswith("handoff")
        assert {seen.body["model"] for seen in one.summaries} == {SUMMARY_MODEL}
        # A route, limits, keys, and who may call.
        routes = [{"match": "test-*", "base_url": f"{second}/v1"}]
        await proxy.reload(upstream=at(first), routes=routes, **smaller)
        await chat.says("Who are you?")
        assert len(other.prompts) == 1
        await proxy.reload(upstream=at(first), limits={"body_bytes": 2_000})
        reply = await chat.posts([{"role": "user", "content": "x" * 3_000}])
        assert reply.json()["error"]["code"] == "body_too_large"
        await proxy.reload(upstream=at(first), access={"mode": "keys"})
        assert (await chat.posts([{"role": "user", "content": "Hi."}])).status_code == 401
        await proxy.reload(upstream=at(first))
        assert await messages_of(proxy, "kinds") == [{"state": "live", **message} for message in chat.said]


async def test_the_operator_asks_for_a_reload(tmp_path: Path) -> None:
    operated = {"access": {"admin_key": ADMIN_KEY}}
    async with (
        served(ModelServer(), lifespan="off") as url,
        reloadable(tmp_path, upstream=at(url), **operated) as proxy,
    ):
        asked = ("reload", "--url", proxy.running.url, "--admin-key", ADMIN_KEY)
        proxy.write(upstream=at(url), limits={"json_depth": 64}, **operated)
        done = await asyncio.to_thread(ran, tmp_path, *asked, settings={})
        assert (done.returncode, done.stdout) == (0, "Applied: limits.json_depth.\n")
        proxy.write(upstream=at(url), limits={"dpeth": 1}, **operated)
        refused = await asyncio.to_thread(ran, tmp_path, *asked, settings={})
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "limits.json_depth" in refused.stderr
        for key, status in ((ADMIN_KEY, 422), ("sk-other", 401)):
            headers = {"authorization": f"Bearer {key}"}
            assert (await proxy.http.post("/api/admin/reload", headers=headers)).status_code == status
        # By a reload a key is taken back, too.
        proxy.write(upstream=at(url), telemetry={"metrics": False})
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        told = (await proxy.http.post("/api/admin/reload", headers=headers)).json()
        assert told == {
            "applied": ["limits.json_depth", "access.admin_key"],
            "needs_restart": ["telemetry.metrics"],
        }
        assert (await proxy.http.post("/api/admin/reload", headers=headers)).status_code == 403


async def test_what_needs_a_restart_is_named_and_stays_as_it_is(tmp_path: Path) -> None:
    async with served(ModelServer(), lifespan="off") as url, reloadable(tmp_path, upstream=at(url)) as proxy:
        changed = {
            "server": {"shutdown_seconds": 1, "keep_alive_seconds": 9},
            "telemetry": {"metrics": False},
        }
        said = await proxy.reload(upstream=at(url), limits={"json_depth": 64}, **changed)
        assert said["settings"] == ["limits.json_depth"]
        (waiting,) = [line for line in proxy.log() if line["event"] == "reload_needs_restart"]
        assert waiting["level"] == "warning"
        assert waiting["settings"] == [
            *(f"server.{name}_seconds" for name in ("shutdown", "keep_alive")),
            "telemetry.metrics",
        ]
        assert (await proxy.http.get("/metrics")).status_code == 200
        # They are named until the restart, and no more once they are back.
        await proxy.hang_up()
        await proxy.reload(upstream=at(url))
        assert sum(line["event"] == "reload_needs_restart" for line in proxy.log()) == 2


async def test_the_demo_gives_way_to_an_upstream_and_comes_back(tmp_path: Path) -> None:
    async with Scripted() as upstream, reloadable(tmp_path) as proxy:
        chat = proxy.chat()
        await chat.says("hello")
        await proxy.reload(upstream=at(upstream.url))
        upstream.expects(replies(answer_body("Not the demo."), 200, [JSON_TYPE]))
        assert (await chat.says("Who are you?"))["content"] == "Not the demo."
        assert (await proxy.reload())["settings"] == ["upstream.base_url"]
        assert (await chat.says("And now?"))["content"] != "Not the demo."
        assert await chat.transcript() == chat.said


async def test_a_signal_that_comes_during_the_start_is_heeded(tmp_path: Path) -> None:
    file = tmp_path / "palimpsest.db"
    await make_file(file)
    written(tmp_path)
    settings = {
        "PALIMPSEST_DATABASE__URL": f"sqlite:///{file}",
        "PALIMPSEST_DATABASE__DATA_FOLDER": str(tmp_path),
    }
    words = ("serve", "--port", "0")
    process = Process(tmp_path, *words, settings=settings, out=tmp_path / "out", err=tmp_path / "log")

    status_file = Path(f"/proc/{process.pid}/status")

    async def is_caught() -> bool:
        """Before that a SIGHUP ends it, as any program that has hardly begun."""
        status = await asyncio.to_thread(status_file.read_text)
        return bool(int(status.split("SigCgt:")[1].split()[0], 16) & 1)

    async def has_reloaded() -> bool:
        return '"event": "reloaded"' in (tmp_path / "log").read_text()

    try:
        await until(is_caught)
        written(tmp_path, limits={"json_depth": 64})
        process.send_signal(signal.SIGHUP)
        await until(has_reloaded)
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


CLIENTS, TURNS, RELOADS = 8, 25, 5


async def talked(proxy: Reloadable, reloads: Callable[[], Any]) -> tuple[int, int]:
    """Eight clients talk while `reloads` runs: how many requests failed, and sessions not stored whole."""
    failed = lost = 0

    async def talks(name: str) -> None:
        nonlocal failed, lost
        async with httpx.AsyncClient(base_url=proxy.running.url, timeout=60, trust_env=False) as http:
            said: list[Json] = []
            for turn in range(TURNS):
                asked = {"role": "user", "content": f"{name} says {turn}."}
                body = {"model": "test-model", "messages": [*said, asked], "stream": bool(turn % 2)}
                headers = {"authorization": "Bearer key-1", "x-session-id": name}
                try:
                    reply = await http.post("/v1/chat/completions", json=body, headers=headers)
                except httpx.TransportError:
                    failed += 1
                    continue
                if reply.status_code != 200 or ("[DONE]" not in reply.text and turn % 2):
                    failed += 1
                    continue
                said += [asked, {"role": "assistant", "content": content_of(reply)}]
            whole = await is_whole(proxy, name, said)
            lost += not whole

    await asyncio.gather(reloads(), *(talks(f"client-{number}") for number in range(CLIENTS)))
    return failed, lost


async def is_whole(proxy: Reloadable, name: str, said: list[Json]) -> bool:
    try:
        stored = await messages_of(proxy, name)
    except httpx.TransportError:
        return False
    return stored == [{"state": "live", **message} for message in said]


def content_of(reply: httpx.Response) -> str:
    if "event-stream" not in reply.headers["content-type"]:
        return str(reply.json()["choices"][0]["message"]["content"])
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for one in events for choice in one["choices"])


@pytest.mark.spec("P2", "P3")
async def test_under_load_no_request_fails_and_everything_is_stored(tmp_path: Path) -> None:
    one, other = ModelServer(), ModelServer()
    async with (
        served(one, lifespan="off") as first,
        served(other, lifespan="off") as second,
        reloadable(tmp_path, upstream=at(first)) as proxy,
    ):

        async def reloads() -> None:
            for number in range(RELOADS):

                async def is_due(share: int = number + 1) -> bool:
                    return len(one.seen) + len(other.seen) >= share * CLIENTS * TURNS // (RELOADS + 1)

                await until(is_due)
                said = await proxy.reload(
                    upstream=at((second, first)[number % 2]), limits={"json_depth": 64 + number}
                )
                assert said["event"] == "reloaded"

        assert await talked(proxy, reloads) == (0, 0)
    assert len(one.seen) + len(other.seen) == CLIENTS * TURNS
    assert min(len(one.seen), len(other.seen)) > CLIENTS


async def test_the_check_notices_a_restart_in_place_of_a_reload(tmp_path: Path) -> None:
    """The control: a proxy that stops for its new settings fails requests, and is found out."""
    model = ModelServer()
    async with served(model, lifespan="off") as url, reloadable(tmp_path, upstream=at(url)) as proxy:

        async def is_talking() -> bool:
            return len(model.seen) >= CLIENTS * TURNS // 4

        async def stops() -> None:
            await until(is_talking)
            proxy.running.process.terminate()
            await proxy.running.process.wait()

        failed, lost = await talked(proxy, stops)
        assert failed > CLIENTS
        assert lost == CLIENTS
