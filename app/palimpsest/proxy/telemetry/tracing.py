"""One OpenTelemetry span an exchange, made at its end and exported in the background.

Imported only where `telemetry.otlp_url` is set: the SDK takes 70 ms. Names of attributes are those of
OpenTelemetry's conventions for generative AI and of OpenInference (Phoenix), as constants of our own: the
package of conventions lags behind. A collector that hangs or refuses costs an exchange nothing: the queue of
finished spans is bounded, and what does not fit is dropped.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import version
from typing import TypeAlias
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from palimpsest.core.wire.json_text import array_of
from palimpsest.core.wire.request import Fields
from palimpsest.proxy.reports import RequestEntry
from palimpsest.proxy.turn import Turn

Attribute: TypeAlias = str | bool | int | float | list[str]
Attributes: TypeAlias = Iterator[tuple[str, Attribute | None]]

# Content beyond this is cut: collectors refuse requests of more than a few megabytes.
CONTENT_CHARS = 50_000
# How long a stop waits for the spans that are left, in seconds.
_STOP_SECONDS = 2.0
_NANOSECONDS = 1e9
_CARRIERS = frozenset({b"traceparent", b"tracestate"})
# Parameters of a request, by their names in the conventions.
_PARAMETERS = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
}


class Tracer:
    """Exports to the collector at `otlp_url`. `content`: with what was asked and answered.

    The SDK reads further settings from its own variables, such as OTEL_EXPORTER_OTLP_HEADERS,
    OTEL_RESOURCE_ATTRIBUTES and OTEL_TRACES_SAMPLER.
    """

    def __init__(self, otlp_url: str, *, content: bool) -> None:
        self._content = content
        named = {"service.name": "palimpsest", "service.version": version("palimpsest")}
        resource = Resource.create({**named, "service.instance.id": str(os.getpid())})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{otlp_url}/v1/traces")))
        self._tracer = self._provider.get_tracer("palimpsest", version("palimpsest"))
        self._carried = TraceContextTextMapPropagator()

    def ended(self, entry: RequestEntry) -> None:
        """Make the span of an exchange that has ended; of other requests none."""
        if entry.event == "request":
            return
        carrier = {
            name.decode(): value.decode("latin-1") for name, value in entry.headers if name in _CARRIERS
        }
        ended_at = time.time()
        span = self._tracer.start_span(
            f"chat {entry.model}".rstrip(),
            # Without a traceparent the span is the first of a trace.
            context=self._carried.extract(carrier),
            kind=SpanKind.CLIENT,
            start_time=int((ended_at - entry.seconds) * _NANOSECONDS),
        )
        if span.is_recording():
            found = _attributes(entry, ended_at - entry.seconds)
            span.set_attributes({name: value for name, value in found if value is not None})
            if self._content and entry.turn is not None:
                span.set_attributes(_content(entry, entry.turn))
            if entry.code is not None:
                span.set_status(StatusCode.ERROR, entry.code)
        span.end(int(ended_at * _NANOSECONDS))

    async def close(self) -> None:
        """Export what is left, for a limited time."""
        loop, is_done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            # RuntimeError: the loop has ended meanwhile.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(is_done.set)

        # A daemon: a collector that hangs must not keep the process.
        threading.Thread(target=shut_down, name="spans", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await is_done.wait()


def _attributes(entry: RequestEntry, began_at: float) -> Attributes:
    server = urlsplit(entry.upstream or "")
    yield "openinference.span.kind", "LLM"
    yield "gen_ai.operation.name", "chat"
    # The API spoken. Who answers is `server.address`.
    yield "gen_ai.provider.name", "openai"
    yield "gen_ai.request.model", entry.model or None
    yield "server.address", server.hostname
    yield "server.port", server.port
    yield "http.response.status_code", entry.status
    yield "error.type", entry.code
    yield "palimpsest.error.origin", entry.cause
    yield "palimpsest.overhead_seconds", entry.prepared_seconds
    if entry.first_byte_at is not None:
        yield "gen_ai.response.time_to_first_chunk", round(entry.first_byte_at - began_at, 4)
    if (turn := entry.turn) is not None:
        yield "session.id", turn.session
        yield "gen_ai.conversation.id", turn.session
        yield "palimpsest.exchange.id", turn.exchange
        yield "gen_ai.request.max_tokens", turn.max_output_tokens
        yield "gen_ai.request.stream", turn.request.stream or None
        yield "gen_ai.request.choice.count", turn.request.n if turn.request.n != 1 else None
        fields = Fields(turn.request.body, turn.request.shape)
        for member, name in _PARAMETERS.items():
            value = fields.value(member)
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield name, value
    if turn is not None and (shown := entry.shown) is not None:
        yield "palimpsest.tokens_full", shown.for_model(turn.tokens)
        yield "palimpsest.tokens", shown.for_model(shown.tokens)
        yield "palimpsest.window_tokens", shown.window_tokens or None
        yield "palimpsest.compaction_wait_seconds", shown.waited_seconds
        # Set on compacted prompts alone, as the conventions ask.
        if shown.view.compaction is not None:
            yield "gen_ai.conversation.compacted", True
            yield "palimpsest.compaction.id", shown.view.compaction.id
    if (answer := entry.answer) is not None:
        yield "gen_ai.response.id", answer.response_id
        yield "gen_ai.response.finish_reasons", [answer.finish_reason] if answer.finish_reason else None
        yield "gen_ai.usage.input_tokens", answer.usage.prompt_tokens
        yield "gen_ai.usage.output_tokens", answer.usage.completion_tokens
        yield "gen_ai.usage.cache_read.input_tokens", answer.usage.cached_tokens
        yield "gen_ai.usage.cache_write.input_tokens", answer.usage.written_tokens
        yield "gen_ai.usage.reasoning.output_tokens", answer.usage.reasoning_tokens


def _content(entry: RequestEntry, turn: Turn) -> dict[str, str]:
    """The messages as they were sent, the newest ones where not all fit, and the answer's."""
    shown, talk = entry.shown, turn.conversation
    sent = shown.view.messages if shown is not None and not shown.is_original else None
    asked = sent or [message.raw for message in (*talk.preamble, *talk.messages)]
    kept: list[bytes] = []
    left = CONTENT_CHARS
    for raw in reversed(asked):
        left -= len(raw)
        if left < 0 and kept:
            break
        kept.append(raw)
    found = {"input.mime_type": "application/json", "input.value": _listed(kept[::-1])}
    if entry.answer is not None and entry.answer.answers:
        answers = [message.raw for message in entry.answer.answers]
        found |= {"output.mime_type": "application/json", "output.value": _listed(answers)}
    return found


def _listed(messages: Iterable[bytes]) -> str:
    return (array_of(messages)).decode("utf-8", "replace")[:CONTENT_CHARS]
