"""`GET /metrics`: what is counted, under which labels, and who may read it."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from palimpsest.proxy.telemetry.counts import MOST_MODELS, OTHER

from tests.kit.migrated import make_file
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import fronting, proxied
from tests.kit.scrapes import Scrape, scraped, scraped_once
from tests.kit.serving import served
from tests.kit.wire import Headers, chat_body, event, post, wired
from tests.upstream.scripted import chunk, cuts_after, head, replies, stalls_after

PARAGRAPH = "A letter about the harbour and its seven cranes. " * 40
KEY = "scrape-key-Kanarienvogel"
SSE: Headers = [(b"Content-Type", b"text/event-stream"), (b"Transfer-Encoding", b"chunked")]


def _ended(count: int) -> Callable[[Scrape], bool]:
    """True of a scrape that knows of so many requests."""
    return lambda scrape: scrape.value("palimpsest_requests_total") == count


async def test_a_conversation_is_counted(tmp_path: Path) -> None:
    model = ModelServer(window=100_000)
    async with proxied(model, tmp_path, {"models": [{"match": "test-*"}]}) as proxy:
        chat = proxy.chat()
        await chat.says("one")
        chat.stream, chat.extra = True, {"stream_options": {"include_usage": True}}
        await chat.says("two")
        scrape = await scraped_once(proxy.http, _ended(2))
    labels = {"model": "test-model", "wire": "chat"}
    assert scrape.value("palimpsest_requests_total", status="2xx", **labels) == 2
    assert scrape.value("palimpsest_input_tokens_total", model="test-model") == sum(
        seen.tokens for seen in model.prompts
    )
    assert scrape.value("palimpsest_output_tokens_total", model="test-model") == 18
    for name in ("request_duration_seconds", "first_token_seconds"):
        assert scrape.value(f"palimpsest_{name}_count", **labels) == 2
    assert scrape.value("palimpsest_overhead_seconds_count", wire="chat") == 2
    assert scrape.value("palimpsest_context_used_ratio_bucket", model="test-model", le="0.1") == 2
    assert scrape.value("palimpsest_upstream_requests_total", outcome="answered") == 2
    assert scrape.value("palimpsest_requests_in_progress") == 0
    assert scrape.value("palimpsest_store_ready") == 1
    assert (scrape.value("palimpsest_store_bytes") or 0) > 10_000
    assert scrape.value("palimpsest_build_info") == 1
    # Nobody has stated a price.
    assert scrape.value("palimpsest_cost_dollars_total") is None
    assert scrape.value("palimpsest_errors_total") is None


async def test_a_stream_without_usage_is_counted_by_us(tmp_path: Path) -> None:
    model = ModelServer()
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(stream=True)
        model.says("seven words stand in this one answer")
        await chat.says("one")
        scrape = await scraped_once(proxy.http, _ended(1))
    assert scrape.value("palimpsest_input_tokens_total") == model.prompts[0].tokens
    assert 7 <= (scrape.value("palimpsest_output_tokens_total") or 0) <= 20


async def test_a_compaction_and_what_it_saves_are_counted(tmp_path: Path) -> None:
    overrides = {"compaction.background": False, "policy.name": "handoff"}
    async with proxied(ModelServer(window=4_000), tmp_path, overrides) as proxy:
        chat = proxy.chat()
        while not chat.replies or not await chat.compactions():
            await chat.says(PARAGRAPH)
        (made,) = await chat.compactions()
        scrape = await scraped_once(proxy.http, _ended(len(chat.replies)))
    labels = {"preset": "handoff", "trigger": made["trigger"]}
    assert made["author"] == "model"
    assert scrape.value("palimpsest_compactions_total", outcome="by_model", **labels) == 1
    full, sent = map(int, chat.reply.headers["x-palimpsest-tokens"].split("/"))
    assert scrape.value("palimpsest_tokens_saved_total") == full - sent > 0
    assert scrape.value("palimpsest_compaction_wait_seconds_count") == 1


async def test_errors_are_counted_by_origin(tmp_path: Path) -> None:
    limited = Says(status=429, error={"error": {"message": "slowly", "type": "rate_limit", "code": None}})
    model = ModelServer()
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat()
        model.answers.append(limited)
        assert (await chat.posts([{"role": "user", "content": "hi"}])).status_code == 429
        twice = b'{"model":"test-model","model":"b","messages":[{"role":"user","content":"hi"}]}'
        assert (await proxy.http.post("/v1/chat/completions", content=twice)).status_code == 400
        scrape = await scraped_once(proxy.http, _ended(2))
    assert (
        scrape.value("palimpsest_errors_total", origin="upstream", code="upstream_status", status="429") == 1
    )
    assert scrape.value("palimpsest_errors_total", origin="client", code="invalid_json", status="400") == 1
    assert scrape.value("palimpsest_requests_total", status="4xx") == 2
    assert scrape.value("palimpsest_upstream_requests_total", outcome="failed") == 1


async def test_a_server_that_is_down_is_the_upstreams_failure(tmp_path: Path) -> None:
    async with served(ModelServer(), lifespan="off") as address:
        pass
    async with fronting(f"{address}/v1", tmp_path) as proxy:
        assert (await proxy.http.post("/v1/chat/completions", content=chat_body())).status_code == 502
        scrape = await scraped_once(proxy.http, _ended(1))
    assert scrape.value("palimpsest_errors_total", origin="upstream", code="upstream_unreachable") == 1


async def test_models_that_nobody_has_published_are_others(tmp_path: Path) -> None:
    """Callers choose names; a label for each would fill Prometheus' memory."""
    overrides = {"models": [{"match": "house-*", "prices": {"input": 2.0, "output": 8.0}}]}
    async with proxied(ModelServer(), tmp_path, overrides) as proxy:
        chat = proxy.chat()
        for name in ("house-model", "gpt-4o-mini", "made-up-1", "made-up-2"):
            chat.extra = {"model": name}
            await chat.says("hi")
        scrape = await scraped_once(proxy.http, _ended(4))
    for name, requests in (("house-model", 1), ("gpt-4o-mini", 1), (OTHER, 2)):
        assert scrape.value("palimpsest_requests_total", model=name) == requests
    assert "made-up" not in scrape.text
    read = scrape.value("palimpsest_input_tokens_total", model="house-model") or 0
    dollars = scrape.value("palimpsest_cost_dollars_total", model="house-model")
    assert dollars == pytest.approx((read * 2.0 + 9 * 8.0) / 1e6)
    # Published, in dollars.
    assert (scrape.value("palimpsest_cost_dollars_total", model="gpt-4o-mini") or 0) > 0
    assert scrape.value("palimpsest_cost_dollars_total", model=OTHER) is None


