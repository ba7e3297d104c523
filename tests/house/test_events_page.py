"""Every type of event that there is happens: some code makes it, and the documentation names it."""

from __future__ import annotations

import ast

from palimpsest.core.runtime.events import EVENT_TYPES

from tests.house.sources import ROOT, sources


def test_each_type_is_made_somewhere() -> None:
    made = set()
    for source in sources("app"):
        for call in ast.walk(source.tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("Event", "EventRow"):
                made |= {each.value for each in call.args[:2] if isinstance(each, ast.Constant)}
    assert made == set(EVENT_TYPES)


def test_the_page_names_them_all() -> None:
    page = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
    assert [kind for kind in EVENT_TYPES if f"`{kind}`" not in page] == []
