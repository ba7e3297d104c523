"""Messages are found by their words alone.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Only the vectors go."""
    op.drop_table("recall_vectors")
