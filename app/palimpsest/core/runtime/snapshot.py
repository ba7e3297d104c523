"""The runtime snapshot `session_runtime_v2` (A35): the state of a session, section by section.

The transcript stays in the archive and a snapshot names it. A snapshot contains messages only if it was made
from another system's records (A41). The counters of a restored state that exceed what is stored are in the
event of the restoring, and later states continue from them (A41). Sections are cumulative: each is made of
the section before and what is new, so that no turn reads the whole past.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Annotated, Any, Literal

import msgspec

from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.summary.source import recall_id
from palimpsest.core.text.fence import sendable
from palimpsest.core.text.message_text import ToolCall, calls_of, on_one_line
from palimpsest.core.text.secrets import without_secrets
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.outcomes import View

SCHEMA: Literal["session_runtime_v2"] = "session_runtime_v2"
VERSION: Literal[2] = 2

Count = Annotated[int, msgspec.Meta(ge=0)]
"""A count, at least 0."""

ViewKind = Literal["preamble", "instruction", "task", "pin", "summary", "memory", "acknowledgement", "tail"]
JobState = Literal["idle", "running", "failed"]


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Unknown fields are ignored on reading, so that a newer writer's snapshot can be restored."""


class ViewedPart(_Part, frozen=True, kw_only=True, rename="camel"):
    """One message of the view: `id` is "" for what the archive does not hold as a message."""

    kind: ViewKind
    id: str = ""
    masked: bool = False


class ViewSection(_Part, frozen=True, kw_only=True, rename="camel"):
    """What the model saw: `digest` is the sha256 (hex) of its messages' bytes, "" when unknown.

    Of the messages after the summary, `parts` has the newest 200.
    """

    compaction_id: str = ""
    parts: tuple[ViewedPart, ...] = ()
    tokens: Count = 0
    digest: str = ""


class TranscriptSection(_Part, frozen=True, kw_only=True, rename="camel"):
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


class ToolingSection(_Part, frozen=True, kw_only=True, rename="camel"):
    """Calls by tool name, and the ids of those that are unanswered."""

    calls: dict[str, Count] = {}
    open_calls: tuple[str, ...] = ()


class FilesSection(_Part, frozen=True, kw_only=True, rename="camel"):
    """Paths that tool calls named, the newest last."""

    touched: tuple[str, ...] = ()


class FlushMark(_Part, frozen=True, kw_only=True, rename="camel"):
    """The last flush: its time, and the size of the path then."""

    at: Count
    path_tokens: Count = 0


class LoopSection(_Part, frozen=True, kw_only=True, rename="camel"):
    """Turn counters and the last compaction; times are None as long as there was none."""

    turns: Count = 0
    exchanges: Count = 0
    compaction_count: Count = 0
    last_compaction_at: Count | None = None
    last_compaction_tokens_before: Count = 0
    last_compaction_tokens_after: Count = 0
    last_flush: FlushMark | None = None


class RecoverySection(_Part, frozen=True, kw_only=True, rename="camel"):
    """Overflow errors of the upstream: attempts to recover, and how many succeeded."""

    overflow_attempts: Count = 0
    overflow_recovered: Count = 0
    last_overflow_at: Count | None = None


class QueuesSection(_Part, frozen=True, kw_only=True, rename="camel"):
    """Waiting jobs, by kind."""

    pending: dict[str, Count] = {}


class WorkerSection(_Part, frozen=True, kw_only=True, rename="camel"):
    """The compaction job: its state, the message up to which it works, consecutive failures."""

    state: JobState = "idle"
    watermark: str = ""
    started_at: Count | None = None
    failures: Count = 0


class VerificationSection(_Part, frozen=True, kw_only=True, rename="camel"):
    """The last quality audit of a summary: its sections of those wanted, faults as stable words."""

    audits: Count = 0
    sections_present: Count = 0
    sections_wanted: Count = 9
    faults: tuple[str, ...] = ()


