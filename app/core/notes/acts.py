"""The kinds of things a tool call can have done, as plain values, each line in them cut to its limit.

Knows nothing of clients, calls or results.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FileState = Literal["created", "edited", "deleted", "moved"]
TaskState = Literal["done", "open", "doing", "dropped"]

# Characters of one line that describes an edit, an error, or the arguments of an action.
LINE_CHARS = 160
# Characters of a command line, and of what an action's result says.
COMMAND_CHARS = 200
OUTCOME_CHARS = 120
# ... and of each side of an edit, where the sides are shown and not the first lines that differ (D03).
EDIT_CHARS = 300
# What a task list that could not be written is about.
TASKS = "the task list"
# A longer path is not one: some models put the content where the path belongs.
PATH_CHARS = 500


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that is not as it was. `to`: where it was moved; `detail`: what was done, on one line.

    `edits`: what was put in place of what, each side on one line; the change is the same without them.
    """

    path: str
    state: FileState
    to: str = ""
    detail: str = ""
    edits: tuple[tuple[str, str], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Action:
    """A call that changed something outside files: `outcome` is empty when it says only that it worked."""

    name: str
    arguments: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command that ran: `ok` is None while it runs; `said` is its first error or its last summary line.

    `is_told`: it did nothing but what the changes of files beside it tell.
    """

    line: str
    ok: bool | None
    said: str
    is_told: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A call other than a command that failed: what was tried, and the first line that says why not.

    `about` is what a later success settles: the paths of files, the call, what was looked at (`Read.name`).
    """

    what: str
    said: str
    about: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskList:
    """Tasks with their states. `partial`: the others of the list before stay; see `merged`.

    `ids` stand beside the items, empty where the client gave none.
    """

    items: tuple[tuple[str, TaskState], ...]
    partial: bool = False
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Read:
    """A file, address or search that was looked at."""

    what: str

    @property
    def name(self) -> str:
        """As `Failure.about` names it: looking at a file does not settle that it could not be changed."""
        return f"read {self.what}"


Effect = FileChange | Action | Command | Failure | TaskList | Read


def merged(before: TaskList | None, now: TaskList) -> TaskList:
    """The whole list after `now`: itself, or when it is partial the list before with its changes."""
    if not now.partial:
        return now
    keyed = dict(_keyed(before)) if before is not None else {}
    for key, (text, state) in _keyed(now):
        known = keyed.get(key)
        keyed[key] = (text or (known[0] if known else key), state)
    return TaskList(tuple(keyed.values()), ids=tuple(keyed))


def called(name: str, arguments: str) -> tuple[str, str]:
    """How `Failure.about` names a call that changes something: whole, and by what it is about alone.

    That is its first argument: a reservation that could not be changed was, when it was paid otherwise.
    """
    return one_line(
        f"{name} {arguments}".strip(), LINE_CHARS
    ), f"{name} {arguments.partition(', ')[0]}".strip()


def same_file(one: str, other: str) -> bool:
    """True when both spellings can name one file: equal, or one ends with "/" and the other."""
    one, other = one.removeprefix("./"), other.removeprefix("./")
    if not one or not other:
        return False
    return one == other or one.endswith("/" + other) or other.endswith("/" + one)


def one_line(text: str, most: int) -> str:
    """`text` on one line in at most `most` characters, the cut marked by "..."."""
    # White space may be much of a text; four times the room is enough to fill the line.
    line = " ".join(text[: most * 4].split())
    return line if len(line) <= most and len(text) <= most * 4 else line[: most - 3].rstrip() + "..."


def edit(old: str, new: str) -> tuple[str, str]:
    """Both sides of an edit, each on one line."""
    return one_line(old, EDIT_CHARS), one_line(new, EDIT_CHARS)


def clipped(line: str, most: int) -> str:
    """A line as it stands, without white space around it, in at most `most` characters."""
    line = line.strip()
    return line if len(line) <= most else line[: most - 3].rstrip() + "..."


def is_path(text: str) -> bool:
    """True for what can be the name of a file: one line, no variable of a shell in it."""
    return 0 < len(text) <= PATH_CHARS and not any(mark in text for mark in "\n\0$`") and bool(text.strip())


def word_set(text: str) -> frozenset[str]:
    """The words of a table that is written as one text."""
    return frozenset(text.split())


def counted(text: str) -> str:
    """The number of lines of a text, in words."""
    count = text.count("\n") + (not text.endswith("\n")) if text else 0
    return f"{count} line{'' if count == 1 else 's'}"


def _keyed(tasks: TaskList) -> list[tuple[str, tuple[str, TaskState]]]:
    keys = tasks.ids if len(tasks.ids) == len(tasks.items) else tuple(text for text, _ in tasks.items)
    return [(key or item[0], item) for key, item in zip(keys, tasks.items, strict=True)]
