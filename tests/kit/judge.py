"""What must hold of every prompt, whatever was folded: P9 and P10 as one question each.

Knows nothing of how a view is made: it compares what the client sent with what the model saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tests.kit.model import Seen

Json = dict[str, Any]
INSTRUCTIONS = ("system", "developer")


def is_sound(prompt: Seen, sent: list[Json], window: int) -> None:
    """P9: the prompt is valid and within the window, and what must stay verbatim is what the client sent."""
    assert prompt.faults == ()
    assert prompt.tokens <= window, f"{prompt.tokens} tokens"
    rules = [message for message in sent if message["role"] in INSTRUCTIONS]
    assert prompt.messages[: len(rules)] == rules
    users = [message for message in sent if message["role"] == "user"]
    assert users[-1] in prompt.messages
    newest = sent[-1]
    if newest["role"] != "tool":
        assert prompt.messages[-1] == newest
    else:
        assert prompt.messages[-1]["tool_call_id"] == newest["tool_call_id"]


def are_sound(prompts: Sequence[Seen], sent: Sequence[list[Json]], window: int) -> None:
    """As `is_sound`, for conversations in which every request reached the model exactly once, in order."""
    assert len(prompts) == len(sent)
    for prompt, messages in zip(prompts, sent, strict=True):
        is_sound(prompt, messages, window)


def rewritten(prompts: Sequence[Seen]) -> int:
    """P10: how many of the prompts do not begin with the whole one before."""
    return sum(not later.extends(earlier) for earlier, later in pairwise(prompts))
