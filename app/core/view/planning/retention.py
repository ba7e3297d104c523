"""Older messages that name a path in use: they stay when the rest around them is folded (A11).

Knows nothing of windows; the room is given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.core.history.message import Message
from app.core.view.cuts import Group

# The newest messages whose paths count as in use.
_RECENT_MESSAGES = 4
# Enough of a long message to see what it is about, characters.
_READ_CHARS = 20_000
_MOST_PATHS = 20
_PATH = re.compile(
    r"(?<![\w/.:@-])(?:(?:\.{1,2}|~)?/)?(?:[\w.-]+/)+[\w-]+(?:\.\w{1,8})?(?![\w/])"
    r"|(?<![\w/.:@-])[\w-]+\.(?:py|js|ts|tsx|go|rs|c|h|cpp|java|rb|md|json|ya?ml|toml|txt|cfg|ini|sh|csv|html|sql)\b"
)


def active_paths(messages: Sequence[Message]) -> tuple[str, ...]:
    """Paths and file names in the last four messages, newest message first, at most 20."""
    found: dict[str, None] = {}
    for message in reversed(messages[-_RECENT_MESSAGES:]):
        if message.is_instruction:
            continue
        for match in _PATH.finditer(_text(message)[:_READ_CHARS]):
            if any(letter.isalpha() for letter in match[0]):
                found.setdefault(match[0])
    return tuple(found)[:_MOST_PATHS]


def active_groups(
    messages: Sequence[Message], groups: Sequence[Group], sizes: Sequence[int], cut: int, room: int
) -> tuple[int, ...]:
    """Indexes before `cut` to keep because their group names an active path; at most `room` tokens.

    Newest groups first; a group that does not fit is passed over (A10), as are those of the last
    four messages themselves.
    """
    paths = active_paths(messages)
    stop = min(cut, max(0, len(messages) - _RECENT_MESSAGES))
    kept: list[int] = []
    for group in reversed(groups):
        indexes = range(group.start, group.stop)
        size = sum(sizes[index] for index in indexes)
        if not paths or group.stop > stop or size > room:
            continue
        if any(path in _text(messages[index]) for index in indexes for path in paths):
            kept.extend(indexes)
            room -= size
    return tuple(sorted(kept))


def _text(message: Message) -> str:
    return message.raw.decode("utf-8", "replace")
