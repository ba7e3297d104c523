"""Items of answers by id: later requests may reference them instead of repeating them.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """A new table, empty."""
    op.create_table(
        "items",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("parent", sa.LargeBinary(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", "parent", "session", "digest", "namespace", name="pk_items"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_items_session_namespace", "items", ["session", "namespace"])
