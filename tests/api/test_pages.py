"""The pages: who sees them, their numbers, that every text stays text, what is done on them (A24, A25)."""

from __future__ import annotations

import base64
import hashlib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.api.ui.entries import CHOICES, age_of, entry_of, told_of
from palimpsest.cli.keys import create_key
from palimpsest.core.runtime.events import EVENT_TYPES
from palimpsest.core.summary.forms import TITLES
from palimpsest.core.summary.record import PREAMBLE
from palimpsest.core.wire.json_text import encoded
from palimpsest.settings.load import load_settings
from palimpsest.storage.journal import EventRow

from tests.kit.chat import Chat
from tests.kit.journal import events
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.page import Node, page_of
from tests.kit.proxy import Proxy, proxied

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
NOWHERE = "0192f0c4-0000-7000-8000-000000000000"
CHALLENGE = 'Basic realm="palimpsest", charset="UTF-8"'


def typed(password: str, user: str = "") -> dict[str, str]:
    """What a browser sends after its question (RFC 7617)."""
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def key_of(chat: Chat) -> str:
    return chat.headers["authorization"].removeprefix("Bearer ")


async def opened(proxy: Proxy, chat: Chat, path: str) -> Node:
    """The page, which runs our own script alone, and is sent with the headers that say so."""
    place = path if path.startswith("/ui") else f"/ui/sessions/{chat.session}{path}"
    reply = await proxy.http.get(place, headers={"authorization": chat.headers["authorization"]})
    assert reply.status_code == 200, reply.text
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
    await chat.asks("PATCH", "/settings", {"policy": policy})
    await chat.compacts()
    return (await events(proxy.http, chat, ["context_summarized"]))[-1]


@pytest.mark.spec("A24", "A25")
async def test_a_compaction_has_its_numbers_and_sections_and_every_text_stays_text(proxy: Proxy) -> None:
    def sections(_: Seen) -> Says:
        parts = [f"## {number}. {title}\nPart {number}: {HOSTILE}" for number, title in enumerate(TITLES, 1)]
        return Says({"role": "assistant", "content": "\n".join(parts)})

    chat = proxy.chat(session="<b>'\"</b>")
    proxy.model.summary = sections
    event = await compacted(proxy, chat, name="handoff")
    payload, page = event["payload"], await opened(proxy, chat, "/events")
    entry = page.one("li", id=f"e{event['seq']}")
    assert entry.figure("freed") == payload["tokensFreed"] > 0
    assert entry.figure("removed") == payload["removedCount"] > 0
    assert entry.figure("before") == payload["tokensBefore"]
    assert entry.figure("after") == payload["tokensAfter"]
    assert entry.one("h4").text == "Session context compacted proactive"
    assert "Written by the model test-model" in entry.one("p", kind="because").text
    folded = entry.all("details")
    titles = [section.one("summary").text for section in folded]
    numbered = [f"{number}. {title}" for number, title in enumerate(TITLES, 1)]
    assert titles[:9] == numbered
    assert titles[9:] in ([], ["More"])
    opened_at_first = [title for title, one in zip(titles, folded, strict=True) if "open" in one.attributes]
    assert opened_at_first == [numbered[number - 1] for number in (1, 7, 8, 9)]
    assert (entry.one("div", kind="lead").text, entry.all("pre")) == (PREAMBLE, [])
    # The model's words, and the user's in the second section.
    assert f"Part 4: {HARMLESS}" in folded[3].one("div").text
    assert HARMLESS in folded[1].one("div").text
    assert (page.one("h1").text, page.all("b")) == ("<b>'\"</b>", [])
    name, title, client, model = [one.text for one in (await opened(proxy, chat, "/ui")).all("bdi")]
    assert (name, model) == ("<b>'\"</b>", "test-model")
    assert title.startswith("Question 0: <script>a(1)</script></details></article>")
    assert client.startswith("python-httpx/")


