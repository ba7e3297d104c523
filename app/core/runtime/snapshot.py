"""The runtime snapshot `session_runtime_v2` (A35): what a session was doing, without any of its text.

The transcript stays in the archive; a snapshot names it. Messages stand in it only where it was made
from somebody else's records (A41). Pure: counters, ids and times (milliseconds of UTC) come in.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

SCHEMA: Literal["session_runtime_v2"] = "session_runtime_v2"
VERSION: Literal[2] = 2

Count = Annotated[int, msgspec.Meta(ge=0)]
"""How many; never negative."""

ViewKind = Literal["preamble", "instruction", "task", "pin", "summary", "memory", "acknowledgement", "tail"]
JobState = Literal["idle", "running", "failed"]


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Unknown fields are ignored on reading, so that a newer writer's snapshot still restores."""


class ViewedPart(_Part, frozen=True, kw_only=True, rename="camel"):
    """One message of the view: `id` is "" for what the archive does not hold as a message."""

    kind: ViewKind
    id: str = ""
    masked: bool = False


class ViewSection(_Part, frozen=True, kw_only=True, rename="camel"):
    """What the model saw: `digest` is the sha256 (hex) of its messages' bytes, "" when unknown.

    Of the messages behind the summary `parts` has the newest 200.
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
    """Calls by tool name, and those among them that are still unanswered, by call id."""

    calls: dict[str, Count] = {}
    open_calls: tuple[str, ...] = ()


class FilesSection(_Part, frozen=True, kw_only=True, rename="camel"):
    """Paths that tool calls named, the one touched last at the end."""

    touched: tuple[str, ...] = ()


class FlushMark(_Part, frozen=True, kw_only=True, rename="camel"):
    """The last flush: when, and how large the path was then."""

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
    """Overflow errors of the upstream: attempts to recover, and how many ended well."""

    overflow_attempts: Count = 0
    overflow_recovered: Count = 0
    last_overflow_at: Count | None = None


class QueuesSection(_Part, frozen=True, kw_only=True, rename="camel"):
    """Jobs waiting, by kind."""

    pending: dict[str, Count] = {}


class WorkerSection(_Part, frozen=True, kw_only=True, rename="camel"):
    """The compaction job: what it does, up to which message, failures in a row."""

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
    """A snapshot that knows the transcript only; `msgspec.structs.replace` sets the other sections."""
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


def payload_of(snapshot: RuntimeSnapshot) -> dict[str, Any]:
    """The snapshot as plain JSON values, lists for tuples."""
    built: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(snapshot))
    return built


def snapshot_of(payload: object) -> RuntimeSnapshot:
    """The snapshot a payload of plain JSON values holds; msgspec.ValidationError when it holds none."""
    return msgspec.convert(payload, RuntimeSnapshot)
