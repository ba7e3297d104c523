"""The timeline in the browser: its numbers, its sections, and that every text stays text (A24, A25)."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import httpx
import pytest
from palimpsest.core.summary.block import PREAMBLE
from palimpsest.core.summary.sections import ADDED_TITLE, TITLES

from tests.kit.chat import Chat
from tests.kit.model import Says, Seen
from tests.kit.page import Node, page_of
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
HOSTILE = "<script>a(1)</script></details></article><b onclick='x()'>\"' onblur=y() \u202egpj.exe\u2069 &lt;"
# How a reader sees it: nothing is gone, and nothing turns the direction.
HARMLESS = HOSTILE.replace("\u202e", "[U+202E]").replace("\u2069", "[U+2069]")
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "content-type": "text/html; charset=utf-8",
}


def said_by_model(_: Seen) -> Says:
    parts = [f"## {number}. {title}\nPart {number}: {HOSTILE}" for number, title in enumerate(TITLES, 1)]
    return Says({"role": "assistant", "content": "\n".join(parts)})


async def opened(proxy: Proxy, path: str, headers: dict[str, str] | None = None) -> Node:
    reply = await proxy.http.get(path, headers=headers)
    assert reply.status_code == 200, reply.text
    return checked(reply)


def checked(reply: httpx.Response) -> Node:
    """The page, which runs our own script alone, and is sent with the headers that say so."""
    assert {name: reply.headers[name] for name in HEADERS} == HEADERS
    page = page_of(reply.text)
    assert page.all("img") == page.all("link") == page.all("iframe") == []
    assert [(script.attributes["src"], script.text) for script in page.all("script")] == [("/ui.js", "")]
    risky = [name for node in page.every() for name in node.attributes if name[:2] == "on" or name == "style"]
    assert risky == []
    digest = base64.b64encode(hashlib.sha256(page.one("style").text.encode()).digest()).decode()
    policy = reply.headers["content-security-policy"].split("; ")
    wanted = ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"]
    wanted += ["script-src 'self'", "connect-src 'self'"]
    assert sorted(policy) == sorted([*wanted, f"style-src 'sha256-{digest}'"])
    assert page.one("html").attributes["lang"] == "en"
    assert page.one("title").text.endswith("Palimpsest")
    assert len(page.all("h1")) == 1
    return page


async def compacted(proxy: Proxy, chat: Chat, **policy: Any) -> Json:
    """The conversation is long and was compacted by hand; the event of it."""
    for turn in range(8):
        await chat.says(f"Question {turn}: {HOSTILE} " + f"detail {turn} of the matter. " * 60)
    home = f"/api/sessions/{chat.session}"
    await proxy.http.patch(f"{home}/settings", headers=chat.headers, json={"policy": policy})
    done = await proxy.http.post(f"{home}/compact", headers=chat.headers)
    assert done.json()["compacted"], done.text
    events = await proxy.http.get(f"{home}/events?types=context_summarized", headers=chat.headers)
    event: Json = events.json()["events"][-1]
    return event


async def timeline(proxy: Proxy, chat: Chat, query: str = "") -> Node:
    return await opened(proxy, f"/ui/sessions/{chat.session}/events{query}", chat.headers)


@pytest.mark.spec("A25")
async def test_the_numbers_of_a_compaction_are_those_of_its_event(proxy: Proxy) -> None:
    chat = proxy.chat(session="long")
    event = await compacted(proxy, chat, name="handoff")
    payload = event["payload"]
    entry = (await timeline(proxy, chat)).one("li", id=f"e{event['seq']}")
    assert entry.figure("freed") == payload["tokensFreed"] > 0
    assert entry.figure("removed") == payload["removedCount"] > 0
    assert entry.figure("before") == payload["tokensBefore"]
    assert entry.figure("after") == payload["tokensAfter"]
    assert entry.one("h4").text == "Session context compacted proactive"
    assert "Written by the model test-model" in entry.one("p", kind="because").text


@pytest.mark.spec("A24")
async def test_each_section_folds_and_four_are_open_at_first(proxy: Proxy) -> None:
    chat = proxy.chat(session="long")
    proxy.model.summary = said_by_model
    event = await compacted(proxy, chat, name="handoff")
    entry = (await timeline(proxy, chat)).one("li", id=f"e{event['seq']}")
    sections = entry.all("details")
    titles = [section.one("summary").text for section in sections]
    numbered = [f"{number}. {title}" for number, title in enumerate(TITLES, 1)]
    assert titles[:9] == numbered
    assert titles[9:] in ([], [ADDED_TITLE])
    opened_at_first = [title for title, one in zip(titles, sections, strict=True) if "open" in one.attributes]
    assert opened_at_first == [numbered[number - 1] for number in (1, 7, 8, 9)]
    assert entry.one("div", kind="lead").text == PREAMBLE
    assert entry.all("pre") == []


@pytest.mark.spec("A24")
async def test_what_a_summary_says_stays_text(proxy: Proxy) -> None:
    chat = proxy.chat(session="<b>'\"</b>")
    proxy.model.summary = said_by_model
    event = await compacted(proxy, chat, name="handoff")
    assert event["payload"]["author"] == "model"
    page = await timeline(proxy, chat)
    sections = page.one("li", id=f"e{event['seq']}").all("details")
    # The model's words, and the user's in the second section.
    assert f"Part 4: {HARMLESS}" in sections[3].one("div").text
    assert HARMLESS in sections[1].one("div").text
    assert page.one("h1").text == "<b>'\"</b>"
    assert page.all("b") == []
    listed = await opened(proxy, "/ui", chat.headers)
    name, title, client, model = [one.text for one in listed.all("bdi")]
    assert (name, model) == ("<b>'\"</b>", "test-model")
    assert title.startswith("Question 0: <script>a(1)</script></details></article>")
    assert client.startswith("python-httpx/")


@pytest.mark.spec("A24")
async def test_a_summary_with_fewer_than_three_headings_is_one_text(proxy: Proxy) -> None:
    chat = proxy.chat(session="long")
    told = f"First line of it.\n## 1. {TITLES[0]}\nThe goal.\n## 8. {TITLES[7]}\nWhere it stands: {HOSTILE}"
    delta = '\n\n```json\n{"decisions": [{"id": "d1", "text": "Use port 8443"}]}\n```'
    proxy.model.summary = lambda _: Says({"role": "assistant", "content": told + delta})
    event = await compacted(proxy, chat, name="rolling")
    assert event["payload"]["author"] == "model"
    entry = (await timeline(proxy, chat)).one("li", id=f"e{event['seq']}")
    assert entry.all("details") == entry.all("div", kind="lead") == []
    text = entry.one("pre").text
    assert f"## 8. {TITLES[7]}\nWhere it stands: {HARMLESS}" in text
    assert "<palimpsest" not in text


async def test_every_event_stands_in_its_order_and_in_pages(proxy: Proxy) -> None:
    chat = proxy.chat(session="long")
    await compacted(proxy, chat)
    home = f"/api/sessions/{chat.session}"
    listed = (await proxy.http.get(f"{home}/events", headers=chat.headers)).json()["events"]
    ids = [f"e{event['seq']}" for event in listed]
    whole = await timeline(proxy, chat)
    assert [entry.attributes["id"] for entry in whole.all("li")] == ids
    assert [entry.attributes["data-kind"] for entry in whole.all("li")] == [one["type"] for one in listed]
    for entry, event in zip(whole.all("li"), listed, strict=True):
        (link,) = entry.all("a", kind="json")
        only = (await proxy.http.get(link.attributes["href"], headers=chat.headers)).json()["events"]
        assert only == [event]
    pages, path = [], f"/ui/sessions/{chat.session}/events?limit=2"
    while path:
        page = await opened(proxy, path, chat.headers)
        assert len(page.all("li")) <= 2
        pages += [entry.attributes["id"] for entry in page.all("li")]
        path = next((link.attributes["href"] for link in page.all("a", rel="next")), "")
    assert pages == ids
    some = await timeline(proxy, chat, "?show=compactions")
    assert [entry.attributes["data-kind"] for entry in some.all("li")] == [
        "context_summarized",
        "compaction_completed",
    ]


async def test_the_head_says_what_the_status_says(proxy: Proxy) -> None:
    chat = proxy.chat(session="long")
    await compacted(proxy, chat)
    home = f"/api/sessions/{chat.session}"
    status = (await proxy.http.get(f"{home}/status", headers=chat.headers)).json()
    page = await timeline(proxy, chat)
    legend = page.one("dl", kind="legend")
    figures = {kind: legend.figure(kind) for kind in ("whole", "shown", "trigger", "target", "window")}
    assert figures == {
        "whole": status["tokens_full"],
        "shown": status["tokens"],
        "trigger": status["trigger_tokens"],
        "target": status["target_tokens"],
        "window": status["window_tokens"],
    }
    window = status["window_tokens"]
    widths = [bar.attributes["width"] for bar in page.one("svg").all("rect")]
    assert widths == ["100.0%"] + [
        f"{round(100 * figures[kind] / window, 2)}%" for kind in ("whole", "shown")
    ]
    head = page.one("dl", kind="head")
    assert (head.figure("messages"), head.figure("compactions")) == (16, 1)
    assert chat.session in head.text
    for link in page.one("footer").all("a"):
        told = await proxy.http.get(link.attributes["href"], headers=chat.headers)
        assert (told.status_code, told.headers["content-type"]) == (200, "application/json")


async def test_trouble_looks_like_trouble(proxy: Proxy) -> None:
    chat = proxy.chat()
    await chat.says("first")
    too_long = {
        "error": {
            "message": "This model's maximum context length is 20000 tokens.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        }
    }
    proxy.model.answers.extend(Says(status=400, error=too_long) for _ in range(6))
    refused = await chat.posts([*chat.said, {"role": "user", "content": "second"}])
    assert refused.status_code == 400
    page = await opened(proxy, f"/ui/sessions/{chat.session}/events", chat.headers)
    failed = page.one("li", kind="tone-failure")
    assert failed.attributes["data-kind"] == "overflow_recovery_failed"
    assert failed.one("strong").text == "Prompt still too long"
    assert page.one("li", kind="tone-warning").attributes["data-kind"] == "overflow_recovery_started"
    calm = await opened(proxy, f"/ui/sessions/{chat.session}/events?show=compactions", chat.headers)
    assert calm.all("li") == []


async def test_sessions_are_listed_newest_first_and_in_pages(proxy: Proxy) -> None:
    chats = [proxy.chat(session=f"talk {number}") for number in range(3)]
    for turns, chat in enumerate(chats, 1):
        for turn in range(turns):
            await chat.says(f"Question {turn}")
    (headers,) = {tuple(chat.headers.items())[:1] for chat in chats}
    page = await opened(proxy, "/ui", dict(headers))
    rows = page.one("tbody").all("tr")
    listed = (await proxy.http.get("/api/sessions", headers=dict(headers))).json()["sessions"]
    assert page.one("h1").figure("total") == len(rows) == 3
    for row, fields, chat in zip(rows, listed, reversed(chats), strict=True):
        assert row.one("th").one("a").text == fields["name"]
        assert row.one("th").one("a").attributes["href"] == f"/ui/sessions/{chat.session}"
        assert row.figure("messages") == fields["messages"]
        assert "compaction" not in row.text
        assert fields["compactions"] == 0
        whole, _, _ = chat.reply.headers["x-palimpsest-tokens"].partition("/")
        assert row.figure("tokens") == int(whole)
        assert fields["model"] in row.text
        assert row.one("time").text == "just now"
    names, path = [], "/ui?limit=2"
    while path:
        page = await opened(proxy, path, dict(headers))
        names += [row.one("th").one("a").text for row in page.one("tbody").all("tr")]
        path = next((link.attributes["href"] for link in page.all("a", rel="next")), "")
    assert names == ["talk 2", "talk 1", "talk 0"]
