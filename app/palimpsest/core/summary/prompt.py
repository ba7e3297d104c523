"""What a summarizer is sent: requests of bounded size, and messages as text.

Messages are numbered, and free of secrets (A17) and of data that is not text (A22).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy
from palimpsest.core.summary.source import CountText
from palimpsest.core.text.message_text import calls_of, cut_to, text_without_data
from palimpsest.core.text.secrets import clean, without_secrets

# Tokens for the chat framing of two messages and an estimate that is off.
_FRAME_TOKENS = 64
# Share of the window for reasoning and answer.
_ANSWER_SHARE = 1 / 3


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
    `count_text`. `max_tokens`: of the answer. The limits per role are in characters. `record_tokens`: the
    length asked for; 0 states none.
    """

    input_chars: int
    window_tokens: int
    max_tokens: int
    user_chars: int = 3_000
    assistant_chars: int = 1_500
    tool_result_chars: int = 1_200
    tool_call_chars: int = 800
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

    def cut_to(self, chars: int) -> SummaryLimits:
        """These limits with the same number of characters for a message of any role."""
        return replace(self, user_chars=chars, assistant_chars=chars, tool_result_chars=chars)

    @classmethod
    def of(cls, policy: Policy, window_tokens: int, max_tokens: int) -> SummaryLimits:
        """The limits of a policy for a summarizer with that window."""
        return cls(policy.summary_input_chars, window_tokens, max_tokens)


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """One request: its chat messages as bytes, our own texts in them, the bound of its answer in tokens.

    `shown` is the text of the conversation's prompt where the request is appended to that. `previous` and
    `conversation` are the task of a worker, "" in a request that only a chat model can answer. `is_final`: it
    is sent once, for `max_tokens` exactly, whatever its answer is.
    """

    messages: tuple[bytes, ...]
    system: str
    user: str
    max_tokens: int
    shown: str = field(default="", kw_only=True)
    previous: str = field(default="", kw_only=True)
    conversation: str = field(default="", kw_only=True)
    is_final: bool = field(default=False, kw_only=True)


def with_headroom(
    request: SummaryRequest, limits: SummaryLimits, most_tokens: int, count_text: CountText
) -> SummaryRequest:
    """The request with up to `most_tokens` for its answer, as far as the window has room."""
    asked = count_text(request.system) + count_text(request.user) + _FRAME_TOKENS
    left = limits.window_tokens - asked
    return replace(request, max_tokens=max(request.max_tokens, min(most_tokens, left)))


def transcript_line(number: int, message: Message, limits: SummaryLimits) -> str:
    """One message of a transcript: role, number from 1, text and calls, cut per role (A19, A20)."""
    clamps = {"user": limits.user_chars, "tool": limits.tool_result_chars}
    limit = clamps.get(message.role, limits.assistant_chars)
    parts = [cut_to(without_secrets(text_without_data(message)).strip(), limit)]
    for call in calls_of(message):
        arguments = cut_to(clean(call.arguments), limits.tool_call_chars)
        parts.append(f"-> calls {call.name} {arguments}".rstrip())
    text = "\n".join(filter(None, parts)) or "(empty)"
    return f"{message.role.upper()} [{number}]: {text}"


def chat_of(system: str, user: str) -> tuple[bytes, ...]:
    """The encoded messages of a request: the instructions, if any, and the user message."""
    said = (("system", system), ("user", user))
    return tuple(msgspec.json.encode({"role": role, "content": text}) for role, text in said if text)
