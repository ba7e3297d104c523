from __future__ import annotations

from hashlib import sha256

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
