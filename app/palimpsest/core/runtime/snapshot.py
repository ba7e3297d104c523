"""The runtime snapshot `session_runtime_v2` (A35): the state of a session, section by section.

Nothing of it is stored: it is computed from messages, compactions and events when it is asked for. What a
session brought from another system (A41) is in its `session_restored` event and is added. The transcript
stays in the archive and a snapshot names it; it contains messages only if another system made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.runtime.evidence import exchange_ends
from palimpsest.core.text.fence import sendable
from palimpsest.core.text.message_text import calls_of, on_one_line
from palimpsest.core.text.secrets import without_secrets
from palimpsest.core.view.compaction import Compaction, context_id
from palimpsest.core.view.outcomes import PartKind, View

SCHEMA: Literal["session_runtime_v2"] = "session_runtime_v2"
VERSION: Literal[2] = 2

Count = Annotated[int, msgspec.Meta(ge=0)]
"""A count, at least 0."""

StatedSection: TypeAlias = dict[str, Any]
"""What another system stated of its jobs, as it stated it: empty in states of ours."""


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """Unknown fields are ignored on reading, so that a newer writer's snapshot can be restored."""


class ViewedPart(_Part, frozen=True):
    """One message of the view: `id` is "" for what the archive does not hold as a message."""

    kind: PartKind
    id: str = ""
    masked: bool = False


class ViewSection(_Part, frozen=True):
    """What the model saw: `digest` is the sha256 (hex) of its messages' bytes as stored, "" when unknown.

    Of the messages after the summary, `parts` has the newest 200.
    """

    compaction_id: str = ""
    parts: tuple[ViewedPart, ...] = ()
    tokens: Count = 0
    digest: str = ""


class TranscriptSection(_Part, frozen=True):
    """The path by name: `head` and `watermark` are chains (hex), each naming its whole past.

    `ids` are the newest 200 of the messages after the watermark, oldest first. `conversation_history` holds
    messages that the archive does not have, as they were found; empty in snapshots of our own sessions.
    """

    head: str = ""
    watermark: str = ""
    message_count: Count = 0
    ids: tuple[str, ...] = ()
    view: ViewSection = ViewSection()
    conversation_history: tuple[dict[str, Any], ...] = ()


class ToolingSection(_Part, frozen=True):
    """Calls by tool name, and the ids of those that are unanswered."""

    calls: dict[str, Count] = {}
    open_calls: tuple[str, ...] = ()


class FilesSection(_Part, frozen=True):
    """Paths that tool calls named, the newest last."""

    touched: tuple[str, ...] = ()


class FlushMark(_Part, frozen=True):
    """The last flush: its time, and the size of the path then."""

    at: Count
    path_tokens: Count = 0


class LoopSection(_Part, frozen=True):
    """Turn counters and the last compaction; times are None as long as there was none."""

    turns: Count = 0
    exchanges: Count = 0
    compaction_count: Count = 0
    last_compaction_at: Count | None = None
    last_compaction_tokens_before: Count = 0
    last_compaction_tokens_after: Count = 0
    last_flush: FlushMark | None = None


class RecoverySection(_Part, frozen=True):
    """Overflow errors of the upstream: attempts to recover, and how many succeeded."""

    overflow_attempts: Count = 0
    overflow_recovered: Count = 0
    last_overflow_at: Count | None = None


class UsageSection(_Part, frozen=True):
    """Token totals of the session as the upstream counted them; `requests` that reported any."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_tokens: Count = 0
    requests: Count = 0


def sum_of(usages: Iterable[UsageSection]) -> UsageSection:
    """The totals of all."""
    return UsageSection(*map(sum, zip(*map(msgspec.structs.astuple, usages), strict=True)))


class RuntimeSnapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The payload of `conversation_snapshot` (A34, A35). Every section is required on reading."""

    schema: Literal["session_runtime_v2"]
    version: Literal[2]
    transcript: TranscriptSection
    tooling: ToolingSection
    files: FilesSection
    loop: LoopSection
    recovery: RecoverySection
    queues: StatedSection
    worker: StatedSection
    verification: StatedSection
    usage: UsageSection


class BroughtState(_Part, frozen=True):
    """The sections of a restored state that its messages do not show; part of a `session_restored` event."""

    loop: LoopSection = LoopSection()
    recovery: RecoverySection = RecoverySection()
    queues: StatedSection = {}
    worker: StatedSection = {}
    verification: StatedSection = {}
    usage: UsageSection = UsageSection()


_NOTHING = BroughtState()


def new_snapshot(transcript: TranscriptSection, state: BroughtState = _NOTHING) -> RuntimeSnapshot:
    """The snapshot of a transcript and of a `state` that its messages do not show."""
    return RuntimeSnapshot(
        schema=SCHEMA,
        version=VERSION,
        transcript=transcript,
        tooling=ToolingSection(),
        files=FilesSection(),
        **msgspec.structs.asdict(state),
    )


_BROUGHT = msgspec.json.Decoder(BroughtState)


