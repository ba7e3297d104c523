"""Sections 3 and 4 by code: which tools ran with what, what failed and what became of it.

Cumulative: the lines of the previous block are read back and added to. Knows nothing of budgets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.summary.carry.spoken import Spoken
from app.core.summary.sections import Sections
from app.core.summary.working.outcomes import without_harmless
from app.core.text.wording import Call

_LINE = re.compile(r"- (\S+) x(\d+)(?:: (.*))?\Z")
_ERROR_LINE = re.compile(
    r"^.{0,80}?\b(?:\w*(?:Error|Exception)\b[:\]]|error[: ]|fatal:|failed\b|panic:|Traceback)"
    r".{0,200}",
    re.MULTILINE,
)
_ERROR_NAMED = re.compile(r"\b\w*(?:Error|Exception)\b: [^\n]{4,160}")
# Newest argument lists kept for one tool; the rest is in its count.
_ARGUMENTS_KEPT = 8
_ARGUMENT_CHARS = 48
_ERROR_CHARS = 180
_ERRORS_KEPT = 8
# Characters of a result in which an outcome stands.
_LOOKED_AT = 600


@dataclass(frozen=True, slots=True)
class Work:
    """`done`: a line a tool, the newest used last. `errors`: a line a failure, oldest first."""

    done: tuple[str, ...]
    errors: tuple[str, ...]


@dataclass(slots=True)
class _Tool:
    count: int
    arguments: dict[str, None]


def work_of(previous: Sections, fresh: Sequence[Spoken]) -> Work:
    """The previous block's work and errors with those of `fresh` added."""
    tools = _previous_tools(previous)
    errors = dict.fromkeys(line for line in previous.bodies[3].split("\n") if line.startswith("- "))
    open_calls: dict[str, Call] = {}
    failing: dict[str, str] = {}
    for message in fresh:
        for call in message.calls:
            open_calls[call.id] = call
            _add(tools, call)
        call_answered = open_calls.get(message.answers or "") if message.role == "tool" else None
        if call_answered is not None:
            _note_outcome(message.text, call_answered, errors, failing)
    return Work(
        done=tuple(_written(name, tool) for name, tool in tools.items()),
        errors=tuple(errors)[-_ERRORS_KEPT:],
    )


def error_in(text: str) -> str:
    """The line of a tool result that says what went wrong, "" when none does."""
    named = _ERROR_NAMED.search(text)
    if named:
        return named.group(0)[:_ERROR_CHARS].strip()
    # Words like "failed" deep inside a long result are content, not an outcome.
    for found in _ERROR_LINE.finditer(text[:_LOOKED_AT]):
        if _ERROR_LINE.search(without_harmless(found.group(0))):
            return " ".join(found.group(0).split())[:_ERROR_CHARS]
    return ""


def _note_outcome(text: str, call: Call, errors: dict[str, None], failing: dict[str, str]) -> None:
    error = error_in(text)
    if error:
        line = f"- {call.name} {_arguments(call)}: {error}"
        errors.pop(line, None)
        errors[line] = None
        failing[call.name] = line
        return
    before = failing.pop(call.name, None)
    if before in errors:
        errors[f"{before} [a later call succeeded]"] = errors.pop(before)


def _previous_tools(previous: Sections) -> dict[str, _Tool]:
    tools: dict[str, _Tool] = {}
    for line in previous.bodies[2].split("\n"):
        match = _LINE.match(line)
        if match:
            tools[match.group(1)] = _Tool(
                int(match.group(2)), dict.fromkeys((match.group(3) or "").split("; "))
            )
    return tools


def _add(tools: dict[str, _Tool], call: Call) -> None:
    name = "_".join(call.name.split())
    tool = tools.pop(name, None) or _Tool(0, {})
    tools[name] = tool
    tool.count += 1
    arguments = _arguments(call)
    if arguments:
        tool.arguments.pop(arguments, None)
        tool.arguments[arguments] = None


def _arguments(call: Call) -> str:
    text = " ".join(" ".join(call.values()).replace(";", ",").split())
    return text if len(text) <= _ARGUMENT_CHARS else text[: _ARGUMENT_CHARS - 3].rstrip() + "..."


def _written(name: str, tool: _Tool) -> str:
    arguments = "; ".join(a for a in list(tool.arguments)[-_ARGUMENTS_KEPT:] if a)
    return f"- {name} x{tool.count}: {arguments}" if arguments else f"- {name} x{tool.count}"
