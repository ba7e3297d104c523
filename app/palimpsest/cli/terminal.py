"""What commands print for people: tables, numbers, messages, findings.

All that a command prints goes through `say` or `write`: titles, names, ids and errors come from clients and
servers, and a terminal obeys what it is sent.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import typer

from palimpsest.errors import SettingsError

# Control characters, of Latin-1 too, those that turn lines around, and halves of characters.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SIZES = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_PERIODS = ((86_400, "d"), (3_600, "h"), (60, "m"))
# Models whose windows `doctor` shows: enough to see whether any are found; some servers list hundreds.
MODELS_SHOWN = 8


def is_terminal(stream: TextIO | None) -> bool:
    """True when a person reads the stream; False when it is closed, which Python tells by None."""
    return stream is not None and stream.isatty()


def printable(text: str) -> str:
    """The text with escapes for what would steer a terminal; JSON stays the same JSON."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text.replace("\r\n", "\n"))


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print the text, and a new line, to standard output or error."""
    typer.echo(printable(text), err=err, nl=nl)


def write(content: bytes) -> None:
    """Write the bytes to standard output, as they are to a file. SettingsError when that is closed."""
    if sys.stdout is None:
        raise SettingsError("command line: standard output is closed.")
    if is_terminal(sys.stdout):
        say(content.decode(errors="replace"), nl=False)
        return
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> Iterator[str]:
    """The rows in columns, those of `right` flush right; on a terminal cut to its width. A row is a line."""
    rows = [[printable(" ".join(cell.split())) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None
    for row in rows:
        cells = [
            cell.rjust(widths[at]) if at in right else cell.ljust(widths[at]) for at, cell in enumerate(row)
        ]
        yield "  ".join(cells).rstrip()[:width]


def money(amount: float | None) -> str:
    """An amount in dollars; "unknown" for None."""
    return "unknown" if amount is None else f"${amount:,.4f}" if amount < 1 else f"${amount:,.2f}"


def figure(number: float | None, decimals: int = 0) -> str:
    """A number; "?" for None."""
    return "?" if number is None else f"{number:,.{decimals}f}"


def size(count: int) -> str:
    """So many bytes in a unit of three digits."""
    return next((f"{count / unit:.1f} {name}" for name, unit in _SIZES if count >= unit), f"{count} B")


def ago(at: str) -> str:
    """How long ago a time was, in its largest unit."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()
    return next((f"{seconds // unit:.0f}{word}" for unit, word in _PERIODS if seconds >= unit), "now")


def utc(seconds: float | None) -> str | None:
    """A time as ISO 8601."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def counted(number: int, noun: str) -> str:
    """The number before the noun, which takes an s unless it is one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def counted_rows(rows: Mapping[str, int]) -> str:
    """The most telling of the numbers of rows by table."""
    return ", ".join(counted(rows.get(f"{noun}s", 0), noun) for noun in ("session", "message", "compaction"))


def effect_of(compaction: Mapping[str, Any]) -> str:
    """What a compaction did."""
    folded = f"{counted(compaction['messages_folded'], 'message')} folded"
    what = folded if compaction["kind"] == "message_removal" else "tool results shortened"
    return f"{what}, {compaction['tokens_before']:,} -> {compaction['tokens_after']:,} tokens"


def outcome_of(turn: Mapping[str, Any]) -> str:
    """How the turn ended; of a failure the code, the status, and what the upstream said."""
    if turn["state"] in ("done", "open"):
        return str(turn["state"])
    parts = turn["code"] or turn["state"], turn["status"], turn["error"]
    return " ".join(str(part) for part in parts if part)


def text_of(message: Mapping[str, Any]) -> str:
    """A chat message's text and calls."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [
        part.get("text") or f"[{part.get('type')}]" if isinstance(part, dict) else part for part in parts
    ]
    calls = [call.get("function") or call for call in _objects(message.get("tool_calls"))]
    called = [f"{call.get('name')}({call.get('arguments')})" for call in _objects(calls)]
    return "\n".join(text for text in (*texts, *called) if isinstance(text, str) and text)


def _objects(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; none of anything else, as a client may send it."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `remedy` is empty when it is in order."""

    name: str
    state: Literal["ok", "warning", "failed"]
    detail: str
    remedy: str = ""

    def lines(self) -> Iterator[str]:
        """The finding, and below it the remedy."""
        yield f"{self.state:8} {self.name}: {self.detail}"
        if self.remedy:
            yield f"{'':8} -> {self.remedy}"
