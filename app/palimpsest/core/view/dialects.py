"""Views for upstreams that require alternating roles, or accept system messages only at the start.

Plans use the parts before they are merged; the merged parts are sent and shown to people. Servers that accept
system messages only at the start refuse later ones (chat templates of Qwen and Mistral), or move them to the
start silently (Anthropic's compatible endpoint), where each new one changes the cached prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from palimpsest.core.history.message import INSTRUCTION_ROLES, Conversation, Message
from palimpsest.core.view.outcomes import View, ViewPart
from palimpsest.core.wire.json_spans import raw_elements, raw_members, replaced
from palimpsest.core.wire.json_text import array_of, decoded, encoded

# Role, separators and field names of a message, tokens; as o200k frames it, rounded up.
FRAME_TOKENS = 8


def acknowledgement_tokens(count_text: Callable[[str], int]) -> int:
    """Tokens of the acknowledgement after a summary, framing included."""
    return count_text(ACKNOWLEDGEMENT) + FRAME_TOKENS


# The assistant message between the summary block and the next user message (D19).
ACKNOWLEDGEMENT = "Understood. I continue from this summary."

# Separates the texts of merged messages, as spelled inside a JSON string.
BETWEEN = rb"\n\n"
# Types of text parts: of chat completions, and of the Responses API.
_TEXT_PARTS = ("text", "input_text")


def answered(parts: Sequence[ViewPart], count_text: Callable[[str], int]) -> tuple[ViewPart, ...]:
    """The parts with an acknowledgement after the summary block where a user message follows it (D19).

    Unchanged where an assistant message or nothing follows, and without a summary: the list must not end with
    an assistant message of ours, nor hold two in a row. The memory belongs to the block: it stands right
    after the summary.
    """
    blocks = [place for place, part in enumerate(parts, 1) if part.kind in ("summary", "memory")]
    following = parts[blocks[-1] :] if blocks else ()
    roles = (_word(raw_members(part.raw), "role") for part in following)
    if next((role for role in roles if role not in INSTRUCTION_ROLES), None) != "user":
        return tuple(parts)
    raw = encoded({"role": "assistant", "content": ACKNOWLEDGEMENT})
    tokens = acknowledgement_tokens(count_text)
    made = ViewPart("acknowledgement", None, raw, tokens, False, "user and assistant speak by turns")
    return (*parts[: blocks[-1]], made, *following)


def as_sent(view: View) -> View:
    """The view with adjacent user messages merged, where its compaction requires it (A46)."""
    if view.compaction is None or not view.compaction.alternates:
        return view
    return View(merged_users(view.parts), view.compaction)


def merged_users(parts: Sequence[ViewPart]) -> tuple[ViewPart, ...]:
    """The parts with adjacent user messages merged into the first of them (A46).

    Texts are joined by two newlines and keep their spelling. Only text is merged: a message with any other
    part, or with other fields than its neighbour's (a `name`), stays as it is, and so do tool results. Parts
    of a message stay parts, with their own fields; a text beside them becomes one. A merged part has the kind
    "summary" if it contains the summary, else the kind of the first.
    """
    runs: list[list[ViewPart]] = []
    before: Mapping[str, bytes] | None = None
    for part in parts:
        others = _beside_text(part.raw)
        if others is not None and others == before:
            runs[-1].append(part)
        else:
            runs.append([part])
        before = others
    return tuple(run[0] if len(run) == 1 else _merged(run) for run in runs)


def _beside_text(raw: bytes) -> Mapping[str, bytes] | None:
    """The other fields, as spelled, of a user message of text alone; None for any other message."""
    # Most messages are ruled out without being parsed.
    fields = raw_members(raw) if b'"user"' in raw else {}
    if _word(fields, "role") != "user":
        return None
    content = fields.pop("content", b"")
    parts = list(map(raw_members, raw_elements(content))) if content.startswith(b"[") else []
    are_texts = all(
        _word(part, "type") in _TEXT_PARTS and part.get("text", b"").startswith(b'"') for part in parts
    )
    if fields.get("type") == b'"message"':
        # An item with this type equals one without a type.
        del fields["type"]
    return fields if content.startswith(b'"') or (parts and are_texts) else None


def _merged(parts: Sequence[ViewPart]) -> ViewPart:
    contents = [raw_members(part.raw)["content"] for part in parts]
    if all(content.startswith(b'"') for content in contents):
        merged = b'"' + BETWEEN.join(content[1:-1] for content in contents) + b'"'
    else:
        # A plain string becomes a text part of the same API.
        is_item = any(b'"input_text"' in content for content in contents if content.startswith(b"["))
        kind = b"input_text" if is_item else b"text"
        pieces: list[bytes] = []
        for content in contents:
            if content.startswith(b'"'):
                content = b'[{"type":"' + kind + b'","text":' + content + b"}]"
            first, *others = raw_elements(content)
            if pieces:
                first = replaced(first, ("text",), b'"' + BETWEEN + raw_members(first)["text"][1:])
            pieces += [first, *others]
        merged = array_of(pieces)
    kinds = [part.kind for part in parts]
    reasons = "; ".join(f"{part.kind}: {part.reason}" for part in parts)
    return ViewPart(
        kind="summary" if "summary" in kinds else kinds[0],
        index=None,
        raw=replaced(parts[0].raw, ("content",), merged),
        tokens=sum(part.tokens for part in parts),
        masked=any(part.masked for part in parts),
        reason=f"{len(parts)} user messages as one ({reasons})",
    )


def _word(fields: Mapping[str, bytes], key: str) -> str | None:
    """The string under a key; None without one."""
    value = decoded(fields.get(key, b"null"))
    return value if isinstance(value, str) else None


# Names the author of the text: in the user role it must not be taken for the user's request.
LABEL = "[System message of the application, not of the user]"

# Types of items that are messages; messages of chat completions have none.
_MESSAGES = (None, "message")
_ITEM_PART = "input_"
# Tokens of the separator; a text may also be tokenized differently after the label.
_JOINT_TOKENS = 3


def label_tokens(count_text: Callable[[str], int]) -> int:
    """Tokens that the label adds to a message."""
    return count_text(LABEL) + _JOINT_TOKENS


def as_user_message(raw: bytes) -> bytes:
    """The system or developer message in the user role, with the label before its text as spelled.

    Other fields stay. Unchanged: other messages and items (one that holds tools), and messages without text.
    """
    fields = raw_members(raw)
    content = fields.get("content", b"")
    if _word(fields, "type") not in _MESSAGES or _word(fields, "role") not in INSTRUCTION_ROLES:
        return raw
    label = encoded(LABEL)[1:-1] + BETWEEN
    if content.startswith(b'"'):
        labelled = b'"' + label + content[1:]
    else:
        parts = map(raw_members, raw_elements(content)) if content.startswith(b"[") else ()
        kinds = [_word(part, "type") for part in parts if "type" in part]
        if not kinds:
            return raw
        kind = b"input_text" if any(kind and kind.startswith(_ITEM_PART) for kind in kinds) else b"text"
        labelled = b'[{"type":"' + kind + b'","text":"' + label + b'"},' + content[1:]
    return replaced(replaced(raw, ("content",), labelled), ("role",), b'"user"')


def with_user_instructions(
    parts: Sequence[ViewPart], conversation: Conversation, count_text: Callable[[str], int]
) -> tuple[ViewPart, ...]:
    """The parts with every instruction after the preamble as a labelled user message, each in its place."""
    messages, more = conversation.messages, label_tokens(count_text)
    return tuple(
        part
        if part.index is None or not becomes_user_message(messages[part.index])
        else replace(
            part,
            raw=as_user_message(part.raw),
            tokens=part.tokens + more,
            reason=f"{part.reason}; as a user message, for a server that takes no later system messages",
        )
        for part in parts
    )


def becomes_user_message(message: Message) -> bool:
    """True for the messages that `with_user_instructions` changes."""
    return message.is_instruction and as_user_message(message.raw) != message.raw
