from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from palimpsest.core.history.message import Message
from palimpsest.core.history.read import read_answer, read_message
from palimpsest.errors import InvalidJson, NotUnderstood

from tests.core.wire.json_texts import messages


def read(raw: bytes) -> Message:
    return read_message(raw, lambda fields: 7)


@given(messages())
def test_a_message_keeps_its_bytes(text: str) -> None:
    raw = text.encode()
    message = read(raw)
    assert message.raw == raw
    assert message.digest == sha256(raw).digest()
    assert len(message.canonical) == 32
    assert message.fields["role"] == message.role
    assert read_answer(raw, lambda fields: 7) == message


def test_tokens_are_those_of_the_injected_count_and_at_least_one() -> None:
    seen: list[Mapping[str, Any]] = []

    def count(fields: Mapping[str, Any]) -> int:
        seen.append(fields)
        return 0

    assert read_message(rb'{"role":"user","content":"\ud83d","x":1e2}', count).tokens == 1
    assert seen == [{"role": "user", "content": "\ud83d", "x": 100.0}]
    assert read(b'{"role":"user"}').tokens == 7


def test_an_assistants_calls_in_order() -> None:
    raw = b'{"role":"assistant","tool_calls":[{"id":"a"},{"id":"b"},{"id":null},7,{}]}'
    assert read(raw).calls == ("a", "b")
    assert read(raw.replace(b"assistant", b"user")).calls == ()
    assert read(b'{"role":"assistant","tool_calls":{"id":"a"}}').calls == ()


def test_what_a_tool_message_answers() -> None:
    assert read(b'{"role":"tool","tool_call_id":"a","content":"x"}').answers == "a"
    assert read(b'{"role":"tool","content":"x"}').answers is None
    assert read(b'{"role":"user","tool_call_id":"a","content":"x"}').answers is None


@pytest.mark.parametrize(("role", "is_instruction"), [("system", True), ("developer", True), ("user", False)])
def test_instructions(role: str, is_instruction: bool) -> None:
    assert read(f'{{"role":"{role}"}}'.encode()).is_instruction is is_instruction


@pytest.mark.spec("H08")
@pytest.mark.parametrize(
    ("raw", "role"),
    [
        (b"{}", ""),
        (b'{"role":null}', ""),
        (b'{"role":7,"content":0.5}', ""),
        (b'{"role":["user"],"content":"hi"}', ""),
        (b'{"role":"user","content":7}', "user"),
        (b'{"role":"user","content":{"type":"text"}}', "user"),
        (b'{"role":"user","content":["a"]}', "user"),
        (b'{"role":"user","content":[{},null]}', "user"),
        (rb'{"role":"user","content":["\ud83d"]}', "user"),
    ],
)
def test_a_message_of_any_shape_is_read(raw: bytes, role: str) -> None:
    assert (read(raw).role, read(raw).raw) == (role, raw)


@pytest.mark.parametrize("raw", [b"[]", b'"user"', b"7", b"null"])
def test_what_is_no_object_is_no_message(raw: bytes) -> None:
    with pytest.raises(NotUnderstood):
        read(raw)


@pytest.mark.parametrize("raw", [b"", b"{", b'{"role":"user","x":NaN}', b'{"role":"\xff"}'])
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidJson):
        read(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b'{"role":null,"content":7}',
        b'{"role":"","content":["a"]}',
        b'{"content":{"a":0.5},"tool_calls":7,"audio":7,"function_call":7}',
        b'{"tool_calls":[7,{"function":7},{"custom":7}],"audio":{}}',
    ],
)
def test_an_answer_of_any_shape_can_be_kept(raw: bytes) -> None:
    message = read_answer(raw, lambda fields: 7)
    assert (message.role, message.raw) == ("assistant", raw)


def test_an_answer_without_a_role_is_the_one_that_comes_back_with_it() -> None:
    sent = read_answer(b'{"content":"a","x":0.5}', lambda fields: 7)
    assert sent.canonical == read(b'{"role":"assistant","content":"a","x":0.5}').canonical
