"""Views for upstreams that require alternating roles, or accept system messages only at the start.

Plans use the parts before they are merged; the merged parts are sent and shown to people. Servers that accept
system messages only at the start refuse later ones (chat templates of Qwen and Mistral), or move them to the
start silently (Anthropic's compatible endpoint), where each new one changes the cached prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from palimpsest.core.history.message import INSTRUCTION_ROLES, Conversation, Message
from palimpsest.core.view.json_results import elements, encoded, members, string_at
from palimpsest.core.view.outcomes import View, ViewPart

# Role, separators and field names of a message, tokens; as o200k frames it, rounded up.
FRAME_TOKENS = 8


def acknowledgement_tokens(count_text: Callable[[str], int]) -> int:
    """Tokens of the acknowledgement after a summary, framing included."""
    return count_text(ACKNOWLEDGEMENT) + FRAME_TOKENS


# The assistant message between the summary block and the next user message (D19).
ACKNOWLEDGEMENT = "Understood. I continue from this summary."

# Separates the texts of merged messages, as spelled inside a JSON string.
BETWEEN = r"\n\n"
# Types of text parts: of chat completions, and of the Responses API.
_TEXT_PARTS = ("text", "input_text")


def answered(parts: Sequence[ViewPart], count_text: Callable[[str], int]) -> tuple[ViewPart, ...]:
    """The parts with an acknowledgement after the summary block where a user message follows it (D19).

    Unchanged where an assistant message or nothing follows, and without a summary: the list must not end with
    an assistant message of ours, nor hold two in a row. The memory belongs to the block: it stands right
    after the summary.
    """
    blocks = [place for place, part in enumerate(parts, 1) if part.kind in ("summary", "memory")]
    if not blocks or _first_role(parts[blocks[-1] :]) != "user":
        return tuple(parts)
    raw = f'{{"role":"assistant","content":{encoded(ACKNOWLEDGEMENT)}}}'.encode()
    tokens = acknowledgement_tokens(count_text)
    made = ViewPart("acknowledgement", None, raw, tokens, False, "user and assistant speak by turns")
    return (*parts[: blocks[-1]], made, *parts[blocks[-1] :])


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
    runs: list[tuple[list[ViewPart], list[_UserText]]] = []
    for part in parts:
        user = _user_text(part.raw)
        if user is not None and runs and (said := runs[-1][1]) and said[0].others == user.others:
            runs[-1][0].append(part)
            said.append(user)
        else:
            runs.append(([part], [user] if user else []))
    return tuple(run[0] if len(run) == 1 else _merged(run, said) for run, said in runs)


@dataclass(frozen=True, slots=True)
class _UserText:
    """A user message of text alone: where its content is, and its other fields as spelled.

    `inner` is its text as spelled between the quotes, when the content is one string; else None. `parts` are
    its parts, each with the place where its text begins.
    """

    text: str
    content: tuple[int, int]
    others: Mapping[str, str]
    inner: str | None
    parts: tuple[tuple[str, int], ...]


def _user_text(raw: bytes) -> _UserText | None:
    """The user message; None when it has another role, or holds anything but text."""
    if b'"user"' not in raw:
        # Most messages are ruled out without being parsed.
        return None
    text = raw.decode("utf-8", "surrogatepass")
    places = {key: (start, stop) for key, start, stop in members(text)}
    if "content" not in places or "role" not in places or string_at(text, places["role"][0]) != "user":
        return None
    start, stop = places["content"]
    others = {key: text[a:b] for key, (a, b) in places.items() if key not in ("role", "content")}
    if others.get("type") == '"message"':
        # An item with this type equals one without a type.
        del others["type"]
    if text[start] == '"':
        return _UserText(text, (start, stop), others, text[start + 1 : stop - 1], ())
    parts = _text_parts(text, start) if text[start] == "[" else ()
    return _UserText(text, (start, stop), others, None, parts) if parts else None


def _text_parts(text: str, start: int) -> tuple[tuple[str, int], ...]:
    """Each part and where its text begins in it; empty when any part is not text."""
    parts = []
    for at, end in elements(text, start):
        places = {key: place for key, *place in members(text, at)} if text[at] == "{" else {}
        if "type" not in places or "text" not in places:
            return ()
        kind = string_at(text, places["type"][0])
        if kind not in _TEXT_PARTS or string_at(text, places["text"][0]) is None:
            return ()
        parts.append((text[at:end], places["text"][0] + 1 - at))
    return tuple(parts)


def _merged(parts: Sequence[ViewPart], said: Sequence[_UserText]) -> ViewPart:
    start, stop = said[0].content
    inner = [user.inner for user in said if user.inner is not None]
    if len(inner) == len(said):
        content = f'"{BETWEEN.join(inner)}"'
    else:
        # A plain string becomes a text part of the same API.
        is_item = any('"input_text"' in part for user in said for part, _ in user.parts)
        kind = "input_text" if is_item else "text"
        pieces = [piece for place, user in enumerate(said) for piece in _as_parts(user, kind, place > 0)]
        content = "[" + ",".join(pieces) + "]"
    kinds = [part.kind for part in parts]
    reasons = "; ".join(f"{part.kind}: {part.reason}" for part in parts)
    return ViewPart(
        kind="summary" if "summary" in kinds else kinds[0],
        index=None,
        raw=(said[0].text[:start] + content + said[0].text[stop:]).encode("utf-8", "surrogatepass"),
        tokens=sum(part.tokens for part in parts),
        masked=any(part.masked for part in parts),
        reason=f"{len(parts)} user messages as one ({reasons})",
    )


def _as_parts(user: _UserText, kind: str, is_later: bool) -> list[str]:
    """The message as text parts; for a later one the first part starts with the separator."""
    between = BETWEEN if is_later else ""
    if user.inner is not None:
        return [f'{{"type":"{kind}","text":"{between}{user.inner}"}}']
    (part, at), *others = user.parts
    return [part[:at] + between + part[at:], *(part for part, _ in others)]


def _first_role(parts: Sequence[ViewPart]) -> str | None:
    """The role of the first message that is not an instruction; None when there is none."""
    for part in parts:
        text = part.raw.decode("utf-8", "surrogatepass")
        role = next((string_at(text, start) for key, start, _ in members(text) if key == "role"), None)
        if role not in INSTRUCTION_ROLES:
            return role
    return None


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
    text = raw.decode("utf-8", "surrogatepass")
    places = {key: (start, stop) for key, start, stop in members(text)}
    if "role" not in places or "content" not in places:
        return raw
    kind = string_at(text, places["type"][0]) if "type" in places else None
    if kind not in _MESSAGES or string_at(text, places["role"][0]) not in INSTRUCTION_ROLES:
        return raw
    content = _labelled(text, *places["content"])
    if content is None:
        return raw
    edits = sorted([(*places["role"], '"user"'), (*places["content"], content)], reverse=True)
    for start, stop, new in edits:
        text = text[:start] + new + text[stop:]
    return text.encode("utf-8", "surrogatepass")


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


def _labelled(text: str, start: int, stop: int) -> str | None:
    """The content with the label before its text; None where it has no text."""
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
