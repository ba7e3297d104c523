"""A client's later system messages, for servers that take one only at the beginning: told as a user's.

Such servers refuse them (chat templates of Qwen and Mistral), or move them to the beginning without a word
(Anthropic's compatible endpoint), where each new one changes the prompt that is cached. Pure; knows nothing
of settings: a compaction's record says that its view is of this kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.core.history.conversation import Conversation
from app.core.history.message import Message
from app.core.view.dialects.alternation import BETWEEN
from app.core.view.outcomes import ViewPart
from app.core.view.splice import elements, encoded, members, string_at

# Says whose words follow: a role that a server does not take must not make a request of them.
LABEL = "[System message of the application, not of the user]"

_INSTRUCTIONS = frozenset({"system", "developer"})
# Kinds of items that are messages; on chat completions there is none.
_MESSAGES = (None, "message")
_ITEM_PART = "input_"
# What joins label and words, tokens; with it and without, a text may be cut into pieces otherwise.
_JOINT_TOKENS = 3


def label_tokens(count_text: Callable[[str], int]) -> int:
    """What the label adds to a message, tokens."""
    return count_text(LABEL) + _JOINT_TOKENS


def told_as_user(raw: bytes) -> bytes:
    """The system or developer message in the user role, its words behind the label and spelled as they were.

    Other fields stay. Unchanged: what is no such message (an item that holds tools), and what has no text.
    """
    text = raw.decode("utf-8", "surrogatepass")
    places = {key: (start, stop) for key, start, stop in members(text)}
    if "role" not in places or "content" not in places:
        return raw
    kind = string_at(text, places["type"][0]) if "type" in places else None
    if kind not in _MESSAGES or string_at(text, places["role"][0]) not in _INSTRUCTIONS:
        return raw
    content = _labelled(text, *places["content"])
    if content is None:
        return raw
    edits = sorted([(*places["role"], '"user"'), (*places["content"], content)], reverse=True)
    for start, stop, new in edits:
        text = text[:start] + new + text[stop:]
    return text.encode("utf-8", "surrogatepass")


def told_as_users(
    parts: Sequence[ViewPart], conversation: Conversation, count_text: Callable[[str], int]
) -> tuple[ViewPart, ...]:
    """The parts with every instruction behind the preamble told as a user's; each stays where it is."""
    return tuple(_told(part, conversation, count_text) for part in parts)


def is_told_as_user(message: Message) -> bool:
    """True for the messages that `told_as_users` changes, wherever they stand behind the preamble."""
    return message.is_instruction and told_as_user(message.raw) != message.raw


def _told(part: ViewPart, conversation: Conversation, count_text: Callable[[str], int]) -> ViewPart:
    if part.index is None or not is_told_as_user(conversation.messages[part.index]):
        return part
    reason = f"{part.reason}; as a user message, for a server that takes no later system messages"
    tokens = part.tokens + label_tokens(count_text)
    return replace(part, raw=told_as_user(part.raw), tokens=tokens, reason=reason)


def _labelled(text: str, start: int, stop: int) -> str | None:
    """The content with the label before its words; None where it holds none."""
    label = encoded(LABEL)[1:-1] + BETWEEN
    if text[start] == '"':
        return f'"{label}{text[start + 1 : stop]}'
    if text[start] != "[":
        return None
    kinds = [
        string_at(text, at)
        for first, _ in elements(text, start)
        if text[first] == "{"
        for key, at, _ in members(text, first)
        if key == "type"
    ]
    if not kinds:
        return None
    kind = "input_text" if any(kind and kind.startswith(_ITEM_PART) for kind in kinds) else "text"
    return f'[{{"type":"{kind}","text":"{label}"}},{text[start + 1 : stop]}'
