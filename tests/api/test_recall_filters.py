"""A search kept to who spoke or what was done, and how many there are, through the running proxy."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from tests.kit.chat import Chat
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]


async def grep(proxy: Proxy, chat: Chat, query: str, **order: Any) -> Json:
    asked = {"session": chat.session, "query": query, **order}
    reply = await proxy.http.post("/api/context/grep", headers=chat.headers, json=asked)
    assert reply.status_code == 200, reply.text
    found: Json = reply.json()
    return found


async def search(proxy: Proxy, chat: Chat, query: str, **params: Any) -> Json:
    path = f"/api/sessions/{chat.session}/search"
    reply = await proxy.http.get(path, headers=chat.headers, params={"q": query, **params})
    assert reply.status_code == 200, reply.text
    found: Json = reply.json()
    return found


@pytest_asyncio.fixture(loop_scope="module")
async def worked(proxy: Proxy) -> Chat:
    """An agent ran a command, which failed, and opened a file; all of it speaks of a beacon."""
    chat = proxy.chat(system="You help.", session="worked")
    proxy.model.calls(("r1", "run", {"command": "make beacon"}))
    await chat.says("Build the beacon.")
    proxy.model.calls(("r2", "open", {"path": "src/beacon.c"}))
    await chat.sends({"role": "tool", "tool_call_id": "r1", "content": "beacon.c:3: error: expected ';'"})
    proxy.model.says("The beacon is built.")
    await chat.sends({"role": "tool", "tool_call_id": "r2", "content": "int beacon;"})
    return chat


@pytest.mark.spec("C04")
@pytest.mark.parametrize(
    ("only", "positions"),
    [
        ({}, {1, 2, 3, 4, 5, 6}),
        ({"role": "user"}, {1}),
        ({"role": "assistant"}, {2, 4, 6}),
        ({"role": "tool"}, {3, 5}),
        ({"kind": "command"}, {2}),
        ({"kind": "file"}, {4}),
        ({"kind": "error"}, {3}),
        ({"role": "user", "kind": "error"}, set()),
        ({"kind": "summary"}, set()),
    ],
)
async def test_a_search_is_kept_to_what_is_asked_for(
    proxy: Proxy, worked: Chat, only: Json, positions: set[int]
) -> None:
    ids = {row["id"]: row["position"] for row in await worked.rows()}
    hits = [await grep(proxy, worked, "beacon", **only), await search(proxy, worked, "beacon", **only)]
    for found in hits:
        shown = {ids[hit["id"]] for hit in found["results"]}
        # What a better hit shows beside it is not found again.
        assert shown <= positions
        assert bool(shown) == bool(positions)
        assert found.get("totalFound", found.get("total_found")) == len(positions)


@pytest.mark.spec("C04")
async def test_what_is_no_kind_is_refused(proxy: Proxy, worked: Chat) -> None:
    for only in ({"kind": "poem"}, {"role": "developer"}):
        order = {"session": worked.session, "query": "beacon", **only}
        reply = await proxy.http.post("/api/context/grep", headers=worked.headers, json=order)
        assert reply.status_code == 400
        path = f"/api/sessions/{worked.session}/search"
        reply = await proxy.http.get(path, headers=worked.headers, params={"q": "beacon", **only})
        assert reply.status_code == 400


@pytest.mark.spec("C04")
async def test_what_is_counted_is_what_matches_and_not_what_is_returned(proxy: Proxy) -> None:
    chat = proxy.chat(session="many")
    told = [{"role": "user", "content": f"Barge number {number} of the harbour."} for number in range(700)]
    await chat.sends(*told, {"role": "user", "content": "Nothing of the kind."})
    few = await grep(proxy, chat, "barge", limit=3)
    assert len(few["results"]) == 3
    assert few["totalFound"] == 700
    assert "totalFoundIsAtLeast" not in few
    assert (await search(proxy, chat, "barge", limit=3))["total_is_counted"] is True
    # A kind that stands behind the best is found all the same.
    assert (await grep(proxy, chat, "barge", role="assistant"))["totalFound"] == 0
    more = [{"role": "user", "content": f"Barge number {number} of the river."} for number in range(400)]
    await chat.sends(*more)
    many = await search(proxy, chat, "barge", limit=3)
    assert (many["total_found"], many["total_is_counted"]) == (1_000, False)
    assert (await grep(proxy, chat, "barge", limit=3))["totalFoundIsAtLeast"] is True
