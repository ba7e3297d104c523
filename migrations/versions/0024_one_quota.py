"""What a key may use is tokens alone: budgets in dollars, bounds of stored bytes and their counters go.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """Triggers first, which write the table of totals."""
    is_postgres = op.get_bind().dialect.name == "postgresql"
    for name in ("body_bytes_added", "body_bytes_removed"):
        op.execute(f"DROP TRIGGER {name} ON bodies" if is_postgres else f"DROP TRIGGER {name}")
        if is_postgres:
            op.execute(f"DROP FUNCTION {name}()")
    op.drop_table("body_bytes")
    # In SQL: Alembic copies a table of SQLite to drop a column.
    for table, column in (("keys", "daily_dollars"), ("keys", "max_bytes"), ("usage", "dollars")):
        op.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