@pytest.mark.spec("A24")
async def test_a_summary_with_fewer_than_three_headings_is_one_text(proxy: Proxy) -> None:
    chat = proxy.chat(session="long")
    told = f"## Entry\n### The goal\n- Where it stands: {HOSTILE}, and nothing else was said of it at all"
    proxy.model.summary = lambda _: Says({"role": "assistant", "content": told})
    # A window so large leaves code nothing to add.
    event = await compacted(proxy, chat, name="auto")
    assert event["payload"]["author"] == "model"
    entry = (await opened(proxy, chat, "/events")).one("li", id=f"e{event['seq']}")
    assert entry.all("details") == entry.all("div", kind="lead") == []
    text = entry.one("pre").text
    assert f"- Where it stands: {HARMLESS}" in text
    assert "<palimpsest" not in text


async def test_every_event_stands_in_its_order_below_what_the_status_says(proxy: Proxy) -> None:
    chat = proxy.chat(session="long")
    await compacted(proxy, chat)
    listed, whole = await events(proxy.http, chat), await opened(proxy, chat, "/events")
    ids = [f"e{event['seq']}" for event in listed]
    assert [entry.attributes["id"] for entry in whole.all("li")] == ids
    assert [entry.attributes["data-kind"] for entry in whole.all("li")] == [one["type"] for one in listed]
    for entry, event in zip(whole.all("li"), listed, strict=True):
        (link,) = entry.all("a", kind="json")
        only = (await proxy.http.get(link.attributes["href"], headers=chat.headers)).json()["events"]
        assert only == [event]
    pages, path = [], "/events?limit=2"
    while path:
        page = await opened(proxy, chat, path)
        assert len(page.all("li")) <= 2
        pages += [entry.attributes["id"] for entry in page.all("li")]
        path = next((link.attributes["href"] for link in page.all("a", rel="next")), "")
    assert pages == ids
    some = await opened(proxy, chat, "/events?show=compactions")
    kinds = [entry.attributes["data-kind"] for entry in some.all("li")]
    assert kinds == ["context_summarized", "compaction_completed"]
    status, legend = await chat.asks("GET", "/status"), whole.one("dl", kind="legend")
    names = {"whole": "tokens_full", "shown": "tokens"}
    names |= {kind: f"{kind}_tokens" for kind in ("trigger", "target", "window")}
    figures = {kind: legend.figure(kind) for kind in names}
    assert figures == {kind: status[name] for kind, name in names.items()}
    widths = [bar.attributes["width"] for bar in whole.one("svg").all("rect")]
    shares = [round(100 * status[name] / status["window_tokens"], 2) for name in ("tokens_full", "tokens")]
    assert widths == ["100.0%", *(f"{share}%" for share in shares)]
    head = whole.one("dl", kind="head")
    assert (head.figure("messages"), head.figure("compactions")) == (16, 1)
    assert chat.session in head.text
    for link in whole.one("footer").all("a"):
        told = await proxy.http.get(link.attributes["href"], headers=chat.headers)
        assert (told.status_code, told.headers["content-type"]) == (200, "application/json")


async def test_trouble_looks_like_trouble(proxy: Proxy) -> None:
    chat = proxy.chat()
    await chat.says("first")
    error = {
        "message": "This model's maximum context length is 20000 tokens.",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    }
    proxy.model.answers.extend(Says(status=400, error={"error": error}) for _ in range(6))
    refused = await chat.posts([*chat.said, {"role": "user", "content": "second"}])
    assert refused.status_code == 400
    page = await opened(proxy, chat, "/events")
    failed = page.one("li", kind="tone-failure")
    assert failed.attributes["data-kind"] == "overflow_recovery_failed"
    assert failed.one("strong").text == "Prompt still too long"
    assert page.one("li", kind="tone-warning").attributes["data-kind"] == "overflow_recovery_started"
    assert (await opened(proxy, chat, "/events?show=compactions")).all("li") == []


