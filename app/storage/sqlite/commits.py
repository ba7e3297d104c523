"""The transactions of the one write connection: units together, each of them whole, and checkpoints.

Must not know statements' meaning, nor who waits for what on which thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from app.errors import Conflict, StoreError, StoreUnavailable
from app.storage.database import After, is_due
from app.storage.sqlite.condition import FileCondition, Reserve
from app.storage.sqlite.driver import WAL_BYTES, Connection, driver, fault_of, is_busy
from app.storage.trouble import Reason, Trouble

# The statement's text, the positional rows it is run for, when it is run, and whether the unit needs it.
Work: TypeAlias = list[tuple[str, Sequence[Sequence[object]], After, bool]]
Outcome: TypeAlias = "tuple[int, ...] | Exception"

# Units between two checkpoints: some twenty pages each make a WAL of 16 MB, which is copied in some 20 ms.
# Long units are noticed by the size of the file, which is looked at now and then.
_CHECKPOINT_UNITS = 200
_LOOK_UNITS = 10
# How SQLite says that a unique index is violated; `pysqlite3` does not give the extended code.
_UNIQUE = "UNIQUE constraint failed"
# What refuses a unit; ValueError and the like: a number too large, or half of a character.
_REFUSALS = (driver.Error, ValueError, TypeError, OverflowError)
# What a quick commit takes at most, and how many in a row prove a disk that will not hold up a caller.
_QUICK_SECONDS = 0.002
_QUICK_COMMITS = 8
# Seconds between two attempts while another process has the database locked.
_RETRY_SECONDS = 0.005


@dataclass(slots=True)
class Waiting:
    """A unit, and the future of the loop that waits for it. `urgent`: it may use what is kept for it."""

    work: Work
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[tuple[int, ...]]
    urgent: bool = False
    outcome: Outcome = field(default=())


class Busy(Exception):
    """Another process has the database locked; nothing was done."""


class Commits:
    """The connection's transactions, one at a time. `broken` says why nothing is written any more."""

    def __init__(self, connection: Connection, wal: Path, condition: FileCondition, reserve: Reserve) -> None:
        self.broken: str | None = None
        self._connection = connection
        self._wal = wal
        self._condition = condition
        self._reserve = reserve
        condition.opened()
        self._units = 0
        self._quick = 0

    @property
    def is_quick(self) -> bool:
        """True when the last commits took no time to speak of."""
        return self._quick >= _QUICK_COMMITS

    @property
    def is_checkpoint_due(self) -> bool:
        """True when about as much has been written since the last one as the WAL should hold."""
        many = self._units >= _CHECKPOINT_UNITS
        return many or (self._units % _LOOK_UNITS == 0 and self._wal_bytes() > WAL_BYTES)

    def run(self, group: list[Waiting], wait_seconds: float) -> None:
        """Each unit's outcome is set; what succeeded is durable. Raises Busy: no outcome is set."""
        # Where the file is, is looked at once, behind the commit: what is acknowledged must be found again.
        if self.broken or (reason := self._condition.settled):
            fail(group, self.broken or _told(reason), None if self.broken else reason)
            return
        try:
            self._begin(wait_seconds)
            began = time.perf_counter()
            _run_group(self._connection, group)
            self._connection.execute("COMMIT")
        except driver.Error as failure:
            self._quick = 0
            found = self._condition.failed(failure)
            fail(group, f"the database cannot write: {failure}", found)
            if self._connection.in_transaction:
                self._roll_back()
            if found == "disk_full":
                self._run_urgent([waiting for waiting in group if waiting.urgent], wait_seconds)
            return
        if lost := self._condition.lost():
            # It went into a file that nobody finds again.
            fail(group, _told(lost), lost)
            return
        self._condition.committed()
        self._quick = self._quick + 1 if time.perf_counter() - began < _QUICK_SECONDS else 0
        self._units += len(group)

    def _run_urgent(self, group: list[Waiting], wait_seconds: float) -> None:
        """Once more, with the room that was kept for it, and that of the log."""
        if group and self._reserve.give_up():
            self.checkpoint("TRUNCATE")
            self.run(group, wait_seconds)

    def checkpoint(self, mode: str) -> bool:
        """The WAL is copied into the database, as far as readers let it; True: all of it."""
        self._units = 0
        if self.broken or self._condition.lost():
            return False
        try:
            ((held_back, _, _),) = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        except driver.Error as failure:
            self._condition.failed(failure)
            return False
        return not held_back

    def scrubbed(self, *, rewrites: bool) -> bool | Exception:
        """True when the WAL is empty, after the file was written anew if that is asked for.

        Deleted rows are overwritten where they stood, but SQLite leaves copies of rows behind where it
        moves them between pages (measured: 13 of 6,000 in tables that are filled in no order). Only a
        file written anew has none.
        """
        if self.broken or (reason := self._condition.lost()):
            return StoreUnavailable(self.broken or _told(reason))
        try:
            if rewrites:
                self._connection.execute("VACUUM")
        except driver.Error as failure:
            if is_busy(failure):
                return False
            if self._condition.failed(failure) == "disk_full":
                # What the attempt has left in the log is given back.
                self.checkpoint("TRUNCATE")
            return StoreUnavailable(f"the database cannot be written anew: {failure}")
        return self.checkpoint("TRUNCATE")

    def _wal_bytes(self) -> int:
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0

    def _begin(self, wait_seconds: float) -> None:
        """A write transaction. SQLite's own wait would hold up a caller's thread: we wait ourselves."""
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except driver.OperationalError as failure:
                if not is_busy(failure):
                    raise
                if time.monotonic() >= deadline:
                    raise Busy(str(failure)) from failure
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def _roll_back(self) -> None:
        try:
            self._connection.execute("ROLLBACK")
        except driver.Error as failure:
            self.broken = f"a failed commit could not be undone: {failure}; restart to recover"


