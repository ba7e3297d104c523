"""docs/http-api.md names every error code and every endpoint that there is: no more, no less."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.errors import PalimpsestError
from tests.house.sources import ROOT
from tests.house.test_routes import OPEN, SCOPED

_PAGE = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
_ERROR = re.compile(r"^\| `(\w+)` \| (\d{3}) \| `(\w+)` \| \S.* \|$", re.MULTILINE)
_ENDPOINT = re.compile(r"^\| `([A-Z]+ /(?:api/|healthz|readyz)\S*)` \| \S.* \|$", re.MULTILINE)
_VARIABLE = re.compile(r"{[^}]*}")


def _tree(kind: type[PalimpsestError]) -> Iterator[type[PalimpsestError]]:
    """The program's own errors; tests may have made others."""
    yield kind
    for below in kind.__subclasses__():
        if below.__module__.startswith("app."):
            yield from _tree(below)


def test_the_table_of_errors_is_the_tree() -> None:
    told = [(code, int(status), kind) for code, status, kind in _ERROR.findall(_PAGE)]
    assert sorted(told) == sorted((kind.code, kind.status, kind.type) for kind in _tree(PalimpsestError))


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in _tree(PalimpsestError)]
    assert sorted(codes) == sorted(set(codes))


def test_the_table_of_endpoints_is_complete() -> None:
    served = {*OPEN, *(route.replace(" /", " /api/", 1) for route in SCOPED)}
    wanted = {_VARIABLE.sub("{}", route) for route in served if not route.startswith("HEAD ")}
    assert {_VARIABLE.sub("{}", route) for route in _ENDPOINT.findall(_PAGE)} == wanted
