"""Pages in a real browser: bytes, first paint and the server's time, for a short and a long conversation.

    python -m benchmarks pages [--messages 10000] [--rounds 5] [--write]

Needs Chromium at /usr/bin/chromium. "First paint" is the browser's first contentful paint after a click; "by
a key" is from a key on that page to the first paint of the one that it leads to.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from playwright.sync_api import Browser, Page, Response, sync_playwright

from benchmarks.overhead import PAGE, written
from benchmarks.servers import Upstream, palimpsest, trivial_upstream

_PAINTED = "performance.getEntriesByName('first-contentful-paint')"
_PAGES = (
    "/ui",
    "/ui/overview",
    "/ui?q=word",
    "{home}",
    "{home}/turns/1",
    "{home}/messages",
    "{home}/compactions/{compaction}",
    "{home}/state",
    "{home}/events",
)


# Keys that lead on from a page.
_KEYS = {"{home}/turns/1": "ArrowRight", "{home}/state": "u"}


def _asked(port: int, messages: int) -> dict[str, str]:
    """The paths of a conversation with so many messages: its home, and its compaction if there is one."""
    said = [
        {"role": ("user", "assistant")[at % 2], "content": f"Message {at} of {messages}. {'word ' * 60}"}
        for at in range(messages | 1)
    ]
    for _ in range(2):
        body = json.dumps({"model": "m", "messages": said}).encode()
        with _got(port, "/v1/chat/completions", body) as answer:
            said += [json.load(answer)["choices"][0]["message"], {"role": "user", "content": "And then?"}]
            session = str(answer.headers["x-palimpsest-session"])
            compaction = answer.headers.get("x-palimpsest-compaction")
    return {"home": f"/ui/sessions/{session}", "compaction": compaction or ""}


def _got(port: int, path: str, body: bytes) -> Any:
    url = f"http://127.0.0.1:{port}{path}"
    return urllib.request.urlopen(
        urllib.request.Request(url, body, {"content-type": "application/json"}), timeout=120
    )


def _painted(page: Page) -> float:
    # Waiting for an expression is `eval`, which the pages forbid.
    while not page.evaluate(f"{_PAINTED}.length"):
        page.wait_for_timeout(5)
    return float(page.evaluate(f"{_PAINTED}[0].startTime"))


def _by_key(browser: Browser, url: str, key: str, rounds: int) -> float:
    """Median milliseconds from the key to the first paint of the next page."""
    found = []
    for _ in range(rounds):
        page = browser.new_page()
        page.goto(url)
        _painted(page)
        began = time.perf_counter()
        with page.expect_navigation():
            page.keyboard.press(key)
        waited = 1000 * (time.perf_counter() - began)
        found.append(max(waited, _painted(page)))
        page.close()
    return statistics.median(found)


def _measured(browser: Browser, url: str, rounds: int) -> tuple[float, float, float]:
    """Kilobytes, median milliseconds to the answer, and to the first paint."""
    answered, painted, size = [], [], 0
    for _ in range(rounds):
        page = browser.new_page()
        loaded: list[Response] = []
        page.on("response", lambda answer: loaded.append(answer))  # noqa: B023 - of this round
        page.goto(url)
        painted.append(_painted(page))
        answered.append(page.evaluate("performance.timing.responseEnd - performance.timing.navigationStart"))
        size = sum(len(answer.body()) for answer in loaded)
        page.close()
    return size / 1000, statistics.median(answered), statistics.median(painted)


def table(port: int, browser: Browser, sizes: Sequence[int], rounds: int) -> str:
    """A row for each page and size."""
    lines = [
        "| page | messages | kB with script | answered, ms | first paint, ms | by a key, ms |",
        "|---|---|---|---|---|---|",
    ]
    for messages in sizes:
        paths = _asked(port, messages)
        for path in _PAGES:
            if not paths["compaction"] and "{compaction}" in path:
                continue
            url = f"http://127.0.0.1:{port}{path.format(**paths)}"
            size, answered, painted = _measured(browser, url, rounds)
            key = _KEYS.get(path)
            stepped = f"{_by_key(browser, url, key, rounds):.0f}" if key else ""
            shown = path.format(home="session", compaction="id")
            row = f"| `{shown}` | {messages:,} | {size:.0f} | {answered:.0f} | {painted:.0f} | {stepped} |"
            lines.append(row)
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; half a minute."""
    parser = argparse.ArgumentParser(prog="benchmarks pages", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    with (
        trivial_upstream(Upstream) as upstream,
        # So small that the long conversation is compacted.
        palimpsest(upstream, others={"WINDOW__WINDOW_TOKENS": "100000"}) as proxy,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        found = table(proxy.port, browser, (20, options.messages), options.rounds)
        browser.close()
    day = time.strftime("%Y-%m-%d", time.gmtime())
    section = f"""## Pages

Each page opened {options.rounds} times in Chromium on the machine of the proxy, nothing cached, medians; a
conversation sent in two requests, the long one compacted. Python {platform.python_version()}, {day}. Repeat:
`python -m benchmarks pages --write`.

{found}
"""
    print(section)
    if options.write:
        with suppress(FileNotFoundError):
            PAGE.write_text(written(PAGE.read_text(), section))


if __name__ == "__main__":
    main()
