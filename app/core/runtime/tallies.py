"""The sections of a snapshot that are read out of messages, views and compactions, added to earlier ones.

Cumulative: each takes the section as it was and what is new, so that no turn reads the whole past.
Knows nothing of where snapshots are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from app.core.history.conversation import Conversation
from app.core.history.message import Message
from app.core.runtime.snapshot import (
    FilesSection,
    FlushMark,
    LoopSection,
    ToolingSection,
    TranscriptSection,
    UsageSection,
    ViewedPart,
    ViewSection,
)
from app.core.summary.source import recall_id
from app.core.text.fence import sendable
from app.core.text.secrets import without_secrets
from app.core.text.wording import Call, calls_of, on_one_line
from app.core.view.compaction import Compaction
from app.core.view.outcomes import View

# Argument names under which tools take a path.
_PATH_KEYS = frozenset({"file", "path", "filePath", "file_path", "target_file", "source_file", "target"})
# Characters; longer values are no paths.
_PATH_CHARS = 300
# Paths remembered, the newest; tool names likewise.
PATHS_KEPT = 200
TOOLS_KEPT = 200
# Messages that a snapshot names one by one, the newest: the head names those before them as well.
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
    """`earlier` with the calls of `messages`, oldest first, counted and their results seen."""
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
        # Objects of JSON: joined, they can still be told apart.
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


def _paths(call: Call) -> list[str]:
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (ValueError, RecursionError):
        # Not JSON: there is nothing to look a path up in.
        return []
    if not isinstance(arguments, dict):
        return []
    values = (value for key, value in arguments.items() if key in _PATH_KEYS)
    paths = (without_secrets(sendable(value)) for value in values if isinstance(value, str))
    return [path for path in paths if path.strip() and len(path) <= _PATH_CHARS and "\n" not in path]


def _short(name: str) -> str:
    return on_one_line(sendable(name))[:_NAME_CHARS]
