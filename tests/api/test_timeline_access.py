"""Who sees the timeline: the chat's own key, also typed into a browser's question, and nobody else."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path

import httpx
import pytest
from palimpsest.cli.keys import create_key
from palimpsest.settings.load import load_settings

from tests.kit.chat import Chat
from tests.kit.model import ModelServer
from tests.kit.page import Node, page_of
from tests.kit.proxy import Proxy, proxied

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOWHERE = "0192f0c4-0000-7000-8000-000000000000"
CHALLENGE = 'Basic realm="palimpsest", charset="UTF-8"'


def typed(password: str, user: str = "") -> dict[str, str]:
    """What a browser sends after its question (RFC 7617)."""
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def key_of(chat: Chat) -> str:
    return chat.headers["authorization"].removeprefix("Bearer ")


def told(reply: httpx.Response) -> tuple[int, str, Node]:
    """Status and code of an error that is a page."""
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "content-security-policy" in reply.headers
    page = page_of(reply.text)
    return reply.status_code, page.one("p", kind="code").one("code").text, page


def asked(reply: httpx.Response) -> None:
    """The browser is made to ask for a key."""
    assert told(reply)[:2] == (401, "invalid_api_key")
    assert reply.headers["www-authenticate"] == CHALLENGE


@pytest.mark.parametrize("user", ["", "anybody", "me@example.org"])
async def test_a_password_is_the_key(proxy: Proxy, chat: Chat, user: str) -> None:
    for path in ("/ui", f"/ui/sessions/{chat.session}/events"):
        by_header = await proxy.http.get(path, headers={"authorization": chat.headers["authorization"]})
        by_password = await proxy.http.get(path, headers=typed(key_of(chat), user))
        assert (by_header.status_code, by_password.status_code) == (200, 200)
        assert chat.session in by_password.text
        # What a password cannot open is not linked: it is named.
        page = page_of(by_password.text)
        links = {link.attributes["href"].partition("?")[0] for link in page.all("a")}
        assert all(link.startswith("/ui") or link in ("#main", "/openapi.json") for link in links)
        assert page.one("footer").all("code")
        assert page_of(by_header.text).one("footer").all("code") == []


async def test_a_key_with_a_colon_and_other_signs_is_one_key(proxy: Proxy) -> None:
    key = f"sk:{uuid.uuid4().hex}:~!"
    chat = proxy.chat(key=key)
    await chat.says("mine")
    assert (await proxy.http.get("/ui", headers=typed(key, "me"))).status_code == 200


async def test_a_password_opens_nothing_but_the_pages(proxy: Proxy, chat: Chat) -> None:
    """A browser sends it by itself, also for a stranger's page: what changes anything must not take it."""
    home = f"/api/sessions/{chat.session}"
    for method, path in (("GET", home), ("GET", f"{home}/events"), ("POST", f"{home}/compact")):
        reply = await proxy.http.request(method, path, headers=typed(key_of(chat)))
        assert (reply.status_code, reply.headers["content-type"]) == (404, "application/json")
        assert "www-authenticate" not in reply.headers


async def test_somebody_elses_session_looks_like_none(proxy: Proxy, chat: Chat) -> None:
    stranger = proxy.chat(key=uuid.uuid4().hex)
    await stranger.says("a namespace of my own")
    for headers in (typed(key_of(stranger)), {"authorization": stranger.headers["authorization"]}):
        replies = [
            await proxy.http.get(f"/ui/sessions/{name}/events", headers=headers)
            for name in (chat.session, NOWHERE, "my/own name")
        ]
        assert [told(reply)[:2] for reply in replies] == [(404, "not_found")] * 3
        assert len({reply.content for reply in replies}) == 1
        assert "www-authenticate" not in replies[0].headers
        assert chat.session not in (await proxy.http.get("/ui", headers=headers)).text


