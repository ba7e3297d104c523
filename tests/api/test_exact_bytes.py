"""Messages come back as they were sent and answered, byte for byte, however odd their JSON is (P4)."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.core.wire.json_texts import OBJECTS, messages
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied

pytestmark = pytest.mark.asyncio(loop_scope="module")

ODD = r'{"role":"user","content":"\ud83d \u0000 é","n":1234567890123456789012345,"e":1e2}'
TWICE = r'{"role":"assistant","content":"a","x":1,"x":2, "content":"b\udc00"}'


class RawModel:
    """Answers with the bytes it is given."""

    answer = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b'{"choices":[{"index":0,"finish_reason":"stop","message":' + self.answer + b"}]}"
        status = 200 if scope["path"].endswith("/chat/completions") else 404
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def raw(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    async with proxied(cast("ModelServer", RawModel()), tmp_path_factory.mktemp("raw")) as running:
        yield running


@pytest.mark.spec("P4")
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.lists(messages(), min_size=1, max_size=4), answer=OBJECTS)
@example(said=[ODD], answer=TWICE)
@example(said=[ODD, ODD], answer=r'{"content":null}')
async def test_every_body_is_spliced_as_it_is(raw: Proxy, said: list[str], answer: str) -> None:
    cast("RawModel", raw.model).answer = answer.encode()
    headers = {"authorization": f"Bearer {uuid.uuid4()}"}
    sent = f'{{"model":"m","messages":[{",".join(said)}]}}'.encode()
    reply = await raw.http.post("/v1/chat/completions", content=sent, headers=headers)
    assert reply.status_code == httpx.codes.OK, reply.text
    path = f"/api/sessions/{reply.headers['x-palimpsest-session']}"
    bodies = [*(text.encode() for text in said), answer.encode()]
    for name, key in (("messages", "messages"), ("view", "parts")):
        read = await raw.http.get(f"{path}/{name}", headers=headers)
        assert holds_in_order(read.content, bodies), read.content
        assert len(parsed(read.content)[key]) == len(bodies)
    listed = parsed((await raw.http.get(f"{path}/messages", headers=headers)).content)["messages"]
    for row, body in zip(listed, bodies, strict=True):
        if row["id"] is not None:
            alone = await raw.http.get(f"/api/context/{row['id']}?raw=1", headers=headers)
            assert alone.content == body
            assert (await raw.http.get(f"/api/context/{row['id']}", headers=headers)).status_code == 200


def parsed(body: bytes) -> Any:
    # Python refuses to convert numbers of more than 4,300 digits.
    return json.loads(body, parse_int=str)


def holds_in_order(whole: bytes, bodies: list[bytes]) -> bool:
    at = 0
    for body in bodies:
        found = whole.find(b'"message":' + body + b"}", at)
        if found < 0:
            return False
        at = found + len(body)
    return True
