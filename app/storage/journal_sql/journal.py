"""The journal of the contract, put together. Must not know any statement."""

from __future__ import annotations

from app.storage.journal_sql.checkpoints import CheckpointRows
from app.storage.journal_sql.compactions import CompactionRows
from app.storage.journal_sql.events import EventRows
from app.storage.journal_sql.leases import LeaseRows
from app.storage.journal_sql.memories import MemoryRows
from app.storage.journal_sql.prepared import PreparedRows
from app.storage.journal_sql.servers import ServerRows
from app.storage.journal_sql.session_settings import SettingsRows
from app.storage.journal_sql.spending import SpendingRows


class JournalRows(
    EventRows,
    CheckpointRows,
    MemoryRows,
    SettingsRows,
    SpendingRows,
    CompactionRows,
    PreparedRows,
    LeaseRows,
    ServerRows,
):
    """See the contract in `app/storage/journal.py`."""
