"""The demo model: the text and size of a list of messages, and the answer to them.

Knows nothing of summaries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palimpsest.core.recall.tool_calls import GREP

MODEL = "palimpsest-demo"
# An estimate of a token: up to seven letters of a word with the space before it, three digits, a run of
# punctuation, a line break, one ideograph. Within a few percent for English.
_PIECE = re.compile(r"[\u2e80-\U0003ffff]|[^\W\d_\u2e80-\U0003ffff]{1,7}|\d{1,3}|[^\w\s]+|_+|\n+")
# OpenAI's framing of each message, and of the beginning of the answer.
MESSAGE_TOKENS = 3
_WORD = re.compile(r"\d+|[^\W\d_]{2,}")
# A full stop inside a name, a path or a number ends no sentence.
_SENTENCE = re.compile(r"[^\n]+?(?:[.!?](?=\s|$)|(?=\n)|$)")
# The demo's own lines, which also return in summaries: they are not facts.
OWN_LINE = re.compile(
    r"This is the built-in demo|Your last request was|What I find about it|I find nothing more"
)
_HEADING = re.compile("(?m)^#.*$")
ERROR = re.compile(r"\b(?:error|failed|failure|exception|traceback)\b|\w(?:Error|Exception)\b", re.I)
# Stop words.
_STOP_WORDS = re.compile(
    r"^(and|are|but|can|did|does|for|from|had|has|have|how|into|its|not|now|our|says?|tell|that|the|their|them|then|"
    r"there|this|was|were|what|when|where|which|who|why|will|with|you|your|is|it|of|to|in|on|at|an|as|be|by|do|"
    r"please|remember|know)$"
)


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One message as plain text."""

    role: str
    text: str
    is_lookup: bool = False
    """The result of a look-up, which is the texts that it found."""


def shown(messages: Sequence[Any]) -> list[ShownMessage]:
    """The messages as plain text: tool calls as name and arguments, other parts as their type."""
    return [
        ShownMessage(str(m.get("role")), _text(m), _found_texts(m.get("content")) is not None)
        for m in messages
        if isinstance(m, Mapping)
    ]


def prompt_tokens(body: Mapping[str, Any], messages: Sequence[ShownMessage]) -> int:
    """Tokens of the whole prompt, tool schemas included."""
    tools = tokens_of(str(body["tools"])) if body.get("tools") else 0
    return tools + MESSAGE_TOKENS + sum(MESSAGE_TOKENS + tokens_of(m.text) for m in messages)


def tokens_of(text: str) -> int:
    """An estimate that needs no vocabulary; at least 1."""
    return max(1, sum(1 for _ in _PIECE.finditer(text)))


def answer_to(messages: Sequence[ShownMessage], tokens: int, window: int) -> str:
    """The answer: what the model was shown, and the sentence that best matches the last request.

    After a tool's result it is the line of it that matters, or, after a look-up, the sentence that was found.
    """
    asked = next((m.text for m in reversed(messages) if m.role == "user"), "")
    if messages and messages[-1].role == "tool":
        if messages[-1].is_lookup:
            return f"I looked it up: {_best_sentence(asked, messages[-1:]) or 'nothing was found.'}"
        return _telling_line(messages[-1].text)
    request = asked if len(asked) <= 160 else f"{asked[:110]} [...] {asked[-40:]}"
    said = [
        f"This is the built-in demo model, not a real one. I was shown "
        f"{len(messages)} message{'' if len(messages) == 1 else 's'}, "
        f"{tokens:,} of at most {window:,} tokens.",
        f"Your last request was: {request}",
    ]
    fact = _best_sentence(asked, messages)
    said.append(
        f"What I find about it: {fact}" if fact else "I find nothing more about it in what I was shown."
    )
    return "\n".join(said)


def lookup_of(body: Mapping[str, Any], messages: Sequence[ShownMessage]) -> str | None:
    """The question to look up: one that nothing shown answers, if the tool for that is offered."""
    names = {(tool.get("function") or {}).get("name") for tool in body.get("tools") or ()}
    if GREP not in names or body.get("tool_choice") == "none" or not messages:
        return None
    asked, wanted = messages[-1].text, _words(messages[-1].text)
    if messages[-1].role != "user" or not asked.rstrip().endswith("?"):
        return None
    found = wanted & _words(_best_sentence(asked, messages))
    return asked if 2 * len(found) < len(wanted) else None


def _telling_line(result: str) -> str:
    """The last line of a tool's result, after the last one about an error if there is one."""
    lines = [line.strip() for line in result.splitlines() if line.strip()] or ["The result is empty."]
    errors = [line for line in lines[:-1] if ERROR.search(line)]
    return "\n".join([*errors[-1:], lines[-1]])


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if message.get("role") == "tool" and (found := _found_texts(content)) is not None:
        return "\n".join(found)
    parts = [content] if isinstance(content, str) else [_part(part) for part in content or ()]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        parts.append(f"{function.get('name')}({function.get('arguments')})")
    return " ".join(part for part in parts if part)


def _found_texts(content: Any) -> list[str] | None:
    """The texts in the result of a look-up; None for any other content."""
    if not isinstance(content, str) or f'"{GREP}"' not in content[:80]:
        return None
    try:
        return [str(result["snippet"]) for result in json.loads(content)["results"]]
    except (ValueError, LookupError, TypeError):
        return None


def _part(part: Any) -> str:
    if not isinstance(part, Mapping):
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part.get('type', 'part')}]"


def _best_sentence(question: str, messages: Sequence[ShownMessage]) -> str:
    """The statement that shares most words with the question, including a number if it has one.

    The newest among equals; never a heading, a question, nor a part of this one.
    """
    wanted = _words(question)
    numbers = {word for word in wanted if word.isdigit()}
    best, score = "", 0
    for message in messages:
        if message.role in ("system", "developer") or OWN_LINE.match(message.text):
            continue
        for found in _SENTENCE.findall(_HEADING.sub("", message.text)):
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
