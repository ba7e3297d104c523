"""How long a request was with this proxy before it was sent, and how long it waited for a compaction.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Columns that older rows, and older servers, leave empty."""
    for name in ("prepared_seconds", "waited_seconds"):
        op.add_column("exchanges", sa.Column(name, sa.Double(), nullable=True))
