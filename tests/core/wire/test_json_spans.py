from __future__ import annotations

import json

from hypothesis import given, settings
from palimpsest.core.wire.json_spans import Duplicate, outline
from palimpsest.core.wire.json_text import loads_with

from tests.core.wire.json_texts import BLANKS, OBJECTS


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
