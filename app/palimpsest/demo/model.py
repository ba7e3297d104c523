"""The demo model: the text and size of a list of messages, and the answer or summary of them.

Summaries contain only lines of the text to be summarized.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
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
_ERROR = re.compile(r"\b(?:error|failed|failure|exception|traceback)\b|\w(?:Error|Exception)\b", re.I)
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
    asked = _last_request(messages)
    if messages and messages[-1].role == "tool":
        if messages[-1].is_lookup:
            return f"I looked it up: {_best_sentence(asked, messages[-1:]) or 'nothing was found.'}"
        return _telling_line(messages[-1].text)
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


def _last_request(messages: Sequence[ShownMessage]) -> str:
    return next((m.text for m in reversed(messages) if m.role == "user"), "")


def _telling_line(result: str) -> str:
    """The last line of a tool's result, after the last one about an error if there is one."""
    lines = [line.strip() for line in result.splitlines() if line.strip()] or ["The result is empty."]
    errors = [line for line in lines[:-1] if _ERROR.search(line)]
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
# Sections by the words of their lines, and whose lines they are: the first that matches has the line.
_ANYBODY = ("user", "assistant", "tool")
_SECTION_WORDS = (
    (5, _ANYBODY, re.compile(r"\b(decision|decided|choose|chose|will use|going to|because|prefer)\b", re.I)),
    (6, _ANYBODY, re.compile(r"\b(todo|pending|later|still|next|remaining|must|waits?|until)\b", re.I)),
    (1, ("user",), re.compile("")),
    (3, _ANYBODY, re.compile(rf"{_ERROR.pattern}|\bfix\b", re.I)),
    (
        2,
        _ANYBODY,
        re.compile(
            r"\b(done|created|wrote|added|finished|completed|fixed|replaced|pass(ed)?|deployed)\b", re.I
        ),
    ),
    # What only a tool said is left out, as a terse model would: it is there to be looked up.
    (4, ("assistant",), re.compile(r"\b\d[\w.,:-]*\b|[\w-]+/[\w./-]+|`[^`]+`")),
)
# Lines of the request around the conversation: headings, fences, names of parts, the final instruction.
_LABEL = re.compile(r"[<#`]|[A-Z_]+(?:$| \(for orientation)|none\b|-?> calls |summar", re.I)
# The label with role and number before the first line of each message.
_SPEAKER = re.compile(r"^([A-Z]+) \[\d+(?:, continued)?\]: ")
# The beginning of a part of a summary's request.
_PART = re.compile(r"(INSTRUCTIONS_OF_THE_CONVERSATION|TASK|PREVIOUS_SUMMARY|CONVERSATION)(?: \(|$)")
# The heading of a section in an earlier summary.
_HEADING = re.compile(r"## (\d)\. ")
_DIGITS = re.compile(r"\d+")
_LINE_CHARS = 240
# A cautious estimate for English.
_CHARS_PER_TOKEN = 3


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the conversation; the role is empty where it is not known."""

    role: str
    text: str
    section: int | None = None
    """Where an earlier summary had it."""

    @property
    def likeness(self) -> str:
        """Equal for lines of a listing, which differ in their numbers only, and for equal lines."""
        return _DIGITS.sub("0", self.text) if self.role == "tool" else self.text

    @property
    def place(self) -> int | None:
        """The section that it belongs to, if it belongs to any."""
        if self.section is not None:
            return self.section
        given = (
            number
            for number, roles, words in _SECTION_WORDS
            if self.role in roles and words.search(self.text)
        )
        return next(given, None)


def asks_for_summary(messages: Sequence[ShownMessage]) -> bool:
    """True when the first or last message asks for a summary; elsewhere it is history."""
    return _order_in(messages) is not None


def summary_of(messages: Sequence[ShownMessage], max_tokens: int) -> str:
    """Nine numbered sections within `max_tokens`; newer lines take precedence."""
    # Of a listing the last line stands for all.
    last = {line.likeness: line for line in _lines(messages)}
    lines = list({line.text: line for line in last.values()}.values())
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


def _lines(messages: Sequence[ShownMessage]) -> Iterator[_Line]:
    """Lines of the conversation itself, without the instruction to summarize, headings and labels."""
    order = _order_in(messages)
    given = [m for m in messages if m is not order]
    if not given:
        given = [ShownMessage("", _after_order(m.text)) for m in messages]
    for message in given:
        # A prompt that contains the conversation names who speaks; elsewhere the message's role does.
        contains = bool(re.search(_SPEAKER.pattern, message.text, re.MULTILINE))
        role, section = "system" if contains else message.role, None
        for whole in message.text.splitlines():
            line = whole.strip().lstrip("-* ")
            if heading := _HEADING.match(line):
                section = int(heading[1]) - 1
            elif label := _PART.match(line):
                section = 0 if label[1] == "TASK" else None
            elif speaker := _SPEAKER.match(line):
                role, section, line = speaker[1].lower(), None, line[speaker.end() :]
            if len(line) > 8 and (role != "system" or section is not None) and not _is_framing(line):
                yield _Line("" if section is not None else role, line[:_LINE_CHARS], section)


def _is_framing(line: str) -> bool:
    """True for lines that are not part of the conversation: labels, and the demo's own lines."""
    return bool(_LABEL.match(line) or OWN_LINE.match(line))


def _after_order(text: str) -> str:
    """The text after the last mention of the last section, which is the conversation."""
    at = text.lower().rfind(SECTIONS[8].lower())
    return text[at + len(SECTIONS[8]) :]


def _section(number: int, lines: Sequence[_Line]) -> list[str]:
    """The lines of a section: the first one has the first request, the last two are told anew each time."""
    there = [line.text for line in lines if line.place == number]
    new = [line for line in lines if line.section is None]
    said = [line.text for line in new if line.role == "user"]
    if number == 0:
        return (there or said or [line.text for line in lines])[:1]
    if number == 7:
        return [line.text for line in new if line.role != "user"][-1:] or there
    return said[-1:] or there if number == 8 else there


def _newest_that_fit(lines: Sequence[str], room: int) -> str:
    """The newest lines that fit, in their order; a dash when there are none."""
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line) + 3
        if room < 0:
            break
        kept.append(f"- {line}")
    return "\n".join(reversed(kept)) or "- None."
