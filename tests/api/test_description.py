"""`/openapi.json` describes what there is, and nothing that it allows or forbids is answered by a 5xx."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from palimpsest.api.description import BODIES
from structlog.testing import capture_logs

from tests.house.test_routes import SCOPED
from tests.kit.chat import Chat
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
VERBS = {"get", "post", "put", "patch", "delete"}
NAMES = ["my/own name", "no such", "%00", "..", "é🌍", "a" * 300, "0", "dcm_" + "0" * 32, "'; drop table"]
VALUES = ["", "0", "-1", "1", "99999999999999999999", "nan", "true", "\u0000", "é🌍", "x" * 5000, "[]", "1e9"]
BODIES_TO_TRY = [
    b"", b"{}", b"[]", b"null", b"{", b'{"x":1}', b'{"text":"\\ud800","message":"\\u0000","id":"dcm_x"}',
    b'{"focus":"x","branch":"zz","marker":"m","query":"q","limit":-5,"offset":1e30,"policy":{"name":7}}',
    b'{"query":"' + b"a" * 3000 + b'"}', b'{"events":[{"type":"user_message","payload":null}]}',
    b"\xff\xfe", b"[" * 5000,
]  # fmt: skip


async def described(proxy: Proxy, chat: Chat) -> Json:
    reply = await proxy.http.get("/openapi.json", headers=chat.headers)
    assert reply.status_code == 200
    document: Json = reply.json()
    return document


async def test_every_route_is_described_and_every_body(proxy: Proxy, chat: Chat) -> None:
    document = await described(proxy, chat)
    told = {
        f"{verb.upper()} {path.removeprefix('/api')}"
        for path, verbs in document["paths"].items()
        for verb in verbs.keys() & VERBS
    }
    assert told == {route.replace(":path", "") for route in SCOPED}
    bodies = {
        operation["operationId"]
        for verbs in document["paths"].values()
        for operation in verbs.values()
        if "requestBody" in operation
    }
    assert bodies == set(BODIES)
    search = document["paths"]["/api/sessions/{name}/search"]["get"]["parameters"]
    assert {"name", "q", "limit"} <= {parameter["name"] for parameter in search}
    assert "focus" in document["components"]["schemas"]["CompactOrder"]["properties"]


async def test_no_odd_request_is_our_fault(proxy: Proxy, chat: Chat) -> None:
    """The same requests at each run: each operation with every name, value and body once or more."""
    document = await described(proxy, chat)
    names, values, bodies = itertools.cycle(NAMES), itertools.cycle(VALUES), itertools.cycle(BODIES_TO_TRY)
    asked = 0
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            # Erasing everything would leave nothing to ask for.
            rounds = (
                1
                if path == "/api/namespace"
                else len(BODIES_TO_TRY if operation["operationId"] in BODIES else NAMES)
            )
            for _ in range(rounds):
                place = re.sub(r"{\w+}", lambda _: _quoted(next(names)), path)
                query = {
                    p["name"]: next(values) for p in operation.get("parameters", ()) if p["in"] == "query"
                }
                query.pop("confirm", None)
                reply = await proxy.http.request(
                    verb, place, params=query, content=next(bodies), headers=chat.headers
                )
                assert reply.status_code < 500, (verb, place, query, reply.text)
                asked += 1
    assert asked > 250


async def test_what_is_not_there_is_no_failure_of_a_job(proxy: Proxy, chat: Chat) -> None:
    with capture_logs() as log:
        reply = await proxy.http.delete("/api/sessions/nobody", headers=chat.headers)
    assert reply.status_code == 404
    assert [entry for entry in log if entry["event"] == "job_failed"] == []


def _quoted(name: str) -> str:
    return "".join(f"%{byte:02X}" for byte in name.encode())
