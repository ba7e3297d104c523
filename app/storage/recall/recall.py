"""The index of words, put together. Must not know any statement."""

from __future__ import annotations

from app.storage.recall.around import Around
from app.storage.recall.catching_up import CatchingUp
from app.storage.recall.finding import Finding
from app.storage.recall.forgetting import Forgetting
from app.storage.recall.scanning import Scanning


class RecallRows(CatchingUp, Finding, Around, Scanning, Forgetting):
    """See the contract in `app/storage/recall/contract.py`."""