class UsageSection(_Part, frozen=True, kw_only=True, rename="camel"):
    """Token totals of the session as the upstream counted them; `requests` that reported any."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_tokens: Count = 0
    requests: Count = 0

    @property
    def is_zero(self) -> bool:
        """True when nothing was ever counted."""
        return not (self.input_tokens or self.output_tokens or self.cached_tokens)


class RuntimeSnapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The payload of `conversation_snapshot` (A34, A35). Every section is required on reading."""

    schema: Literal["session_runtime_v2"]
    version: Literal[2]
    transcript: TranscriptSection
    tooling: ToolingSection
    files: FilesSection
    loop: LoopSection
    recovery: RecoverySection
    queues: QueuesSection
    worker: WorkerSection
    verification: VerificationSection
    usage: UsageSection


SNAPSHOT_SCHEMA: dict[str, Any] = msgspec.json.schema(RuntimeSnapshot)
"""The JSON Schema (2020-12) of the payload."""


def new_snapshot(transcript: TranscriptSection) -> RuntimeSnapshot:
    """A snapshot of the transcript only; `msgspec.structs.replace` sets the other sections."""
    return RuntimeSnapshot(
        schema=SCHEMA,
        version=VERSION,
        transcript=transcript,
        tooling=ToolingSection(),
        files=FilesSection(),
        loop=LoopSection(),
        recovery=RecoverySection(),
        queues=QueuesSection(),
        worker=WorkerSection(),
        verification=VerificationSection(),
        usage=UsageSection(),
    )


def snapshot_of(payload: object) -> RuntimeSnapshot:
    """The snapshot in a payload of plain JSON values; msgspec.ValidationError when it is none."""
    return msgspec.convert(payload, RuntimeSnapshot)