def _run_group(connection: Connection, group: list[Waiting]) -> None:
    """Each unit's outcome is set. Units rarely fail: only then is each put into a savepoint of its own."""
    try:
        for waiting in group:
            waiting.outcome = _run_steps(connection, waiting.work)
    except _REFUSALS as failure:
        if _ends_all(connection, failure):
            raise
        connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        for waiting in group:
            waiting.outcome = _run_unit(connection, waiting.work)


def _run_unit(connection: Connection, work: Work) -> Outcome:
    """What the unit did, or why it did nothing; the other units of the group are not touched.

    Raises when the failure ended the whole transaction, or the disk is at fault.
    """
    connection.execute("SAVEPOINT unit")
    try:
        touched = _run_steps(connection, work)
    except _REFUSALS as failure:
        if _ends_all(connection, failure):
            raise
        connection.execute("ROLLBACK TO unit")
        connection.execute("RELEASE unit")
        return _unit_failure(failure)
    connection.execute("RELEASE unit")
    return touched


def _ends_all(connection: Connection, failure: Exception) -> bool:
    """True when the failure ended the whole transaction, or the disk is at fault."""
    if not isinstance(failure, driver.Error):
        return False
    return fault_of(failure) is not None or not connection.in_transaction


def _run_steps(connection: Connection, work: Work) -> tuple[int, ...]:
    """Rows touched by each step."""
    touched, last = [], 0
    for sql, rows, after, needed in work:
        due = is_due(after, last)
        if due and len(rows) == 1:
            last = connection.execute(sql, rows[0]).rowcount
        elif due:
            last = connection.executemany(sql, rows).rowcount
        touched.append(last if due else 0)
        if needed and touched[-1] < 1:
            touched += [0] * (len(work) - len(touched))
            break
    return tuple(touched)


def _unit_failure(failure: Exception) -> Exception:
    if _UNIQUE in str(failure):
        return Conflict(f"another session took the name: {failure}")
    if isinstance(failure, driver.OperationalError):
        return StoreUnavailable(f"the database cannot write: {failure}")
    return StoreError(f"the database refused a row: {failure}")


def fail(group: list[Waiting], why: str, reason: Reason | None = None) -> None:
    """No unit of the group is stored, and each waiting caller is told why."""
    for waiting in group:
        waiting.outcome = StoreUnavailable(why, reason=reason)


def _told(reason: Reason | None) -> str:
    return (
        f"the database cannot be used: {Trouble(reason).remedy}" if reason else "the database cannot be used"
    )
