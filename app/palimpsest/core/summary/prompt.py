"""What a summarizer is sent and what it returns: requests of bounded size, and messages as text.

Messages are numbered, and free of secrets (A17) and of data that is not text (A22).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from palimpsest.core.history.message import RESULT_ROLES, Message
from palimpsest.core.policy import Policy
from palimpsest.core.summary.forms import Clamps
from palimpsest.core.summary.source import SummarySource
from palimpsest.core.text.message_text import calls_of, cut_to, text_of, text_without_data, tool_name
from palimpsest.core.text.secrets import clean, without_secrets

# Share of the window for reasoning and answer.
_ANSWER_SHARE = 1 / 3
# Reasoning at the start of an answer; an unclosed tag makes all of it reasoning.
_THOUGHT = re.compile(r"\A(?:\s*<(think|thinking|reasoning)>.*?(?:</\1>|\Z))+\s*", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Instructions:
    """An operator's words in a request: `form` in place of ours ("" for ours), then `extra`."""

    form: str = ""
    extra: str = ""


DEFAULT_INSTRUCTIONS = Instructions()


def answer_tokens(record_tokens: int, thought_tokens: int = 0) -> int:
    """Tokens of an answer: twice the length asked for, which no model keeps exactly, plus reasoning."""
    return 2 * record_tokens + thought_tokens


@dataclass(frozen=True, slots=True)
class SummaryLimits:
    """The bounds of one request, and its instructions.

    `input_chars`: both messages together (A21). `window_tokens`: the summarizer's window, in tokens by
    `count_text`. `max_tokens`: of the answer. `record_tokens`: the length asked for; 0 states none.
    """

    input_chars: int
    window_tokens: int
    max_tokens: int
    record_tokens: int = 0
    instructions: Instructions = DEFAULT_INSTRUCTIONS

    def for_record(
        self, record_tokens: int, thought_tokens: int, instructions: Instructions
    ) -> SummaryLimits:
        """These limits for a record of that length, with room for the model's reasoning.

        Record and reasoning get at most a third of a small window; the rest is for reading.
        """
        most = max(1, int(self.window_tokens * _ANSWER_SHARE))
        record_tokens = min(record_tokens, most)
        room = min(record_tokens + thought_tokens, most)
        return replace(self, max_tokens=room, record_tokens=record_tokens, instructions=instructions)

    @classmethod
    def of(cls, policy: Policy, window_tokens: int, max_tokens: int) -> SummaryLimits:
        """The limits of a policy for a summarizer with that window."""
        return cls(policy.summary_input_chars, window_tokens, max_tokens)


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """One request: its chat messages as bytes, our own texts in them, the bound of its answer in tokens.

    `shown` is the text of the new messages where the request is appended to the conversation's own prompt.
    `previous` and `conversation` are the task of a worker, "" in a request that only a chat model can answer.
    `is_final`: it is sent once, for `max_tokens` exactly, whatever its answer is.
    """

    messages: tuple[bytes, ...]
    system: str
    user: str
    max_tokens: int
    shown: str = field(default="", kw_only=True)
    previous: str = field(default="", kw_only=True)
    conversation: str = field(default="", kw_only=True)
    is_final: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class SummaryReply:
    """A summarizer's answer: the text ("" for none), the finish reason, whether it had tool calls."""

    text: str
    finish_reason: str | None
    has_tool_calls: bool = False


def chat_of(system: str, user: str) -> tuple[bytes, ...]:
    """The encoded messages of a request: the instructions, if any, and the user message."""
    said = (("system", system), ("user", user))
    return tuple(msgspec.json.encode({"role": role, "content": text}) for role, text in said if text)


def transcript_line(number: int, message: Message, clamps: Clamps) -> str:
    """One message of a transcript: role, speaker, number from 1, text and calls, cut per role (A19, A20)."""
    user, assistant, result, call_chars = clamps
    limit = {"user": user, "tool": result}.get(message.role, assistant)
    parts = [cut_to(without_secrets(text_without_data(message)).strip(), limit)]
    parts += [
        f"-> calls {call.name} {cut_to(clean(call.arguments), call_chars)}".rstrip()
        for call in calls_of(message)
    ]
    text = "\n".join(filter(None, parts)) or "(empty)"
    name = message.fields.get("name")
    speaker = f" {clean(name)}" if isinstance(name, str) and message.role in ("user", "assistant") else ""
    return f"{message.role.upper()}{speaker} [{number}]: {text}"


def as_read(
    source: SummarySource, names: Collection[str] = (), prefixes: tuple[str, ...] = ("*",)
) -> SummarySource:
    """The source as `rolling` and `worker` read it (B06, B14), without messages that have nothing else.

    Left out are reasoning, and calls and results of tools that are neither in `names` nor begin with one of
    `prefixes`, which may end with a star; "*" is every tool.
    """

    def is_read(name: str) -> bool:
        is_listed = name in names or any(name.startswith(prefix.rstrip("*")) for prefix in prefixes)
        return is_listed if name else "*" in prefixes

    # An id may be reused with another tool: a result belongs to the newest call before it (F02).
    tools: dict[str, str] = {}
    kept = []
    for place, (chain, message) in enumerate(source.folded):
        tools |= {call.id: call.name for call in calls_of(message)}
        if message.role in RESULT_ROLES:
            if is_read(tools.get(message.answers or "") or str(message.fields.get("name") or "")):
                kept.append((place, chain, message))
            continue
        read = _without_reasoning(message) if message.role == "assistant" else message
        if calls_of(read):
            calls = [call for call in read.fields["tool_calls"] if is_read(tool_name(call) or "")]
            read = replace(read, fields={**read.fields, "tool_calls": calls})
        if calls_of(read) or text_of(read).strip():
            kept.append((place, chain, read))
    return replace(
        source,
        folded=tuple((chain, message) for _, chain, message in kept),
        since=sum(place < source.since for place, _, _ in kept),
        places=tuple(source.numbers[place] - 1 for place, _, _ in kept),
    )


def _without_reasoning(message: Message) -> Message:
    content = message.fields.get("content")
    if isinstance(content, list | tuple):
        kinds = [str(part.get("type", "")) if isinstance(part, Mapping) else "" for part in content]
        spoken = [
            part
            for part, kind in zip(content, kinds, strict=True)
            if "reasoning" not in kind and "thinking" not in kind
        ]
        content = text_of(replace(message, fields={"content": spoken}))
    if not isinstance(content, str):
        return message
    return replace(message, fields={**message.fields, "content": _THOUGHT.sub("", content)})
