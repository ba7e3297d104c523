"""What a summarizer is sent: requests of bounded size, and messages as text.

Messages are numbered, and free of secrets (A17) and of data that is not text (A22).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy
from palimpsest.core.summary.forms import Clamps
from palimpsest.core.text.message_text import calls_of, cut_to, text_without_data
from palimpsest.core.text.secrets import clean, without_secrets

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


def transcript_line(number: int, message: Message, clamps: Clamps) -> str:
    """One message of a transcript: role, number from 1, text and calls, cut per role (A19, A20)."""
    user, assistant, result, call_chars = clamps
    limit = {"user": user, "tool": result}.get(message.role, assistant)
    parts = [cut_to(without_secrets(text_without_data(message)).strip(), limit)]
    parts += [
        f"-> calls {call.name} {cut_to(clean(call.arguments), call_chars)}".rstrip()
        for call in calls_of(message)
    ]
    text = "\n".join(filter(None, parts)) or "(empty)"
    return f"{message.role.upper()} [{number}]: {text}"


def chat_of(system: str, user: str) -> tuple[bytes, ...]:
    """The encoded messages of a request: the instructions, if any, and the user message."""
    said = (("system", system), ("user", user))
    return tuple(msgspec.json.encode({"role": role, "content": text}) for role, text in said if text)
