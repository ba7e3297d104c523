"""Requests that carry only new messages: how they are recognised and what they result in (rules 9, 10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, TypeAlias

from palimpsest.core.history.message import Conversation, Message
from palimpsest.errors import InvalidField, OpenToolGroup

Mode: TypeAlias = Literal["full", "append", "new"]
_ASKED = ("append", "full", "new", "detect")


@dataclass(frozen=True, slots=True)
class ModeFacts:
    """What decides between full and delta, besides the messages.

    `header` is X-Session-Mode as sent, `default` the mode without it. `may_append` is true when the session
    was named by X-Session-Id or the path. `exists`: a session of that name is stored. `full_history`: it has
    received a request with answers or instructions. `appends`: something was appended to it before.
    """

    header: str | None
    default: Literal["append", "full", "detect"] = "detect"
    may_append: bool = False
    exists: bool = False
    full_history: bool = False
    appends: bool = False


@dataclass(frozen=True, slots=True)
class NeedsTranscript:
    """Load the default branch of the named session and ask again."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Signs that a request was sent before.

    `retry` is true when the retry count is above 0; `head` is that of the newest exchange of the same session
    with the same Idempotency-Key.
    """

    retry: bool = False
    head: bytes | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """The conversation that a delta results in. `retried` is true when the delta had been appended before."""

    conversation: Conversation
    retried: bool


def mode_of(request: Conversation, facts: ModeFacts, stored: Conversation | None) -> Mode | NeedsTranscript:
    """How to read the request; in doubt as the full history (rule 9).

    In mode "detect" only what cannot be a list of its own is appended: results of open calls, and messages
    for a session that has been appended to on request. Independent questions may share a session's name.

    `stored` is the default branch of the named session, None when it has not been loaded: it is needed only
    when everything else indicates a delta. InvalidField when X-Session-Mode is none of the four values, or
    asks for an append to a session that was not named by X-Session-Id or the path.
    """
    asked = facts.default if facts.header is None else facts.header.strip().lower()
    if facts.header is not None and asked not in _ASKED:
        raise InvalidField("X-Session-Mode must be append, full, new or detect.", param="X-Session-Mode")
    if facts.header is not None and asked == "append" and not facts.may_append:
        raise InvalidField(
            "Appending needs a session named by X-Session-Id or by the path /s/{session}/v1.",
            param="X-Session-Mode",
        )
    if asked == "new":
        return "new"
    if asked == "append" and facts.may_append:
        return "append"
    sent = request.messages
    may_be_delta = asked == "detect" and facts.may_append and facts.exists and not facts.full_history
    if not may_be_delta or request.preamble or not sent or not has_only_new_messages(sent):
        return "full"
    if not facts.appends and sent[0].role != "tool":
        return "full"
    if stored is None:
        return NeedsTranscript()
    if not stored.messages or stored.messages[0].canonical == sent[0].canonical:
        return "full"
    waiting = open_calls(stored.messages)
    return "append" if all(m.answers in waiting for m in sent if m.role == "tool") else "full"


def is_serialized(messages: Sequence[Message], header: str | None, default: str) -> bool:
    """True when a request to a named session may be a delta: those are processed one at a time (rule 10).

    A list with answers or instructions is a full history: several of those, from sub-agents for example, run
    concurrently. `header` and `default` are as in `ModeFacts`.
    """
    asked = default if header is None else header.strip().lower()
    return asked == "append" or (asked == "detect" and has_only_new_messages(messages))


def appended_of(stored: Conversation, request: Conversation, repeat: Repeat) -> Appended:
    """The stored transcript followed by the new messages of the request (rule 10).

    A request that was sent before adds nothing: its answer is left out, so that it is answered again.
    Messages at the start of the request that repeat the end of the transcript are not appended again.
    Instructions in the request replace the stored ones.

    OpenToolGroup when the result would leave calls without results, or results without calls.
    """
    preamble = request.preamble or stored.preamble
    if (end := _repeated(stored, request.messages, repeat)) is not None:
        return Appended(Conversation(preamble, stored.messages[:end], stored.chains[:end]), True)
    rest = request.messages[_overlap(stored.messages, request.messages) :]
    _check_groups(open_calls(stored.messages), rest)
    if not stored.messages:
        return Appended(Conversation(preamble, request.messages, request.chains), False)
    return Appended(stored.extended(rest, preamble), False)


def open_calls(messages: Sequence[Message]) -> tuple[str, ...]:
    """The calls of the newest assistant message that have no result yet and may still get one."""
    answered = set()
    for message in reversed(messages):
        if message.role == "assistant":
            return tuple(call for call in message.calls if call not in answered)
        if message.role != "tool":
            return ()
        answered.add(message.answers)
    return ()


def has_only_new_messages(messages: Sequence[Message]) -> bool:
    """True for user and tool messages alone, which a client sends when it sends only what is new."""
    return all(message.role in ("user", "tool") for message in messages)


def _repeated(stored: Conversation, sent: Sequence[Message], repeat: Repeat) -> int | None:
    """The length of the transcript at which the request had been appended; None when it had not been."""
    size = len(stored.messages)
    if not sent or not size:
        return None
    answered = stored.messages[-1].role == "assistant"
    if not answered and _ends(stored.messages, sent, by_bytes=True):
        return size
    if repeat.head is not None and (place := stored.position(repeat.head)) is not None:
        return place + 1 if _ends(stored.messages[: place + 1], sent) else None
    end = size - 1 if answered else size
    return end if repeat.retry and _ends(stored.messages[:end], sent) else None


def _overlap(stored: Sequence[Message], sent: Sequence[Message]) -> int:
    """How many leading messages of the request repeat the end of the transcript.

    They count when they include an answer, which no client sends by chance, or are equal byte for byte. A
    second "yes" after an answer never matches, because the answer stands between.
    """
    for size in range(min(len(stored), len(sent)), 0, -1):
        part = sent[:size]
        has_answer = any(message.role == "assistant" for message in part)
        if _ends(stored, part, by_bytes=not has_answer):
            return size
    return 0


def _ends(stored: Sequence[Message], part: Sequence[Message], *, by_bytes: bool = False) -> bool:
    name = attrgetter("digest" if by_bytes else "canonical")
    return list(map(name, stored[-len(part) :])) == list(map(name, part))


def _check_groups(waiting: Sequence[str], rest: Sequence[Message]) -> None:
    left = list(waiting)
    for message in rest:
        if message.role == "tool":
            if message.answers not in left:
                raise OpenToolGroup("A tool result matches no open tool call.", param="messages")
            left.remove(message.answers)
        elif left:
            raise OpenToolGroup(_missing(left), param="messages")
        else:
            left = list(message.calls)
    if left and rest and rest[-1].role != "assistant":
        raise OpenToolGroup(_missing(left), param="messages")


def _missing(calls: Sequence[str]) -> str:
    shown = ", ".join(calls[:5])
    return f"Results are missing for {len(calls)} open tool call(s): {shown}."
