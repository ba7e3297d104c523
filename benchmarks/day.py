"""A long agent day, made up: tool work over many turns, planted facts, changed decisions, identifiers.

    python -m benchmarks day --out day.jsonl [--turns 300] [--seed 7] [--chats 2]

One JSON object a line, as the replay benchmark reads them: `id`, `messages`, `tools`, and `canaries`: each
with a `type`, the `tokens` that must be found in the last prompt, and `stale` ones that must not.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

_SYSTEM = (
    "You are the release engineer of a small company. You read and change files, run commands and keep to "
    "what was agreed. Answer shortly."
)
_TOOLS = [
    ("read_file", {"path": {"type": "string"}}),
    ("edit_file", {"path": {"type": "string"}, "old": {"type": "string"}, "new": {"type": "string"}}),
    ("run", {"command": {"type": "string"}}),
]
_NOUNS = (
    "invoice",
    "ledger",
    "parser",
    "queue",
    "worker",
    "cache",
    "router",
    "schema",
    "billing",
    "export",
    "import",
    "report",
    "session",
    "token",
    "upload",
    "mailer",
    "webhook",
    "archive",
    "search",
    "index",
    "dashboard",
    "gateway",
    "scheduler",
    "payload",
    "retry",
)
_VERBS = (
    "checks",
    "rewrites",
    "moves",
    "splits",
    "guards",
    "logs",
    "sorts",
    "merges",
    "drops",
    "caches",
    "counts",
    "signs",
    "renames",
    "traces",
)
_FOLDERS = ("src", "lib", "services", "jobs", "tests")
_HOSTS = ("alder", "birch", "cedar", "elm", "hazel", "larch", "maple", "rowan")


class Day:
    """One day, told message by message; equal seeds tell equal days."""

    def __init__(self, seed: int, *, chat: bool) -> None:
        self._source = random.Random(seed)
        self._chat = chat
        self._calls = 0
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": _SYSTEM}]
        self.canaries: list[dict[str, Any]] = []
        self._open: dict[str, dict[str, Any]] = {}

    def told(self, turns: int) -> None:
        """So many answers of the assistant."""
        self._user("Bring release 4.2 out today. Work through my notes one by one and tell me what you did.")
        answers = 0
        while answers < turns:
            answers += self._step(answers / turns)
            self._user(self._request())
        self.messages.pop()

    def _step(self, progress: float) -> int:
        """Some tool calls, then an answer; how many requests that took."""
        taken = 0
        for _ in range(0 if self._chat else self._source.choice((0, 1, 1, 2, 3))):
            self._tool()
            taken += 1
        self._say("assistant", self._report(progress))
        return taken + 1

    def _request(self) -> str:
        """What the user wants next, with a fact or a change of mind now and then."""
        verb = self._source.choice(_VERBS)
        text = f"Next: the {self._noun()} {verb} the {self._noun()}. {self._prose(12, 40)}"
        draw = self._source.random()
        if draw < 0.10:
            text += " " + self._fact()
        elif draw < 0.16:
            text += " " + self._decision()
        elif draw < 0.20:
            text += " " + self._rule()
        return text

    def _fact(self) -> str:
        name, number = self._noun(), self._source.randrange(10_000, 99_999)
        kind = self._source.choice(("port", "ticket", "host", "build"))
        value = {
            "port": f"{self._source.randrange(2_000, 60_000)}",
            "ticket": f"OPS-{number}",
            "host": f"{self._source.choice(_HOSTS)}-{number}.internal",
            "build": f"{self._source.getrandbits(40):010x}",
        }[kind]
        self.canaries.append({"type": kind, "tokens": [value], "stale": []})
        return f"Note for later: the {kind} of the {name} {number} is {value}."

    def _decision(self) -> str:
        """A decision, and later another one in its place: only the last holds."""
        topic = f"the {self._noun()} {self._noun()}"
        if self._open and self._source.random() < 0.6:
            topic = self._source.choice(sorted(self._open))
        value = f"{self._source.choice(_HOSTS)}-{self._source.randrange(100, 999)}"
        before = self._open.get(topic)
        canary = {"type": "decision", "tokens": [value], "stale": before["tokens"] if before else []}
        if before:
            self.canaries.remove(before)
        self._open[topic] = canary
        self.canaries.append(canary)
        if before:
            return f"I changed my mind: for {topic} we use {value} instead of {before['tokens'][0]}."
        return f"We decided: for {topic} we use {value}."

    def _rule(self) -> str:
        word = f"{self._noun()}-{self._source.randrange(100, 999)}"
        self.canaries.append({"type": "rule", "tokens": [word], "stale": []})
        return f"From now on never touch {word} without asking me."

    def _tool(self) -> None:
        self._calls += 1
        path = f"{self._source.choice(_FOLDERS)}/{self._noun()}_{self._source.randrange(1_000)}.py"
        name = self._source.choice(("read_file", "read_file", "edit_file", "run"))
        arguments = {
            "read_file": {"path": path},
            "edit_file": {"path": path, "old": self._prose(4, 12), "new": self._prose(4, 12)},
            "run": {"command": f"pytest {path} -k {self._noun()}"},
        }[name]
        call = f"call_{self._calls:05d}"
        function = {"name": name, "arguments": json.dumps(arguments)}
        self.messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call, "type": "function", "function": function}],
            }
        )
        result = {
            "read_file": f"# {path}\n{self._prose(80, 420)}",
            "edit_file": f"edited {path}: 1 hunk",
            "run": f"{self._source.randrange(1, 60)} passed, 0 failed in {self._source.random() * 9:.2f}s",
        }[name]
        self.messages.append({"role": "tool", "tool_call_id": call, "content": result})

    def _report(self, progress: float) -> str:
        length = (60, 220) if self._chat else (15, 60)
        return f"Done, {progress:.0%} of the list. {self._prose(*length)}"

    def _user(self, text: str) -> None:
        self._say("user", text)

    def _say(self, role: str, text: str) -> None:
        self.messages.append({"role": role, "content": text})

    def _noun(self) -> str:
        return self._source.choice(_NOUNS)

    def _prose(self, least: int, most: int) -> str:
        words = [self._source.choice((*_NOUNS, *_VERBS)) for _ in range(self._source.randint(least, most))]
        return " ".join(words).capitalize() + "."


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--turns", type=int, default=300)
    options.add_argument("--seed", type=int, default=7)
    options.add_argument(
        "--chats", type=int, default=1, help="long chats without tools beside the agent's day"
    )
    given = options.parse_args()
    tools = [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"{name.replace('_', ' ')}",
                "parameters": {"type": "object", "properties": properties, "required": sorted(properties)},
            },
        }
        for name, properties in _TOOLS
    ]
    lines = []
    for number in range(1 + given.chats):
        day = Day(given.seed + number, chat=number > 0)
        day.told(given.turns if number == 0 else given.turns // 3)
        said = {"id": f"day-{number}", "messages": day.messages, "canaries": day.canaries}
        lines.append(json.dumps({**said, "tools": tools} if number == 0 else said))
    given.out.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} conversations: {given.out}")


if __name__ == "__main__":
    main()
