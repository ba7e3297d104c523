"""The daily log (A30): summaries as markdown, in a file for each namespace and day.

The folder must exist. A failed write is logged, never raised; a failed erase is raised. Files are changed
under a kernel lock (flock) on the folder, so that servers may share it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import structlog

from palimpsest.core.text.fence import sendable, unfenced
from palimpsest.core.view.compaction import Compaction
from palimpsest.errors import StoreUnavailable
from palimpsest.storage.erasure import RecentlyErased

_log = structlog.get_logger("palimpsest.daily_log")
_PLAIN = re.compile(r"[\w-]{1,64}")
# Readable by this user only, like the database.
_MODE = 0o600
# The heading of an entry. A line of a summary that looks like one is escaped: otherwise the text after it
# would count as another session's, and stay when its own session is erased.
_HEAD = re.compile(r"^## \d\d:\d\d:\d\d UTC, session (.*)$", re.MULTILINE)


class DailyLog:
    """Writes into `folder`, which must exist and be writable; nothing about sessions in `gone`."""

    def __init__(self, folder: Path, gone: RecentlyErased | None = None) -> None:
        self._folder = folder
        self._gone = RecentlyErased() if gone is None else gone

    async def write(self, namespace: str, session: str, compaction: Compaction, at: float) -> None:
        """Append the summary to the file of the day of `at` (UTC seconds)."""
        when = datetime.fromtimestamp(at, UTC)
        path = self._folder / f"{when:%Y-%m-%d}-{_owner(namespace)}.md"
        place = namespace, session
        summary = _HEAD.sub(lambda line: f"\\{line[0]}", sendable(unfenced(compaction.summary)).strip())
        text = (
            f"## {when:%H:%M:%S} UTC, session {sendable(session)}\n\n"
            f"{compaction.messages_folded} messages folded, {compaction.tokens_before} -> "
            f"{compaction.tokens_after} tokens, {compaction.trigger}, compaction {compaction.id}\n\n"
            f"{summary}\n\n"
        )

        def append() -> None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            with self._locked():
                if place in self._gone or (namespace, "") in self._gone:
                    return
                with os.fdopen(os.open(path, flags, _MODE), "ab", buffering=0) as file:
                    file.write(text.encode())

        try:
            await asyncio.to_thread(append)
        except OSError as error:
            _log.warning("daily_log_not_written", error=type(error).__name__, session=session)

    async def erased(self, namespace: str, session: str | None = None) -> int:
        """Remove the session's entries, or all, from the namespace's files; the number removed.

        The session must be in `gone` already, so that no entry is added later. StoreUnavailable when a file
        could not be changed: some entries may have been removed then.
        """
        try:
            return await asyncio.to_thread(self._erase, namespace, session)
        except OSError as error:
            _log.error("daily_log_not_erased", error=type(error).__name__, session=session)
            raise StoreUnavailable("The daily log cannot be changed; nothing else was erased.") from error

    def _erase(self, namespace: str, session: str | None) -> int:
        if not self._folder.exists():
            return 0
        count = 0
        with self._locked():
            for path in sorted(self._folder.glob(f"????-??-??-{_owner(namespace)}.md")):
                text = path.read_bytes().decode("utf-8", "surrogateescape")
                heads = list(_HEAD.finditer(text))
                ends = [*(head.start() for head in heads[1:]), len(text)]
                kept = [
                    text[head.start() : end]
                    for head, end in zip(heads, ends, strict=False)
                    if session is not None and head[1] != session
                ]
                if gone := len(heads) - len(kept):
                    before = text[: heads[0].start()] if session is not None else ""
                    _replace(path, before + "".join(kept))
                count += gone
        return count

    @contextmanager
    def _locked(self) -> Iterator[None]:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def _owner(namespace: str) -> str:
    """The namespace as part of a file name; hashed if it could leave the folder."""
    return namespace if _PLAIN.fullmatch(namespace) else sha256(namespace.encode()).hexdigest()


def _replace(path: Path, text: str) -> None:
    """Replace the file's content, or delete the file for an empty `text`. The old bytes are overwritten."""
    old = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
    with os.fdopen(old, "wb", buffering=0) as overwritten:
        if text:
            new = path.with_name(f".{path.name}.new")
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE), "wb") as file:
                file.write(text.encode("utf-8", "surrogateescape"))
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        else:
            path.unlink()
        size = os.fstat(overwritten.fileno()).st_size
        overwritten.write(bytes(size))
        os.fsync(overwritten.fileno())
