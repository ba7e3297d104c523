"""Hidden rounds: tool calls and results that the model saw and the client did not, by their answer.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """A new table, empty."""
    op.create_table(
        "hidden_rounds",
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("chain", sa.LargeBinary(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("messages", sa.LargeBinary(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("written", sa.LargeBinary(), nullable=True),
        sa.Column("results", sa.LargeBinary(), nullable=True),
        sa.Column("written_tokens", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("session", "chain", "namespace", name="pk_hidden_rounds"),
    )
