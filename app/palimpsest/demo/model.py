"""The demo model: the text and size of a list of messages, and the answer or summary of them.

Summaries contain only lines of the text to be summarized.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MODEL = "palimpsest-demo"
# An estimate of a token: up to seven letters of a word with the space before it, three digits, a run of
# punctuation, a line break, one ideograph. Within a few percent for English.
_PIECE = re.compile(r"[\u2e80-\U0003ffff]|[^\W\d_\u2e80-\U0003ffff]{1,7}|\d{1,3}|[^\w\s]+|_+|\n+")
# OpenAI's framing of each message, and of the beginning of the answer.
MESSAGE_TOKENS = 3
_WORD = re.compile(r"\d+|[^\W\d_]{2,}")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
# The demo's own lines, which also return in summaries: they are not facts.
OWN_LINE = re.compile(
    r"This is the built-in demo|Your last request was|What I find about it|I find nothing more"
)
# Stop words.
_STOP_WORDS = re.compile(
    r"^(and|are|but|can|did|for|from|had|has|have|how|into|its|not|now|our|says?|tell|that|the|their|them|then|"
    r"there|this|was|were|what|when|where|which|who|why|will|with|you|your|is|it|of|to|in|on|at|an|as|be|by|do|"
    r"please|remember|know)$"
)


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One message as plain text."""

    role: str
    text: str


def shown(messages: Sequence[Any]) -> list[ShownMessage]:
    """The messages as plain text: tool calls as name and arguments, other parts as their type."""
    return [ShownMessage(str(m.get("role")), _text(m)) for m in messages if isinstance(m, Mapping)]


def prompt_tokens(body: Mapping[str, Any], messages: Sequence[ShownMessage]) -> int:
    """Tokens of the whole prompt, tool schemas included."""
    tools = tokens_of(str(body["tools"])) if body.get("tools") else 0
    return tools + MESSAGE_TOKENS + sum(MESSAGE_TOKENS + tokens_of(m.text) for m in messages)


def tokens_of(text: str) -> int:
    """An estimate that needs no vocabulary; at least 1."""
    return max(1, sum(1 for _ in _PIECE.finditer(text)))


def answer_to(messages: Sequence[ShownMessage], tokens: int, window: int) -> str:
    """The answer: what the model was shown, and the sentence that best matches the last request."""
    asked = next((m.text for m in reversed(messages) if m.role == "user"), "")
    request = asked if len(asked) <= 160 else f"{asked[:110]} [...] {asked[-40:]}"
    said = [
        f"This is the built-in demo model, not a real one. I was shown {len(messages)} messages, "
        f"{tokens:,} of at most {window:,} tokens.",
        f"Your last request was: {request}",
    ]
    fact = _best_sentence(asked, messages)
    said.append(
        f"What I find about it: {fact}" if fact else "I find nothing more about it in what I was shown."
    )
    return "\n".join(said)


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    parts = [content] if isinstance(content, str) else [_part(part) for part in content or ()]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        parts.append(f"{function.get('name')}({function.get('arguments')})")
    return " ".join(part for part in parts if part)


def _part(part: Any) -> str:
    if not isinstance(part, Mapping):
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part.get('type', 'part')}]"


def _best_sentence(question: str, messages: Sequence[ShownMessage]) -> str:
    """The statement that shares most words with the question, including a number if it has one.

    The newest among equals; never a question, nor a part of this one.
    """
    wanted = _words(question)
    numbers = {word for word in wanted if word.isdigit()}
    best, score = "", 0
    for message in messages:
        if message.role in ("system", "developer") or OWN_LINE.match(message.text):
            continue
        for found in _SENTENCE.findall(message.text):
            sentence = found.strip().lstrip("-»• ")
            if OWN_LINE.search(sentence) or sentence.endswith("?"):
                continue
            words = _words(sentence)
            shared = len(wanted & words) if not numbers or numbers & words else 0
            if shared >= max(score, 1) and sentence not in question:
                best, score = sentence, shared
    return best


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if not _STOP_WORDS.match(word)}