async def test_sessions_are_listed_newest_first_and_in_pages(proxy: Proxy) -> None:
    chats = [proxy.chat(session=f"talk {number}") for number in range(3)]
    for turns, chat in enumerate(chats, 1):
        for turn in range(turns):
            await chat.says(f"Question {turn}")
    page, listed = await opened(proxy, chat, "/ui"), (await chat.asks("GET", "sessions"))["sessions"]
    rows = page.one("tbody").all("tr")
    assert page.one("h1").figure("total") == len(rows) == 3
    for row, fields, one in zip(rows, listed, reversed(chats), strict=True):
        link = row.one("th").one("a")
        assert (link.text, link.attributes["href"]) == (fields["name"], f"/ui/sessions/{one.session}")
        assert (row.figure("messages"), "compaction" in row.text) == (fields["messages"], False)
        assert row.figure("tokens") == int(one.reply.headers["x-palimpsest-tokens"].partition("/")[0])
        assert fields["model"] in row.text
        assert row.one("time").text == "just now"
    names, path = [], "/ui?limit=2"
    while path:
        page = await opened(proxy, chat, path)
        names += [row.one("th").one("a").text for row in page.one("tbody").all("tr")]
        path = next((link.attributes["href"] for link in page.all("a", rel="next")), "")
    assert names == ["talk 2", "talk 1", "talk 0"]


def refused(reply: httpx.Response) -> tuple[int, str, list[str]]:
    """Status and code of an error that is a page, and what it names; a 401 makes a browser ask for a key."""
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "content-security-policy" in reply.headers
    assert reply.headers.get("www-authenticate") == (CHALLENGE if reply.status_code == 401 else None)
    page = page_of(reply.text)
    code = page.one("p", kind="code").one("code").text
    return reply.status_code, code, [word.text for word in page.all("code")]


def asked(reply: httpx.Response) -> None:
    assert refused(reply)[:2] == (401, "invalid_api_key")


@pytest.mark.parametrize("user", ["", "me@example.org"])
async def test_a_password_is_the_key_and_opens_nothing_but_the_pages(
    proxy: Proxy, chat: Chat, user: str
) -> None:
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
    # A browser sends it by itself, also for a stranger's page: what changes anything must not take it.
    home = f"/api/sessions/{chat.session}"
    for method, path in (("GET", home), ("GET", f"{home}/events"), ("POST", f"{home}/compact")):
        reply = await proxy.http.request(method, path, headers=typed(key_of(chat)))
        assert (reply.status_code, reply.headers["content-type"]) == (404, "application/json")
        assert "www-authenticate" not in reply.headers


async def test_somebody_elses_session_looks_like_none(proxy: Proxy, chat: Chat) -> None:
    # A key with a colon and other signs is one key.
    stranger = proxy.chat(key=f"sk:{uuid.uuid4().hex}:~!")
    await stranger.says("a namespace of my own")
    for headers in (typed(key_of(stranger)), {"authorization": stranger.headers["authorization"]}):
        replies = [
            await proxy.http.get(f"/ui/sessions/{name}/events", headers=headers)
            for name in (chat.session, NOWHERE, "my/own name")
        ]
        assert [refused(reply)[:2] for reply in replies] == [(404, "not_found")] * 3
        assert len({reply.content for reply in replies}) == 1
        listed = await proxy.http.get("/ui", headers=headers)
        assert (listed.status_code, chat.session in listed.text) == (200, False)


async def test_a_link_that_leads_nowhere_says_so_and_asks_for_no_key(proxy: Proxy, chat: Chat) -> None:
    unknown = typed(uuid.uuid4().hex)
    for headers in ({}, typed(""), unknown):
        replies = [
            await proxy.http.get(f"/ui/sessions/{name}", headers=headers)
            for name in (f"{chat.session}/events", f"{NOWHERE}/turns/1", "x/../../y")
        ]
        replies.append(await proxy.http.get("/ui/nothing", headers=headers))
        assert [refused(reply)[:2] for reply in replies] == [(404, "not_found")] * 4
        assert len({reply.content for reply in replies}) == 1
    asked(await proxy.http.get("/ui", headers=unknown))
    for sent in ("Basic", "Basic !!", "Basic " + base64.b64encode(b"no colon").decode()):
        asked(await proxy.http.get("/ui", headers={"authorization": sent}))
    # A program without sessions has an empty list.
    page = await opened(proxy, proxy.chat(key=uuid.uuid4().hex), "/ui")
    assert (page.one("h1").figure("total"), len(page.all("table", kind="clients"))) == (0, 1)


