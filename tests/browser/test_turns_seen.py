"""The pages of sessions and turns in a real browser: true, by keys alone, small and harmless."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, Response

from tests.kit.chat import Chat
from tests.kit.journal import AT_THE_END, compacted, read
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied

pytestmark = [pytest.mark.spec("H17"), pytest.mark.asyncio(loop_scope="session")]
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> \u202egpj.exe </li></ol>"
PICTURE = "data:image/png;base64," + "iVBORw0KGgo" * 400
# Most bytes of a page with its script, as they come over the wire.
JSON_TYPE = {"content-type": "application/json"}
MOST_BYTES = 300_000


class Seen:
    """A page, what it complained about and what it loaded."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.loaded: list[Response] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.on("response", lambda answer: self.loaded.append(answer))

    def weight(self) -> int:
        """The bytes of all that was loaded since the last call, by their headers.

        A browser drops the body of a page that a live list has fetched.
        """
        sizes = [int(answer.headers["content-length"]) for answer in self.loaded if answer.ok]
        self.loaded.clear()
        return sum(sizes)


@asynccontextmanager
async def opened(browser: Browser, width: int = 1_200, theme: str = "light") -> AsyncIterator[Seen]:
    context = await browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if theme == "dark" else "light"
    )
    seen = Seen(await context.new_page())
    yield seen
    assert seen.complaints == []
    await context.close()


async def told(proxy: Proxy) -> Chat:
    """A conversation of a caller without a key, with hostile words and a picture, that was compacted."""
    chat = proxy.chat(session="work")
    chat.headers.pop("authorization")
    await chat.sends(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": f"Look: {HOSTILE}"},
                {"type": "image_url", "image_url": {"url": PICTURE}},
            ],
        }
    )
    proxy.model.calls(("c1", "run", {"cmd": HOSTILE}))
    await chat.says("Run it.")
    await chat.sends({"role": "tool", "tool_call_id": "c1", "content": HOSTILE + "line\n" * 300})
    await compacted(chat)
    return chat


# A theme is colours, a width is layout: each of both once.
@pytest.mark.parametrize(("width", "theme"), [(1_200, "light"), (390, "dark")])
async def test_every_page_is_accessible_small_and_harmless(
    tmp_path: Path, browser: Browser, width: int, theme: str
) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = await told(proxy)
        home, last = f"{proxy.url}/ui/sessions/{chat.session}", len(chat.replies)
        async with opened(browser, width, theme) as seen:
            made = await read(proxy.http, chat, f"sessions/{chat.session}/compactions")
            pages = (
                "",
                "/messages",
                "/messages?raw=true",
                "/messages?from=0&limit=1",
                f"/compactions/{made['compactions'][-1]['id']}",
                "/turns/1",
                f"/turns/{last}",
                f"/turns/{last}?from=0",
                "/state",
                "/settings",
                "/events",
            )
            others = ("", "/overview", "?q=decided+port")
            for path in (*(f"{proxy.url}/ui{end}" for end in others), *(home + end for end in pages)):
                await seen.page.goto(path)
                found = await Axe().run(seen.page)
                assert found.response["violations"] == [], json.dumps(found.response["violations"])[:2_000]
                assert await seen.page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
                hosts = {answer.url.split("/")[2] for answer in seen.loaded}
                assert hosts == {proxy.url[7:]}
                assert 0 < seen.weight() < MOST_BYTES
            text = await seen.page.inner_text("main")
            assert "\u202e" not in text