SECTIONS = (
    "Primary request and intent",
    "User messages",
    "Work completed",
    "Errors and fixes",
    "Key technical details",
    "Decisions made",
    "Pending/incomplete",
    "Current state",
    "Recommended next step",
)
# The words that put a line into a section; sections without an entry choose lines by position.
_SECTION_WORDS = {
    2: re.compile(r"\b(done|created|wrote|added|finished|completed|fixed|shown)\b", re.I),
    3: re.compile(r"\b(error|failed|failure|exception|traceback|fix)\b", re.I),
    4: re.compile(r"\b\d[\w.,:-]*\b|[\w-]+/[\w./-]+|`[^`]+`"),
    5: re.compile(r"\b(decided|choose|chose|will use|going to|because|prefer)\b", re.I),
    6: re.compile(r"\b(todo|pending|later|still|next|remaining|must)\b", re.I),
}
# Lines of the request around the conversation: headings, fences, names of parts, the final instruction.
_LABEL = re.compile(r"[<#`]|[A-Z_]+(?:$| \(for orientation)|none\b|summar", re.I)
# The label with role and number before the first line of each message.
_SPEAKER = re.compile(r"^[A-Z]+ \[\d+(?:, continued)?\]: ")
_LINE_CHARS = 240
# A cautious estimate for English.
_CHARS_PER_TOKEN = 3


def asks_for_summary(messages: Sequence[ShownMessage]) -> bool:
    """True when the first or last message asks for a summary; elsewhere it is history."""
    return _order_in(messages) is not None


def summary_of(messages: Sequence[ShownMessage], max_tokens: int) -> str:
    """Nine numbered sections within `max_tokens`; newer lines take precedence."""
    lines = _lines(messages)
    # Headings take about 80 tokens; the rest is divided evenly.
    room = max(0, max_tokens - 80) * _CHARS_PER_TOKEN // len(SECTIONS)
    parts = [
        f"## {number + 1}. {title}\n{_newest_that_fit(_section(number, lines), room)}"
        for number, title in enumerate(SECTIONS)
    ]
    return "\n\n".join(parts)


def _order_in(messages: Sequence[ShownMessage]) -> ShownMessage | None:
    return next((m for m in (*messages[:1], *messages[-1:]) if _is_order(m.text)), None)


def _is_order(text: str) -> bool:
    lowered = text.lower()
    return "summar" in lowered and SECTIONS[0].lower() in lowered and SECTIONS[8].lower() in lowered


def _lines(messages: Sequence[ShownMessage]) -> list[str]:
    """Lines of the conversation itself, without the instruction to summarize, headings and labels."""
    order = _order_in(messages)
    given = [m.text for m in messages if m is not order] or [_after_order(m.text) for m in messages]
    lines = (_SPEAKER.sub("", line.strip().lstrip("-* ")) for text in given for line in text.splitlines())
    return [line[:_LINE_CHARS] for line in lines if len(line) > 8 and not _is_framing(line)]


def _is_framing(line: str) -> bool:
    """True for lines that are not part of the conversation: labels, and the demo's own lines."""
    return bool(_LABEL.match(line) or OWN_LINE.match(line))


def _after_order(text: str) -> str:
    """The text after the last mention of the last section, which is the conversation."""
    at = text.lower().rfind(SECTIONS[8].lower())
    return text[at + len(SECTIONS[8]) :]


def _section(number: int, lines: Sequence[str]) -> list[str]:
    if number == 0:
        return list(lines[:1])
    if number == 1:
        return [line for line in lines if "user" in line.lower()[:40]] or list(lines)
    if number in _SECTION_WORDS:
        return [line for line in lines if _SECTION_WORDS[number].search(line)]
    return list(lines[-2:] if number == 7 else lines[-1:])


def _newest_that_fit(lines: Sequence[str], room: int) -> str:
    """The newest lines that fit, in their order; a dash when there are none."""
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line) + 3
        if room < 0:
            break
        kept.append(f"- {line}")
    return "\n".join(reversed(kept)) or "- None."
