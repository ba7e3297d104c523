"""Prompt tokens served from the upstream's cache, in the table of spending.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """A column that older rows, and servers of the older version, leave empty."""
    op.add_column("spending", sa.Column("cached_tokens", sa.BigInteger(), nullable=True))
