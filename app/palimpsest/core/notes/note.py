"""Notes on a conversation, and the effects that a tool call can have. Each line is cut to its limit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["rule", "request", "change", "command", "failure", "task", "open", "read", "fact", "picture"]
Speaker = Literal["user", "assistant", "system", "tool"]


@dataclass(frozen=True, slots=True)
class Note:
    """A line of a block.

    `text` is on one line, except a user's own words. `place` is the index of the message it comes from,
    `turn` the user's turn (from 1; 0 before the first). `binds`: every block shows it while it holds (a
    floor). `subject` is the path of a change, the line of a command ("" for one whose file changes say all
    that it did), or what was read. `name`: the speaker's, in a group chat. `date`: what stands in brackets in
    front of what was said since ("[3:18 pm on 4 May, 2023]").
    """

    kind: Kind
    text: str
    place: int
    turn: int
    by: Speaker = "user"
    binds: bool = False
    subject: str = ""
    name: str = ""
    date: str = ""

    @property
    def said(self) -> str:
        """The text, with its speaker in a group chat."""
        return f"{self.name}: {self.text}" if self.name else self.text


@dataclass(frozen=True, slots=True)
class Notes:
    """Notes in the order of the conversation.

    `running` is the place of the user's newest request while it is being worked on, None once answered.
    """

    notes: tuple[Note, ...] = ()
    running: int | None = None

    def of(self, *kinds: Kind) -> tuple[Note, ...]:
        """The notes of these kinds, in order."""
        return tuple(note for note in self.notes if note.kind in kinds)


FileState = Literal["created", "edited", "deleted", "moved"]
TaskState = Literal["done", "open", "doing", "dropped"]

# Characters of one line that describes an edit, an error, or the arguments of an action.
LINE_CHARS = 160
# Characters of a command line, and of an action's outcome.
COMMAND_CHARS = 200
OUTCOME_CHARS = 120
# Characters of each side of an edit, where both are shown rather than the first lines that differ (D03).
EDIT_CHARS = 300
# `Failure.about` of a task list that could not be written.
TASKS = "the task list"
# Longer text is not a path: some models put the content where the path belongs.
PATH_CHARS = 500


@dataclass(frozen=True, slots=True)
class FileChange:
    """A changed file. `to`: where it was moved; `detail`: what was done, on one line.

    `edits`: (old, new) of each edit, each on one line; comparisons ignore them.
    """

    path: str
    state: FileState
    to: str = ""
    detail: str = ""
    edits: tuple[tuple[str, str], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Action:
    """A call that changed something other than a file. `outcome` is empty for a bare success."""

    name: str
    arguments: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command. `ok` is None while it runs; `said` is its first error or its last summary line.

    `does`: "files" when it did nothing but the file changes beside it, "more" when it changed more than files
    (a commit, an installation).
    """

    line: str
    ok: bool | None
    said: str
    does: Literal["", "files", "more"] = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed call other than a command: what was tried, and the line that states the error.

    A later success with one of the names in `about` resolves it: paths, the call, or `FileRead.name`.
    """

    what: str
    said: str
    about: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskList:
    """Tasks with their states. `partial`: the other items of the earlier list stay; see `merged`.

    `ids` belong to the items in their order; empty where the client gave none.
    """

    items: tuple[tuple[str, TaskState], ...]
    partial: bool = False
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileRead:
    """A file, an address, a search or a record that was read. `said`: what it held, in pieces of one line.

    Comparisons ignore these.
    """

    what: str
    said: tuple[str, ...] = field(default=(), compare=False)

    @property
    def name(self) -> str:
        """The name in `Failure.about`: reading a file does not resolve a failure to change it."""
        return f"read {self.what}"


Effect = FileChange | Action | Command | Failure | TaskList | FileRead


def merged(before: TaskList | None, now: TaskList) -> TaskList:
    """The whole list after `now`: `now` itself or, when it is partial, `before` with its changes."""
    if not now.partial:
        return now
    keyed = dict(_keyed(before)) if before is not None else {}
    for key, (text, state) in _keyed(now):
        known = keyed.get(key)
        keyed[key] = (text or (known[0] if known else key), state)
    return TaskList(tuple(keyed.values()), ids=tuple(keyed))


def called(name: str, arguments: str) -> tuple[str, str]:
    """The names in `Failure.about` of a call that changes something: with all arguments, and with the first.

    By the first, a failed change of a reservation is resolved by a later one with another payment.
    """
    return one_line(
        f"{name} {arguments}".strip(), LINE_CHARS
    ), f"{name} {arguments.partition(', ')[0]}".strip()


def same_file(one: str, other: str) -> bool:
    """True when both paths can name one file: they are equal, or one ends with "/" and the other."""
    one, other = one.removeprefix("./"), other.removeprefix("./")
    if not one or not other:
        return False
    return one == other or one.endswith("/" + other) or other.endswith("/" + one)


def one_line(text: str, most: int) -> str:
    """`text` on one line in at most `most` characters, the cut marked by "..."."""
    # Much of a text may be white space; four times the limit is enough to fill the line.
    line = " ".join(text[: most * 4].split())
    return line if len(line) <= most and len(text) <= most * 4 else line[: most - 3].rstrip() + "..."


def edit(old: str, new: str) -> tuple[str, str]:
    """Both sides of an edit, each on one line of at most 300 characters."""
    return one_line(old, EDIT_CHARS), one_line(new, EDIT_CHARS)


def clipped(line: str, most: int) -> str:
    """The stripped line in at most `most` characters, the cut marked by "..."."""
    line = line.strip()
    return line if len(line) <= most else line[: most - 3].rstrip() + "..."


def is_path(text: str) -> bool:
    """True for a text that can be a path: one line of at most 500 characters, no shell variable."""
    return 0 < len(text) <= PATH_CHARS and not any(mark in text for mark in "\n\0$`") and bool(text.strip())


def word_set(text: str) -> frozenset[str]:
    """The words of a table written as one text."""
    return frozenset(text.split())


def ranked_words(text: str) -> tuple[str, ...]:
    """The words of such a table in their order, where the first that is found counts."""
    return tuple(text.split())


def counted(text: str) -> str:
    """The number of lines of a text, in words."""
    count = text.count("\n") + (not text.endswith("\n")) if text else 0
    return f"{count} line{'' if count == 1 else 's'}"


def _keyed(tasks: TaskList) -> list[tuple[str, tuple[str, TaskState]]]:
    keys = tasks.ids if len(tasks.ids) == len(tasks.items) else tuple(text for text, _ in tasks.items)
    return [(key or item[0], item) for key, item in zip(keys, tasks.items, strict=True)]
