"""Messages known by how they begin: summaries (F38) and set-up that client programs write, and pins of users.

A user can pin a message by its first words, so that pinning needs no other interface than the chat.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.history.quotes import Said, pieces_of, quotation, quoted_bytes
from palimpsest.core.history.quotes import text_of as sole_text_of
from palimpsest.core.notes.sentences import without_blocks
from palimpsest.core.view.masking import text_of
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.responses.items import as_chat

# Tags of the blocks that harnesses write. A message of such blocks alone is set-up.
_TAGS = (
    "environment_context|environment_details|environment|env|user_instructions|instructions|system-reminder"
    "|system_reminder|project_context|project_instructions|user_info|rules|agents_md|workspace_info|context"
    "|skills_instructions|permissions instructions|turn_context|collaboration_mode|repository_context"
    "|session_context"
)
_BLOCKS = re.compile(
    rf"(?:\s*<(?P<tag>{_TAGS})(?:\s[^>]*)?>.*?</(?P=tag)>)+\s*",
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
# A line of at most three words that a harness puts before a person's: "New task:".
_HEADING = re.compile(r"\A[\W_]{0,9}\w{1,40}(?: \w{1,40}){0,2} ?:[ \t]*\n\s*")
# Tags on lines of their own, around a text, and the ends of blocks.
_TAGS_AROUND = re.compile(
    r"^[ \t]*</?[A-Za-z][^<>\n]*+>[ \t]*$|^[ \t]*</[A-Za-z][\w:.-]*>|\A\s*<[\w:.-]+>|</[\w:.-]+>\s*\Z",
    re.MULTILINE,
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
    for index, message in enumerate(messages[:_MOST]):
        if index in setup or message.is_instruction:
            continue
        size = _setup_size(messages, index) if message.role == "user" else 0
        if not size:
            break
        setup += range(index, index + size)
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    task = next((index for index in users if index not in setup), None)
    return Opening((), users[0] if users else None) if task is None else Opening(tuple(setup), task)


def first_words(texts: Sequence[str]) -> str:
    """Of the first user messages the one that a person wrote, without a harness's blocks and headings.

    "" where a harness wrote them all.
    """
    every = [
        (text, _HEADING.sub("", _TAGS_AROUND.sub("", without_blocks(text)).strip()))
        for text in texts
        if not _is_setup(text)
    ]
    for place, (text, words) in enumerate(every):
        later = [Said("", each, False, 0.0) for each, _ in every[place + 1 :]]
        asking = quotation((), [text])
        is_asked = asking is not None and asking.about_chat
        is_harness = (
            is_asked
            and asking is not None
            and (
                asking.is_tagged
                or (later and (words.endswith(":") or quoted_bytes(asking, pieces_of(later), 0.0)))
            )
        )
        if words and not is_harness:
            return words
    return ""


def _is_setup(text: str) -> bool:
    return text.lstrip()[:80].lower().startswith(_OPENINGS) or _BLOCKS.fullmatch(text) is not None


def _setup_size(messages: Sequence[Message], index: int) -> int:
    """How many messages from `index` on are set-up: 0, the message alone, or it and its acknowledgement."""
    if not _is_setup(sole_text_of(messages[index]) or ""):
        return 0
    following = messages[index + 1] if index + 1 < len(messages) else None
    if following is None or following.role != "assistant":
        return 1 if following else 0
    # A message that the model answered at length was a request, whatever its form.
    said = (sole_text_of(following) or "").strip()
    return 2 if said and len(said) <= _ACKNOWLEDGEMENT_CHARS and not following.calls else 0


# How clients begin a summary, lower case. No other message begins so by chance, but a quotation may.
_KNOWN = (
    # From `/v1/responses/compact`: this program wrote it.
    "<palimpsest_summary>",
    # Claude Code, Codex, pi, Zed, and Gemini CLI or Qwen Code.
    "this session is being continued from a previous conversation",
    "another language model started to solve this problem",
    "the conversation history before this point was compacted into the following summary",
    "the previous conversation was compacted",
    "<state_snapshot>",
)
# A person or a model may also begin so; only a user message in the form of a summary counts. From aider and
# from LangChain.
_LIKELY = (
    "i spoke to you previously about a number of things",
    "here is a summary of the conversation to date",
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


def client_summary_of(conversation: Conversation, is_rebased: bool = False) -> tuple[int, ...]:
    """The newest message that is the client's own summary of what it dropped; () when there is none.

    Given as the indexes of the messages to keep verbatim, ascending: opencode's answers a question of its
    own. `is_rebased`: the client rewrote its list. Then a long first message that calls itself a summary is
    one, whatever its wording. A user who writes about summaries is not mistaken for a client.
    """
    messages = conversation.messages
    early = [index for index, message in enumerate(messages) if not message.is_instruction][:_EARLY]
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.calls or message.role not in ("user", "assistant", "system", "developer"):
            continue
        is_first = is_rebased and message.role == "user" and index == early[0]
        for text in _texts(message.fields):
            if _begins_summary(text, message.role, index in early) or (
                is_first and _is_summary(text, _LONGER) and _SAYS_SO.search(text, 0, _OPENING)
            ):
                return (index,)
    if len(early) < 2:
        return ()
    question, answer = messages[early[0]], messages[early[1]]
    asked = next(_texts(question.fields), "").strip().lower()
    is_pair = question.role == "user" and answer.role == "assistant" and not answer.calls
    if not is_pair or asked != _OPENCODE_ASKS:
        return ()
    return tuple(early[:2]) if any(_is_summary(text, _SHORT) for text in _texts(answer.fields)) else ()


def asks_for_summary(conversation: Conversation) -> bool:
    """True for a client's request for a summary of its own, by how its newest message begins."""
    if not conversation.messages or conversation.messages[-1].role != "user":
        return False
    texts = _texts(conversation.messages[-1].fields)
    return any(text[:_OPENING].lower().startswith(_ASKS) for text in texts)


