"""What each request carried beside its messages, how its answer came, and whose fault a failure was.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Columns that older rows, and older servers, leave empty; an index to count compactions."""
    for name, kind in (
        ("said", sa.BigInteger()),
        ("carried", sa.LargeBinary()),
        ("sent", sa.LargeBinary()),
        ("body_digest", sa.LargeBinary()),
        ("client", sa.Text()),
        ("first_at", sa.Double()),
        ("written_tokens", sa.BigInteger()),
        ("code", sa.Text()),
        ("cause", sa.Text()),
    ):
        op.add_column("exchanges", sa.Column(name, kind, nullable=True))
    made = ["namespace", "created_at", "author"]
    op.create_index("ix_compactions_namespace_created_at_author", "compactions", made)
