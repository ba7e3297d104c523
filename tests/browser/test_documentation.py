"""The documentation in a real browser: nothing is asked of another host, nothing is wider than a phone."""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page

from scripts.docs import build, navigation
from tests.house.sources import ROOT

pytestmark = pytest.mark.asyncio(loop_scope="session")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site."""
    folder: Path = build(ROOT, tmp_path_factory.mktemp("documentation") / "build")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


async def test_every_page_keeps_to_itself_and_to_the_width_of_a_phone(site: str, browser: Browser) -> None:
    names = [
        page.removesuffix("index.md").removesuffix(".md")
        for _, pages in navigation(ROOT)
        for _, page in pages
    ]
    wide: list[str] = []
    page = await browser.new_page(viewport={"width": 390, "height": 844})
    elsewhere = foreign_requests(page, site)
    for name in names:
        await page.goto(f"{site}{name}")
        if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wide.append(name)
    await page.close()
    assert (elsewhere, wide) == ([], [])


@pytest.mark.parametrize(
    ("words", "found"), [("host_not_allowed", "troubleshooting/"), ("turn off compaction", "presets/off/")]
)
async def test_a_search_finds_a_page_first(words: str, found: str, site: str, browser: Browser) -> None:
    page = await browser.new_page(viewport={"width": 1_280, "height": 900})
    elsewhere = foreign_requests(page, site)
    await page.goto(site)
    # A key that is pressed before the page's script runs is lost, and letters turn pages.
    for _ in range(50):
        await page.keyboard.press("Control+k")
        await asyncio.sleep(0.5)
        if await page.evaluate("document.activeElement !== document.body"):
            break
    await page.keyboard.type(words)
    results = page.locator("ol a[href]")
    await results.first.wait_for()
    assert found in str(await results.first.get_attribute("href"))
    await page.close()
    assert elsewhere == []


def foreign_requests(page: Page, site: str) -> list[str]:
    """Grows by each request of the page to another host."""
    found: list[str] = []
    own = (site, "data:", "blob:")
    page.on("request", lambda asked: None if asked.url.startswith(own) else found.append(asked.url))
    return found


async def test_a_page_that_asks_elsewhere_would_be_noticed(site: str, browser: Browser) -> None:
    """The control."""
    page = await browser.new_page()
    elsewhere = foreign_requests(page, site)
    await page.goto(site)
    await page.evaluate("new Image().src = 'http://127.0.0.1:9/a.png'")
    await page.wait_for_function("performance.getEntriesByName('http://127.0.0.1:9/a.png').length > 0")
    await page.close()
    assert elsewhere == ["http://127.0.0.1:9/a.png"]
