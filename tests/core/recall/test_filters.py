"""What a message holds, as a search may be kept to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.core.recall.filters import ANY, Filters, has_error

Json = dict[str, Any]


def body(role: str, content: str | None, arguments: str | Json | None = None, **more: Any) -> bytes:
    message: Json = {"role": role, "content": content, **more}
    if arguments is not None:
        said = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call = {"id": "c", "type": "function", "function": {"name": "anything", "arguments": said}}
        message["tool_calls"] = [call]
    return json.dumps(message).encode()


RUNS = body("assistant", None, {"command": "make check"})
RUNS_LIST = body("assistant", None, {"cmd": ["bash", "-lc", "cat src/parser.py"]})
OPENS = body("assistant", None, {"path": "docs/plan.md"})
PATCHES = body("assistant", None, "*** Begin Patch\n*** Update File: app/main.py\n+x\n*** End Patch")
LOOKS_UP = body("assistant", None, {"customer": "C-17", "city": "Oslo"})
BROKEN = body("assistant", "so", '{"command": "make')


@pytest.mark.parametrize(
    ("message", "kinds"),
    [
        (RUNS, {"command"}),
        (RUNS_LIST, {"command", "file"}),
        (OPENS, {"file"}),
        (PATCHES, {"file"}),
        (LOOKS_UP, set()),
        (BROKEN, set()),
        (body("assistant", "Run make check in src/parser.py."), set()),
    ],
)
def test_what_a_call_does_is_told_by_its_arguments(message: bytes, kinds: set[str]) -> None:
    held = {
        kind
        for kind in ("command", "file", "error")
        if Filters(kind=kind).holds("message", "assistant", message)
    }
    assert held == kinds


@pytest.mark.parametrize(
    "text",
    [
        "E   KeyError: 'port'",
        "src/a.c:3: error: expected ';'",
        "Traceback (most recent call last):",
        *("3 failed, 2 passed", "bash: fo: command not found", "exit code: 2", '{"status": "failed"}'),
        "0 errors, 2 failed",
    ],
)
def test_an_error_is_a_line_that_speaks_of_one(text: str) -> None:
    assert has_error(f"one\n{text}\ntwo")


@pytest.mark.parametrize("text", ["12 passed", "0 errors", "no errors found", "0 failed", "exit code 0", ""])
def test_none_is_what_says_that_there_is_none(text: str) -> None:
    assert not has_error(f"one\n{text}\ntwo")


def test_only_what_a_tool_said_is_an_error() -> None:
    text = "It failed: KeyError."
    assert Filters(kind="error").holds("message", "tool", body("tool", text))
    assert not Filters(kind="error").holds("message", "user", body("user", text))
    assert not Filters("user", "error").holds("message", "tool", body("tool", text))


def test_summaries_are_meant_where_they_are_asked_for() -> None:
    assert Filters(kind="summary").holds("summary", "", b"any")
    assert not Filters(kind="summary").holds("message", "user", body("user", "any"))
    assert not Filters(role="user").holds("summary", "", b"any")
    assert ANY.holds("summary", "", b"any")
    assert ANY.holds("message", "user", b"any")


def test_a_function_speaks_for_a_tool() -> None:
    assert Filters(role="tool").holds("message", "function", b"any")
    assert not Filters(role="assistant").holds("message", "function", b"any")
