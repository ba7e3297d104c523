"""What goes along with a question of ours on the Responses API."""

from __future__ import annotations

from typing import Any

import pytest
from palimpsest.core.wire.request import RequestLimits
from palimpsest.core.wire.responses.question import (
    has_unreadable_reasoning,
    previous_of,
)
from palimpsest.core.wire.responses.request import parse_responses_request

pytestmark = pytest.mark.spec("W55")
# As Codex CLI asks, and with what other clients add.
CODEX = (
    b'{"model":"gpt-5-codex", "instructions":"You are caf\\u00e9.", "input":[{"role":"user","content":"hi"}],'
    b'"tools":[{"type":"function","name":"f"}],"tool_choice":"auto","parallel_tool_calls":false,'
    b'"reasoning":{"effort":"medium",  "summary":"auto"},"store":false,"stream":true,'
    b'"stream_options":{"include_obfuscation":false},"include":["reasoning.encrypted_content"],'
    b'"prompt_cache_key":"0199","text":{"verbosity":"low"},"x-vendor":1e2,"user":"u","metadata":{"a":"b"},'
    b'"service_tier":"flex","temperature":1,"top_p":0.5,"max_output_tokens":9,"truncation":"auto",'
    b'"context_management":[{"type":"compaction"}],"previous_response_id":"resp_1","prompt":null}'
)


def request_of(raw: bytes) -> Any:
    request = parse_responses_request(raw, RequestLimits())
    assert request is not None
    return request


def test_what_chooses_how_the_model_runs_goes_along_as_it_was_spelled() -> None:
    assert request_of(CODEX).question_members == (
        ("instructions", b'"You are caf\\u00e9."'),
        ("parallel_tool_calls", b"false"),
        ("reasoning", b'{"effort":"medium",  "summary":"auto"}'),
        ("prompt_cache_key", b'"0199"'),
        ("text", b'{"verbosity":"low"}'),
        ("x-vendor", b"1e2"),
        ("user", b'"u"'),
        ("service_tier", b'"flex"'),
        ("temperature", b"1"),
        ("top_p", b"0.5"),
    )
    assert previous_of(request_of(CODEX)) == (("previous_response_id", b'"resp_1"'),)


@pytest.mark.parametrize(
    ("text", "goes"),
    [
        (b'{"format":{"type":"text"}}', True),
        (b'{"format":{"type":"json_schema","name":"n","schema":{}}}', False),
        (b'{"format":{"type":"json_object"},"verbosity":"low"}', False),
        (b'"odd"', True),
    ],
)
def test_a_form_of_answers_is_not_asked_of_a_summary(text: bytes, goes: bool) -> None:
    request = request_of(b'{"model":"m","input":"x","text":' + text + b"}")
    assert request.question_members == ((("text", text),) if goes else ())


@pytest.mark.parametrize(
    ("answer", "is_lone"),
    [
        (b'[{"type":"reasoning","id":"r","summary":[]},{"type":"message","content":"a"}]', True),
        (b'[{"type":"reasoning","id":"r","encrypted_content":null},{"type":"message","content":"a"}]', True),
        (b'[{"type":"reasoning","id":"r","encrypted_content":"g"},{"type":"message","content":"a"}]', False),
        (
            b'[{"type":"reasoning","content":[{"type":"reasoning_text","text":"t"}]},{"type":"message"}]',
            False,
        ),
        (b'[{"type":"message","content":"a"}]', False),
        (b'{"type":"reasoning"}', False),
    ],
)
def test_thoughts_that_nobody_else_has(answer: bytes, is_lone: bool) -> None:
    assert has_unreadable_reasoning(answer) is is_lone
