"""The tables that belong to no conversation: what servers do, and what they learned of upstream models.

Declared as `conversations` are; read its rules.
"""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Double,
    Table,
)

from app.storage.tables.columns import METADATA, binary, moment, text, whole

# Who works on what, of the servers that share a database. A key names work, never anybody's words.
LEASES = Table(
    "leases", METADATA, text("key", key=True), text("holder"), moment("expires_at"), sqlite_with_rowid=False
)

# Who serves the database, where several may: a row goes with its server, or when its `beats` stand still.
SERVERS = Table("servers", METADATA, text("id", key=True), whole("beats"))

# What follows is about upstream models, not anybody's text. It belongs to the namespace whose prompts taught
# it; what an upstream states itself is under the namespace "".
LEARNED_WINDOWS = Table(
    "learned_windows",
    METADATA,
    *(text("namespace", key=True), text("upstream", key=True), text("model", key=True)),
    *(whole("tokens"), text("source"), moment("learned_at")),
)

CALIBRATIONS = Table(
    "calibrations",
    METADATA,
    *(text("namespace", key=True), text("model", key=True)),
    *(Column("ratio", Double, nullable=False), whole("samples")),
    *(Column("fixed_ratio", Double, nullable=False), whole("fixed_samples"), moment("saved_at")),
)

# One row: the pepper that the digests of `credentials` were made with, by its fingerprint.
PEPPER = Table("pepper", METADATA, text("id", key=True), binary("fingerprint"))

# A row no one reads for its meaning: `ping` writes it to learn whether writing works.
HEARTBEAT = Table("heartbeat", METADATA, text("id", key=True), whole("beats"))
