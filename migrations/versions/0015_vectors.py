"""Embedding vectors of messages, beside the word index.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """A new table, empty, and left so where `recall.vectors` is off."""
    op.create_table(
        "recall_vectors",
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("arrival", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("session", "namespace", "arrival", name="pk_recall_vectors"),
        sqlite_with_rowid=False,
    )