async def test_what_cannot_be_asked_for_is_named_on_a_page(proxy: Proxy, chat: Chat) -> None:
    home = f"/ui/sessions/{chat.session}"
    for path, param in (
        ("/ui?limit=0", "limit"),
        ("/ui?after=<script>", "after"),
        (f"{home}/events?after=-1", "after"),
        (f"{home}/events?limit=501", "limit"),
        (f"{home}/events?show=nothing", "show"),
    ):
        status, code, named = refused(await proxy.http.get(path, headers=chat.headers))
        assert (status, code, param in named) == (400, "invalid_parameter", True)
    headers = [("authorization", "Bearer a"), ("authorization", typed("b")["authorization"])]
    assert refused(await proxy.http.get("/ui", headers=headers))[:2] == (400, "repeated_header")


async def test_without_keys_the_pages_just_work(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        # Nothing is stored yet, and nobody is asked for a password.
        assert (await proxy.http.get("/ui")).status_code == 200
        question = {"model": "test-model", "messages": [{"role": "user", "content": "hello"}]}
        answer = await proxy.http.post("/v1/chat/completions", json=question)
        session = answer.headers["x-palimpsest-session"]
        for path in ("/ui", f"/ui/sessions/{session}/events"):
            reply = await proxy.http.get(path)
            assert (reply.status_code, session in reply.text) == (200, True)
        # Whoever has a key as well can say so.
        listed = page_of((await proxy.http.get("/ui")).text)
        (link,) = [link for link in listed.one("footer").all("a") if "ask" in link.attributes["href"]]
        asked(await proxy.http.get(link.attributes["href"]))
        await proxy.chat(key="mine").says("hello")
        known = await proxy.http.get(link.attributes["href"], headers=typed("mine"))
        assert (known.status_code, session in known.text, "ask=" in known.text) == (200, False, False)


async def test_where_keys_are_demanded_only_an_issued_one_opens(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path, {"access.mode": "keys"}) as proxy:
        url = f"sqlite:///{tmp_path / 'palimpsest.db'}"
        settings = load_settings(None, {"database.url": url, "database.data_folder": str(tmp_path)}, {})
        _, key = await create_key(settings, "me")
        chat = proxy.chat(key=key)
        await chat.says("hello")
        for path in ("/ui", f"/ui/sessions/{chat.session}/events"):
            for headers in ({}, typed("wrong"), {"authorization": "Bearer wrong"}, typed("")):
                asked(await proxy.http.get(path, headers=headers))
            reply = await proxy.http.get(path, headers=typed(key, "me"))
            assert (reply.status_code, chat.session in reply.text, key in reply.text) == (200, True, False)


async def sent(proxy: Proxy, chat: Chat, form: Node, page: str = "") -> str:
    """The form is sent as a browser sends it; where that leads."""
    fields = {field.attributes["name"]: field.attributes["value"] for field in form.all("input")}
    reply = await acts(proxy, chat, form.attributes["action"], fields, page)
    assert reply.status_code == 303, reply.text
    return reply.headers["location"]


async def acts(proxy: Proxy, chat: Chat, path: str, fields: Json, page: str = "") -> httpx.Response:
    headers = typed(key_of(chat), "me") | {"referer": f"{proxy.url}{path}{page}"}
    return await proxy.http.post(path, data=fields, headers=headers)


def forms_of(node: Node, action: str) -> list[Node]:
    """The forms that do this."""
    return [
        form
        for form in node.all("form")
        if any(field.attributes.get("value") == action for field in form.all("input"))
    ]


async def test_a_session_is_compacted_and_the_compaction_undone(proxy: Proxy, chat: Chat) -> None:
    home = f"/ui/sessions/{chat.session}"
    reply = await acts(proxy, chat, home, {"action": "compact"})
    assert reply.headers["location"] == f"{home}?did=nothing_to_fold"
    assert (
        "There was nothing to fold." in (await opened(proxy, chat, "?did=nothing_to_fold")).one("main").text
    )
    await chat.talks()
    for name, value in (
        ("origin", "https://evil.test"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
    ):
        headers = typed(key_of(chat)) | {name: value}
        reply = await proxy.http.post(home, data={"action": "compact"}, headers=headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "origin_not_allowed")
    stranger = {"authorization": "Bearer another"}
    assert (await proxy.http.post(home, data={"action": "compact"}, headers=stranger)).is_client_error
    assert await chat.compactions() == []
    form = forms_of(await opened(proxy, chat, ""), "compact")[0]
    assert await sent(proxy, chat, form) == home
    (made,) = await chat.compactions()
    assert made["messages_folded"] == form.figure("fold") > 0
    # It says so at once, and can be undone at once.
    for made_again in (False, True):
        told = (await opened(proxy, chat, "")).one("div", kind="did")
        assert (told.figure("folded"), told.figure("after")) == (
            made["messages_folded"],
            made["tokens_after"],
        )
        if not made_again:
            assert await sent(proxy, chat, forms_of(told, "undo")[0]) == f"{home}?did=undone"
            assert "Undone." in (await opened(proxy, chat, "?did=undone")).one("p", kind="did").text
            await sent(proxy, chat, form)
    made = (await chat.compactions())[-1]
    await chat.says("And now?")
    after = await opened(proxy, chat, "")
    assert made["summary"][:60] in after.one("main").text
    assert after.all("div", kind="did") == []
    await sent(proxy, chat, forms_of(after, "undo")[0])
    assert all(one["undone_at"] for one in await chat.compactions())
    assert forms_of(await opened(proxy, chat, ""), "undo") == []


@pytest.mark.parametrize("place", ["/turns/2", "/turns/2?from=0", "/messages?from=0&limit=5&raw=true"])
async def test_a_message_is_pinned_and_unpinned_where_it_stands(proxy: Proxy, chat: Chat, place: str) -> None:
    form = forms_of(await opened(proxy, chat, place), "pin")[0]
    ident = form.all("input")[1].attributes["value"]
    there = f"/ui/sessions/{chat.session}{place}#pin-{ident}"
    assert await sent(proxy, chat, form, place) == there
    (pin,) = (await chat.asks("GET", "/pins"))["pins"]
    assert pin["message"] == ident
    (form,) = forms_of(await opened(proxy, chat, place), "unpin")
    assert "pinned" in form.text
    state = await opened(proxy, chat, "/state")
    assert "first question" in state.one("main").text
    assert await sent(proxy, chat, form, place) == there
    assert (await chat.asks("GET", "/pins"))["pins"] == []
    assert "Nothing is pinned." in (await opened(proxy, chat, "/state")).one("main").text
    (form,) = forms_of(state, "unpin")
    await acts(proxy, chat, home := f"/ui/sessions/{chat.session}", {"action": "pin", "message": ident})
    assert await sent(proxy, chat, form, "/state") == f"{home}/state"


async def test_settings_are_changed_and_told_with_their_source(proxy: Proxy, chat: Chat) -> None:
    home = f"/ui/sessions/{chat.session}"
    patches = (
        '{"policy": {"tail_messages": 9}}',
        '{"policy": {"tail_messages": "no"}}',
        '{"other": 1}',
        "[]",
    )
    for patch in (*patches, "{", "\u00e4"):
        reply = await acts(proxy, chat, home, {"action": "settings", "patch": patch})
        assert reply.status_code == (303 if patch == patches[0] else 400), patch
    told = await opened(proxy, chat, "/settings")
    (row,) = [line for line in told.all("tr") if line.text.startswith("tail_messages")]
    assert [cell.text for cell in row.all("td")] == ["9", "session"]
    assert (await chat.asks("GET", "/settings"))["settings"] == {"policy": {"tail_messages": 9}}


async def test_a_form_that_cannot_be_carried_out_says_so(proxy: Proxy, chat: Chat) -> None:
    home = f"/ui/sessions/{chat.session}"
    forms: list[tuple[Json, int]] = [
        ({"action": "undo", "compaction": "none"}, 404),
        ({"action": "undo"}, 400),
        ({"action": "pin", "message": "none"}, 404),
        ({"action": "pin", "other": "x"}, 400),
        ({"action": "unpin", "message": "dcm_" + "0" * 32}, 404),
        ({"action": "other"}, 400),
        ({"action": "pin", "message": ["a", "b"]}, 400),
    ]
    for form, status in forms:
        assert refused(await acts(proxy, chat, home, form))[0] == status, form


async def test_what_was_said_is_found_with_its_words_marked(proxy: Proxy, chat: Chat) -> None:
    await chat.says("The kestrel nests on the lighthouse. <script>alert(1)</script>")
    found = await opened(proxy, chat, "/ui?q=kestrel+lighthouse")
    assert [mark.text for mark in found.all("mark")][:2] == ["kestrel", "lighthouse"]
    assert "<script>alert(1)</script>" in found.one("main").text
    assert (await opened(proxy, chat, f"/ui?q=kestrel&session={chat.session}")).all("mark")
    nothing = await opened(proxy, chat, "/ui?q=quetzalcoatl")
    assert "Nothing that was said has these words." in nothing.one("main").text
    assert (await opened(proxy, chat, "/ui?q=")).all("mark") == []


FIELDS = (
    *("title", "summary", "removedCount", "tokensBefore", "tokensAfter", "tokensFreed", "proactive", "kind"),
    *("trigger", "reason", "author", "model", "text", "tokens", "slackTokens", "ceilingTokens", "replaces"),
    *("attempt", "attempts", "most", "code", "position", "restoredId", "faults", "spent", "limit", "what"),
    *("counted", "window", "tool", "asked", "via", "resultCount"),
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def stored(kind: str, payload: bytes, at: float = 0.0) -> EventRow:
    return EventRow("e1", kind, payload, at, 7)


async def test_every_type_of_event_has_words_of_its_own() -> None:
    tones: dict[str, str] = {}
    for kind in EVENT_TYPES:
        told = told_of(kind, {})
        assert told.title != kind
        assert (told.sentence[-1], "\n" in told.sentence) == (".", False)
        tones[kind] = told.tone
    failures = {"compaction_failed", "overflow_recovery_failed"}
    assert {kind for kind, tone in tones.items() if tone == "failure"} == failures
    assert {tones[kind] for kind in CHOICES["trouble"]} == {"failure", "warning"}
    assert {kind for choice in CHOICES.values() for kind in choice} <= set(EVENT_TYPES)


@given(st.sampled_from(EVENT_TYPES), st.dictionaries(st.sampled_from(FIELDS), PLAIN))
async def test_no_payload_is_too_odd_to_be_told(kind: str, payload: dict[str, object]) -> None:
    entry = entry_of(stored(kind, encoded(payload)))
    assert (entry.seq, entry.kind, bool(entry.told.title)) == (7, kind, True)
    assert (entry.summarized is not None) == (kind == "context_summarized")


async def test_what_cannot_be_read_and_a_time_that_no_calendar_has_are_told() -> None:
    for payload in (b"", b"{", b"[]", b"null", b'"x"', b"\xff"):
        entry = entry_of(stored("context_summarized", payload))
        assert (entry.told.tone, entry.summarized) == ("warning", None)
    for at in (float("inf"), float("nan"), 1e300, -1e300):
        assert entry_of(stored("memory", b"{}", at)).at == datetime.fromtimestamp(0, UTC)
    ages = {-5: "just now", 59.9: "just now", 60: "1 minute ago", 7_199: "1 hour ago", 7_200: "2 hours ago"}
    assert {seconds: age_of(seconds) for seconds in ages} == ages