async def test_nothing_of_a_caller_is_told(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(key="sk-Zeisig", session="zeisigs-session")
        await chat.says("Zeisig sings")
        await chat.says("Zeisig sings again")
        scrape = await scraped_once(proxy.http, _ended(2))
    assert "zeisig" not in scrape.text.lower()
    assert chat.session not in scrape.text
    labels = {label for name in scrape.names for label in scrape.labels(name)}
    assert labels <= {"model", "wire", "status", "le", "upstream", "outcome", "version", "python"}


async def test_with_a_key_every_reader_needs_it(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path, {"telemetry.metrics_key": KEY}) as proxy:
        await scraped(proxy.http, {"authorization": f"Bearer {KEY}"})
        for headers in ({}, {"authorization": "Bearer another"}, {"authorization": "Bearer"}):
            reply = await proxy.http.get("/metrics", headers=headers)
            assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")
            assert "palimpsest_" not in reply.text
        assert (await proxy.http.post("/metrics", content=b"")).status_code == 405
        assert (await proxy.http.head("/metrics", headers={"authorization": f"Bearer {KEY}"})).text == ""


def _called_from(address: str) -> Callable[[Any], Any]:
    """What another machine would reach, with its own address."""

    def around(app: Any) -> Any:
        async def application(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                scope["client"] = (address, 40_000)
            await app(scope, receive, send)

        return application

    return around


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {"host": "[::1]:8000"}, 200),
        ("::ffff:127.0.0.1", {"host": "localhost"}, 200),
        ("192.0.2.7", {}, 401),
        ("2001:db8::7", {}, 401),
        # A front end on this machine, that says so; and one that hands its own name on.
        ("127.0.0.1", {"x-forwarded-for": "192.0.2.7"}, 401),
        ("127.0.0.1", {"forwarded": "for=192.0.2.7"}, 401),
        ("127.0.0.1", {"host": "chat.example.org"}, 401),
    ],
)
@pytest.mark.parametrize("key", [None, ""])
async def test_without_a_key_only_this_machine_may_read(
    tmp_path: Path, address: str, headers: dict[str, str], status: int, key: str | None
) -> None:
    overrides = {"server.allowed_hosts": ["*"], "telemetry.metrics_key": key}
    async with fronting("http://127.0.0.1:1/v1", tmp_path, overrides, around=_called_from(address)) as proxy:
        assert (await proxy.http.get("/metrics", headers=headers)).status_code == status


async def test_another_sites_page_may_not_read_them(tmp_path: Path) -> None:
    async with fronting("http://127.0.0.1:1/v1", tmp_path) as proxy:
        reply = await proxy.http.get("/metrics", headers={"origin": "https://evil.example"})
        assert reply.json()["error"]["code"] == "origin_not_allowed"
        reply = await proxy.http.get("/metrics", headers={"host": "rebound.example.org"})
        assert reply.json()["error"]["code"] == "host_not_allowed"


async def test_the_page_can_be_off(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path, {"telemetry.metrics": False}) as proxy:
        await proxy.chat().says("hi")
        assert (await proxy.http.get("/metrics")).status_code == 404


