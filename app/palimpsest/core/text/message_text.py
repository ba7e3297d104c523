"""Messages as text: what a person would read of one, cut to size, without data that is not text.

Works on decoded fields; the original bytes stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from palimpsest.core.history.message import Message

# A run of base64 this long is data, not words; ids, hashes and paths stay below (characters).
_LEAST_RUN = 240
_BASE64_RUN = re.compile(
    rf"(?<![A-Za-z0-9+/])(?:data:([\w.+-]+/[\w.+-]+);base64,)?[A-Za-z0-9+/]{{{_LEAST_RUN},}}={{0,2}}"
)
_DATA_URI = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*(?:;base64)?,", re.IGNORECASE)
# Below this limit (characters) head and tail would both be useless: plain cut (A20).
_HEAD_TAIL_FROM = 600
_HEAD_SHARE = 0.7
# The mark of an omission.
LEFT_OUT = "[...]"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of an assistant message: `arguments` as the model wrote them."""

    id: str
    name: str
    arguments: str

    def values(self) -> tuple[str, ...]:
        """The scalar argument values in order; the raw text when it is not JSON."""
        try:
            decoded = msgspec.json.decode(self.arguments)
        except (msgspec.DecodeError, RecursionError):
            return (self.arguments,) if self.arguments.strip() else ()
        return tuple(_scalars(decoded))


def text_of(message: Message) -> str:
    """The message's text as the model reads it: parts joined, "IMAGE mime size" for pictures (A22)."""
    content = message.fields.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        return "".join(_part_text(part) for part in content)
    return ""


def text_with_calls(message: Message) -> str:
    """The text and the tool calls as they were sent: everything that the message says itself."""
    return f"{text_of(message)} {message.fields.get('tool_calls') or ''}"


def text_without_data(message: Message) -> str:
    """As `text_of`, with each long run of base64 replaced by a note of its length."""
    return without_data(text_of(message))


def calls_of(message: Message) -> tuple[ToolCall, ...]:
    """The tool calls of an assistant message, in order; calls without a function are left out."""
    calls = message.fields.get("tool_calls")
    if not isinstance(calls, list | tuple):
        return ()
    found = (_call(call) for call in calls if isinstance(call, Mapping))
    return tuple(call for call in found if call.name)


def without_data(text: str) -> str:
    """`text` with each long run of base64 replaced by a note of its length (F14)."""
    return _BASE64_RUN.sub(_data_note, text) if longest_run(text) >= _LEAST_RUN else text


def longest_run(text: str) -> int:
    """The characters of the longest run without white space; ten times faster than a pattern for one."""
    return max(map(len, text.split()), default=0)


def cut_to(text: str, limit_chars: int) -> str:
    """`text` in at most `limit_chars` characters: 70 % head, a marker, 30 % tail (A20).

    Limits below 600 keep the head alone.
    """
    if len(text) <= limit_chars:
        return text
    marker = f"\n[... {len(text) - limit_chars} characters left out ...]\n"
    if limit_chars < _HEAD_TAIL_FROM:
        return text[: max(0, limit_chars - 4)].rstrip() + " ..."
    room = limit_chars - len(marker)
    head = int(room * _HEAD_SHARE)
    return text[:head] + marker + text[len(text) - (room - head) :]


def cut_middle(text: str, limit_chars: int) -> str:
    """`text` in at most `limit_chars` characters: head and tail cut between words, the omission marked."""
    if len(text) <= limit_chars:
        return text
    mark = f" {LEFT_OUT} "
    room = max(0, limit_chars - len(mark))
    head = "".join(text[: int(room * _HEAD_SHARE)].rsplit(None, 1)[:1])
    tail = "".join(text[len(text) - (room - len(head)) :].split(None, 1)[1:])
    return f"{head}{mark}{tail}"[:limit_chars]


def headline(text: str, limit_chars: int) -> str:
    """The first line that is not blank, in at most `limit_chars` characters."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if len(line) <= limit_chars:
        return line
    return line[: limit_chars - 4].rsplit(" ", 1)[0].rstrip(",;: ") + " ..."


def on_one_line(text: str) -> str:
    """`text` with each run of white space replaced by one space."""
    return " ".join(text.split())


def _data_note(match: re.Match[str]) -> str:
    mime = match.group(1)
    run = match.group(0)
    if mime is None and not _looks_encoded(run):
        return run
    return f"[{mime or 'base64'} data, {len(run)} characters]"


def _looks_encoded(run: str) -> bool:
    # "aaaa..." and path-like runs are not data: base64 mixes cases and has few slashes.
    sample = run[-_LEAST_RUN:]
    return any(c.isupper() for c in sample) and any(c.islower() for c in sample) and sample.count("/") < 24


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return ""
    text = part.get("text", part.get("refusal"))
    if isinstance(text, str):
        return text
    return _attachment_note(part)


def _attachment_note(part: Mapping[str, Any]) -> str:
    kind = str(part.get("type", "part"))
    body = part.get(kind)
    url = body.get("url", body.get("data", body.get("file_data", ""))) if isinstance(body, Mapping) else body
    url = url if isinstance(url, str) else ""
    label = "IMAGE" if "image" in kind else kind.upper().replace("_", " ")
    data = _DATA_URI.match(url[:200])
    if data:
        size = (len(url) - data.end()) * 3 // 4
        return f"[{label} {data.group(1) or 'unknown'} {size} bytes]"
    return f"[{label} {url[:300]}]" if url.startswith(("http:", "https:")) else f"[{label} {len(url)} chars]"


def tool_name(tool: object) -> str | None:
    """The name of a tool that a request offers, in the form of either API; None for one without a name."""
    function = tool.get("function") if isinstance(tool, Mapping) else None
    named = function if isinstance(function, Mapping) else tool
    name = named.get("name") if isinstance(named, Mapping) else None
    return name if isinstance(name, str) else None


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function") or call.get("custom")
    function = function if isinstance(function, Mapping) else {}
    arguments = function.get("arguments", function.get("input", ""))
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return ToolCall(id=str(call.get("id", "")), name=str(function.get("name", "")), arguments=text)


def _scalars(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _scalars(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _scalars(item)
    elif value is not None:
        yield str(value).lower() if isinstance(value, bool) else str(value)
