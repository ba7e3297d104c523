"""The page of clients tells of every client that is tested, in the version that is tested."""

from __future__ import annotations

import pytest

from tests.clients.matrix import block_of
from tests.clients.roster import CLIENTS, Client
from tests.house.sources import ROOT

PAGE = ROOT / "docs" / "clients.md"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_the_page_tells_of_the_client(client: Client) -> None:
    assert f"\n| {client.name} | {client.version} | yes |" in block_of(PAGE)
    section = client.name.partition(",")[0]
    assert f"\n## {section}\n" in PAGE.read_text(encoding="utf-8")
