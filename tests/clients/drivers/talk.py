"""What the drivers written in Python share: conversations come as JSON, what a client made of them goes back.

A driver is a program of its own, run by an interpreter that has the client: only the standard library here.
It reads `{"talks": [...]}` from standard input, holds all the conversations at once and writes, for each by
its name, the turns as the client told them. Knows nothing of proxies.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Any

Json = dict[str, Any]


@dataclass
class Turn:
    """What a client had at the end of one turn: text, the calls it carried out, usage if it tells."""

    text: str | None = None
    calls: list[list[Any]] = field(default_factory=list)
    usage: Any = None


@dataclass
class Talk:
    """One conversation to be held: what the user says, and what the tools find.

    `limit` is the window (tokens) that a client which keeps an eye on it is to believe in; None for one that
    is never reached.
    """

    name: str
    base_url: str
    key: str
    model: str
    system: str
    says: list[str]
    records: dict[str, str]
    folder: str
    limit: int | None = None
    turns: list[Turn] = field(default_factory=list)

    def begins(self) -> Turn:
        """The next turn, to be filled in."""
        self.turns.append(Turn())
        return self.turns[-1]

    def lookup(self, name: str) -> str:
        """The tool `lookup`: a record by its name."""
        self.turns[-1].calls.append(["lookup", {"name": name}])
        return self.records[name]

    def measure(self, metres: float) -> str:
        """The tool `measure`: a length in words, whatever way the client wrote the number."""
        self.turns[-1].calls.append(["measure", {"metres": metres}])
        return f"It is {float(metres):.2f} metres long."

    def tool(self, name: str, arguments: Json) -> str:
        """The tool of this name, for clients that leave carrying out to their user."""
        tools: dict[str, Callable[..., str]] = {"lookup": self.lookup, "measure": self.measure}
        return tools[name](**arguments)


class Loop:
    """An event loop that all conversations share: some clients keep one pool of connections for all."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def runs(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What the coroutine returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


# The two tools as JSON Schema, for clients that take it.
TOOLS: list[Json] = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Find a record by its name.",
            "parameters": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    },
    {
        "type": "function",
        "function": {
            "name": "measure",
            "description": "Say a length in words.",
            "parameters": {
                "type": "object",
                "properties": {"metres": {"type": "number"}},
                "required": ["metres"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    },
]


def main(
    hold: Callable[[Talk], None], prepare: Callable[[list[Talk]], object] = len, *, forks: bool = False
) -> None:
    """Every conversation is held, in a thread each; a failure is told in place of its turns.

    `prepare` is done once before. With `forks` each has a process of its own instead, for clients that keep
    their address in the environment. What clients print goes to standard error.
    """
    talks = [Talk(**given) for given in json.load(sys.stdin)["talks"]]
    telling = os.dup(1)
    os.dup2(2, 1)
    prepare(talks)
    fork = partial(ProcessPoolExecutor, mp_context=get_context("fork"))
    with (fork if forks else ThreadPoolExecutor)(len(talks)) as pool:
        made = dict(zip([talk.name for talk in talks], pool.map(partial(held, hold), talks), strict=True))
    os.write(telling, json.dumps(made).encode())


def held(hold: Callable[[Talk], None], talk: Talk) -> Json:
    """The turns of a conversation, or its failure."""
    try:
        hold(talk)
    except Exception:  # noqa: BLE001  (whatever a client raises is a finding, told to the runner)
        return {"error": traceback.format_exc()}
    for turn in talk.turns:
        # Some clients carry out at the same time what the model asked for at once.
        turn.calls.sort(key=str)
    return {"turns": [vars(turn) for turn in talk.turns]}
