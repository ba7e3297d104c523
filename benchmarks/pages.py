"""Pages in a real browser: bytes, first paint and the server's time, for a short and a long conversation.

    python -m benchmarks pages [--messages 10000] [--rounds 5] [--write]

Needs Chromium at /usr/bin/chromium. "First paint" is the browser's first contentful paint after a click.
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

from playwright.sync_api import Browser, Response, sync_playwright

from benchmarks.overhead import PAGE, written
from benchmarks.servers import Upstream, palimpsest, trivial_upstream

_PAINTED = "performance.getEntriesByName('first-contentful-paint')"
_PAGES = (
    "/ui",
    "/ui/overview",
    "/ui/search?q=word",
    "{home}",
    "{home}/turns/1",
    "{home}/state",
    "{home}/events",
)


def _asked(port: int, messages: int) -> str:
    """The session of a conversation with so many messages."""
    said = [
        {"role": ("user", "assistant")[at % 2], "content": f"Message {at} of {messages}. {'word ' * 60}"}
        for at in range(messages | 1)
    ]
    body = json.dumps({"model": "m", "messages": said}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        answer.read()
        return str(answer.headers["x-palimpsest-session"])


def _measured(browser: Browser, url: str, rounds: int) -> tuple[float, float, float]:
    """Kilobytes, median milliseconds to the answer, and to the first paint."""
    answered, painted, size = [], [], 0
    for _ in range(rounds):
        page = browser.new_page()
        loaded: list[Response] = []
        page.on("response", lambda answer: loaded.append(answer))  # noqa: B023 - of this round
        page.goto(url)
        # Waiting for an expression is `eval`, which the pages forbid.
        while not page.evaluate(f"{_PAINTED}.length"):
            page.wait_for_timeout(5)
        answered.append(page.evaluate("performance.timing.responseEnd - performance.timing.navigationStart"))
        painted.append(page.evaluate(f"{_PAINTED}[0].startTime"))
        size = sum(len(answer.body()) for answer in loaded)
        page.close()
    return size / 1000, statistics.median(answered), statistics.median(painted)


def table(port: int, browser: Browser, sizes: Sequence[int], rounds: int) -> str:
    """A row for each page and size."""
    lines = ["| page | messages | kB with script | answered, ms | first paint, ms |", "|---|---|---|---|---|"]
    for messages in sizes:
        home = f"/ui/sessions/{_asked(port, messages)}"
        for path in _PAGES:
            url = f"http://127.0.0.1:{port}{path.format(home=home)}"
            size, answered, painted = _measured(browser, url, rounds)
            shown = path.format(home="session")
            lines.append(f"| `{shown}` | {messages:,} | {size:.0f} | {answered:.0f} | {painted:.0f} |")
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
        palimpsest(upstream) as proxy,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        found = table(proxy.port, browser, (20, options.messages), options.rounds)
        browser.close()
    day = time.strftime("%Y-%m-%d", time.gmtime())
    section = f"""## Pages

Each page opened {options.rounds} times in Chromium on the machine of the proxy, nothing cached, medians; a
conversation sent in one request. Python {platform.python_version()}, {day}. To repeat:
`python -m benchmarks pages --write`.

{found}
"""
    print(section)
    if options.write:
        with suppress(FileNotFoundError):
            PAGE.write_text(written(PAGE.read_text(), section))


if __name__ == "__main__":
    main()
