"""Which messages belong together, and so where a history may be cut.

Knows nothing of tokens, windows or why anybody would cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.history.message import Message

RESULT_ROLES = frozenset({"tool", "function"})


@dataclass(frozen=True, slots=True)
class Group:
    """Messages `[start:stop]` that stand or fall together: calls with their results, or one message."""

    start: int
    stop: int


def groups_of(messages: Sequence[Message]) -> tuple[Group, ...]:
    """The messages as consecutive groups, every message in exactly one.

    An assistant message with tool calls reaches to the last result that answers it, in whatever
    order they come; what stands between belongs to the group. An id that is used again names the
    newest call still unanswered (F02). Calls that were never answered (aborted) reach no further
    than their results do. A result nobody called for stays with what precedes it, so that no group
    starts with a result unless the list does. The legacy `function_call` and its `function`
    message are a group by that same rule.
    """
    starts: list[int] = []
    open_calls: list[tuple[int, list[str]]] = []
    for index, message in enumerate(messages):
        start = index
        if message.role in RESULT_ROLES and index:
            start = _called_at(open_calls, message.answers, starts[-1])
            while starts and starts[-1] >= start:
                starts.pop()
        starts.append(start)
        if message.calls:
            open_calls.append((start, list(message.calls)))
    stops = [*starts[1:], len(messages)]
    return tuple(Group(start, stop) for start, stop in zip(starts, stops, strict=False))


def group_index(groups: Sequence[Group], index: int) -> int:
    """The place in `groups` of the group that holds message `index`."""
    low, high = 0, len(groups) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if groups[middle].start <= index:
            low = middle
        else:
            high = middle - 1
    return low


def is_cut(groups: Sequence[Group], cut: int) -> bool:
    """True when `cut` parts no group and leaves something on both sides."""
    return 0 < cut < groups[-1].stop and groups[group_index(groups, cut)].start == cut


def _called_at(open_calls: list[tuple[int, list[str]]], answers: str | None, fallback: int) -> int:
    """Where the group of a result starts; the call is taken off the open ones."""
    for place in range(len(open_calls) - 1, -1, -1):
        start, ids = open_calls[place]
        if answers in ids:
            ids.remove(answers)
            if not ids:
                del open_calls[place]
            return min(start, fallback)
    return fallback
