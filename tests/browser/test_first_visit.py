"""A first visit, in a real browser: the pages, no password, nothing from elsewhere (H17)."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.browser.conftest import Elsewhere
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied

pytestmark = [pytest.mark.spec("H17"), pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize("width", [1_200, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_a_first_visit_finds_its_way(
    tmp_path: Path, browser: Browser, width: int, theme: str, elsewhere: Elsewhere
) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        context = await browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if theme == "dark" else "light"
        )
        page = await context.new_page()
        complaints: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("request", lambda request: asked.append(request.url))
        # A link from another site leads here too.
        await page.goto(elsewhere.url("evil.test"))
        await page.evaluate("url => { location.href = url }", f"{proxy.url}/")
        await page.wait_for_url(f"{proxy.url}/ui")
        assert await page.locator(".clients tbody tr").count() > 10
        assert f"{proxy.url}/v1" in await page.inner_text("main")
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
        await proxy.http.post(
            "/v1/chat/completions", json={"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        )
        await page.goto(proxy.url)
        assert await page.locator("tbody th a").inner_text() == "hello"
        assert complaints == []
        assert {url.split("/")[2] for url in asked} <= {proxy.url[7:], f"evil.test:{elsewhere.port}"}
        await context.close()
