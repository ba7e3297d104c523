"""How a client hears of a compaction: nothing, a header, a comment in a stream, or events alone (E09)."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat, message_of
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import fronting, proxied
from tests.kit.serving import served
from tests.kit.words import prose

WINDOW = 6_000
pytestmark = pytest.mark.timeout(120)


async def compacted(chat: Chat, turns: int = 20) -> str:
    """The id of the compaction in force after so many turns; it is none of a stream's."""
    for turn in range(turns):
        await chat.says(f"Entry {turn}. {prose(turn, 300)}")
    return str((await chat.compactions())[-1]["id"])


@pytest.mark.spec("E09")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("notify", ["none", "header", "comment", "event"])
async def test_a_client_hears_of_a_compaction_as_it_is_set(notify: str, stream: bool, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, {"compaction.notify": notify}) as proxy:
        chat = proxy.chat(session="log", stream=stream)
        await chat.says("hello")
        first = chat.reply
        made = await compacted(chat)
        last = chat.reply
        assert "palimpsest" not in first.text
        assert last.headers.get("x-palimpsest-compaction") == (made if notify == "header" else None)
        has_comment = notify == "comment" and stream
        opening = f": palimpsest compaction={made} tokens="
        assert last.text.startswith(opening) is has_comment
        assert last.text.count("palimpsest") == has_comment
        # A comment is no part of the answer.
        assert message_of(last) == chat.said[-1]
        assert await chat.transcript() == chat.said


@pytest.mark.spec("E09")
async def test_an_error_has_no_comment_and_keeps_its_status(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, {"compaction.notify": "comment"}) as proxy:
        chat = proxy.chat(session="log", stream=True)
        await compacted(chat)
        error = {"error": {"message": "slow down", "type": "requests"}}
        model.answers.append(Says(status=429, error=error))
        reply = await chat.posts([*chat.said, {"role": "user", "content": "and now?"}])
        assert reply.status_code == 429
        assert reply.json() == error


@pytest.mark.spec("E09")
async def test_a_session_has_the_event_in_any_case(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, {"compaction.notify": "event"}) as proxy:
        chat = proxy.chat(session="log")
        made = await compacted(chat)
        reply = await proxy.http.get("/api/sessions/log/events?limit=500", headers=chat.headers)
        assert reply.status_code == 200, reply.text
        assert made in reply.text
        assert "compaction_completed" in reply.text


class Coded:
    """A server whose streams are gzip, piece by piece."""

    def __init__(self, model: ModelServer) -> None:
        self._model = model

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        coder = zlib.compressobj(wbits=31)
        is_stream = False

        async def coded(message: dict[str, Any]) -> None:
            nonlocal is_stream
            if message["type"] == "http.response.start":
                is_stream = (b"content-type", b"text/event-stream; charset=utf-8") in message["headers"]
                more = [(b"content-encoding", b"gzip")] if is_stream else []
                await send(message | {"headers": [*message["headers"], *more]})
                return
            if is_stream:
                last = not message.get("more_body")
                piece = coder.compress(message["body"]) + coder.flush(
                    zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH
                )
                message = message | {"body": piece}
            await send(message)

        await self._model(scope, receive, coded)


@pytest.mark.spec("E09")
async def test_a_coded_stream_has_no_comment_of_ours(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with (
        served(Coded(model), lifespan="off") as upstream,
        fronting(f"{upstream}/v1", tmp_path, {"compaction.notify": "comment"}) as front,
    ):
        chat = front.chat(session="log", stream=True)
        await compacted(chat)
        assert chat.reply.headers["content-encoding"] == "gzip"
        assert "palimpsest" not in chat.reply.text
        assert message_of(chat.reply) == chat.said[-1]
        assert await chat.transcript() == chat.said
