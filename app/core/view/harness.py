"""What a client's harness says before a person does: set-up texts in the user's role, and the first request.

Pure recognition of the messages a list begins with, by how they are built; the openings were read in the
clients' public sources (2026-11). Knows nothing of what is done with the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.history.conversation import Conversation
from app.core.history.message import Message

# Blocks that harnesses write, by their tags. A message that is nothing else is set-up.
_TAGS = (
    *(
        "environment_context",
        "environment_details",
        "environment",
        "env",
        "user_instructions",
        "instructions",
    ),
    *("system-reminder", "system_reminder", "project_context", "project_instructions", "user_info", "rules"),
    *("agents_md", "workspace_info", "context", "skills_instructions", "permissions instructions"),
    *("turn_context", "collaboration_mode", "repository_context", "session_context"),
)
_BLOCKS = re.compile(
    rf"(?:\s*<(?P<tag>{'|'.join(map(re.escape, _TAGS))})(?:\s[^>]*)?>.*?</(?P=tag)>)+\s*",
    re.DOTALL | re.IGNORECASE,
)
# How set-up begins that stands in no block, lower case.
_OPENINGS = (
    "# agents.md instructions",
    "# claude.md instructions",
    "this is the qwen code. we are setting up",
    "this is the gemini cli. we are setting up",
    "this is qwen code. we are setting up",
    "this is gemini cli. we are setting up",
)
# Characters. "Got it. Thanks for the context!" is an acknowledgement; an answer to a task is longer.
_ACKNOWLEDGEMENT_CHARS = 200
# So many messages at most are looked at: harnesses say a few things, people go on for ever.
_MOST = 12


@dataclass(frozen=True, slots=True)
class Opening:
    """How a conversation begins: `setup` are indexes of a harness's own messages and of what answers them.

    `task` is the index of the first user message that a person wrote (rule 34), None without any.
    """

    setup: tuple[int, ...]
    task: int | None


def opening_of(conversation: Conversation) -> Opening:
    """The set-up before the first request, and that request.

    Where every user message is set-up the first one counts as the task, as if none was.
    """
    messages = conversation.messages
    setup: list[int] = []
    index = 0
    while index < min(len(messages), _MOST):
        message = messages[index]
        if message.role == "user":
            size = _setup_size(messages, index)
            if not size:
                return Opening(tuple(setup), index)
            setup += range(index, index + size)
            index += size
        elif message.is_instruction:
            index += 1
        else:
            break
    users = (i for i, message in enumerate(messages) if message.role == "user")
    first = next((i for i in users if i not in setup), None)
    return Opening(tuple(setup), first) if first is not None else Opening((), setup[0] if setup else None)


def _setup_size(messages: Sequence[Message], index: int) -> int:
    """How many messages from `index` on are set-up: 0, the message alone, or it and its acknowledgement."""
    text = _text(messages[index])
    if text is None:
        return 0
    if not (text.lstrip()[:80].lower().startswith(_OPENINGS) or _BLOCKS.fullmatch(text)):
        return 0
    following = messages[index + 1] if index + 1 < len(messages) else None
    if following is not None and _is_acknowledgement(following):
        return 2
    # What a model answered at length was a request, however it is written.
    return 1 if following is not None and following.role != "assistant" else 0


def _is_acknowledgement(message: Message) -> bool:
    text = _text(message)
    return (
        message.role == "assistant"
        and not message.calls
        and text is not None
        and 0 < len(text.strip()) <= _ACKNOWLEDGEMENT_CHARS
    )


def _text(message: Message) -> str | None:
    """The message's words; None where it holds anything else."""
    content = message.fields.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [part.get("text") if isinstance(part, dict) else None for part in content]
    said = [text for text in texts if isinstance(text, str)]
    return "\n".join(said) if said and len(said) == len(texts) else None