async def test_whoever_is_not_known_is_asked_for_a_key(proxy: Proxy, chat: Chat) -> None:
    unknown = typed(uuid.uuid4().hex)
    for headers in ({}, typed(""), unknown):
        replies = [
            await proxy.http.get(f"/ui/sessions/{name}/events", headers=headers)
            for name in (chat.session, NOWHERE)
        ]
        for reply in replies:
            asked(reply)
        assert len({reply.content for reply in replies}) == 1
    asked(await proxy.http.get("/ui", headers=unknown))


@pytest.mark.parametrize("sent", ["Basic", "Basic !!", "Basic " + base64.b64encode(b"no colon").decode()])
async def test_a_password_that_cannot_be_read_is_asked_for_again(proxy: Proxy, sent: str) -> None:
    asked(await proxy.http.get("/ui", headers={"authorization": sent}))


async def test_a_program_without_sessions_has_an_empty_list(proxy: Proxy) -> None:
    reply = await proxy.http.get("/ui", headers={"authorization": f"Bearer {uuid.uuid4().hex}"})
    assert reply.status_code == 200
    page = page_of(reply.text)
    assert (page.one("h1").figure("total"), len(page.all("table", kind="clients"))) == (0, 1)


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/ui?limit=0", "limit"),
        ("/ui?after=<script>", "after"),
        ("/ui/sessions/{id}/events?after=-1", "after"),
        ("/ui/sessions/{id}/events?limit=501", "limit"),
        ("/ui/sessions/{id}/events?show=nothing", "show"),
    ],
)
async def test_what_cannot_be_asked_for_is_named_on_a_page(
    proxy: Proxy, chat: Chat, path: str, param: str
) -> None:
    reply = await proxy.http.get(path.format(id=chat.session), headers=chat.headers)
    status, code, page = told(reply)
    assert (status, code) == (400, "invalid_parameter")
    assert param in [word.text for word in page.all("code")]


async def test_a_key_that_stands_twice_is_refused_on_a_page(proxy: Proxy) -> None:
    headers = [("authorization", "Bearer a"), ("authorization", typed("b")["authorization"])]
    assert told(await proxy.http.get("/ui", headers=headers))[:2] == (400, "repeated_header")


async def test_without_keys_the_pages_just_work(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        # Nothing is stored yet, and nobody is asked for a password.
        assert (await proxy.http.get("/ui")).status_code == 200
        question = {"model": "test-model", "messages": [{"role": "user", "content": "hello"}]}
        answer = await proxy.http.post("/v1/chat/completions", json=question)
        session = answer.headers["x-palimpsest-session"]
        for path in ("/ui", f"/ui/sessions/{session}/events"):
            reply = await proxy.http.get(path)
            assert reply.status_code == 200
            assert session in reply.text
        # Whoever has a key as well can say so.
        listed = page_of((await proxy.http.get("/ui")).text)
        (link,) = [link for link in listed.one("footer").all("a") if "ask" in link.attributes["href"]]
        asked(await proxy.http.get(link.attributes["href"]))
        await proxy.chat(key="mine").says("hello")
        known = await proxy.http.get(link.attributes["href"], headers=typed("mine"))
        assert known.status_code == 200
        assert session not in known.text
        assert "ask=" not in known.text


async def test_where_keys_are_demanded_only_an_issued_one_opens(tmp_path: Path) -> None:
    overrides = {"access.mode": "keys"}
    async with proxied(ModelServer(), tmp_path, overrides) as proxy:
        url = f"sqlite:///{tmp_path / 'palimpsest.db'}"
        settings = load_settings(None, {"database.url": url, "database.data_folder": str(tmp_path)}, {})
        _, key = await create_key(settings, "me")
        chat = proxy.chat(key=key)
        await chat.says("hello")
        for path in ("/ui", f"/ui/sessions/{chat.session}/events"):
            for headers in ({}, typed("wrong"), {"authorization": "Bearer wrong"}, typed("")):
                asked(await proxy.http.get(path, headers=headers))
            reply = await proxy.http.get(path, headers=typed(key, "me"))
            assert reply.status_code == 200
            assert chat.session in reply.text
            assert key not in reply.text
