"""The daily log (A30): what was summarised, as markdown, a file for each namespace and day.

Appends only, in a folder that somebody else made; what cannot be written is logged, never raised.
Knows nothing of stores.
"""

from __future__ import annotations

import asyncio
import os
import re
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import structlog

from app.core.summary.fence import sendable, unfenced
from app.core.view.compaction import Compaction

_log = structlog.get_logger("palimpsest.daily_log")
_PLAIN = re.compile(r"[\w-]{1,64}")
# Nobody else on the machine reads it, as nobody else reads the database.
_MODE = 0o600


class DailyLog:
    """Writes into `folder`, which must exist and be writable when something is to be written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def write(self, namespace: str, session: str, compaction: Compaction, at: float) -> None:
        """The summary stands in the file of its day, `at` being UTC seconds."""
        when = datetime.fromtimestamp(at, UTC)
        # No namespace's name leads out of the folder, whatever it is.
        owner = namespace if _PLAIN.fullmatch(namespace) else sha256(namespace.encode()).hexdigest()
        path = self._folder / f"{when:%Y-%m-%d}-{owner}.md"
        try:
            await asyncio.to_thread(_append, path, _entry(when, session, compaction))
        except OSError as error:
            _log.warning("daily_log_not_written", error=type(error).__name__, session=session)


def _append(path: Path, text: str) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, _MODE), "ab", buffering=0) as file:
        # One write: entries of several sessions do not run into each other.
        file.write(text.encode())


def _entry(when: datetime, session: str, compaction: Compaction) -> str:
    head = f"## {when:%H:%M:%S} UTC, session {sendable(session)}"
    told = (
        f"{compaction.messages_folded} messages folded, {compaction.tokens_before} -> "
        f"{compaction.tokens_after} tokens, {compaction.trigger}, compaction {compaction.id}"
    )
    return f"{head}\n\n{told}\n\n{sendable(unfenced(compaction.summary)).strip()}\n\n"