class CarriedCounters(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Counters to start from instead of zero."""

    loop: LoopSection = LoopSection()
    recovery: RecoverySection = RecoverySection()
    verification: VerificationSection = VerificationSection()

    @property
    def is_something(self) -> bool:
        """True when a counter is not zero."""
        loop, recovery = self.loop, self.recovery
        counted = (loop.turns, loop.compaction_count, recovery.overflow_attempts, recovery.overflow_recovered)
        return any(counted) or self.verification.audits > 0


NOTHING = CarriedCounters()


def carried_counters(
    snapshot: RuntimeSnapshot, compactions: int, recovery: RecoverySection
) -> CarriedCounters:
    """The counters of a state from elsewhere, less what is stored here and is counted again.

    `compactions` is the number stored, `recovery` what the stored events show.
    """
    loop, brought = snapshot.loop, snapshot.recovery
    more = loop.compaction_count - compactions
    return CarriedCounters(
        loop=LoopSection(
            turns=loop.turns,
            compaction_count=max(0, more),
            last_compaction_at=loop.last_compaction_at if more > 0 else None,
            last_compaction_tokens_before=loop.last_compaction_tokens_before if more > 0 else 0,
            last_compaction_tokens_after=loop.last_compaction_tokens_after if more > 0 else 0,
        ),
        recovery=RecoverySection(
            overflow_attempts=max(0, brought.overflow_attempts - recovery.overflow_attempts),
            overflow_recovered=max(0, brought.overflow_recovered - recovery.overflow_recovered),
            last_overflow_at=brought.last_overflow_at,
        ),
        # Each compaction that is stored is audited again.
        verification=VerificationSection() if compactions else snapshot.verification,
    )


def recovery_after(carried: RecoverySection, stored: RecoverySection) -> RecoverySection:
    """The sum of both."""
    times = [at for at in (carried.last_overflow_at, stored.last_overflow_at) if at is not None]
    return RecoverySection(
        overflow_attempts=carried.overflow_attempts + stored.overflow_attempts,
        overflow_recovered=carried.overflow_recovered + stored.overflow_recovered,
        last_overflow_at=max(times, default=None),
    )


def carried_counters_in(payload: bytes) -> CarriedCounters:
    """The counters in the payload of a `session_restored` event; none when it has another form."""
    try:
        return msgspec.json.decode(payload, type=CarriedCounters)
    except (ValueError, RecursionError):
        # Another system's event of that name.
        return NOTHING


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


def transcript_of(conversation: Conversation, view: View) -> TranscriptSection:
    """The path and what was sent of it, by name."""
    watermark = view.compaction.watermark if view.compaction else b""
    place = conversation.position(watermark)
    after = 0 if place is None else place + 1
    return TranscriptSection(
        head=conversation.head.hex(),
        watermark=watermark.hex(),
        message_count=len(conversation.messages),
        ids=tuple(recall_id(chain) for chain in conversation.chains[after:][-NAMED:]),
        view=_view_section(conversation, view),
    )


def tooling_of(messages: Iterable[Message], earlier: ToolingSection | None = None) -> ToolingSection:
    """`earlier` updated by `messages`, oldest first: calls are counted, answered ones closed."""
    counts = dict(earlier.calls) if earlier else {}
    waiting = dict.fromkeys(earlier.open_calls) if earlier else {}
    for message in messages:
        for call in calls_of(message):
            name = _short(call.name)
            counts[name] = counts.pop(name, 0) + 1
        waiting.update(dict.fromkeys(sendable(call) for call in message.calls))
        if message.answers is not None:
            waiting.pop(sendable(message.answers), None)
    return ToolingSection(calls=dict(list(counts.items())[-TOOLS_KEPT:]), open_calls=tuple(waiting))


def files_of(messages: Iterable[Message], earlier: FilesSection | None = None) -> FilesSection:
    """`earlier` with the paths that calls in `messages` name; the newest 200, each once, secrets removed."""
    touched = dict.fromkeys(earlier.touched) if earlier else {}
    for message in messages:
        for call in calls_of(message):
            for path in _paths(call):
                touched.pop(path, None)
                touched[path] = None
    return FilesSection(touched=tuple(touched)[-PATHS_KEPT:])


def loop_compacted(loop: LoopSection, compaction: Compaction, at: float) -> LoopSection:
    """`loop` after one more compaction, made `at` (UTC seconds)."""
    return msgspec.structs.replace(
        loop,
        compaction_count=loop.compaction_count + 1,
        last_compaction_at=round(at * 1_000),
        last_compaction_tokens_before=compaction.tokens_before,
        last_compaction_tokens_after=compaction.tokens_after,
    )


def loop_flushed(loop: LoopSection, path_tokens: int, at: float) -> LoopSection:
    """`loop` after a flush made `at` (UTC seconds), the path being `path_tokens` long."""
    mark = FlushMark(at=round(at * 1_000), path_tokens=path_tokens)
    return msgspec.structs.replace(loop, last_flush=mark)


def usage_after(
    usage: UsageSection, input_tokens: int, output_tokens: int, cached_tokens: int = 0
) -> UsageSection:
    """`usage` with one more request's tokens, each >= 0."""
    return UsageSection(
        input_tokens=usage.input_tokens + input_tokens,
        output_tokens=usage.output_tokens + output_tokens,
        cached_tokens=usage.cached_tokens + cached_tokens,
        requests=usage.requests + 1,
    )


def _view_section(conversation: Conversation, view: View) -> ViewSection:
    digest = sha256()
    for raw in view.messages:
        # JSON objects can be joined without ambiguity.
        digest.update(raw)
    parts = (
        ViewedPart(
            kind=part.kind,
            id="" if part.index is None else recall_id(conversation.chains[part.index]),
            masked=part.masked,
        )
        for place, part in enumerate(view.parts)
        if part.kind != "tail" or place >= len(view.parts) - NAMED
    )
    return ViewSection(
        compaction_id=view.compaction.id if view.compaction else "",
        parts=tuple(parts),
        tokens=view.tokens,
        digest=digest.hexdigest(),
    )


def _paths(call: ToolCall) -> list[str]:
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (ValueError, RecursionError):
        # Not JSON.
        return []
    if not isinstance(arguments, dict):
        return []
    values = (value for key, value in arguments.items() if key in _PATH_KEYS)
    paths = (without_secrets(sendable(value)) for value in values if isinstance(value, str))
    return [path for path in paths if path.strip() and len(path) <= _PATH_CHARS and "\n" not in path]


def _short(name: str) -> str:
    return on_one_line(sendable(name))[:_NAME_CHARS]
