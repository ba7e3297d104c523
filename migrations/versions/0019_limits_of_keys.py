"""When keys expire and were last used, what they may use in a day, and what was used.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Columns that older keys and servers leave empty, and a table that they do not know."""
    for name, kind in (
        ("expires_at", sa.Double()),
        ("last_used_at", sa.Double()),
        ("daily_tokens", sa.BigInteger()),
        ("daily_dollars", sa.Double()),
    ):
        op.add_column("keys", sa.Column(name, kind, nullable=True))
    op.create_table(
        "usage",
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("dollars", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("account", "day", name="pk_usage"),
        sqlite_with_rowid=False,
    )
