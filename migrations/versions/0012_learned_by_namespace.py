"""Windows and calibrations learned from prompts belong to the prompts' namespace.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Windows stated by upstreams are kept for all namespaces; rows of unknown namespaces are dropped."""
    stated = op.get_bind().execute(
        sa.text(
            "SELECT upstream, model, tokens, source, learned_at FROM learned_windows"
            " WHERE source = 'upstream' AND length(model) <= 512"
        )
    )
    rows = [{"namespace": "", **row} for row in stated.mappings()]
    op.drop_table("learned_windows")
    windows = op.create_table(
        "learned_windows",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("upstream", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("learned_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "upstream", "model", name="pk_learned_windows"),
    )
    op.bulk_insert(windows, rows)
    op.drop_table("calibrations")
    op.create_table(
        "calibrations",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=False),
        sa.Column("samples", sa.BigInteger(), nullable=False),
        sa.Column("fixed_ratio", sa.Double(), nullable=False),
        sa.Column("fixed_samples", sa.BigInteger(), nullable=False),
        sa.Column("saved_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "model", name="pk_calibrations"),
    )
