"""What requests in progress have reserved of the quotas, by the server that works on them.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """A table that older servers do not know: what they forward reserves nothing."""
    op.create_table(
        "reserved",
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account", "day", "server", name="pk_reserved"),
        sqlite_with_rowid=False,
    )
