"""`make demo`: a debugging session outgrows the window of the demo model, behind a proxy of its own.

Everything it prints was read from that proxy: headers, the stored compaction, answers. Only the person's
words, the agent's calls and what its commands print are written down here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

WINDOW_TOKENS = 6_000
Json = dict[str, Any]


def _tool(name: str, what: str, *arguments: str) -> Json:
    properties = {argument: {"type": "string"} for argument in arguments}
    schema = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": what, "parameters": schema}}


TOOLS = [
    _tool("bash", "Runs a command.", "command"),
    _tool("edit_file", "Replaces text in a file.", "path", "old", "new"),
]
SYSTEM = "You are the on-call engineer of a web shop. Never push to main."


@dataclass(frozen=True, slots=True)
class Step:
    """What the person says, the agent's call, what it printed."""

    said: str
    call: str
    arguments: Mapping[str, str]
    printed: str


def _run(said: str, command: str, printed: str) -> Step:
    return Step(said, "bash", {"command": command}, printed)


STEPS: Sequence[Step] = (
    _run(
        "Checkout fails for every order from Lisbon since this morning. Find the cause and fix it.",
        "tail -n 200 /var/log/shop/checkout.log",
        "\n".join(
            f"07:{n // 4:02} INFO checkout: order {90_223 + n}: paid in {90 + n % 37} ms" for n in range(120)
        )
        + "\n08:02 INFO importer: feed of supplier 17 (Lisbon), 214 prices"
        "\n08:03 INFO health: the staging server listens on port 8443"
        "\n08:04 ERROR checkout: order 90412: InvalidOperation: ConversionSyntax"
        "\n52 orders failed since 08:04",
    ),
    _run(
        "Which price does it trip over?",
        "python -m shop.replay 90412",
        'src/shop/prices.py:31: Decimal("12,50")\ndecimal.InvalidOperation: [ConversionSyntax]\n'
        "The feed of supplier 17 writes a decimal comma since release 4.2 of its exporter.",
    ),
    _run(
        "Do other suppliers write commas too?",
        "python -m shop.feeds --format",
        "\n".join(f"supplier {n:02}: {1_000 + n * 37} prices, decimal point" for n in range(20, 90))
        + "\nOnly supplier 17 writes a decimal comma.",
    ),
    Step(
        "Decision: normalise in the importer, because templates must not know about commas.",
        "edit_file",
        {"path": "src/shop/prices.py", "old": "Decimal(text)", "new": 'Decimal(text.replace(",", "."))'},
        "Replaced 1 occurrence in src/shop/prices.py.",
    ),
    _run(
        "Run the tests.",
        "pytest -q tests/test_prices.py",
        'FAILED tests/test_prices.py::test_thousands - InvalidOperation: "1.234,50"\n'
        "1 failed, 41 passed in 1.92s",
    ),
    Step(
        "A point before a comma separates thousands. Drop it first.",
        "edit_file",
        {
            "path": "src/shop/prices.py",
            "old": 'text.replace(",", ".")',
            "new": 'text.replace(".", "").replace(",", ".") if "," in text else text',
        },
        "Replaced 1 occurrence in src/shop/prices.py: thousands are handled.",
    ),
    _run("Again.", "pytest -q tests/test_prices.py", "42 passed in 1.88s"),
    _run(
        "Replay the orders that failed.",
        "python -m shop.replay --failed",
        "\n".join(f"order {90_412 + n}: ok, {n % 9 + 1} items" for n in range(52))
        + "\n52 of 52 orders pass.",
    ),
    _run(
        "Deploy it to staging only. Production waits until Thursday, 21:00.",
        "make deploy-staging",
        "\n".join(f"step {n:02} of 60: layer {n * 7919:x} pushed" for n in range(1, 61))
        + "\nRelease 7f3a9c1 is deployed to staging.",
    ),
    _run(
        "Does the nightly import parse prices in the same way?",
        "grep -rn Decimal src/shop",
        "\n".join(f"src/shop/report_{n:02}.py:{n + 12}: total += Decimal(row.price)" for n in range(64))
        + "\nsrc/shop/nightly.py:91: old = Decimal(row[4])",
    ),
    Step(
        "Then line 91 has the same fault. Fix it too.",
        "edit_file",
        {"path": "src/shop/nightly.py", "old": "Decimal(row[4])", "new": "parse_price(row[4])"},
        "Replaced 1 occurrence in src/shop/nightly.py.",
    ),
)
# It stands in one line of the log of the first turn, and in no answer.
QUESTION = "On which port does the staging server listen?"


@contextmanager
def started(*arguments: str, **environment: str) -> Iterator[str]:
    """The address of `palimpsest ARGUMENTS`, which ends with the block."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PALIMPSEST_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "palimpsest", *arguments, "--port", "0"],
        env=kept | environment | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        found = (re.search(r"(http://127\.0\.0\.1:\d+)/v1", line) for line in process.stdout)
        address = next((match[1] for match in found if match), None)
        if address is None:
            sys.exit("It did not start. `.venv/bin/palimpsest serve --port 0` says why.")
        yield address
    finally:
        process.terminate()
        process.wait()


@contextmanager
def proxy() -> Iterator[httpx.Client]:
    """A client of a proxy on an empty database, with the demo model behind it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        started("serve", "--demo", "--window-tokens", str(WINDOW_TOKENS)) as demo,
    ):
        database = {
            "PALIMPSEST_DATABASE__URL": f"sqlite:///{folder}/tour.db",
            "PALIMPSEST_DATABASE__DATA_FOLDER": folder,
        }
        with (
            started("serve", "--upstream", f"{demo}/v1", **database) as address,
            httpx.Client(base_url=address, headers={"x-session-id": "lisbon"}, timeout=60) as client,
        ):
            yield client


