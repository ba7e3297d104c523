"""No session keeps an older policy, so that turns say no more which of two they had.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Only the column goes."""
    op.drop_column("exchanges", "arm")
