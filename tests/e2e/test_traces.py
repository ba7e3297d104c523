"""One span an exchange at a real OTLP collector, which the SDK's own protocol buffers read."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from palimpsest.main.application import create_app
from palimpsest.settings.load import load_settings

from benchmarks.kill_loop import server
from tests.kit.chat import Chat
from tests.kit.migrated import make_file
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied
from tests.kit.serving import served, shared_tokenizer
from tests.upstream.scripted import Scripted, Wire, replies, stalls_after

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARAGRAPH = "A letter about the harbour and its seven cranes. " * 40
PROTOBUF = ((b"Content-Type", b"application/x-protobuf"),)


@dataclass
class Collector:
    """A collector, and what it has received once the proxy has stopped."""

    server: Scripted
    bodies: list[bytes] = field(default_factory=list)

    async def __call__(self, wire: Wire) -> None:
        """Accepts a batch."""
        assert (wire.request.method, wire.request.target) == ("POST", "/v1/traces")
        self.bodies.append(wire.request.body)
        await replies(b"", headers=PROTOBUF)(wire)

    def _batches(self) -> Iterator[ExportTraceServiceRequest]:
        for body in self.bodies:
            yield ExportTraceServiceRequest.FromString(body)

    @property
    def spans(self) -> list[Span]:
        """All spans, oldest first."""
        every = [
            span
            for batch in self._batches()
            for resource in batch.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(every, key=lambda span: span.start_time_unix_nano)

    @property
    def services(self) -> set[str]:
        """The names of the services that sent them."""
        resources = [resource.resource for batch in self._batches() for resource in batch.resource_spans]
        return {
            pair.value.string_value
            for resource in resources
            for pair in resource.attributes
            if pair.key == "service.name"
        }


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    async with Scripted() as server:
        collector = Collector(server)
        server.always(collector)
        yield collector


@asynccontextmanager
async def traced(
    collector: Scripted, model: ModelServer, folder: Path, overrides: dict[str, Any] | None = None
) -> AsyncIterator[Proxy]:
    settings = {"telemetry.otlp_url": collector.url, **(overrides or {})}
    async with proxied(model, folder, settings) as proxy:
        yield proxy


def _plain(value: AnyValue) -> Any:
    if value.HasField("array_value"):
        return [_plain(each) for each in value.array_value.values]
    return getattr(value, value.WhichOneof("value") or "string_value")


def _attributes(span: Span) -> dict[str, Any]:
    return {pair.key: _plain(pair.value) for pair in span.attributes}


async def test_an_exchange_is_a_span(tmp_path: Path) -> None:
    model = ModelServer()
    async with collecting() as collector:
        async with traced(collector.server, model, tmp_path) as proxy:
            chat = proxy.chat(extra={"temperature": 0.25, "max_tokens": 64, "seed": 7})
            await chat.says("Zeisig sings")
            # Not an exchange.
            await proxy.http.get("/v1/models")
        (span,) = collector.spans
    found = _attributes(span)
    assert (span.name, span.kind) == ("chat test-model", Span.SPAN_KIND_CLIENT)
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert not span.parent_span_id
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 60e9
    assert collector.services == {"palimpsest"}
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "test-model",
        "gen_ai.request.temperature": 0.25,
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.seed": 7,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": model.prompts[0].tokens,
        "gen_ai.usage.output_tokens": 9,
        "gen_ai.conversation.id": chat.session,
        "session.id": chat.session,
        "openinference.span.kind": "LLM",
        "server.address": "127.0.0.1",
        "http.response.status_code": 200,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert 0 < found["gen_ai.response.time_to_first_chunk"] < 60
    for absent in ("error.type", "gen_ai.conversation.compacted", "input.value", "output.value"):
        assert absent not in found
    assert b"Zeisig" not in b"".join(collector.bodies)


async def test_content_is_sent_only_if_it_is_asked_for(tmp_path: Path) -> None:
    model = ModelServer()
    async with collecting() as collector:
        overrides = {"telemetry.trace_content": True}
        async with traced(collector.server, model, tmp_path, overrides) as proxy:
            model.says("An answer of Zeisig's.")
            chat = proxy.chat(key="sk-Kanarienvogel", system="Be brief.")
            await chat.says("Zeisig asks")
        (span,) = collector.spans
    found = _attributes(span)
    assert json.loads(found["input.value"]) == chat.said[:2]
    assert [one["content"] for one in json.loads(found["output.value"])] == ["An answer of Zeisig's."]
    assert found["input.mime_type"] == "application/json"
    assert b"Kanarienvogel" not in b"".join(collector.bodies)


async def test_a_compacted_exchange_says_so(tmp_path: Path) -> None:
    async with collecting() as collector:
        overrides = {"compaction.background": False, "telemetry.trace_content": True}
        async with traced(collector.server, ModelServer(window=4_000), tmp_path, overrides) as proxy:
            chat = proxy.chat()
            while not chat.replies or not await chat.compactions():
                await chat.says(PARAGRAPH)
            (made,) = await chat.compactions()
            sent = proxy.model.prompts[-1].messages
        *_, before, span = collector.spans
    assert "gen_ai.conversation.compacted" not in _attributes(before)
    found = _attributes(span)
    assert found["gen_ai.conversation.compacted"] is True
    assert found["palimpsest.compaction.id"] == made["id"]
    assert found["palimpsest.tokens"] < found["palimpsest.tokens_full"]
    assert json.loads(found["input.value"]) == sent


async def test_a_failure_has_its_code(tmp_path: Path) -> None:
    model = ModelServer()
    async with collecting() as collector:
        async with traced(collector.server, model, tmp_path) as proxy:
            model.answers.append(Says(status=500, error={"error": {"message": "no", "type": "server_error"}}))
            assert (await proxy.chat().posts([{"role": "user", "content": "hi"}])).status_code == 500
            # Refused before it had a session.
            assert (await proxy.http.post("/v1/chat/completions", content=b"{")).status_code == 400
        theirs, ours = map(_attributes, collector.spans)
        assert {span.status.code for span in collector.spans} == {Status.STATUS_CODE_ERROR}
    assert (theirs["error.type"], theirs["palimpsest.error.origin"]) == ("upstream_status", "upstream")
    assert theirs["http.response.status_code"] == 500
    assert (ours["error.type"], ours["palimpsest.error.origin"]) == ("invalid_json", "client")


async def test_the_clients_trace_is_continued_and_passed_on_as_it_came(tmp_path: Path) -> None:
    model = ModelServer()
    sampled, unsampled = (f"00-{TRACE}-{PARENT}-{flag}" for flag in ("01", "00"))
    async with collecting() as collector:
        async with traced(collector.server, model, tmp_path) as proxy:
            asked = [{"role": "user", "content": "hi"}]
            for header in (sampled, unsampled):
                await proxy.chat().posts(asked, {"traceparent": header, "tracestate": "vendor=1"})
            await proxy.chat().posts(asked, {"traceparent": "not one"})
        continued, own = collector.spans
    assert continued.trace_id.hex() == TRACE
    assert continued.parent_span_id.hex() == PARENT
    assert continued.trace_state == "vendor=1"
    assert own.trace_id.hex() != TRACE
    assert not own.parent_span_id
    assert [seen.headers["traceparent"] for seen in model.prompts] == [sampled, unsampled, "not one"]


@pytest.mark.parametrize("trouble", ["refuses", "hangs", "fails", "is gone"])
async def test_a_collector_in_trouble_costs_an_exchange_nothing(tmp_path: Path, trouble: str) -> None:
    """Nor does it keep the proxy from stopping."""
    async with Scripted() as collector:
        url = collector.url
        if trouble == "hangs":
            collector.always(stalls_after(b""))
        else:
            collector.always(replies(b"", status=400 if trouble == "refuses" else 503))
        if trouble == "is gone":
            url = "http://127.0.0.1:1"
        overrides = {"telemetry.otlp_url": url}
        async with proxied(ModelServer(), tmp_path, overrides) as proxy, asyncio.timeout(30):
            chat = proxy.chat()
            for number in range(5):
                await chat.says(f"turn {number}")
            assert await chat.transcript() == chat.said
    assert {reply.status_code for reply in chat.replies} == {200}


async def test_a_collector_that_hangs_keeps_no_process(tmp_path: Path) -> None:
    """The thread that exports is left behind."""
    async with Scripted() as collector, served(ModelServer(), lifespan="off") as upstream:
        collector.always(stalls_after(b""))
        async with (
            server(tmp_path, upstream, PALIMPSEST_TELEMETRY__OTLP_URL=collector.url) as running,
            httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False) as http,
        ):
            await Chat(http).says("hi")
            running.process.terminate()
            await collector.arrived(1)
            async with asyncio.timeout(30):
                assert await running.process.wait() == -signal.SIGTERM


async def test_the_extra_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_file(tmp_path / "palimpsest.db")
    given = {
        "database.url": f"sqlite:///{tmp_path / 'palimpsest.db'}",
        "database.data_folder": str(tmp_path),
        "upstream.base_url": "http://127.0.0.1:1/v1",
        "telemetry.otlp_url": "http://127.0.0.1:1",
    }
    monkeypatch.setitem(sys.modules, "palimpsest.proxy.telemetry.tracing", None)
    application = create_app(load_settings(None, given, {}), shared_tokenizer())
    with pytest.raises(RuntimeError, match="did not start"):
        async with served(application):
            pass
    assert application.refusal is not None
    assert "pip install 'palimpsest[otel]'" in application.refusal.message


async def test_nothing_is_added_to_what_the_upstream_gets(tmp_path: Path) -> None:
    """P1, with tracing on: the same bytes, and no header of its own."""
    heads = []
    for folder in ("off", "on"):
        (tmp_path / folder).mkdir()
        async with collecting() as collector:
            overrides = {"telemetry.otlp_url": collector.server.url} if folder == "on" else {}
            async with proxied(ModelServer(), tmp_path / folder, overrides) as proxy:
                await proxy.chat().says("hi")
                (seen,) = proxy.model.prompts
                heads.append((sorted(seen.headers.keys()), seen.raw))
    assert heads[0] == heads[1]
    assert "traceparent" not in heads[0][0]
