"""Which server is working on an exchange, and which servers are running.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """A column that older rows, and servers of the older version, leave empty, and a new table."""
    op.add_column("exchanges", sa.Column("server", sa.Text(), nullable=True))
    op.create_table(
        "servers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("beats", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_servers"),
    )
