"""Reading one message: from its raw bytes to a `Message`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from palimpsest.core.history.canonical import canonical_form, number
from palimpsest.core.history.message import Conversation, Message, chain_of
from palimpsest.core.history.quotes import text_of, text_of_fields
from palimpsest.core.wire.json_spans import raw_elements
from palimpsest.core.wire.json_text import decoded, loads_with
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.errors import NotUnderstood

# Characters of a question below which lines behind it make another one, and beginnings that are looked up.
_LEAST_QUESTION, _MOST_ENDS = 16, 32
TokenCount = Callable[[Mapping[str, Any]], int]


# A command in an answer's text: a fence, an element, a labelled action, JSON, `search[...]`, a bare line.
_COMMAND = re.compile(
    r"^[ \t]*```|</[a-z]|^\W{0,8}(?:actions?|commands?|tool(?: calls?)?|calling tools)\b[ \d]*\W{0,3}:"
    r'|"(?:commands?|action|tool|function|code|keystrokes)"\s*:|^\w+\[.*\][ \t]*$'
    r"|\A[^\n]{1,200}(?<![.!?:])\Z",
    re.IGNORECASE | re.MULTILINE,
)
# How the output of a command begins: an element, JSON, a label (a common word on a line of its own), or a
# line with the exit code.
_SHOWN = r"outputs?|observations?|std(?:out|err)|return[ _]?code|exit[ _]?(?:code|status)"
_COMMON = r"results?|response|returned|errors?|terminal|screen|console|execution"
_BEFORE = (
    r"\W{0,4}(?:\[[^\]\n]{0,60}\] )?(?:here(?:'s| is| are) )?"
    r"(?:(?:the|new|last|current|tool|code|command) )*(?:[\w'-]+ )?"
)
_OUTPUT = re.compile(
    rf"\s*+(?:<(?:[\w:.-]*[_:.-])?(?:{_SHOWN}|{_COMMON})(?:[_:.-][\w:.-]*)?[\s/>]"
    rf"|\{{\s*\"\w*(?:{_SHOWN}|result)\"\s*:"
    rf"|{_BEFORE}(?:{_SHOWN})(?: ?\d+)?[^\w\n?]{{0,2}}[:\n]"
    rf"|{_BEFORE}(?:{_SHOWN}|{_COMMON})(?: {_COMMON})?"
    r"(?: ?(?:(?:of|for|from|with) |[(\[])[^\n:?]{0,60})?(?:[^\w\n?]{0,3}\n|\W?\])"
    r"|[^\n]{0,60}\b(?:exit|return)[ _]?(?:code|status)\b\W{0,3}\d+\W*"
    r"(?:\([^)\n]*\)\W*|its output was:)?(?:\n|\Z))",
    re.IGNORECASE,
)

# How it ends (characters) where a shell shows its prompt again: "root@host:/app#".
_PROMPT_CHARS = 250
_PROMPT = re.compile(r"^(?:\([\w.-]+\) )?[\w.@:~/\\-]{0,200}[$#>%] ?\Z", re.MULTILINE)


def read_message(raw: bytes, count: TokenCount) -> Message:
    """The message whose bytes are `raw` (valid JSON, an object, nested at most about 200 levels).

    The upstream judges whatever a client gets wrong in it (rules 20 and 37): a role that is missing or no
    string is "" here, and content may have any shape. NotUnderstood when it is not an object.
    """
    fields = _object(raw)
    role = fields.get("role")
    return _message(raw, fields, role if isinstance(role, str) else "", count)


def read_answer(raw: bytes, count: TokenCount) -> Message:
    """The message of an upstream's answer: as `read_message`, with the role "assistant" if it has none.

    An answer that is a compaction equals the item that a client sends back.
    """
    fields = _object(raw)
    role = fields.get("role")
    if isinstance(role, str) and role:
        answer = _message(raw, fields, role, count)
    else:
        answer = _message(raw, fields | {"role": "assistant"}, "assistant", count)
    items = raw_elements(raw) if b'"compaction"' in raw and raw.startswith(b"[") else []
    if len(items) == 1 and (item := read_message(items[0], count)).is_compaction:
        return replace(answer, canonical=item.canonical)
    return answer


def continuing(messages: Sequence[Message], answer: Message) -> Message:
    """The answer, equal to the text that a client makes of the beginning that it gave and of the answer."""
    begun = messages[-1] if messages and messages[-1].role == "assistant" else None
    start, rest = (text_of(message) if message else None for message in (begun, answer))
    if start is None or rest is None or rest.startswith(start):
        return answer
    whole = canonical_form({**answer.fields, "content": start + rest})
    return replace(answer, canonical=sha256(whole).digest())


def before_added_lines(talk: Conversation, seed: bytes) -> list[bytes]:
    """The chains that a list without answers had before lines were added to its message, shortest text first.

    Of its one user message every beginning that ends with a line or a part is a candidate, 32 at most.
    """
    if len(talk.messages) != 1 or (last := talk.messages[0]).role != "user":
        return []
    content: Any = last.fields.get("content")
    parts = content if isinstance(content, list) else [content]
    text = parts[-1].get("text") if parts and isinstance(parts[-1], dict) else content
    if not isinstance(text, str):
        return []
    ends = [at.start() for at in re.finditer("\n", text) if at.start() >= _LEAST_QUESTION]
    texts: list[Any] = [text[:end] for end in ends[-_MOST_ENDS:]]
    if parts is content:
        texts = [[*parts[:-1], {**parts[-1], "text": each}] for each in texts]
        texts[:0] = [parts[:-1]] if parts[:-1] else []
    fields = [canonical_form({**last.fields, "content": each}) for each in texts]
    return [chain_of(seed, sha256(each).digest()) for each in fields]


def _object(raw: bytes) -> dict[str, Any]:
    value = decoded(raw)
    if not (isinstance(value, dict) and value.get("type") is None and isinstance(value.get("content"), str)):
        # Everything but a chat message with plain text may be, or hold, an item of the Responses API.
        value = as_chat(value)
    if not isinstance(value, dict):
        raise NotUnderstood("a message must be an object")
    return value


def _message(raw: bytes, fields: dict[str, Any], role: str, count: TokenCount) -> Message:
    exact = fields
    if _holds_float(fields):
        # A float is less exact than what was sent: 0.1 and 0.1000000000000000055 would be one number.
        exact = as_chat(loads_with(raw, number)) | ({"role": role} if role else {})
    calls = _calls(fields) if role == "assistant" else ()
    content = fields.get("content")
    text = content if isinstance(content, str) else text_of_fields(fields) or ""
    message = Message(
        raw=raw,
        digest=sha256(raw).digest(),
        role=role,
        canonical=sha256(canonical_form(exact)).digest(),
        tokens=max(1, count(fields)),
        fields=fields,
        calls=calls,
        answers=_answers(fields) if role == "tool" else None,
        commands=role == "assistant" and not calls and _COMMAND.search(text) is not None,
    )
    if role == "user" and (_OUTPUT.match(text) or _PROMPT.search(text[-_PROMPT_CHARS:])):
        return replace(message, as_result=replace(message, role="tool"))
    return message


def _holds_float(value: object) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
    for item in items:
        if isinstance(item, float) or (isinstance(item, dict | list) and _holds_float(item)):
            return True
    return False


def _calls(fields: Mapping[str, Any]) -> tuple[str, ...]:
    calls = fields.get("tool_calls")
    if not isinstance(calls, list):
        return ()
    ids = (call.get("id") for call in calls if isinstance(call, dict))
    return tuple(call_id for call_id in ids if isinstance(call_id, str))


def _answers(fields: Mapping[str, Any]) -> str | None:
    call_id = fields.get("tool_call_id")
    return call_id if isinstance(call_id, str) else None
