"""The word index of recall: how far each session is indexed, and PostgreSQL's index.

Must not import the declared tables: a revision stays as it was when they change. SQLite's index is a virtual
table that not every library can make: the program makes it after the migrations, where it can be.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Two tables, and indexes that find messages and summaries by arrival."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "recall_marks",
        sa.Column("number", number, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("session", "namespace")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("arrival", "entries", "words")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_recall_marks")),
        sa.UniqueConstraint("session", "namespace", name=op.f("uq_recall_marks_session_namespace")),
    )
    op.create_index(op.f("ix_recall_marks_namespace"), "recall_marks", ["namespace"])
    for table in ("messages", "compactions"):
        name = op.f(f"ix_{table}_session_namespace_arrival")
        op.create_index(name, table, ["session", "namespace", "arrival"])
    if op.get_bind().dialect.name == "postgresql":
        _words()


def _words() -> None:
    op.create_table(
        "recall_words",
        sa.Column("rowid", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("words", sa.ARRAY(sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("rowid", name=op.f("pk_recall_words")),
    )
    # A pending list (fastupdate) makes searches slow and their cost unpredictable for the planner.
    op.create_index(
        op.f("ix_recall_words_words"),
        "recall_words",
        ["words"],
        postgresql_using="gin",
        postgresql_with={"fastupdate": "off"},
    )
