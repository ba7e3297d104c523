"""The page of clients tells of every client that is tested, in the tested version, and of its page."""

from __future__ import annotations

import re

import pytest

from tests.clients.matrix import block_of
from tests.clients.roster import CLIENTS, Client
from tests.house.sources import ROOT

PAGE = ROOT / "docs" / "clients.md"
# The name in the table of results, and the page.
_ROW = re.compile(r"^\| [^|]+ \| \[[^\]]+\]\(([^)]+)\) \| ([^|]+) \|$", re.MULTILINE)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_the_page_tells_of_the_client(client: Client) -> None:
    assert f"\n| {client.name} | {client.version} | yes |" in block_of(PAGE)
    rows = {name: page for page, name in _ROW.findall(PAGE.read_text(encoding="utf-8"))}
    own = (PAGE.parent / rows[client.name.partition(",")[0]]).read_text(encoding="utf-8")
    for heading in ("What is recognised", "What to know", "Tested"):
        assert f"\n## {heading}\n" in own
    assert "`make clients` runs" in own
