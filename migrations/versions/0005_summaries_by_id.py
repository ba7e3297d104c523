"""An index that finds a summary by its id without its session.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """An index over the existing rows."""
    op.create_index(op.f("ix_compactions_id_namespace"), "compactions", ["id", "namespace"])