async def test_the_check_of_accessibility_can_fail(browser: Browser) -> None:
    """The control: a picture without words, faint letters, a page without a language."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.set_content("<img src='data:,'><p style='color: #ddd; background: #fff'>faint</p>")
    found = {fault["id"] for fault in (await Axe().run(page)).response["violations"]}
    assert {"image-alt", "color-contrast", "html-has-lang"} <= found
    await context.close()


async def test_a_turn_shows_what_was_said_and_what_was_sent(tmp_path: Path, browser: Browser) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = await told(proxy)
        last = len(chat.replies)
        view = await read(proxy.http, chat, f"sessions/{chat.session}/exchanges/{last}")
        async with opened(browser) as seen:
            page = seen.page
            await page.goto(f"{proxy.url}/ui/sessions/{chat.session}/turns/{last}")
            sent = page.locator("section[aria-labelledby=sent] > ol > li")
            assert await sent.count() == len(view["parts"]) == len(proxy.model.prompts[-1].messages)
            for at, part in enumerate(view["parts"]):
                label = "masked" if part["masked"] else part["kind"]
                assert await sent.nth(at).locator(".chip").first.inner_text() == label
            fates = [row["fate"] for row in view["messages"]]
            said = page.locator("section[aria-labelledby=said]")
            summed = await said.locator(".because").inner_text()
            assert f"{fates.count('folded')} folded" in summed
            folded = said.locator("li.is-folded > details").first
            assert await folded.locator("li").first.is_hidden()
            await folded.locator("summary").click()
            assert await folded.locator("li").first.is_visible()
            prompt = await page.inner_text("section[aria-labelledby=prompt]")
            assert "Summary" in prompt
            assert "In force: a summary of" in prompt


async def test_everything_is_reached_by_keys_alone(tmp_path: Path, browser: Browser) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = await told(proxy)
        last = len(chat.replies)
        async with opened(browser) as seen:
            page, keys = seen.page, seen.page.keyboard
            await page.goto(f"{proxy.url}/ui")
            while await page.evaluate("document.activeElement.textContent") != "work":
                await keys.press("Tab")
            await keys.press("Enter")
            home = f"{proxy.url}/ui/sessions/{chat.session}"
            await page.wait_for_url(home)
            await keys.press("t")
            await page.wait_for_url(f"{home}/turns/{last}")
            await keys.press("ArrowLeft")
            await page.wait_for_url(f"{home}/turns/{last - 1}")
            await keys.press("ArrowRight")
            await page.wait_for_url(f"{home}/turns/{last}")
            while await page.evaluate("document.activeElement.name") != "turn":
                await keys.press("Tab")
            # In the slider the arrows are the slider's own.
            await keys.press("Home")
            await page.wait_for_url(f"{home}/turns/1")
            await keys.press("u")
            await page.wait_for_url(home)


async def test_a_session_stays_up_to_date_until_it_is_paused_or_erased(
    tmp_path: Path, browser: Browser
) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(session="work")
        chat.headers.pop("authorization")
        await compacted(chat)
        session = f"/api/sessions/{chat.session}"
        async with opened(browser) as seen:
            page = seen.page
            await page.clock.install()
            await page.goto(f"{proxy.url}/ui/sessions/{chat.session}")
            await page.evaluate("""() => {
                window.changes = new Set();
                const note = (node) => window.changes.add(node.dataset?.swap);
                const seen = new MutationObserver((all) => all.forEach((one) =>
                    one.addedNodes.forEach(note)));
                seen.observe(document, {subtree: true, childList: true});
            }""")

            async def next_look() -> tuple[int, int, list[str]]:
                """Status and bytes of the next answer, and the regions that it changed."""
                async with page.expect_response(page.url) as waiting:
                    await page.clock.fast_forward(60_000)
                answer = await waiting.value
                size = 0 if answer.status == 304 else len(await answer.body())
                await page.wait_for_load_state("networkidle")
                changes = await page.evaluate(
                    "() => { const all = [...changes]; changes.clear(); return all; }"
                )
                return answer.status, size, sorted(changes)

            turns = await page.locator("li.turn").count()
            for _ in range(3):
                assert await next_look() == (304, 0, [])
            await page.click("summary")
            await page.evaluate("document.activeElement.blur()")
            await chat.says("More.")
            assert (await next_look())[::2] == (200, ["about", "turns", "window"])
            assert await page.locator("li.turn").count() == turns + 1
            assert await page.locator("details[open]").count() == 1
            assert await next_look() == (304, 0, [])
            made = (await chat.compactions())[-1]["id"]
            await proxy.http.post(f"{session}/compactions/{made}/undo", headers=JSON_TYPE)
            assert (await next_look())[::2] == (200, ["turns", "window"])
            await proxy.http.patch(f"{session}/settings", json={"policy": {"name": "off"}})
            assert (await next_look())[::2] == (200, ["about", "window"])
            assert "Compaction is off" in await page.inner_text("main")
            await page.click("[data-live]")
            await chat.says("And more.")
            await page.clock.fast_forward(60_000)
            assert await page.locator("li.turn").count() == turns + 1
            await page.click("[data-live]")
            assert (await next_look())[0] == 200
            await proxy.http.delete(session)
            assert (await next_look())[0] == 404
            assert "It may have been erased" in await page.inner_text("main")
            seen.complaints = [text for text in seen.complaints if "404" not in text]


async def test_the_first_request_shows_up_by_itself(tmp_path: Path, browser: Browser) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy, opened(browser) as seen:
        await seen.page.goto(f"{proxy.url}/ui")
        assert "waiting for the first request" in await seen.page.inner_text("main")
        chat = proxy.chat(session="work")
        chat.headers.pop("authorization")
        await chat.says("Hello.")
        await seen.page.locator("tbody th a", has_text="work").wait_for()


async def test_a_session_that_is_erased_while_it_is_looked_at(tmp_path: Path, browser: Browser) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="work")
        chat.headers.pop("authorization")
        await chat.says("Hello.")
        await chat.says("More.")
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(f"{proxy.url}/ui/sessions/{chat.session}/turns/2")
        await proxy.http.delete(f"/api/sessions/{chat.session}")
        await page.goto(f"{proxy.url}/ui/sessions/{chat.session}/turns/1")
        assert "It may have been erased" in await page.inner_text("main")
        await context.close()


async def test_ten_thousand_messages_make_a_small_page(tmp_path: Path, browser: Browser) -> None:
    async with proxied(ModelServer(window=10_000_000), tmp_path) as proxy:
        said: list[dict[str, Any]] = [
            {"role": ("user", "assistant")[at % 2], "content": f"Message {at}. " + 'the "word" ' * 60}
            for at in range(9_999)
        ]
        body = {"model": "test-model", "messages": said}
        reply = await proxy.http.post("/v1/chat/completions", json=body, headers={"x-session-id": "long"})
        assert reply.status_code == 200
        home = f"{proxy.url}/ui/sessions/{reply.headers['x-palimpsest-session']}"
        async with opened(browser) as seen:
            for end, shown in (
                ("", ""),
                ("/turns/1", "Message 9998."),
                ("/turns/1?from=0", "Message 0."),
                ("/messages", "Message 9998."),
                ("/messages?from=0", "Message 0."),
                ("/messages?from=5000&raw=true", "Message 5000."),
            ):
                await seen.page.goto(home + end)
                assert shown in await seen.page.inner_text("main")
                assert 0 < seen.weight() < MOST_BYTES


async def test_a_line_of_a_summary_lights_its_sources(tmp_path: Path, browser: Browser) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        record = "## 1. Primary request\nThe relay listens on port 48123.\n## 2. Work\nNobody said quokkas."
        proxy.model.summary = lambda _: Says({"role": "assistant", "content": record})
        chat = proxy.chat(session="work")
        chat.headers.pop("authorization")
        await chat.says("Hello.")
        await chat.says("The relay listens on port 48123 from now on.")
        await compacted(chat)
        home = f"{proxy.url}/ui/sessions/{chat.session}"
        async with opened(browser) as seen:
            page = seen.page
            await page.goto(home)
            await page.click("li.seam a")
            line = page.locator(".lines li", has_text="The relay listens on port 48123.").first
            source = page.locator("#originals + .messages li", has_text="from now on").first
            assert "lit" not in (await source.get_attribute("class") or "")
            await line.hover()
            assert "lit" in (await source.get_attribute("class") or "")
            await page.mouse.move(0, 0)
            assert "lit" not in (await source.get_attribute("class") or "")
            await line.locator("a").first.click()
            assert page.url.endswith(f"#{await source.get_attribute('id')}")
            await source.get_by_role("link", name="in the conversation").click()
            await page.wait_for_url("**/messages?from=*")
            await page.locator("li.seam", has_text="Folded up to here").wait_for()
            assert "The relay listens on port 48123 from now on." in await page.inner_text("main")


async def test_a_conversation_is_rendered_and_harmless(tmp_path: Path, browser: Browser) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="work")
        chat.headers.pop("authorization")
        words = (
            f"# Plan\n\n- **first** `code`\n\n{HOSTILE}\n\n![x](http://evil.test/p.png) "
            "[bad](javascript:alert(3)) [good](https://example.com/a)\n\n| a | b |\n|---|---|\n| 1 | 2 |"
        )
        await chat.says(words)
        await chat.says("x" * 5_000 + " the very end")
        home = f"{proxy.url}/ui/sessions/{chat.session}/messages"
        async with opened(browser) as seen:
            page = seen.page
            await page.goto(home)
            said = page.locator(".by-user .rendered").first
            assert await said.locator("li strong").inner_text() == "first"
            assert await said.locator("td").first.inner_text() == "1"
            assert await said.locator("h1, img, script").count() == 0
            assert await said.locator("a").evaluate_all("found => found.map(a => a.href)") == [
                "http://evil.test/p.png",
                "https://example.com/a",
            ]
            assert {answer.url.split("/")[2] for answer in seen.loaded} == {proxy.url[7:]}
            assert "the very end" not in await page.inner_text("main")
            await page.click("text=all of it")
            assert "the very end" in await page.inner_text("main")
            await page.goto(home)
            await page.click("text=Raw")
            assert '"role"' in await page.inner_text("main")
            assert "**first**" in await page.inner_text("main")


async def test_branches_are_a_tree_that_leads_to_each(tmp_path: Path, browser: Browser) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="work")
        chat.headers.pop("authorization")
        for words in ("One.", "Two.", "Three."):
            await chat.says(words)
        await chat.posts([*chat.said[:2], {"role": "user", "content": "Another second."}])
        async with opened(browser) as seen:
            page = seen.page
            await page.goto(f"{proxy.url}/ui/sessions/{chat.session}")
            tree = page.locator("ul.tree")
            assert await tree.locator("ul li").count() == 1
            await tree.locator("ul li a").first.click()
            told = await page.inner_text("ol.talk")
            others = {"Another second." in told, "Three." in told}
            assert others == {True, False}
            await page.click("text=the message where it forks off")
            assert "One." in await page.inner_text("ol.talk")
