"""What a page of another site can do to the proxy from inside a real browser: nothing (H02)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route

from tests.browser.conftest import Elsewhere
from tests.kit.blind import blind
from tests.kit.chat import Chat
from tests.kit.model import ModelServer
from tests.kit.proxy import Front, fronting
from tests.kit.serving import served

pytestmark = [pytest.mark.spec("H02"), pytest.mark.asyncio(loop_scope="session")]

SECRET = "the password is swordfish"
TALK = json.dumps({"model": "m", "messages": [{"role": "user", "content": "written by a page"}]})
MEMORY = json.dumps({"text": "written by a page"})
READS = ["/api/sessions/named/messages", "/api/sessions", "/api/sessions/named/events", "/ui", "/v1/models"]
WRITES = {
    "/v1/chat/completions": TALK,
    "/s/named/v1/chat/completions": TALK,
    "/api/sessions/named/memory-block": MEMORY,
    "/api/sessions/named/compact": "{}",
    "/ui/sessions/named": "action=compact",
    "/mcp": '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}',
}
# Every way a page has of sending a request; each tells what it read, "" for nothing.
WAYS = """
const settled = (begin) => new Promise((done) => { begin(done); setTimeout(() => done(""), 2000); });
const text = async (promise) => { try { return await (await promise).text(); } catch { return ""; } };
const xhr = (method, url, body) => settled((done) => {
  const asked = new XMLHttpRequest();
  asked.open(method, url);
  asked.onloadend = () => done(asked.responseText);
  asked.send(body);
});
const element = (tag, url) => settled((done) => {
  const made = document.createElement(tag);
  made.onload = () => { try { done(made.contentDocument?.body?.innerText ?? ""); } catch { done(""); } };
  made.onerror = () => done("");
  made.src = url;
  document.body.append(made);
});
const form = (url, enctype, body) => settled((done) => {
  const frame = document.createElement("iframe");
  frame.name = "f" + Math.random();
  document.body.append(frame);
  const made = document.createElement("form");
  Object.assign(made, { method: "post", action: url, enctype, target: frame.name });
  const field = document.createElement("input");
  // The usual trick: what a form adds ends up inside of a string.
  const cut = body.lastIndexOf("}");
  field.name = body.slice(0, cut) + ', "ignored": "';
  field.value = '"' + body.slice(cut);
  made.append(field);
  document.body.append(made);
  frame.onload = () => { try { done(frame.contentDocument.body.innerText); } catch { done(""); } };
  made.submit();
});
const events = (url) => settled((done) => {
  const source = new EventSource(url);
  source.onmessage = (event) => { source.close(); done(event.data); };
  source.addEventListener("context_summarized", (event) => { source.close(); done(event.data); });
  source.onerror = () => { source.close(); done(""); };
});
"""
READING = (
    "async ([base, paths]) => {"
    + WAYS
    + """
  const read = [];
  for (const path of paths) {
    read.push(await text(fetch(base + path)));
    read.push(await text(fetch(base + path, { credentials: "include" })));
    read.push(await text(fetch(base + path, { headers: { authorization: "Bearer x" } })));
    read.push(await xhr("GET", base + path));
    for (const tag of ["img", "script", "iframe"]) read.push(await element(tag, base + path));
  }
  read.push(await events(base + "/api/sessions/named/events"));
  return read.filter(Boolean);
}"""
)
WRITING = (
    "async ([base, bodies]) => {"
    + WAYS
    + """
  const read = [];
  for (const [path, body] of Object.entries(bodies)) {
    const url = base + path;
    read.push(await text(fetch(url, { method: "POST", mode: "no-cors", body })));
    read.push(await text(fetch(url, { method: "POST", body })));
    const headers = { "content-type": "application/json" };
    read.push(await text(fetch(url, { method: "POST", body, headers })));
    read.push(await text(fetch(url, { method: "DELETE" })));
    read.push(await xhr("POST", url, body));
    navigator.sendBeacon(url, body);
    for (const enctype of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
      read.push(await form(url, enctype, body));
  }
  return read.filter(Boolean);
}"""
)


@asynccontextmanager
async def running(
    folder: Path, given: dict[str, Any] | None = None, around: Callable[[Any], Any] = lambda app: app
) -> AsyncIterator[tuple[Front, ModelServer]]:
    """A keyless proxy with the operator's key, and a conversation of a program without a key in it."""
    model = ModelServer()
    settings = {"upstream.api_key": "sk-operator", **(given or {})}
    async with (
        served(model, lifespan="off") as upstream,
        fronting(f"{upstream}/v1", folder, settings, around=around) as front,
    ):
        chat = Chat(front.http, session="named")
        chat.headers.pop("authorization")
        await chat.says(SECRET)
        yield front, model


