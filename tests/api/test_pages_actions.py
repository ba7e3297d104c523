"""What is done on the pages: compact, undo, pin, unpin; by whom, with which forms, and what they refuse."""

from __future__ import annotations

import base64

import httpx
import pytest

from tests.kit.chat import Chat
from tests.kit.journal import read
from tests.kit.page import Node, page_of
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")


def typed(chat: Chat) -> dict[str, str]:
    """The chat's key as a browser sends it that has asked for one."""
    key = chat.headers["authorization"].removeprefix("Bearer ")
    return {"authorization": "Basic " + base64.b64encode(f"me:{key}".encode()).decode()}


async def long(chat: Chat) -> str:
    """The conversation is long enough to be folded; the address of its page."""
    for turn in range(8):
        await chat.says(f"Question {turn}. " + f"detail {turn} of the matter. " * 60)
    return f"/ui/sessions/{chat.session}"


async def page(proxy: Proxy, chat: Chat, path: str) -> Node:
    reply = await proxy.http.get(path, headers=typed(chat))
    assert reply.status_code == 200, reply.text
    return page_of(reply.text)


async def sent(proxy: Proxy, chat: Chat, form: Node) -> httpx.Response:
    """The form is sent as a browser sends it."""
    fields = {field.attributes["name"]: field.attributes["value"] for field in form.all("input")}
    reply = await proxy.http.post(form.attributes["action"], data=fields, headers=typed(chat))
    assert reply.status_code == 303, reply.text
    return reply


def forms_of(node: Node, action: str) -> list[Node]:
    """The forms that do this."""
    return [
        form
        for form in node.all("form")
        if any(field.attributes.get("value") == action for field in form.all("input"))
    ]


def form_of(node: Node, action: str) -> Node:
    return forms_of(node, action)[0]


async def test_a_session_is_compacted_and_the_compaction_undone(proxy: Proxy, chat: Chat) -> None:
    home = await long(chat)
    before = await page(proxy, chat, home)
    form = form_of(before, "compact")
    assert form.figure("fold") > 0
    done = await sent(proxy, chat, form)
    assert done.headers["location"] == home
    (made,) = (await read(proxy.http, chat, f"sessions/{chat.session}/compactions"))["compactions"]
    assert made["messages_folded"] == form.figure("fold")
    await chat.says("And now?")
    after = await page(proxy, chat, home)
    assert made["summary"][:60] in after.one("main").text
    await sent(proxy, chat, form_of(after, "undo"))
    (undone,) = (await read(proxy.http, chat, f"sessions/{chat.session}/compactions"))["compactions"]
    assert undone["undone_at"] is not None
    assert forms_of(await page(proxy, chat, home), "undo") == []


async def test_a_message_is_pinned_on_a_turn_and_unpinned_on_the_state(proxy: Proxy, chat: Chat) -> None:
    home = await long(chat)
    turn = await page(proxy, chat, f"{home}/turns/2")
    form = form_of(turn, "pin")
    done = await sent(proxy, chat, form)
    assert done.headers["location"] == f"{home}/state"
    (pin,) = (await read(proxy.http, chat, f"sessions/{chat.session}/pins"))["pins"]
    assert pin["message"] == form.all("input")[1].attributes["value"]
    state = await page(proxy, chat, f"{home}/state")
    assert "first question" in state.one("main").text
    await sent(proxy, chat, form_of(state, "unpin"))
    assert (await read(proxy.http, chat, f"sessions/{chat.session}/pins"))["pins"] == []
    assert "Nothing is pinned." in (await page(proxy, chat, f"{home}/state")).one("main").text


async def test_settings_are_changed_and_told_with_their_source(proxy: Proxy, chat: Chat) -> None:
    await chat.says("Hello.")
    home = f"/ui/sessions/{chat.session}"
    await page(proxy, chat, f"{home}/settings")
    for patch, status in (
        ('{"policy": {"tail_messages": 9}}', 303),
        ('{"policy": {"tail_messages": "no"}}', 400),
        ('{"other": 1}', 400),
        ("[]", 400),
        ("{", 400),
        ("\u00e4", 400),
    ):
        form = {"action": "settings", "patch": patch}
        reply = await proxy.http.post(home, data=form, headers=typed(chat))
        assert reply.status_code == status, patch
    told = await page(proxy, chat, f"{home}/settings")
    (row,) = [line for line in told.all("tr") if line.text.startswith("tail_messages")]
    assert [cell.text for cell in row.all("td")] == ["9", "session"]
    own = (await read(proxy.http, chat, f"sessions/{chat.session}/settings"))["settings"]
    assert own == {"policy": {"tail_messages": 9}}


async def test_what_was_said_is_found_with_its_words_marked(proxy: Proxy, chat: Chat) -> None:
    await chat.says("The kestrel nests on the lighthouse. <script>alert(1)</script>")
    found = await page(proxy, chat, "/ui?q=kestrel+lighthouse")
    assert [mark.text for mark in found.all("mark")][:2] == ["kestrel", "lighthouse"]
    assert "<script>alert(1)</script>" in found.one("main").text
    in_one = await page(proxy, chat, f"/ui?q=kestrel&session={chat.session}")
    assert in_one.all("mark")
    nothing = await page(proxy, chat, "/ui?q=quetzalcoatl")
    assert "Nothing that was said has these words." in nothing.one("main").text
    assert (await page(proxy, chat, "/ui?q=")).all("mark") == []


@pytest.mark.parametrize(
    ("action", "form", "status"),
    [
        ("undo", {"compaction": "none"}, 404),
        ("undo", {}, 400),
        ("pin", {"message": "none"}, 404),
        ("pin", {"other": "x"}, 400),
        ("unpin", {"message": "dcm_" + "0" * 32}, 404),
        ("other", {}, 400),
    ],
)
async def test_a_form_that_cannot_be_carried_out_says_so(
    proxy: Proxy, chat: Chat, action: str, form: dict[str, str], status: int
) -> None:
    await chat.says("Hello.")
    home = f"/ui/sessions/{chat.session}"
    reply = await proxy.http.post(home, data=form | {"action": action}, headers=typed(chat))
    assert reply.status_code == status
    assert "text/html" in reply.headers["content-type"]
    content = f"action={action}&message=a&message=b".encode()
    twice = await proxy.http.post(home, content=content, headers=typed(chat))
    assert twice.status_code == 400


async def test_another_site_and_another_caller_change_nothing(proxy: Proxy, chat: Chat) -> None:
    home = await long(chat)
    for name, value in (
        ("origin", "https://evil.test"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
    ):
        reply = await proxy.http.post(home, data={"action": "compact"}, headers=typed(chat) | {name: value})
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "origin_not_allowed")
    stranger = {"authorization": "Bearer another"}
    assert (await proxy.http.post(home, data={"action": "compact"}, headers=stranger)).status_code in (
        401,
        404,
    )
    assert (await read(proxy.http, chat, f"sessions/{chat.session}/compactions"))["compactions"] == []


async def test_nothing_to_fold_is_said(proxy: Proxy, chat: Chat) -> None:
    await chat.says("Hello.")
    home = f"/ui/sessions/{chat.session}"
    reply = await proxy.http.post(home, data={"action": "compact"}, headers=typed(chat))
    assert reply.headers["location"] == f"{home}?nothing=1"
    assert "There was nothing to fold." in (await page(proxy, chat, f"{home}?nothing=1")).one("main").text
