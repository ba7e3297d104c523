"""Conversations as sizes: made up, or read from a file. Knows nothing of prices and of compaction."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path


@dataclass(frozen=True)
class Trace:
    """A conversation: the preamble's tokens, then a role and tokens for every message.

    `before[i]` are the tokens of the messages before i; `turns` are the messages that answer a
    request, `cuts` those a tail may begin with: no result is parted from its call.
    """

    preamble: int
    messages: tuple[tuple[str, int], ...]
    before: tuple[int, ...]
    turns: tuple[int, ...]
    cuts: tuple[int, ...]

    @property
    def kept(self) -> int:
        """Tokens of what stands before the summary in every view: preamble and task."""
        return self.preamble + self.messages[0][1]


def trace_of(messages: list[tuple[str, int]]) -> Trace:
    """A trace of roles and tokens; system and developer messages at the start are the preamble."""
    first = next(i for i, (role, _) in enumerate(messages) if role not in ("system", "developer"))
    rest = messages[first:]
    later = range(1, len(rest))
    return Trace(
        preamble=sum(tokens for _, tokens in messages[:first]),
        messages=tuple(rest),
        before=(0, *accumulate(tokens for _, tokens in rest)),
        turns=tuple(i for i in later if rest[i][0] == "assistant"),
        cuts=tuple(i for i in later if rest[i][0] != "tool"),
    )


def traces_in(path: Path) -> list[Trace]:
    """The traces of a JSON file: a list of conversations, each a list of [role, tokens]."""
    return [trace_of([(role, tokens) for role, tokens in each]) for each in json.loads(path.read_text())]


def tool_agents(source: random.Random, turns: int = 25) -> Trace:
    """A support agent: 4,000 tokens of tools and rules, short questions, calls with JSON results."""
    return trace_of([("system", 3_950), *_support(source, turns)])


def agent_days(source: random.Random) -> Trace:
    """Five such conversations without an end between them."""
    return trace_of([("system", 3_950), *(m for _ in range(5) for m in _support(source, 22))])


def long_chats(source: random.Random) -> Trace:
    """A person who asks, a model that explains."""
    said: list[tuple[str, int]] = [("system", 15)]
    for _ in range(60):
        said += [("user", _size(source, 50, 0.8)), ("assistant", _size(source, 190, 0.5))]
    return trace_of(said)


def coding_agents(source: random.Random) -> Trace:
    """A coding agent in its editor: large instructions, files read and commands run, few questions."""
    said: list[tuple[str, int]] = [("system", 12_000), ("user", _size(source, 400, 0.6))]
    for _ in range(150):
        said += [("assistant", _size(source, 220, 0.8)), ("tool", _size(source, 700, 1.6))]
        if source.random() < 0.1:
            said += [("assistant", _size(source, 300, 0.5)), ("user", _size(source, 80, 0.8))]
    return trace_of([*said, ("assistant", 200)])


def _support(source: random.Random, turns: int) -> Iterator[tuple[str, int]]:
    yield "user", _size(source, 40, 0.5)
    for _ in range(turns):
        if source.random() < 0.55:
            yield "assistant", _size(source, 50, 0.4)
            yield "tool", _size(source, 270, 1.3)
        else:
            yield "assistant", _size(source, 110, 0.6)
            yield "user", _size(source, 45, 0.7)
    yield "assistant", 60


def _size(source: random.Random, mean: float, variation: float) -> int:
    """Tokens of a message, log-normal with this mean and coefficient of variation; at least 5."""
    sigma = math.sqrt(math.log1p(variation * variation))
    return max(5, round(source.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)))
