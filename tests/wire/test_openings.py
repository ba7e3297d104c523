"""What is held back of a stream that only says that there will be an answer (Responses API)."""

from __future__ import annotations

import json

import pytest
from palimpsest.core.wire.responses.answers import ResponseAssembly
from palimpsest.proxy.answering.holdback import Holdback
from palimpsest.upstream.decoding import decoder_for


def waiting() -> Holdback:
    gate = Holdback(
        ResponseAssembly(),
        decoder_for([], 64_000_000),
        "events",
        is_coded=False,
        frame_bytes=8_000_000,
        answer_bytes=64_000_000,
    )
    gate.wait()
    return gate


def event(kind: str, **fields: object) -> bytes:
    return b"data: " + json.dumps({"type": kind, **fields}).encode() + b"\n\n"


def test_the_news_of_an_answer_waits_for_the_first_of_it() -> None:
    gate = waiting()
    first, second = event("response.created"), event("response.in_progress")
    assert gate.take(first) + gate.take(second) == b""
    assert gate.is_waiting
    delta = event("response.output_text.delta", output_index=0, delta="x")
    assert gate.take(delta) == first + second + delta
    assert not gate.is_waiting


@pytest.mark.parametrize("sign", [b": ping\n\n", event("keepalive")])
def test_a_sign_of_life_lets_it_go(sign: bytes) -> None:
    gate = waiting()
    first = event("response.created")
    assert gate.take(first) == b""
    assert gate.take(sign) == first + sign


def test_no_more_is_held_than_such_news_can_be() -> None:
    gate = waiting()
    large = event("response.created", response={"instructions": "x" * 700_000})
    assert gate.take(large) == b""
    assert gate.take(large) == large + large


def test_a_failure_behind_the_news_is_known_as_early() -> None:
    gate = waiting()
    first, failed = event("response.created"), event("response.failed", response={"error": {"code": "x"}})
    assert gate.take(first) == b""
    assert gate.take(failed) == first + failed
    assert gate.has_failed_early
