"""What a summarizer reads of the messages: text, calls and results of listed tools (B06, B14)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from palimpsest.core.history.message import RESULT_ROLES, Message
from palimpsest.core.summary.source import SummarySource
from palimpsest.core.text.message_text import calls_of, text_of

# Reasoning at the start of an answer; an unclosed tag makes all of it reasoning.
_THOUGHT = re.compile(r"\A(?:\s*<(think|thinking|reasoning)>.*?(?:</\1>|\Z))+\s*", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ToolAllowList:
    """The tools whose calls and results are read, by name or by prefix.

    A prefix may end with a star; "*" allows every tool.
    """

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ("*",)

    def allows(self, name: str) -> bool:
        """True for an allowed tool; "" is the name for a result whose tool is unknown."""
        if not name:
            return "*" in self.prefixes
        return name in self.names or any(name.startswith(prefix.rstrip("*")) for prefix in self.prefixes)


def as_read(source: SummarySource, tools: ToolAllowList) -> SummarySource:
    """The source without reasoning, calls and results of unlisted tools, and what has nothing else."""
    # An id may be reused with another tool: a result belongs to the newest call before it (F02).
    names: dict[str, str] = {}
    kept = []
    for place, (chain, message) in enumerate(source.folded):
        calls = calls_of(message)
        names |= {call.id: call.name for call in calls}
        if message.role in RESULT_ROLES:
            name = names.get(message.answers or "") or str(message.fields.get("name") or "")
            if tools.allows(name):
                kept.append((place, chain, message))
            continue
        read = _without_reasoning(message) if message.role == "assistant" else message
        if not all(tools.allows(call.name) for call in calls):
            made = message.fields["tool_calls"]
            listed = [call for call in made if tools.allows((call.get("function") or {}).get("name") or "")]
            read = replace(read, fields={**read.fields, "tool_calls": listed})
        if calls_of(read) or text_of(read).strip():
            kept.append((place, chain, read))
    return replace(
        source,
        folded=tuple((chain, message) for _, chain, message in kept),
        since=sum(place < source.since for place, _, _ in kept),
        places=tuple(source.numbers[place] - 1 for place, _, _ in kept),
    )


def _without_reasoning(message: Message) -> Message:
    content = message.fields.get("content")
    if isinstance(content, str):
        said: Any = _THOUGHT.sub("", content)
    elif isinstance(content, list | tuple):
        said = [_spoken(part) for part in content if not _is_reasoning(part)]
    else:
        return message
    return replace(message, fields={**message.fields, "content": said})


def _spoken(part: Any) -> Any:
    text = part.get("text") if isinstance(part, Mapping) else None
    return {**part, "text": _THOUGHT.sub("", text)} if isinstance(text, str) else part


def _is_reasoning(part: Any) -> bool:
    kind = str(part.get("type", "")) if isinstance(part, Mapping) else ""
    return "reasoning" in kind or "thinking" in kind
