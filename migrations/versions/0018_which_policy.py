"""Which of two policies a turn's session has, where some sessions keep an older one.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """A column that older rows, older servers and those without a holdout leave empty."""
    op.add_column("exchanges", sa.Column("arm", sa.Text(), nullable=True))
