"""Every type of event that there is happens: some code makes it, and the documentation names it."""

from __future__ import annotations

import ast
from functools import cache

from palimpsest.core.runtime.events import EVENT_TYPES

from tests.house.sources import ROOT, sources

EVENTS = "app/palimpsest/core/runtime/events.py"


def made_by() -> dict[str, str]:
    """Type of an event -> the function of its module that makes it."""
    (module,) = [source for source in sources("app") if source.name == EVENTS]
    found = {}
    for function in module.functions():
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Event":
                (first, *_) = call.args
                assert isinstance(first, ast.Constant)
                found[str(first.value)] = function.name
    return found


@cache
def used() -> frozenset[str]:
    """Every name that other modules use."""
    others = [source for source in sources("app") if source.name != EVENTS]
    names = (node for source in others for node in ast.walk(source.tree) if isinstance(node, ast.Name))
    return frozenset(node.id for node in names)


def test_each_type_is_made_by_somebody_who_is_called() -> None:
    makers = made_by()
    assert set(makers) == set(EVENT_TYPES)
    assert {kind for kind, maker in makers.items() if maker not in used()} == set()


def test_a_maker_that_nobody_calls_would_be_noticed() -> None:
    """The control."""
    assert "prompt_cut" in used()
    assert "nobody_calls_this" not in used()


def test_the_page_names_them_all() -> None:
    page = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
    assert [kind for kind in EVENT_TYPES if f"`{kind}`" not in page] == []
