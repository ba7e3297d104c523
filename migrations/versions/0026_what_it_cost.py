"""What an exchange cost, by the prices of its end, and what it would have cost more without compaction.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """Columns that older rows and older servers leave empty: what those cost is unknown."""
    for name in ("cost", "saved"):
        op.add_column("exchanges", sa.Column(name, sa.Double(), nullable=True))