def brought_in(payload: bytes) -> BroughtState:
    """The state in the payload of a `session_restored` event; empty when it has another form."""
    try:
        return _BROUGHT.decode(payload)
    except (ValueError, RecursionError):
        # Another system's event of that name.
        return _NOTHING


# Argument names under which tools take a path.
_PATH_KEYS = frozenset({"file", "path", "filePath", "file_path", "target_file", "source_file", "target"})
# Characters; longer values are not paths.
_PATH_CHARS = 300
# Newest paths and tool names that are kept.
PATHS_KEPT = 200
TOOLS_KEPT = 200
# Newest messages that a snapshot names one by one; the head names all.
NAMED = 200
_NAME_CHARS = 100


def runtime_of(
    talk: Conversation,
    view: View,
    relayed: int,
    compactions: Sequence[tuple[Compaction, float]],
    since: BroughtState,
    brought: BroughtState,
) -> RuntimeSnapshot:
    """The state of `talk`, seen as `view`, with `relayed` answers on its path.

    `compactions` are those of this path with their times (UTC seconds), oldest first; `since` holds what the
    events since the restoring show, and the tokens used since.
    """
    loop, recovery = brought.loop, brought.recovery
    times = [since.recovery.last_overflow_at, recovery.last_overflow_at]
    loop = msgspec.structs.replace(
        loop,
        turns=loop.turns + relayed,
        exchanges=len(exchange_ends(talk.messages)),
        last_flush=since.loop.last_flush or loop.last_flush,
    )
    if compactions:
        last, at = compactions[-1]
        loop = msgspec.structs.replace(
            loop,
            compaction_count=loop.compaction_count + len(compactions),
            last_compaction_at=round(at * 1_000),
            last_compaction_tokens_before=last.tokens_before,
            last_compaction_tokens_after=last.tokens_after,
        )
    recovery = RecoverySection(
        overflow_attempts=recovery.overflow_attempts + since.recovery.overflow_attempts,
        overflow_recovered=recovery.overflow_recovered + since.recovery.overflow_recovered,
        last_overflow_at=max((time for time in times if time is not None), default=None),
    )
    usage = sum_of([brought.usage, since.usage])
    state = msgspec.structs.replace(brought, loop=loop, recovery=recovery, usage=usage)
    return msgspec.structs.replace(
        new_snapshot(_transcript_of(talk, view), state),
        tooling=tooling_of(talk.messages),
        files=files_of(talk.messages),
    )


def tooling_of(messages: Iterable[Message]) -> ToolingSection:
    """The calls in `messages`, oldest first, counted; answered ones are closed."""
    counts: dict[str, int] = {}
    waiting: dict[str, None] = {}
    for message in messages:
        for call in calls_of(message):
            name = on_one_line(sendable(call.name))[:_NAME_CHARS]
            counts[name] = counts.pop(name, 0) + 1
        waiting.update(dict.fromkeys(sendable(call) for call in message.calls))
        if message.answers is not None:
            waiting.pop(sendable(message.answers), None)
    return ToolingSection(calls=dict(list(counts.items())[-TOOLS_KEPT:]), open_calls=tuple(waiting))


def files_of(messages: Iterable[Message]) -> FilesSection:
    """The paths that calls in `messages` name: the newest 200, each once, secrets removed."""
    touched: dict[str, None] = {}
    for call in (call for message in messages for call in calls_of(message)):
        try:
            arguments = msgspec.json.decode(call.arguments)
        except (ValueError, RecursionError):
            # Not JSON.
            continue
        named = arguments.items() if isinstance(arguments, dict) else ()
        for path in [value for key, value in named if key in _PATH_KEYS and isinstance(value, str)]:
            shown = without_secrets(sendable(path))
            if shown.strip() and len(shown) <= _PATH_CHARS and "\n" not in shown:
                touched.pop(shown, None)
                touched[shown] = None
    return FilesSection(touched=tuple(touched)[-PATHS_KEPT:])


def _transcript_of(conversation: Conversation, view: View) -> TranscriptSection:
    """The path and what was sent of it, by name."""
    watermark = view.compaction.watermark if view.compaction else b""
    place = conversation.position(watermark)
    digest = sha256()
    for raw in view.messages:
        # JSON objects can be joined without ambiguity.
        digest.update(raw)
    parts = (
        ViewedPart(
            kind=part.kind,
            id="" if part.index is None else context_id(conversation.chains[part.index]),
            masked=part.masked,
        )
        for at, part in enumerate(view.parts)
        if part.kind != "tail" or at >= len(view.parts) - NAMED
    )
    return TranscriptSection(
        head=conversation.head.hex(),
        watermark=watermark.hex(),
        message_count=len(conversation.messages),
        ids=tuple(map(context_id, conversation.chains[0 if place is None else place + 1 :][-NAMED:])),
        view=ViewSection(
            compaction_id=view.compaction.id if view.compaction else "",
            parts=tuple(parts),
            tokens=view.tokens,
            digest=digest.hexdigest(),
        ),
    )
