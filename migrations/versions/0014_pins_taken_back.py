"""When a pin in a message's own text was taken back.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """A column that older rows, and servers of the older version, leave empty: they are pins by hand."""
    op.add_column("pins", sa.Column("lifted_at", sa.Double(), nullable=True))
