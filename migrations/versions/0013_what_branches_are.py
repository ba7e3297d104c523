"""Which requests are beside a conversation, and which sessions are sent only new messages.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_APPENDED = (
    "UPDATE sessions SET appends = true WHERE id IN (SELECT session FROM exchanges WHERE mode = 'append')"
)


def upgrade() -> None:
    """Columns that older rows, and servers of the older version, leave empty.

    Sessions with an append are marked as such.
    """
    op.add_column("sessions", sa.Column("appends", sa.Boolean(), nullable=True))
    op.add_column("sessions", sa.Column("is_side", sa.Boolean(), nullable=True))
    op.add_column("exchanges", sa.Column("mark", sa.Text(), nullable=True))
    op.execute(_APPENDED)