async def state(front: Front, model: ModelServer) -> tuple[int, str, str, str]:
    """All that a page could change."""
    pages = [
        (await front.http.get(path)).text
        for path in ("/api/sessions", "/api/sessions/named/messages", "/api/sessions/named/memory")
    ]
    return len(model.seen), pages[0], pages[1], pages[2]


@asynccontextmanager
async def visited(browser: Browser, url: str) -> AsyncIterator[Page]:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(url)
    yield page
    await context.close()


@pytest.mark.parametrize("name", ["evil.test", "127.0.0.1"])
async def test_a_page_of_another_origin_reads_and_writes_nothing(
    tmp_path: Path, browser: Browser, elsewhere: Elsewhere, name: str
) -> None:
    """Of another site, and of this machine's next port."""
    async with running(tmp_path) as (front, model), visited(browser, elsewhere.url(name)) as page:
        before = await state(front, model)
        assert await page.evaluate(READING, [front.url, READS]) == []
        assert await page.evaluate(WRITING, [front.url, WRITES]) == []
        assert await state(front, model) == before


async def test_with_its_eyes_shut_the_proxy_gives_everything_away(
    tmp_path: Path, browser: Browser, elsewhere: Elsewhere
) -> None:
    """The control: the same pages against a proxy that takes them for programs."""
    async with (
        running(tmp_path, around=blind) as (front, model),
        visited(browser, elsewhere.url("evil.test")) as page,
    ):
        before = await state(front, model)
        read = await page.evaluate(READING, [front.url, READS])
        assert len([text for text in read if SECRET in text]) >= 2
        await page.evaluate(WRITING, [front.url, WRITES])
        after = await state(front, model)
        assert after[0] > before[0]
        assert all("written by a page" in text for text in after[2:])


async def rebound(page: Page, front: Front) -> list[str]:
    """What a page reads whose name has been pointed at this machine since it was loaded."""
    address = front.url.replace("127.0.0.1", "rebound.test")

    async def attackers_page(route: Route) -> None:
        await route.fulfill(
            content_type="text/html", body="<!doctype html><title>Loaded before</title><body>"
        )

    await page.route(f"{address}/before", attackers_page)
    await page.goto(f"{address}/before")
    read: list[str] = await page.evaluate(READING, [address, READS])
    await page.evaluate(WRITING, [address, WRITES])
    return [text for text in read if SECRET in text]


async def test_a_rebound_name_reads_and_writes_nothing(tmp_path: Path, browser: Browser) -> None:
    async with running(tmp_path) as (front, model), visited(browser, "about:blank") as page:
        before = await state(front, model)
        assert await rebound(page, front) == []
        assert await state(front, model) == before


async def test_where_any_name_is_answered_a_rebound_one_reads(tmp_path: Path, browser: Browser) -> None:
    """The control: what the check of the name is for."""
    everything = {"server.allowed_hosts": ["*"]}
    async with running(tmp_path, everything) as (front, model), visited(browser, "about:blank") as page:
        before = await state(front, model)
        assert await rebound(page, front)
        assert (await state(front, model))[0] > before[0]


LISTED = """async ([base, body]) => {
  const headers = { "content-type": "application/json", authorization: "Bearer own", "x-session-id": "app" };
  const asks = { method: "POST", headers, body, credentials: "include" };
  const reply = await fetch(base + "/v1/chat/completions", asks);
  const said = (await reply.json()).choices[0].message.content;
  const stored = await (await fetch(base + "/api/sessions/app/messages", { headers })).json();
  return [reply.status, reply.headers.get("x-palimpsest-session"), stored.session, said, stored.total];
}"""


async def test_a_page_of_a_listed_origin_works(
    tmp_path: Path, browser: Browser, elsewhere: Elsewhere
) -> None:
    listed = {"server.cors_origins": [f"http://app.test:{elsewhere.port}"]}
    async with running(tmp_path, listed) as (front, _):
        async with visited(browser, elsewhere.url("app.test")) as page:
            status, told, session, said, total = await page.evaluate(LISTED, [front.url, TALK])
            assert (status, told, total) == (200, session, 2)
            assert said
        async with visited(browser, elsewhere.url("evil.test")) as page:
            assert await page.evaluate(READING, [front.url, READS]) == []
