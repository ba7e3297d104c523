from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from palimpsest.core.wire.json_spans import Duplicate, is_plain, members_of, outline, refuse_deeper
from palimpsest.core.wire.json_text import loads_with, verify
from palimpsest.errors import InvalidJson

from tests.core.wire.json_texts import BLANKS, OBJECTS, VALUES

# Few keys, so that they are often repeated, and in two spellings.
KEYS = st.sampled_from(['"a"', r'"\u0061"', '"b"', '"é"', '""', '":"'])
NUMBERS = st.sampled_from(["1", "12", "12.5", "1e2", '"1"', "[1]", "[]", "{}", '{"a":1}', '[{"a":1}, 2 ]'])


def _object(members: list[tuple[str, str, str]]) -> str:
    return "{" + ",".join(f"{blank}{key}{blank}:{blank}{value}{blank}" for key, value, blank in members) + "}"


REPEATING = st.recursive(
    NUMBERS,
    lambda inner: (
        st.lists(st.tuples(KEYS, inner, BLANKS), max_size=3).map(_object)
        | st.lists(inner, max_size=3).map(lambda items: "[" + " , ".join(items) + "]")
    ),
    max_leaves=8,
)


@given(OBJECTS | VALUES | REPEATING, BLANKS)
@settings(max_examples=400)
@example('{"a":1,"a":12}', "")
@example('{"a":12,"a":1}', "")
@example('{"a":1,"b":2,"a":1}', "")
def test_what_the_quick_way_says_is_what_the_careful_way_says(text: str, blank: str) -> None:
    body = f"{blank}{text}{blank}".encode()
    quick = members_of(body)
    found = outline(body)
    if quick is not None:
        assert quick == found.members
        assert not [duplicate for duplicate in found.duplicates if duplicate.under is None]


@given(st.binary(max_size=40) | OBJECTS.map(str.encode), st.integers(0, 40), st.binary(max_size=2))
@settings(max_examples=300)
def test_no_bytes_pass_that_are_not_json(body: bytes, place: int, bent: bytes) -> None:
    body = body[:place] + bent + body[place:]
    if members_of(body) is not None:
        verify(body)


@given(VALUES | REPEATING, st.integers(1, 6))
@settings(max_examples=400)
def test_plain_is_what_the_careful_way_would_pass(text: str, deepest: int) -> None:
    # In an array, so that a repeated outermost key is one of an inner object.
    body = text.encode()
    try:
        refuse_deeper(body, deepest)
    except InvalidJson:
        assert not is_plain(body, deepest)
    else:
        assert is_plain(body, deepest) == (not outline(b"[" + body + b"]").duplicates)


@pytest.mark.parametrize("levels", [1, 127, 128, 129, 300])
def test_the_limit_of_nesting_is_inclusive(levels: int) -> None:
    text = b'{"a":' * levels + b"1" + b"}" * levels
    assert is_plain(text, 128) == (levels <= 128)
    assert is_plain(b"[" + b'{"a":[],"b":{}},' * 300 + b"1]", 3)
    assert not is_plain(b"[" + b'{"a":[],"b":{}},' * 300 + b"1]", 2)


@given(OBJECTS, BLANKS)
@settings(max_examples=50)
def test_members_and_elements_stand_where_the_outline_says(text: str, blank: str) -> None:
    body = f"{blank}{text}{blank}".encode()
    expected: dict[str, object] = json.loads(text, parse_int=str, parse_float=str)
    found = outline(body)
    assert [member.key for member in found.members] == list(expected)
    for member in found.members:
        value = expected[member.key]
        raw = body[member.start : member.end]
        assert raw == raw.strip()
        assert loads_with(raw, str) == value
        items = [loads_with(body[start:end], str) for start, end in member.elements]
        assert items == (value if isinstance(value, list) else [])
    assert found.duplicates == ()


@given(OBJECTS, OBJECTS)
@settings(max_examples=50)
def test_a_repeated_key_is_found_wherever_it_stands(inner: str, outer: str) -> None:
    twice = inner[:-1] + ("," if inner != "{}" else "") + r'"x\u0041x":1,"xAx":2}'
    body = f'{{"before":{outer},"list":[{outer},{{"deep":[{twice}]}}]}}'.encode()
    assert outline(body).duplicates == (Duplicate("xAx", "list", 1),)


def test_brackets_quotes_and_commas_in_strings_are_text() -> None:
    body = rb'{"a\\":"\\\"]}","b":["\",{[", "\\"]}'
    found = outline(body)
    assert [member.key for member in found.members] == ["a\\", "b"]
    assert [body[s:e] for s, e in found.members[1].elements] == [rb'"\",{["', rb'"\\"']
