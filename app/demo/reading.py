"""What the demo model makes of a message list: its text, its size, what it would answer.

Pure. Knows nothing of HTTP nor of the proxy in front of it; it only sees what it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MODEL = "palimpsest-demo"
# What most encodings make a token of: up to seven letters of a word with the space before it, three
# digits, a run of punctuation, a line break, one ideograph. Within a few percent for English.
_PIECE = re.compile(r"[\u2e80-\U0003ffff]|[^\W\d_\u2e80-\U0003ffff]{1,7}|\d{1,3}|[^\w\s]+|_+|\n+")
# What OpenAI's counting recipe adds for each message and for the answer's opening.
MESSAGE_TOKENS = 3
_WORD = re.compile(r"\d+|[^\W\d_]{2,}")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
# How the demo's own lines begin, also where they come back in a summary: they are no facts.
OWN_LINE = re.compile(
    r"This is the built-in demo|Your last request was|What I find about it|I find nothing more"
)
# Words that say nothing of what a question is about.
_COMMON = re.compile(
    r"^(and|are|but|can|did|for|from|had|has|have|how|into|its|not|now|our|says?|tell|that|the|their|them|then|"
    r"there|this|was|were|what|when|where|which|who|why|will|with|you|your|is|it|of|to|in|on|at|an|as|be|by|do|"
    r"please|remember|know)$"
)


@dataclass(frozen=True, slots=True)
class Shown:
    """One message as plain text."""

    role: str
    text: str


def shown(messages: Sequence[Any]) -> list[Shown]:
    """The messages as plain text: tool calls by name and arguments, pictures by their kind."""
    return [Shown(str(m.get("role")), _text(m)) for m in messages if isinstance(m, Mapping)]


def prompt_tokens(body: Mapping[str, Any], messages: Sequence[Shown]) -> int:
    """Tokens of the whole prompt, tool schemas included."""
    tools = tokens_of(str(body["tools"])) if body.get("tools") else 0
    return tools + MESSAGE_TOKENS + sum(MESSAGE_TOKENS + tokens_of(m.text) for m in messages)


def tokens_of(text: str) -> int:
    """An estimate that needs no tables; at least 1."""
    return max(1, sum(1 for _ in _PIECE.finditer(text)))


def answer_to(messages: Sequence[Shown], tokens: int, window: int) -> str:
    """What the model says: what it was shown, and the best matching sentence for the last request."""
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


def _best_sentence(question: str, messages: Sequence[Shown]) -> str:
    """The statement that shares most words with the question, a number among them if it names one.

    The newest of equals; never a question, nor a piece of this one.
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
    return {word for word in _WORD.findall(text.lower()) if not _COMMON.match(word)}