def is_client_summary(fields: Mapping[str, Any]) -> bool:
    """True for a user message that begins as a client's own summary does, at any position."""
    is_user = fields.get("role") == "user"
    return is_user and any(_begins_summary(text, "user", is_early=False) for text in _texts(fields))


def may_be_client_summary(raw: bytes) -> bool:
    """False for most messages, by the start of their JSON; the others must be parsed to tell."""
    opening = raw[:_GLANCE_BYTES].lower()
    return any(words.encode() in opening for words in (*_KNOWN, *_LIKELY))


def _begins_summary(text: str, role: str, is_early: bool) -> bool:
    if not _is_summary(text, _SHORT):
        return False
    # A model does not begin so by itself, but an answer may quote: it counts near the start only.
    known = _KNOWN if is_early or role != "assistant" else ()
    if text[:_OPENING].lower().startswith(known + (_LIKELY if role == "user" else ())):
        return True
    return role == "user" and is_early and _is_summary(text, _LONG) and bool(_GENERIC.match(text))


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


MARKS = ("[pin]", "remember for this session:")


def is_pin_body(role: str, body: bytes) -> bool:
    """True for a stored user message that begins with one of the marks, in any case, after blanks."""
    if not _may_be(role, body):
        return False
    fields = as_chat(decoded(body))
    return isinstance(fields, Mapping) and _is_marked(fields)


def text_pins(
    talk: Conversation, taken_back: Collection[bytes], room_tokens: int
) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Chain digests of pins, oldest first: those kept, and those that newer pins leave no room for.

    Of the pins that were not withdrawn each is kept that fits into `room_tokens`, newest first. One that is
    too large does not displace older ones that fit.
    """
    kept: list[bytes] = []
    left_out: list[bytes] = []
    for message, chain in zip(reversed(talk.messages), reversed(talk.chains), strict=True):
        if not _may_be(message.role, message.raw) or not _is_marked(message.fields) or chain in taken_back:
            continue
        if message.tokens <= room_tokens:
            room_tokens -= message.tokens
            kept.append(chain)
        else:
            left_out.append(chain)
    return tuple(reversed(kept)), tuple(reversed(left_out))


def _may_be(role: str, raw: bytes) -> bool:
    """False for most messages, from their bytes alone."""
    low = raw.lower() if role == "user" else b""
    return any(mark.encode() in low for mark in MARKS)


def _is_marked(fields: Mapping[str, Any]) -> bool:
    return text_of(fields).lstrip()[: max(map(len, MARKS))].lower().startswith(MARKS)
