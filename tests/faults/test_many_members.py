"""Bodies of very many members cost the event loop little: what it would decode is bounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied

pytestmark = [pytest.mark.spec("H06"), pytest.mark.timeout(120)]
MEMBERS = 100_000


async def asked(proxy: Proxy, **more: Any) -> str | None:
    """The session of a request with these members, if it was recorded; it is answered."""
    body = {"model": "test-model", "messages": [{"role": "user", "content": "Hello"}], **more}
    reply = await proxy.http.post("/v1/chat/completions", content=json.dumps(body).encode())
    assert reply.status_code == 200, reply.text
    session: str | None = reply.headers.get("x-palimpsest-session")
    return session


async def test_a_session_is_not_looked_for_in_giant_metadata(tmp_path: Path) -> None:
    """Decoding 500,000 keys held the loop for 0.8 to 1.3 s."""
    many = {f"k{at}": "v" for at in range(MEMBERS)}
    async with proxied(ModelServer(), tmp_path) as proxy:
        small = await asked(proxy, metadata={"session_id": "small"})
        giant = await asked(proxy, metadata={"session_id": "giant"} | many)
        assert None not in (small, giant)
        names = {row["id"]: row["name"] for row in (await proxy.http.get("/api/sessions")).json()["sessions"]}
        assert (names[small], names[giant]) == ("small", None)


async def test_a_body_of_too_many_members_is_relayed_unrecorded(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        assert await asked(proxy, **{f"k{at}": 1 for at in range(900)}) is not None
        assert await asked(proxy, **{f"k{at}": 1 for at in range(MEMBERS)}) is None
