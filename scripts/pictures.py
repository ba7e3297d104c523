"""Takes the pictures of docs/pages.md: a proxy with the demo behind it, an agent's conversation, Chromium.

python scripts/pictures.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
RUN: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "run",
        "description": "Runs a command in the repository's folder and returns what it printed.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
SYSTEM = (
    "You are a careful engineer. Never push to main. Run `make test` before every commit. "
    "Money is counted in cents, never in floats."
)
# What the person asks, the command that the agent runs, and what it prints.
STEPS = [
    (
        "Payroll is off by a cent for ticket PAY-4012. Find out why.",
        "pytest tests/test_payroll.py -q",
        "FAILED tests/test_payroll.py::test_net - AssertionError: expected 104999, got 105000\n1 failed",
    ),
    (
        "Look at how tax is rounded.",
        "sed -n 1,40p src/payroll/tax.py",
        "def tax(gross: int) -> int:\n    return round(gross * 0.175)\n" + "# see docs/rounding.md\n" * 60,
    ),
    (
        "Round half up, in cents, and keep the signature.",
        "git diff --stat",
        " src/payroll/tax.py | 4 ++--\n 1 file changed, 2 insertions(+), 2 deletions(-)",
    ),
    (
        "Does it hold for all of last year?",
        "python -m payroll.check 2025",
        "month 01: ok\n" * 90 + "checked 18,204 slips, 0 differences",
    ),
    ("Write it up for the ticket.", "make test", "212 passed in 3.87s"),
    (
        "Is the change safe for the branch in Lyon?",
        "grep -rn LYON src/payroll | head",
        "src/payroll/sites.py:14:LYON = Site(currency='EUR', rounding='half_even')",
    ),
    (
        "Then Lyon keeps half even. Add a test.",
        "pytest tests/test_sites.py -q",
        "3 passed in 0.12s\n" + "warning: slow import of payroll.legacy\n" * 25,
    ),
    ("What is left to do before the release on Friday?", "git status --short", " M src/payroll/tax.py\n"),
]


@contextmanager
def proxy() -> Iterator[str]:
    """The address of a proxy on an empty database."""
    with tempfile.TemporaryDirectory() as folder:
        ours = {
            "PALIMPSEST_DATABASE__URL": f"sqlite:///{folder}/p.db",
            "PALIMPSEST_DATABASE__DATA_FOLDER": folder,
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PALIMPSEST_")}
        process = subprocess.Popen(
            [sys.executable, "-m", "palimpsest", "serve", "--port", "0"],
            env={**kept, **ours, "PYTHONUNBUFFERED": "1"},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        try:
            lines = (re.search(r"(http://127\.0\.0\.1:\d+)/v1", line) for line in process.stdout)
            yield next(found[1] for found in lines if found)
        finally:
            process.terminate()
            process.wait()


def talk(address: str, named: str, client_name: str, steps: int = len(STEPS)) -> str:
    """The id of a conversation; one of all steps is compacted on its way."""
    said: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    headers = {"x-session-id": named, "user-agent": client_name}
    with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
        for number, (asked, command, printed) in enumerate(STEPS[:steps]):
            call = {"name": "run", "arguments": json.dumps({"command": command})}
            said += [
                {"role": "user", "content": asked},
                {
                    "role": "assistant",
                    "tool_calls": [{"id": f"c{number}", "type": "function", "function": call}],
                },
                {"role": "tool", "tool_call_id": f"c{number}", "content": printed},
            ]
            body = {"model": "gpt-4o", "messages": said, "tools": [RUN]}
            answer = client.post("/v1/chat/completions", json=body).raise_for_status()
            said.append(answer.json()["choices"][0]["message"])
    session: str = answer.headers["x-palimpsest-session"]
    return session


def main() -> None:
    """Writes the pictures."""
    with proxy() as address, sync_playwright() as playwright:
        talk(address, "rounding, second look", "aider/0.86", 3)
        talk(address, "release notes", "OpenAI/Python 2.8.0", 1)
        talk(address, "payroll: all of last year", "codex/0.61", 5)
        session = talk(address, "payroll: off by a cent", "opencode/1.2.0")
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1_100, "height": 860})
        home = f"{address}/ui/sessions/{session}"
        made = httpx.get(f"{address}/api/sessions/{session}/compactions").json()["compactions"]
        for name, url in (
            ("sessions", f"{address}/ui"),
            ("session", home),
            ("turn", f"{home}/turns/{len(STEPS)}"),
            ("conversation", f"{home}/messages"),
            ("compaction", f"{home}/compactions/{made[0]['id']}"),
            ("overview", f"{address}/ui/overview"),
        ):
            page.goto(url)
            page.screenshot(path=IMAGES / f"page-{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
