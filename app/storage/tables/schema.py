"""Every table there is, for those who need the whole: migrations, tests, erasing.

Importing the two modules declares their tables.
"""

from __future__ import annotations

from app.storage.tables import conversations, servers
from app.storage.tables.columns import METADATA

TABLES = (conversations, servers)
__all__ = ["METADATA", "TABLES"]
