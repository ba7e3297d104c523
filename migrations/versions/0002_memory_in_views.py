"""A compaction also stores the memory block as shown in its view.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """A column that older rows, and servers of the older version, leave empty."""
    op.add_column("compactions", sa.Column("memory", sa.LargeBinary(), nullable=True))
