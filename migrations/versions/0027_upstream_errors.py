"""An upstream's error in its own words.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    """A column that older servers leave empty."""
    op.add_column("exchanges", sa.Column("error", sa.Text(), nullable=True))
