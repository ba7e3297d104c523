"""One turn has one size, the model's: in headers, log, records, events, pages and what its reason says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.kit.model import ModelServer
from tests.kit.page import page_of
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
BY_CODE: Json = {
    "compaction.deadline_seconds": 0,
    "compaction.background": False,
    "window.window_tokens": WINDOW,
}
pytestmark = pytest.mark.timeout(120)


async def got(proxy: Proxy, path: str) -> Json:
    reply = await proxy.http.get(f"/api/sessions/log/{path}", headers={"authorization": "Bearer key-1"})
    fields: Json = reply.json()
    return fields


@pytest.mark.spec("A25", "A23", "E11")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_that_compacts_has_the_same_sizes_everywhere(stream: bool, tmp_path: Path) -> None:
    # Its tokens are half as large again as ours.
    model = ModelServer(window=WINDOW, counted=1.5)
    comments = BY_CODE | ({"compaction.notify": "comment"} if stream else {})
    async with proxied(model, tmp_path, comments) as proxy:
        chat = proxy.chat(session="log", system="You keep the log.")
        with capture_logs() as lines:
            while not (chat.replies and await chat.compactions()):
                # A stream without usage teaches nothing of how the model counts.
                chat.stream = stream and len(chat.replies) > 3
                await chat.says(f"Entry {len(chat.replies)}. {prose(len(chat.replies), 200)}")
            # The log tells nobody.
            while sum(line["event"] == "exchange" for line in lines) < len(chat.replies):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # the log tells nobody
        (made,) = await chat.compactions()
        full, shown = made["tokens_before"], made["tokens_after"]
        # The model's own, within what is not known before it has answered.
        assert shown == pytest.approx(model.prompts[-1].tokens, rel=0.02)
        assert full >= 0.9 * WINDOW
        assert made["reason"] == f"{full:,} tokens of {WINDOW:,} (0.90 asked)"
        if stream:
            assert f"tokens={full}/{shown} " in chat.reply.text
        else:
            assert chat.reply.headers["x-palimpsest-tokens"] == f"{full}/{shown}"
        *_, line = [line for line in lines if line["event"] == "exchange"]
        assert (line["tokens_full"], line["tokens"]) == (full, shown)
        for event in (await got(proxy, "events?limit=500"))["events"]:
            payload = event["payload"]
            assert payload.get("tokensBefore", full) == full
            assert payload.get("tokensAfter", shown) == shown
            assert payload.get("reason", made["reason"]) == made["reason"]
        last = (await got(proxy, "status"))["last_compaction"]
        assert (last["tokens_before"], last["tokens_after"]) == (full, shown)
        page = page_of((await proxy.http.get("/ui/sessions/log/events", headers=chat.headers)).text)
        assert made["reason"] in page.text


@pytest.mark.spec("D23")
async def test_what_the_next_request_would_be_is_the_same_wherever_it_is_asked_for(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, counted=1.5)
    async with proxied(model, tmp_path, BY_CODE) as proxy:
        chat = proxy.chat(session="log", system="You keep the log.")
        while not (chat.replies and await chat.compactions()):
            await chat.says(f"Entry {len(chat.replies)}. {prose(len(chat.replies), 200)}")
        status, view = await got(proxy, "status"), await got(proxy, "view?explain=1")
        now = {name: status[f"{name}_tokens"] for name in ("trigger", "target", "window")}
        assert now == {name: view["budget"][f"{name}_tokens"] for name in now}
        assert now["window"] == view["window"]["tokens"] == WINDOW
        assert now["trigger"] == pytest.approx(0.9 * WINDOW, abs=2)
        marks = {mark["mark"]: mark["tokens"] for mark in view["explanation"]["marks"]}
        assert now == {name: marks[name] for name in now}
        assert (status["tokens"], status["tokens_full"]) == (view["tokens"], view["tokens_full"])
        assert sum(part["tokens"] for part in view["parts"]) == pytest.approx(view["tokens"], rel=0.02)
        page = page_of((await proxy.http.get("/ui/sessions/log/events", headers=chat.headers)).text)
        legend = page.one("dl", kind="legend")
        assert legend.figure("whole") == status["tokens_full"]
        assert legend.figure("shown") == status["tokens"]
        assert now == {name: legend.figure(name) for name in now}
