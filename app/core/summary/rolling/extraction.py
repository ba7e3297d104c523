"""What of the messages this style reads: text, and tool parts on a list; reasoning never (B06, B14).

Nothing that is read is cut: a long message takes several requests. Knows nothing of requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.core.history.message import Message
from app.core.notes.results import failed
from app.core.summary.chunks import Line
from app.core.summary.prompt import SummaryLimits, said
from app.core.summary.source import SummarySource
from app.core.text.wording import calls_of, text_of

# At the start of an answer; one that never closes is all reasoning.
_THOUGHT = re.compile(r"\A(?:\s*<(think|thinking|reasoning)>.*?(?:</\1>|\Z))+\s*", re.DOTALL | re.IGNORECASE)
_RESULTS = frozenset({"tool", "function"})


@dataclass(frozen=True, slots=True)
class ToolAllowList:
    """The tools whose calls and results are read, by name or by how the name begins (B14).

    A prefix may be written with a star behind it; "*" allows every tool.
    """

    names: frozenset[str] = frozenset({"userQuestions", "proceedInOnboarding"})
    prefixes: tuple[str, ...] = ("linear*",)

    def allows(self, name: str) -> bool:
        """True for a tool of that name; a result whose tool is unknown has none."""
        if not name:
            return "*" in self.prefixes
        return name in self.names or any(name.startswith(prefix.rstrip("*")) for prefix in self.prefixes)


EVERY_TOOL = ToolAllowList(frozenset(), ("*",))
# Characters; more than any message has.
_WHOLE = 10**9


def readable(source: SummarySource, tools: ToolAllowList) -> SummarySource:
    """`source` without reasoning, and with nothing in the results of tools that are not on the list."""
    return _with_results(source, tools, lambda _: "")


def judged(source: SummarySource, tools: ToolAllowList) -> SummarySource:
    """As `readable`, but a result that is not read still says whether its call failed."""
    return _with_results(source, tools, lambda text: "exit code 1" if failed(text) else "")


def _with_results(source: SummarySource, tools: ToolAllowList, unread: Callable[[str], str]) -> SummarySource:
    messages = [*(message for _, message in source.folded), *source.tail]
    read = list(_read(messages, tools, unread))
    chains = (chain for chain, _ in source.folded)
    folded = tuple(zip(chains, read[: len(source.folded)], strict=True))
    return replace(source, folded=folded, tail=tuple(read[len(source.folded) :]))


def transcript(source: SummarySource, tools: ToolAllowList, limits: SummaryLimits) -> tuple[Line, ...]:
    """A line for every fresh message that says something, secrets and data left out.

    The input of a call is cut (A19), nothing else is.
    """
    fresh = readable(source, tools).fresh
    lines = (
        Line(number, message.role, said(message, limits.cut_to(_WHOLE), tools.allows))
        for number, (_, message) in enumerate(fresh, source.since + 1)
    )
    return tuple(line for line in lines if line.text)


def _read(
    messages: Sequence[Message], tools: ToolAllowList, unread: Callable[[str], str]
) -> Iterator[Message]:
    # An id may come again with another tool: a result belongs to the newest call before it (F02).
    names: dict[str, str] = {}
    for message in messages:
        names |= {call.id: call.name for call in calls_of(message)}
        if message.role in _RESULTS:
            name = names.get(message.answers or "") or str(message.fields.get("name") or "")
            yield message if tools.allows(name) else _with_content(message, unread(text_of(message)))
        else:
            yield _without_reasoning(message)


def _without_reasoning(message: Message) -> Message:
    if message.role != "assistant":
        return message
    content = message.fields.get("content")
    if isinstance(content, str):
        return _with_content(message, _spoken(content))
    if isinstance(content, list | tuple):
        parts = [part for part in content if not _is_reasoning(part)]
        return _with_content(message, [_spoken_part(part) for part in parts])
    return message


def _spoken(text: str) -> str:
    return _THOUGHT.sub("", text)


def _spoken_part(part: Any) -> Any:
    text = part.get("text") if isinstance(part, Mapping) else None
    return {**part, "text": _spoken(text)} if isinstance(text, str) else part


def _is_reasoning(part: Any) -> bool:
    kind = str(part.get("type", "")) if isinstance(part, Mapping) else ""
    return "reasoning" in kind or "thinking" in kind


def _with_content(message: Message, content: Any) -> Message:
    return replace(message, fields={**message.fields, "content": content})
