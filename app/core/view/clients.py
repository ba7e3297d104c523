"""Which message is a client's own summary of what it dropped: agents compact too (F38).

Pure recognition by how such messages begin and where they stand; the openings were read in the clients'
public sources (2026-11). Knows nothing of sessions, nor of what is done with the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.core.history.conversation import Conversation
from app.core.history.message import Message


@dataclass(frozen=True, slots=True)
class ClientSummary:
    """The newest summary that the client made itself: messages to keep verbatim, by index, ascending.

    `reason` says, for a person, whose it is.
    """

    indexes: tuple[int, ...]
    reason: str


# How clients begin a summary, lower case. Nobody begins a message so by chance, but people quote.
_KNOWN = (
    # What `/v1/responses/compact` gave, which this program made itself.
    ("an earlier compaction", "<palimpsest_summary>"),
    ("Claude Code", "this session is being continued from a previous conversation"),
    ("Codex", "another language model started to solve this problem"),
    ("pi", "the conversation history before this point was compacted into the following summary"),
    ("Zed", "the previous conversation was compacted"),
    ("Gemini CLI or Qwen Code", "<state_snapshot>"),
)
# These a person or a model may well say; only a user message that is a summary in shape counts.
_LIKELY = (
    ("aider", "i spoke to you previously about a number of things"),
    ("LangChain", "here is a summary of the conversation to date"),
)
# Words of any client, believed only near the start of the list.
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
# In a list that the client rewrote, a long first message that says one of these words early.
_SAYS_SO = re.compile(r"\b(?:summar(?:y|ized|ised|izes|ises)|compacted|condensed|recap|handoff)\b", re.I)

# How clients ask for a summary of their own, at the end of the conversation, lower case.
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
# opencode asks itself, first of all, and its summary is the answer.
_OPENCODE_ASKS = "what did we do so far?"
# What harnesses put before a message's own text.
_REMINDERS = re.compile(r"(?:\s*<(system-reminder|environment_context)>.*?</\1>)+\s*", re.DOTALL)

# Characters. A sentence that merely quotes an opening is shorter than any summary; one that begins
# with words of many meanings must be longer, one without any still more.
_SHORT = 200
_LONG = 400
_LONGER = 1_500
_OPENING = 300
# So many messages from the start may be the first ones of a rewritten list.
_EARLY = 3
# Bytes of a message's JSON in which its opening stands, if it begins with one.
_GLANCE_BYTES = 2_000
# Parts of a message that are looked at: reminders may come first.
_PARTS = 8


def client_summary_of(conversation: Conversation, is_rebased: bool = False) -> ClientSummary | None:
    """The newest message that is the client's own summary of what it dropped; None when there is none.

    `is_rebased` says that the client rewrote its list: then a long first message that calls itself a
    summary is one, whatever its words. A user who only writes about summaries is not taken for a client.
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
    """True for a client's request for a summary of its own: its newest message begins with such words."""
    if not conversation.messages or conversation.messages[-1].role != "user":
        return False
    texts = _texts(conversation.messages[-1].fields)
    return any(text[:_OPENING].lower().startswith(_ASKS) for text in texts)


def is_client_summary(fields: Mapping[str, Any]) -> bool:
    """True for a user's message that begins as a client's own summary does, wherever it stands."""
    return fields.get("role") == "user" and any(
        _named(text, "user", is_early=False) for text in _texts(fields)
    )


def may_be_client_summary(raw: bytes) -> bool:
    """False for most messages, at a glance at how they begin: only the others need be read."""
    opening = raw[:_GLANCE_BYTES].lower()
    return any(words.encode() in opening for _, words in (*_KNOWN, *_LIKELY))


def _early(messages: tuple[Message, ...]) -> tuple[int, ...]:
    """Indexes of the first messages that are no instructions."""
    others = [index for index, message in enumerate(messages) if not message.is_instruction]
    return tuple(others[:_EARLY])


def _maker(message: Message, is_early: bool) -> str | None:
    """The client whose summary this message is; None when it is none."""
    names = (_named(text, message.role, is_early) for text in _texts(message.fields))
    return next((name for name in names if name), None)


def _named(text: str, role: str, is_early: bool) -> str | None:
    if not _is_summary(text, _SHORT):
        return None
    opening = text[:_OPENING].lower()
    # Models do not begin so of themselves, but an answer may quote: it counts near the start only.
    openings: tuple[tuple[str, str], ...] = _KNOWN if is_early or role != "assistant" else ()
    if role == "user":
        openings += _LIKELY
    for name, words in openings:
        if opening.startswith(words):
            return name
    is_like = role == "user" and is_early and _is_summary(text, _LONG) and _GENERIC.match(text)
    return "the client" if is_like else None


def _rewriter(message: Message) -> str | None:
    """Names no client: a first message of a rewritten list that calls itself a summary."""
    if message.role != "user":
        return None
    is_one = any(
        _is_summary(text, _LONGER) and _SAYS_SO.search(text, 0, _OPENING) for text in _texts(message.fields)
    )
    return "the client" if is_one else None


def _opencode(messages: tuple[Message, ...], early: tuple[int, ...]) -> ClientSummary | None:
    """The question that opens a compacted list and the summary that answers it."""
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
    """Long enough, of several lines, and the first one asks nothing."""
    if len(text) < least_chars:
        return False
    first, _, rest = text.partition("\n")
    return bool(rest) and "?" not in first


def _texts(fields: Mapping[str, Any]) -> Iterator[str]:
    """The message's text, or those of its first parts, each without what harnesses put before it."""
    content = fields.get("content")
    parts = content[:_PARTS] if isinstance(content, list) else [{"text": content}]
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            before = _REMINDERS.match(text)
            yield text[before.end() :] if before else text.lstrip()
