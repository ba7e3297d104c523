"""Messages that client programs write: their own summaries (F38), and set-up before the first request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.history.quotes import text_of

# Tags of the blocks that harnesses write. A message of such blocks alone is set-up.
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
# How set-up outside such blocks begins, lower case.
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
# Messages examined at most: a harness sends only a few.
_MOST = 12


@dataclass(frozen=True, slots=True)
class Opening:
    """How a conversation begins: `setup` are indexes of a harness's own messages and of the answers to them.

    `task` is the index of the first user message that a person wrote (rule 34), None without one.
    """

    setup: tuple[int, ...]
    task: int | None


def opening_of(conversation: Conversation) -> Opening:
    """The set-up before the first request, and that request.

    Where every user message is set-up the first one counts as the task, as if there were no set-up.
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
    text = text_of(messages[index])
    if text is None:
        return 0
    if not (text.lstrip()[:80].lower().startswith(_OPENINGS) or _BLOCKS.fullmatch(text)):
        return 0
    following = messages[index + 1] if index + 1 < len(messages) else None
    if following is not None and _is_acknowledgement(following):
        return 2
    # A message that the model answered at length was a request, whatever its form.
    return 1 if following is not None and following.role != "assistant" else 0


def _is_acknowledgement(message: Message) -> bool:
    text = text_of(message)
    return (
        message.role == "assistant"
        and not message.calls
        and text is not None
        and 0 < len(text.strip()) <= _ACKNOWLEDGEMENT_CHARS
    )


@dataclass(frozen=True, slots=True)
class ClientSummary:
    """The newest summary that the client made itself: messages to keep verbatim, by index, ascending.

    `reason` names, for people, the client.
    """

    indexes: tuple[int, ...]
    reason: str


