"""Calls of recall tools as models write them: bounds are kept, what is missing is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.recall.rounds.offer import schemas
from palimpsest.core.recall.tool_calls import (
    FUNCTIONS,
    NAMES,
    Describe,
    Grep,
    UnreadableCall,
    names_session,
    read_call,
)
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.responses.request import RESPONSES


def grep(**fields: Any) -> Grep:
    asked = read_call("context_grep", json.dumps({"query": "gate", **fields}))
    assert isinstance(asked, Grep)
    return asked


def describe(**fields: Any) -> Describe:
    asked = read_call("context_describe", json.dumps({"id": "dcm_1", **fields}))
    assert isinstance(asked, Describe)
    return asked


def test_the_tools_are_told_as_each_api_has_them() -> None:
    assert {function["name"] for function in FUNCTIONS} == NAMES
    nested = [{"type": "function", "function": function} for function in FUNCTIONS]
    assert json.loads(schemas(CHAT)) == nested
    flat = [{"type": "function", **function, "strict": False} for function in FUNCTIONS]
    assert json.loads(schemas(RESPONSES)) == flat


@pytest.mark.spec("C04")
@pytest.mark.parametrize(
    ("said", "meant"),
    [(0, 1), (-3, 1), (999, 50), (7, 7), ("12", 12), (3.0, 3), (None, 10), ("many", 10), (True, 10)],
)
def test_a_limit_is_within_bounds(said: object, meant: int) -> None:
    assert grep(limit=said).limit == meant
    assert grep().limit == 10


@pytest.mark.spec("C05")
@pytest.mark.parametrize(("said", "meant"), [(0, 1), (999, 25), (None, 8), (3, 3)])
def test_so_is_the_number_of_sources(said: object, meant: int) -> None:
    assert describe(sourceLimit=said).source_limit == meant


def test_a_page_is_asked_for_or_not() -> None:
    assert describe().page is None
    assert describe(offset=10).page == (10, 4_000)
    assert describe(limit=10**9).page == (0, 16_000)
    assert describe(offset=-5, limit=0).page == (0, 1)


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        *(("context_grep", text, "missing_field") for text in ("{}", "", '{"query": "  "}', '{"query": 3}')),
        ("context_describe", '{"query": "x"}', "missing_field"),
        ("context_grep", "{", "invalid_json"),
        ("context_grep", "[]", "invalid_arguments"),
        ("context_drop", '{"query": "x"}', "unknown_tool"),
    ],
)
def test_what_cannot_be_done_is_said(name: str, arguments: str, code: str) -> None:
    asked = read_call(name, arguments)
    assert isinstance(asked, UnreadableCall)
    assert asked.code == code


@given(st.sampled_from(sorted(NAMES)), st.text())
def test_nothing_a_model_writes_is_a_crash(name: str, arguments: str) -> None:
    assert read_call(name, arguments) is not None


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ("Look into the tour session, please.", True),
        ("See 'Tour'.", True),
        ("See 0199-ab.", True),
        ("The tourist left.", False),
        ("A detour-tour-2 it was.", False),
        ("", False),
    ],
)
def test_a_session_is_named_as_a_word_of_its_own(text: str, is_named: bool) -> None:
    assert names_session(text, "0199-ab", "tour") is is_named