@dataclass(slots=True)
class Session:
    """A client that sends its whole list each time, as nearly all do."""

    client: httpx.Client
    messages: list[Json]

    def turn(self, said: str, step: Step | None = None) -> httpx.Response:
        """One answer of the model: after the agent's call, if there is one, and always kept in the list."""
        self.messages.append({"role": "user", "content": said})
        if step is not None:
            function = {"name": step.call, "arguments": json.dumps(step.arguments)}
            call = {"id": f"call_{len(self.messages)}", "type": "function", "function": function}
            self.messages += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": step.printed},
            ]
        body = {"model": "palimpsest-demo", "messages": self.messages, "tools": TOOLS}
        reply = self.client.post("/v1/chat/completions", json=body).raise_for_status()
        self.messages.append(reply.json()["choices"][0]["message"])
        return reply

    def read(self, path: str) -> Any:
        """An answer of /api/sessions/lisbon."""
        return self.client.get(f"/api/sessions/lisbon{path}").raise_for_status().json()


@dataclass(frozen=True, slots=True)
class Page:
    """What is printed, with colour only where somebody looks at it."""

    in_colour: bool

    def say(self, text: str = "", *styles: int) -> None:
        """One line; styles are the numbers of ANSI's SGR."""
        codes = "".join(f"\033[{style}m" for style in styles) if self.in_colour else ""
        sys.stdout.write(f"{codes}{text}{codes and RESET}\n")
        sys.stdout.flush()

    def bar(self, full: int, sent: int) -> str:
        """What was sent, then what was said and not sent, against the window."""
        shown, said = (min(BAR, round(BAR * tokens / WINDOW_TOKENS)) for tokens in (sent, full))
        green, grey = ("\033[32m", "\033[90m") if self.in_colour else ("", "")
        reset = RESET if self.in_colour else ""
        return f"{green}{'█' * shown}{grey}{'▒' * (said - shown)}{'·' * (BAR - said)}{reset}"


BOLD, DIM, YELLOW, CYAN = 1, 2, 33, 36
RESET = "\033[0m"
BAR = 24
COLUMNS = 100
# Parts of the summary that are printed, and how many of their newest lines.
SHOWN = {"Rules of the user, word for word": 2, "Record": 9, "Changed": 2, "Open": 2, "State": 2}


def grows(page: Page, session: Session) -> None:
    """The turns of the session until the window is full, and on."""
    was = "original"
    for number, step in enumerate(STEPS, 1):
        headers = session.turn(step.said, step).headers
        full, sent = (int(count) for count in headers["x-palimpsest-tokens"].split("/"))
        page.say(f"{number:3}  {page.bar(full, sent)}  {full:5,}  {fitted(step.said, COLUMNS - BAR - 14)}")
        if (view := headers["x-palimpsest-view"]) != was:
            was = view
            page.say(
                f"     compacted: {full:,} tokens said, {sent:,} sent; the client noticed nothing",
                BOLD,
                YELLOW,
            )


def compacted(page: Page, session: Session) -> None:
    """The summary that the model reads."""
    made = session.read("/compactions")["compactions"][-1]
    page.say()
    page.say(f"In place of {made['messages_folded']} messages the model now reads (an excerpt):", BOLD)
    for part in re.split("^## ", made["summary"], flags=re.MULTILINE):
        title, _, lines = part.partition("\n")
        said = [line[2:] for line in lines.splitlines() if line.startswith("- ")]
        for line in said[-SHOWN.get(title, 0) :] if title in SHOWN else ():
            page.say(f"  {title.split()[0]:8}{fitted(line, COLUMNS - 10)}", CYAN)


def fitted(text: str, width: int) -> str:
    """The text, cut where it is longer."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def looked_up(page: Page, session: Session) -> None:
    """A question that the summary does not answer, and what all of it came to."""
    reply = session.turn(QUESTION)
    looks = session.read("/events?types=context_recalled")["events"]
    page.say()
    page.say(f"{QUESTION} (one line of a log that was folded)", BOLD)
    page.say(
        "  Offered the proxy's tools, the model calls context_grep within this request, and answers:", DIM
    )
    page.say(f"  {session.messages[-1]['content']}", CYAN)
    rows = session.read("/messages?limit=500")["messages"]
    kept = [row["message"] for row in rows] == session.messages
    full, sent = (int(count) for count in reply.headers["x-palimpsest-tokens"].split("/"))
    page.say()
    page.say(
        f"Saved in this turn: {full - sent:,} of {full:,} tokens ({(full - sent) / full:.0%}). "
        f"Stored: {len(rows)} messages, {'each as it was sent' if kept else 'NOT AS THEY WERE SENT'}.",
        BOLD,
    )
    page.say("Next: `make run`, and http://127.0.0.1:8000 in a browser; then README.md and docs/start.md.")
    if not (kept and looks):
        sys.exit(1)


def main() -> None:
    """Tells the story; the exit code is 1 if it did not happen."""
    page = Page(sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
    page.say(
        f"A debugging session, a proxy, and a demo model with a window of {WINDOW_TOKENS:,} tokens.", BOLD
    )
    page.say()
    with proxy() as client:
        session = Session(client, [{"role": "system", "content": SYSTEM}])
        grows(page, session)
        compacted(page, session)
        looked_up(page, session)


if __name__ == "__main__":
    main()