# How clients begin a summary, lower case. No other message begins so by chance, but a quotation may.
_KNOWN = (
    # From `/v1/responses/compact`: this program wrote it.
    ("an earlier compaction", "<palimpsest_summary>"),
    ("Claude Code", "this session is being continued from a previous conversation"),
    ("Codex", "another language model started to solve this problem"),
    ("pi", "the conversation history before this point was compacted into the following summary"),
    ("Zed", "the previous conversation was compacted"),
    ("Gemini CLI or Qwen Code", "<state_snapshot>"),
)
# A person or a model may also begin so; only a user message in the form of a summary counts.
_LIKELY = (
    ("aider", "i spoke to you previously about a number of things"),
    ("LangChain", "here is a summary of the conversation to date"),
)
# Wording that any client may use; it counts only near the start of the list.
_GENERIC = re.compile(
    r"""[\s#*\[(<=-]* (?:
        (?:context|conversation|session|chat|history)[\s_-]summary
      | summary\s(?:of|from)\s(?:(?:the|our|this|all)\s)?(?:previous|prior|earlier|conversation|session)
      | (?:previous|prior|earlier)\s(?:conversation|context|messages)\s(?:summary|summarized)
      | (?:the|this)\s(?:conversation|session|context)\s(?:so\sfar\s)?(?:has\sbeen|was)
            \s(?:compacted|summarized|condensed)
      | (?:summary|conversation_summary|compaction_summary|compacted_context)>
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# In a list that the client rewrote, a long first message with one of these words near its start.
_SAYS_SO = re.compile(r"\b(?:summar(?:y|ized|ised|izes|ises)|compacted|condensed|recap|handoff)\b", re.I)

# How clients request a summary of their own, at the end of the conversation, lower case.
_ASKS = (
    "you are performing a context checkpoint compaction",
    "provide a detailed prompt for continuing our conversation above",
    "your task is to create a detailed summary of the conversation so far",
    "first, reason in your scratchpad. then, generate the <state_snapshot>",
    "the messages above are a conversation to summarize",
    "create a detailed summary of the conversation so far",
    "create a new anchored summary from the conversation history",
    "update the anchored summary below using the conversation history above",
)
# opencode puts this question first in a compacted list; its summary is the answer.
_OPENCODE_ASKS = "what did we do so far?"
# What harnesses put before a message's own text.
_REMINDERS = re.compile(r"(?:\s*<(system-reminder|environment_context)>.*?</\1>)+\s*", re.DOTALL)

# Characters. A sentence that quotes an opening is shorter than any summary. A summary with generic wording
# must be longer, one with none of these openings longer still.
_SHORT = 200
_LONG = 400
_LONGER = 1_500
_OPENING = 300
# Messages from the start that may be the first ones of a rewritten list.
_EARLY = 3
# Bytes of a message's JSON within which a known opening stands.
_GLANCE_BYTES = 2_000
# Parts of a message that are examined: reminders may come first.
_PARTS = 8


def client_summary_of(conversation: Conversation, is_rebased: bool = False) -> ClientSummary | None:
    """The newest message that is the client's own summary of what it dropped; None when there is none.

    `is_rebased`: the client rewrote its list. Then a long first message that calls itself a summary is one,
    whatever its wording. A user who writes about summaries is not mistaken for a client.
    """
    messages = conversation.messages
    early = _early(messages)
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.calls or message.role not in ("user", "assistant", "system", "developer"):
            continue
        name = _maker(message, index in early)
        if name is None and is_rebased and early and index == early[0]:
            name = _rewriter(message)
        if name is not None:
            return ClientSummary((index,), f"{name}'s own summary of what it dropped")
    return _opencode(messages, early)


def asks_for_summary(conversation: Conversation) -> bool:
    """True for a client's request for a summary of its own, by how its newest message begins."""
    if not conversation.messages or conversation.messages[-1].role != "user":
        return False
    texts = _texts(conversation.messages[-1].fields)
    return any(text[:_OPENING].lower().startswith(_ASKS) for text in texts)


def is_client_summary(fields: Mapping[str, Any]) -> bool:
    """True for a user message that begins as a client's own summary does, at any position."""
    return fields.get("role") == "user" and any(
        _named(text, "user", is_early=False) for text in _texts(fields)
    )


def may_be_client_summary(raw: bytes) -> bool:
    """False for most messages, by the start of their JSON; the others must be parsed to tell."""
    opening = raw[:_GLANCE_BYTES].lower()
    return any(words.encode() in opening for _, words in (*_KNOWN, *_LIKELY))


def _early(messages: tuple[Message, ...]) -> tuple[int, ...]:
    """Indexes of the first messages that are not instructions."""
    others = [index for index, message in enumerate(messages) if not message.is_instruction]
    return tuple(others[:_EARLY])


def _maker(message: Message, is_early: bool) -> str | None:
    """The client whose summary this message is; None when it is not one."""
    names = (_named(text, message.role, is_early) for text in _texts(message.fields))
    return next((name for name in names if name), None)


def _named(text: str, role: str, is_early: bool) -> str | None:
    if not _is_summary(text, _SHORT):
        return None
    opening = text[:_OPENING].lower()
    # A model does not begin so by itself, but an answer may quote: it counts near the start only.
    openings: tuple[tuple[str, str], ...] = _KNOWN if is_early or role != "assistant" else ()
    if role == "user":
        openings += _LIKELY
    for name, words in openings:
        if opening.startswith(words):
            return name
    is_like = role == "user" and is_early and _is_summary(text, _LONG) and _GENERIC.match(text)
    return "the client" if is_like else None


def _rewriter(message: Message) -> str | None:
    """The client, unnamed, for the first message of a rewritten list that calls itself a summary."""
    if message.role != "user":
        return None
    is_one = any(
        _is_summary(text, _LONGER) and _SAYS_SO.search(text, 0, _OPENING) for text in _texts(message.fields)
    )
    return "the client" if is_one else None


def _opencode(messages: tuple[Message, ...], early: tuple[int, ...]) -> ClientSummary | None:
    """The question that opens a compacted list of opencode's, and the summary that answers it."""
    if len(early) < 2:
        return None
    asked, answered = early[0], early[1]
    question = next(_texts(messages[asked].fields), "").strip().lower()
    answer = messages[answered]
    is_pair = messages[asked].role == "user" and question == _OPENCODE_ASKS
    if not is_pair or answer.role != "assistant" or answer.calls:
        return None
    if not any(_is_summary(text, _SHORT) for text in _texts(answer.fields)):
        return None
    return ClientSummary((asked, answered), "opencode's own summary of what it dropped")


def _is_summary(text: str, least_chars: int) -> bool:
    """True when it is long enough, has several lines, and the first one is no question."""
    if len(text) < least_chars:
        return False
    first, _, rest = text.partition("\n")
    return bool(rest) and "?" not in first


def _texts(fields: Mapping[str, Any]) -> Iterator[str]:
    """The message's text, or those of its first parts, without the reminders that harnesses put first."""
    content = fields.get("content")
    parts = content[:_PARTS] if isinstance(content, list) else [{"text": content}]
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            before = _REMINDERS.match(text)
            yield text[before.end() :] if before else text.lstrip()
