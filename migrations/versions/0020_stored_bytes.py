"""How many bytes each namespace's bodies take, kept by triggers, and what a key may store and for how long.

Triggers, because everything that writes or deletes a body must count: servers of an older version, a copy, an
erase. Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

# One writer: a row a namespace. `changes()` of a unit's own statements is not touched by what triggers do.
_SQLITE = (
    """
CREATE TRIGGER body_bytes_added AFTER INSERT ON bodies BEGIN
    INSERT INTO body_bytes (namespace, bytes) SELECT NEW.namespace, 0
        WHERE NOT EXISTS (SELECT 1 FROM body_bytes WHERE namespace = NEW.namespace);
    UPDATE body_bytes SET bytes = bytes + length(NEW.body) WHERE namespace = NEW.namespace;
END""",
    """
CREATE TRIGGER body_bytes_removed AFTER DELETE ON bodies BEGIN
    UPDATE body_bytes SET bytes = bytes - length(OLD.body) WHERE namespace = OLD.namespace;
END""",
)
# Many writers: a row for each change, since they would wait for each other's commits at a common one, and
# could deadlock: a unit holds the keys of its bodies meanwhile. A row for each body that comes, which comes
# alone, and one for all that a statement deletes.
_POSTGRESQL = (
    """
CREATE FUNCTION body_bytes_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO body_bytes (namespace, bytes) VALUES (NEW.namespace, length(NEW.body));
    RETURN NULL;
END $$""",
    """
CREATE FUNCTION body_bytes_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO body_bytes (namespace, bytes)
        SELECT namespace, -sum(length(body)) FROM removed GROUP BY namespace;
    RETURN NULL;
END $$""",
    "CREATE TRIGGER body_bytes_added AFTER INSERT ON bodies FOR EACH ROW EXECUTE FUNCTION body_bytes_added()",
    "CREATE TRIGGER body_bytes_removed AFTER DELETE ON bodies "
    "REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION body_bytes_removed()",
)
# Behind the triggers, which keep others from writing bodies until this revision is committed.
_COUNT = (
    "INSERT INTO body_bytes (namespace, bytes) SELECT namespace, sum(length(body)) FROM bodies"
    " GROUP BY namespace"
)


def upgrade() -> None:
    """A table that older servers do not know, its triggers, and columns that older keys leave empty."""
    for name in ("max_bytes", "retention_days", "retention_bytes"):
        op.add_column("keys", sa.Column(name, sa.BigInteger(), nullable=True))
    op.create_table(
        "body_bytes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_body_bytes"),
    )
    op.create_index("ix_body_bytes_namespace", "body_bytes", ["namespace"])
    is_postgres = op.get_bind().dialect.name == "postgresql"
    for statement in (*(_POSTGRESQL if is_postgres else _SQLITE), _COUNT):
        op.execute(statement)
