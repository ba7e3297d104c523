"""Who is offered the recall tools, and what is left where an upstream or a client fails (rule 31)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.kit.agent import TOOLS
from tests.kit.chat import Chat
from tests.kit.journal import compacted
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import Proxy, proxied
from tests.kit.recalls import GREP, OURS, Json, compacted_chat, names_in, saying

pytestmark = pytest.mark.timeout(60)


def roles_in(rows: list[Json], chat: Chat) -> list[str]:
    """The roles of what came behind all that the chat keeps."""
    return [row["message"]["role"] for row in rows[len(chat.said) :]]


@pytest.mark.spec("C22")
async def test_an_upstream_that_refuses_our_tools_is_asked_without_them(tmp_path: Path) -> None:
    async with compacted_chat(tmp_path) as (proxy, chat):

        def refusing(seen: Seen) -> Says | None:
            error = {"error": {"message": "unknown tool type", "type": "invalid_request_error"}}
            return Says(status=400, error=error) if len(names_in(seen)) > 1 else None

        proxy.model.script = refusing
        await chat.says("Which port?")
        await chat.says("And which host?")
        assert [names_in(seen)[1:] for seen in proxy.model.prompts] == [OURS, [], []]
        assert await chat.transcript() == chat.said


@pytest.mark.spec("C22", "P5")
async def test_nobodys_refusal_switches_recall_off_for_others(tmp_path: Path) -> None:
    """It may have been the tools of one client, which are too many with ours."""
    async with compacted_chat(tmp_path) as (proxy, chat):
        other = proxy.chat(system="You help.", extra=chat.extra, key="other")
        await compacted(other, words=1_500)
        error = {"error": {"message": "too many tools", "type": "invalid_request_error"}}
        proxy.model.answers.append(Says(status=400, error=error))
        await other.says("Which port?")
        for one, offered in ((other, []), (chat, OURS)):
            await one.says("And which host?")
            assert names_in(proxy.model.prompts[-1])[1:] == offered


async def test_a_refusal_that_is_not_of_our_tools_reaches_the_client(tmp_path: Path) -> None:
    async with compacted_chat(tmp_path) as (proxy, chat):
        error = {"error": {"message": "bad picture", "type": "invalid_request_error"}}
        proxy.model.answers.extend([Says(status=400, error=error), Says(status=400, error=error)])
        reply = await chat.posts([*chat.said, {"role": "user", "content": "Which port?"}])
        assert (reply.status_code, reply.json()) == (400, error)
        await chat.says("Which port then?")
        assert names_in(proxy.model.prompts[-1])[1:] == OURS


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("code", "attempts"), [("invalid", [OURS, []]), ("context_length_exceeded", [OURS])])
async def test_a_round_that_is_refused_costs_no_answer(
    code: str, attempts: list[list[str]], stream: bool, tmp_path: Path
) -> None:
    """It is asked without our tools, then without what they found; at once where that made it too long."""
    async with compacted_chat(tmp_path, stream=stream) as (proxy, chat):

        def refusing(seen: Seen) -> Says | None:
            error = {"error": {"message": "no", "type": "invalid_request_error", "code": code}}
            if seen.messages[-1]["role"] == "tool":
                return Says(status=400, error=error)
            return saying(None, GREP) if len(names_in(seen)) > 1 else saying("I do not know.")

        proxy.model.script = refusing
        assert (await chat.says("Which port?"))["content"] == "I do not know."
        assert [names_in(seen)[1:] for seen in proxy.model.prompts] == [OURS, *attempts, []]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_upstream_that_breaks_in_a_later_round_is_told(stream: bool, tmp_path: Path) -> None:
    async with compacted_chat(tmp_path, stream=stream) as (proxy, chat):
        error = {"error": {"message": "overloaded", "type": "server_error"}}
        proxy.model.answers.extend([saying(None, GREP), Says(status=503, error=error)])
        body = {
            "model": "test-model",
            "messages": [*chat.said, {"role": "user", "content": "?"}],
            **chat.extra,
        }
        if not stream:
            reply = await proxy.http.post("/v1/chat/completions", json=body, headers=chat.headers)
            assert (reply.status_code, reply.json()) == (503, error)
            return
        text = await cut_stream(proxy, chat, body | {"stream": True})
        assert "upstream" in text
        assert "[DONE]" not in text


async def cut_stream(proxy: Proxy, chat: Chat, body: Json) -> str:
    """What comes of a streamed answer until its connection breaks; that it breaks is asserted."""
    text = ""
    asking = proxy.http.stream("POST", "/v1/chat/completions", json=body, headers=chat.headers)
    try:
        async with asking as answer:
            async for piece in answer.aiter_text():
                text += piece
    except httpx.RemoteProtocolError:
        return text
    raise AssertionError("the stream ended as if it were whole")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_hangs_up_ends_the_hidden_round(stream: bool, tmp_path: Path) -> None:
    async with compacted_chat(tmp_path, stream=stream) as (proxy, chat):
        begun = asyncio.Event()

        async def begins() -> None:
            begun.set()

        proxy.model.answers.extend([saying("Wait. ", GREP), saying(None, after=begins, never=True)])
        body = {
            "model": "test-model",
            "stream": stream,
            "messages": [*chat.said, {"role": "user", "content": "Which port?"}],
            **chat.extra,
        }
        asking = asyncio.ensure_future(
            proxy.http.post("/v1/chat/completions", json=body, headers=chat.headers)
        )
        async with asyncio.timeout(20):
            await begun.wait()
            asking.cancel()
            await asyncio.wait([asking])
            # Not only asked again: the model server sees that nobody listens.
            await proxy.model.left.wait()
        async with asyncio.timeout(20):
            expected = ["user", "assistant"] if stream else ["user"]
            while roles_in(await chat.rows(), chat) != expected:  # noqa: ASYNC110  # nobody tells us
                await asyncio.sleep(0.01)
        rows = (await chat.rows())[len(chat.said) :]
        assert [row["message"]["content"] for row in rows[1:]] == (["Wait. "] if stream else [])


@pytest.mark.spec("C02")
async def test_recall_is_switched_by_session_and_by_request(tmp_path: Path) -> None:
    async with compacted_chat(tmp_path, overrides={"recall.tools": False}) as (proxy, chat):
        path = f"/api/sessions/{chat.session}/settings"

        async def offered(header: str | None = None) -> bool:
            chat.headers.pop("x-palimpsest-recall", None)
            if header:
                chat.headers["x-palimpsest-recall"] = header
            await chat.says("And now?")
            assert "x-palimpsest-recall" not in proxy.model.prompts[-1].headers
            return names_in(proxy.model.prompts[-1])[1:] == OURS

        assert not await offered()
        assert await offered("on")
        reply = await proxy.http.patch(path, headers=chat.headers, json={"recall": {"tools": True}})
        assert reply.status_code == 200, reply.text
        assert await offered()
        assert not await offered("off")
        await proxy.http.patch(path, headers=chat.headers, json={"recall": {"tools": None}})
        assert not await offered()
        chat.headers["x-palimpsest-recall"] = "maybe"
        reply = await chat.posts(chat.said)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "X-Palimpsest-Recall")


@pytest.mark.parametrize(
    "extra",
    [
        {"tools": []},
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "read_file"}}},
        {"n": 2},
        {"tools": [{"type": "function", "function": {"name": "context_grep", "parameters": {}}}]},
    ],
)
async def test_no_tools_are_offered_where_a_client_could_notice(extra: Json, tmp_path: Path) -> None:
    async with compacted_chat(tmp_path) as (proxy, chat):
        chat.extra |= extra
        await chat.says("Which port?")
        (seen,) = proxy.model.prompts
        assert seen.body.get("tools", []) == chat.extra["tools"]


@pytest.mark.spec("C22", "F20")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("by_header", [True, False])
async def test_a_client_without_tools_may_be_given_recall_all_the_same(
    by_header: bool, stream: bool, tmp_path: Path
) -> None:
    overrides = {} if by_header else {"recall.tools_for_all": True}
    async with compacted_chat(tmp_path, stream=stream, overrides=overrides) as (proxy, chat):
        del chat.extra["tools"]
        if by_header:
            chat.headers["x-palimpsest-recall"] = "always"
        proxy.model.answers.extend([saying(None, GREP), saying("Port 8443.")])
        answer = await chat.says("Which port?")
        assert (answer["content"], "tool_calls" in answer) == ("Port 8443.", False)
        assert [names_in(seen) for seen in proxy.model.prompts] == [OURS, OURS]
        assert proxy.model.prompts[1].messages[-1]["role"] == "tool"
        assert await chat.transcript() == chat.said


async def test_nothing_is_offered_before_anything_is_folded(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, {"recall.tools": True}) as proxy:
        chat = proxy.chat(extra={"tools": TOOLS})
        await chat.says("Hello.")
        assert names_in(proxy.model.prompts[0]) == ["read_file"]
