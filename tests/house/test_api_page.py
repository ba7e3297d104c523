"""docs/http-api.md names every error code, endpoint and type of event that there is: no more, no less."""

from __future__ import annotations

import re
from collections.abc import Iterator

from palimpsest.core.runtime.events import EVENT_TYPES
from palimpsest.errors import PalimpsestError

from tests.house.sources import ROOT
from tests.house.test_routes import BESIDE, OPEN, OPERATORS, PAGES, SCOPED

_PAGE = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
_ERROR = re.compile(r"^\| `(\w+)` \| (\d{3}) \| `(\w+)` \| \S.* \|$", re.MULTILINE)
_ENDPOINT = re.compile(
    r"^\| `([A-Z]+ /(?:api/|ui|healthz|readyz|metrics|mcp|docs|openapi.json|(?=`))\S*)` \| \S.* \|$",
    re.MULTILINE,
)
_VARIABLE = re.compile(r"{[^}]*}")


def _tree(kind: type[PalimpsestError]) -> Iterator[type[PalimpsestError]]:
    """The program's own errors; tests may have made others."""
    yield kind
    for below in kind.__subclasses__():
        if below.__module__.startswith("palimpsest."):
            yield from _tree(below)


def test_the_table_of_errors_is_the_tree() -> None:
    told = [(code, int(status), kind) for code, status, kind in _ERROR.findall(_PAGE)]
    assert sorted(told) == sorted((kind.code, kind.status, kind.type) for kind in _tree(PalimpsestError))


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in _tree(PalimpsestError)]
    assert sorted(codes) == sorted(set(codes))


def test_the_table_of_endpoints_is_complete() -> None:
    served = {*OPEN, *OPERATORS, *BESIDE, *PAGES, *(route.replace(" /", " /api/", 1) for route in SCOPED)}
    wanted = {_VARIABLE.sub("{}", route) for route in served if not route.startswith("HEAD ")}
    assert {_VARIABLE.sub("{}", route) for route in _ENDPOINT.findall(_PAGE)} == wanted


def test_every_type_of_event_is_named() -> None:
    (said,) = re.findall(r"^The types are (.+?)\.$", _PAGE, re.MULTILINE | re.DOTALL)
    assert re.findall(r"`(\w+)`", said) == list(EVENT_TYPES)


def test_every_endpoint_of_a_session_has_an_example() -> None:
    """A curl line each, for those that are more than a list of what was said."""
    ends = {route.rpartition("/")[2] for route in SCOPED if "{name:path}/" in route}
    plain = {"messages", "compact", "pins", "{message}", "{checkpoint}", "{n}", "{compaction}"}
    shown = set(re.findall(r"curl .*/api/sessions/tour/([a-z-]+)", _PAGE))
    shown |= set(re.findall(r"curl .*/(undo|restore|body|diff|lost)$", _PAGE, re.MULTILINE))
    assert ends - plain <= shown
