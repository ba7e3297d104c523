"""Tombstones of erased sessions that must not be stored again.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """A new table, empty."""
    op.create_table(
        "tombstones",
        sa.Column("mark", sa.LargeBinary(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("mark", "namespace", name="pk_tombstones"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_tombstones_namespace", "tombstones", ["namespace"])