async def test_openmetrics_is_spoken_to_who_asks_for_it(tmp_path: Path) -> None:
    async with fronting("http://127.0.0.1:1/v1", tmp_path) as proxy:
        reply = await proxy.http.get("/metrics", headers={"accept": "application/openmetrics-text"})
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    assert reply.text.endswith("# EOF\n")


async def test_a_database_that_is_gone_is_told(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.always(replies(b"{}"))
        line.database.unlink()
        scrape = await scraped(line.http)
    assert scrape.value("palimpsest_store_ready") == 0
    assert scrape.value("palimpsest_store_bytes") is None


async def test_what_is_off_or_was_not_asked_for_is_not_imported(tmp_path: Path) -> None:
    """Neither library at a start; the scrape needs the one, as a control."""
    await make_file(tmp_path / "palimpsest.db")
    settings = {
        "PALIMPSEST_DATABASE__URL": f"sqlite:///{tmp_path / 'palimpsest.db'}",
        "PALIMPSEST_DATABASE__DATA_FOLDER": str(tmp_path),
        "PALIMPSEST_SERVER__PORT": "0",
    }
    command = [sys.executable, "-X", "importtime", "-m", "palimpsest", "serve"]
    with (tmp_path / "log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, env=os.environ | settings, stdout=PIPE, stderr=log
        )
        assert process.stdout is not None
        try:
            said = (await process.stdout.readline()).decode()
            url = said.split()[-1].removesuffix("/v1")
            async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) as http:
                assert (await http.post("/v1/chat/completions", content=chat_body())).status_code == 200
                before = (tmp_path / "log").read_text()
                await scraped(http)
            after = (tmp_path / "log").read_text()
        finally:
            process.terminate()
            await process.communicate()
    assert "| palimpsest.proxy.telemetry.counts\n" in before.replace("  ", "")
    assert "prometheus_client" not in before
    assert "prometheus_client" in after
    assert "opentelemetry" not in after


async def test_a_client_that_leaves_is_no_error(tmp_path: Path) -> None:
    """Of the two requests one is left and one is cut: only the second is anybody's fault."""
    first = head(200, SSE) + chunk(event({"role": "assistant", "content": "Once"}))
    async with wired(tmp_path) as line:
        line.upstream.expects(stalls_after(first), cuts_after(len(first), first))
        async with line.caller() as caller:
            await caller.sends(post(chat_body(stream=True)))
            await caller.head()
            await caller.chunk()
        await scraped_once(line.http, _ended(1))
        async with line.caller() as caller:
            await caller.sends(post(chat_body(stream=True)))
            await caller.head()
            scrape = await scraped_once(line.http, _ended(2))
    assert scrape.value("palimpsest_upstream_requests_total", outcome="left") == 1
    assert scrape.value("palimpsest_upstream_requests_total", outcome="failed") == 1
    assert scrape.value("palimpsest_errors_total") == 1
    assert scrape.value("palimpsest_errors_total", origin="upstream", code="upstream_cut", status="") == 1


async def test_at_most_so_many_models_have_a_label(tmp_path: Path) -> None:
    """Also of names that a pattern of the settings matches; what was counted under one stays there."""
    async with proxied(ModelServer(), tmp_path, {"models": [{"match": "house-*"}]}) as proxy:
        chat = proxy.chat()
        for number in range(MOST_MODELS + 5):
            chat.extra = {"model": f"house-{number}"}
            await chat.posts([{"role": "user", "content": "hi"}])
        first = await scraped_once(proxy.http, _ended(MOST_MODELS + 5))
        chat.extra = {"model": "house-0"}
        await chat.posts([{"role": "user", "content": "hi again"}])
        second = await scraped_once(proxy.http, _ended(MOST_MODELS + 6))
    assert first.value("palimpsest_requests_total", model=OTHER) == 5
    assert second.value("palimpsest_requests_total", model=OTHER) == 5
    assert first.text.count("\npalimpsest_requests_total{") == MOST_MODELS + 1


@pytest.mark.parametrize(("version", "status"), [(b"1.1", 200), (b"1.0", 401)])
async def test_an_old_protocol_is_a_front_ends(tmp_path: Path, version: bytes, status: int) -> None:
    async with wired(tmp_path) as line:
        reply = await line.asks(b"GET /metrics HTTP/" + version + b"\r\nHost: localhost\r\n\r\n")
    assert reply.status == status


@pytest.mark.parametrize("version", ["x", "9e999", "1.x", "2.x"])
async def test_a_version_that_is_no_number_gets_the_plain_format(version: str, tmp_path: Path) -> None:
    accept = f"text/html, application/openmetrics-text; version={version}"
    async with fronting("http://127.0.0.1:1/v1", tmp_path) as proxy:
        reply = await proxy.http.get("/metrics", headers={"accept": accept})
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain")
