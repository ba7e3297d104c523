"""The upstream's id of an answer, from which a later request may continue.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_THERE = sa.column("response_id").is_not(None)


def upgrade() -> None:
    """Two columns, empty, and an index over the rows that have one."""
    op.add_column("exchanges", sa.Column("response_id", sa.Text(), nullable=True))
    op.add_column("exchanges", sa.Column("answer", sa.LargeBinary(), nullable=True))
    op.create_index(
        "ix_exchanges_response_id",
        "exchanges",
        ["response_id", "namespace", "id"],
        sqlite_where=_THERE,
        postgresql_where=_THERE,
    )
