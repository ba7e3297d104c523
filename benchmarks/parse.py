"""Times reading a long request: 2,000 messages, 4.4 MB. Run: python -m benchmarks.parse [rounds]

Knows the pure core only: no sockets, no store, and a token count that costs nothing.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

from palimpsest.core.history.message import Message, conversation_of, seed_of
from palimpsest.core.history.read import read_message
from palimpsest.core.recall.searchable_text import index_words
from palimpsest.core.runtime.checkpoint import checkpoint_of
from palimpsest.core.runtime.evidence import ArchivedMessage
from palimpsest.core.text.message_text import text_of
from palimpsest.core.text.secrets import without_secrets
from palimpsest.core.wire.chat import parse_chat_request
from palimpsest.core.wire.chat_answers import Assembly
from palimpsest.core.wire.json_spans import outline
from palimpsest.core.wire.json_text import verify
from palimpsest.core.wire.request import RequestLimits
from palimpsest.core.wire.responses.request import parse_responses_request
from palimpsest.core.wire.streams import FrameSplitter, data_of

MESSAGES = 2_000
CHARS = 2_050
FRAMES = 10_000


def words(source: random.Random, vocabulary: list[str]) -> str:
    """About `CHARS` characters of text."""
    return " ".join(source.choices(vocabulary, k=CHARS // 6))[:CHARS]


def messages(source: random.Random) -> list[dict[str, object]]:
    """User turns, tool calls with JSON arguments and results of program text, in turn."""
    prose = ["the", "window", "of", "every", "message", "is", "counted\n", "once,", "naïve"]
    code = ["def", "f(x):\n", "    return", '"text"', "{a: [1, 2]}", "\\n", "path/to/file"]
    said: list[dict[str, object]] = []
    for index in range(0, MESSAGES, 4):
        arguments = json.dumps({"path": f"src/{index}.py", "text": words(source, code)})
        function = {"name": "write", "arguments": arguments}
        call = {"id": f"call_{index}", "type": "function", "function": function}
        said += [
            {"role": "user", "content": words(source, prose)},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{index}", "content": words(source, code)},
            {"role": "assistant", "content": words(source, prose)},
        ]
    return said


def best_ms(rounds: int, work: Callable[[], object]) -> float:
    """Milliseconds of processor time of the quickest of `rounds`: other programs may be running."""
    times = []
    for _ in range(rounds):
        start = process_time()
        work()
        times.append(process_time() - start)
    return min(times) * 1e3


def relayed(stream: list[bytes]) -> Assembly:
    """The answer, as a relay reads it on the side."""
    splitter, assembly = FrameSplitter(1_000_000), Assembly()
    for chunk in stream:
        for frame in splitter.feed(chunk):
            data = data_of(frame)
            if data is not None:
                assembly.feed(data)
    return assembly


def split(stream: list[bytes]) -> int:
    """The number of events with data."""
    splitter = FrameSplitter(1_000_000)
    return sum(data_of(frame) is not None for chunk in stream for frame in splitter.feed(chunk))


def items(said: list[dict[str, Any]]) -> list[dict[str, object]]:
    """The same conversation as items of the Responses API."""
    made: list[dict[str, object]] = []
    for message in said:
        text = message["content"]
        if message["role"] == "tool":
            made.append({"type": "function_call_output", "call_id": message["tool_call_id"], "output": text})
        elif text is None:
            (call,) = message["tool_calls"]
            made.append({"type": "function_call", "call_id": call["id"], **call["function"]})
        else:
            kind = "output_text" if message["role"] == "assistant" else "input_text"
            part = {"type": kind, "text": text}
            made.append({"type": "message", "role": message["role"], "content": [part]})
    return made


def responses(rounds: int, said: list[dict[str, Any]]) -> None:
    """Print the figures of the Responses API."""
    told = {"model": "m", "input": items(said), "stream": True}
    body = json.dumps(told, ensure_ascii=False).encode()
    request = parse_responses_request(body, RequestLimits())
    assert request is not None
    spans = request.message_spans
    print(f"{len(body) / 1e6:.1f} MB of the Responses API, {len(spans)} messages, best of {rounds}, ms")
    for name, work in (
        ("parse_responses_request, all new", lambda: parse_responses_request(body, RequestLimits())),
        ("parse_responses_request, every message known",
         lambda: parse_responses_request(body, RequestLimits(), lambda *_: ())),
        ("splice", lambda: request.spliced(spans)),
        ("read_message", lambda: [read_message(raw, len) for raw in spans]),
    ):  # fmt: skip
        print(f"{best_ms(rounds, work):8.2f}  {name}")


def main(rounds: int) -> None:
    """Print the figures."""
    said = messages(random.Random(7))
    body = json.dumps({"model": "m", "messages": said, "stream": True}, ensure_ascii=False).encode()
    request = parse_chat_request(body, RequestLimits())
    read = [read_message(raw, len) for raw in request.message_spans]
    seed = seed_of("here")
    delta = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": {"content": " word"}, "finish_reason": None}
    frame = b"data: " + json.dumps(delta | {"choices": [choice]}).encode() + b"\n\n"
    stream = [frame] * FRAMES
    print(f"{len(body) / 1e6:.1f} MB, {len(request.message_spans)} messages, best of {rounds}, ms")
    for name, work in (
        ("verify (strict JSON, UTF-8)", lambda: verify(body)),
        ("outline (spans, depth, repeated keys)", lambda: outline(body)),
        ("parse_chat_request, every message new", lambda: parse_chat_request(body, RequestLimits())),
        ("parse_chat_request, every message known",
         lambda: parse_chat_request(body, RequestLimits(), lambda *_: ())),
        ("splice 2,000 messages", lambda: request.spliced(request.message_spans)),
        ("read_message x 2,000 (decode, canonical, 2 sha256)",
         lambda: [read_message(raw, len) for raw in request.message_spans]),
        ("conversation_of (chains)", lambda: conversation_of(read, seed)),
        ("json.loads of the body, for comparison", lambda: json.loads(body)),
    ):  # fmt: skip
        print(f"{best_ms(rounds, work):8.2f}  {name}")
    responses(rounds, said)
    print(f"{FRAMES} frames of {len(frame)} bytes, microseconds a frame")
    print(f"{best_ms(rounds, lambda: split(stream)) * 1e3 / FRAMES:8.2f}  split and data_of")
    print(f"{best_ms(rounds, lambda: relayed(stream)) * 1e3 / FRAMES:8.2f}  split, data_of and assembly")
    coalesced = [frame * 100] * (FRAMES // 100)
    print(f"{best_ms(rounds, lambda: split(coalesced)) * 1e3 / FRAMES:8.2f}  the same, 100 frames a chunk")
    behind(rounds, read)


def behind(rounds: int, read: Sequence[Message]) -> None:
    """Print the figures of work behind the answers."""
    texts = [(message.raw, False) for message in read]
    span = [ArchivedMessage(message.digest, message, place, 0.0) for place, message in enumerate(read[:24])]
    print(f"behind the answers, best of {rounds}, ms")
    for name, work in (
        ("words for the index of 2,000 messages", lambda: index_words(texts)),
        ("a checkpoint of 24 messages", lambda: checkpoint_of("periodic", span, 0.0)),
        ("secrets looked for in 2,000 texts", lambda: [without_secrets(text_of(each)) for each in read]),
    ):  # fmt: skip
        print(f"{best_ms(rounds, work):8.2f}  {name}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
