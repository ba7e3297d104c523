"""The first schema.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """All tables, from nothing."""
    _namespaces()
    _credentials()
    _keys()
    _sessions()
    _bodies()
    _messages()
    _variants()
    _rebases()
    _preambles()
    _exchanges()
    _compactions()
    _pins()
    _learned_windows()
    _calibrations()
    _pepper()
    _heartbeat()


def _namespaces() -> None:
    op.create_table(
        "namespaces",
        _text("id"),
        _float("created_at"),
        _float("proven_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_namespaces")),
    )
    op.create_index(
        "ix_namespaces_unproven", "namespaces", ["created_at"], **_where(sa.column("proven_at").is_(None))
    )


def _credentials() -> None:
    op.create_table(
        "credentials",
        _bytes("digest"),
        _text("namespace"),
        _float("created_at"),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_credentials")),
    )
    op.create_index(op.f("ix_credentials_namespace"), "credentials", ["namespace"])


def _keys() -> None:
    op.create_table(
        "keys",
        _text("id"),
        _bytes("digest"),
        _text("label"),
        _text("namespace"),
        _float("created_at"),
        _float("revoked_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_keys_digest")),
    )


def _sessions() -> None:
    op.create_table(
        "sessions",
        _text("namespace"),
        _text("id"),
        _text("external_id", nullable=True),
        _int("epoch"),
        _int("arrivals"),
        _text("found_by"),
        _text("model"),
        _flag("full_history"),
        _float("created_at"),
        _float("updated_at"),
        sa.PrimaryKeyConstraint("namespace", "id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("external_id", "namespace", name=op.f("uq_sessions_external_id_namespace")),
        sqlite_with_rowid=False,
    )


def _bodies() -> None:
    op.create_table(
        "bodies",
        _bytes("digest"),
        _text("namespace"),
        _bytes("body"),
        sa.PrimaryKeyConstraint("digest", "namespace", name=op.f("pk_bodies")),
    )


def _messages() -> None:
    op.create_table(
        "messages",
        _bytes("chain"),
        _text("session"),
        _text("namespace"),
        _bytes("parent"),
        _bytes("canonical"),
        _text("role"),
        _int("tokens"),
        _int("depth"),
        _int("answers"),
        _int("arrival"),
        _flag("relayed"),
        _text("state"),
        _flag("is_head"),
        _bytes("digest"),
        _bytes("preamble"),
        _text("finish_reason", nullable=True),
        _float("created_at"),
        sa.PrimaryKeyConstraint("chain", "session", "namespace", name=op.f("pk_messages")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_messages_heads",
        "messages",
        ["session", "namespace"],
        **_where(sa.column("is_head").is_(sa.true())),
    )
    op.create_index(
        "ix_messages_relayed",
        "messages",
        ["canonical", "namespace"],
        **_where(sa.column("relayed").is_(sa.true())),
    )
    op.create_index(
        op.f("ix_messages_session_parent_namespace_state"),
        "messages",
        ["session", "parent", "namespace", "state"],
    )


def _variants() -> None:
    op.create_table(
        "variants",
        _bytes("chain"),
        _text("session"),
        _bytes("digest"),
        _text("namespace"),
        _float("created_at"),
        sa.PrimaryKeyConstraint("chain", "session", "digest", "namespace", name=op.f("pk_variants")),
        sqlite_with_rowid=False,
    )


def _rebases() -> None:
    op.create_table(
        "rebases",
        _bytes("chain"),
        _text("session"),
        _text("namespace"),
        _bytes("base"),
        _bytes("anchor"),
        _bytes("members"),
        _int("depth"),
        _int("answers"),
        _int("arrival"),
        _flag("is_head"),
        _bytes("preamble"),
        _float("created_at"),
        sa.PrimaryKeyConstraint("chain", "session", "namespace", name=op.f("pk_rebases")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_rebases_heads", "rebases", ["session", "namespace"], **_where(sa.column("is_head").is_(sa.true()))
    )
    op.create_index(
        op.f("ix_rebases_session_anchor_namespace"), "rebases", ["session", "anchor", "namespace"]
    )
    op.create_index(op.f("ix_rebases_session_base_namespace"), "rebases", ["session", "base", "namespace"])


def _preambles() -> None:
    op.create_table(
        "preambles",
        _bytes("digest"),
        _text("session"),
        _text("namespace"),
        _bytes("bodies"),
        sa.PrimaryKeyConstraint("digest", "session", "namespace", name=op.f("pk_preambles")),
        sqlite_with_rowid=False,
    )


def _exchanges() -> None:
    op.create_table(
        "exchanges",
        _text("id"),
        _text("namespace"),
        _text("session"),
        _int("arrival"),
        _bytes("head"),
        _bytes("base"),
        _bytes("rebase"),
        _bytes("preamble"),
        _text("state"),
        _text("model"),
        _text("found_by"),
        _text("mode"),
        _text("idempotency_key", nullable=True),
        _text("finish_reason", nullable=True),
        _int("status", nullable=True),
        _text("view", nullable=True),
        _int("tokens_full", nullable=True),
        _int("tokens_forwarded", nullable=True),
        _text("compaction", nullable=True),
        _int("prompt_tokens", nullable=True),
        _int("completion_tokens", nullable=True),
        _int("cached_tokens", nullable=True),
        _float("started_at"),
        _float("finished_at", nullable=True),
        _bytes("partial", nullable=True),
        sa.PrimaryKeyConstraint("id", "namespace", name=op.f("pk_exchanges")),
        sqlite_with_rowid=False,
    )
    _exchange_indexes()


def _exchange_indexes() -> None:
    op.create_index("ix_exchanges_head", "exchanges", ["session", "head", "namespace", "arrival"])
    op.create_index(
        "ix_exchanges_open", "exchanges", ["id"], **_where(sa.column("state") == sa.text("'open'"))
    )
    op.create_index("ix_exchanges_partial", "exchanges", ["id"], **_where(sa.column("partial").is_not(None)))
    op.create_index(
        "ix_exchanges_idempotency_key",
        "exchanges",
        ["idempotency_key", "namespace", "id"],
        **_where(sa.column("idempotency_key").is_not(None)),
    )


def _compactions() -> None:
    op.create_table(
        "compactions",
        _text("session"),
        _text("id"),
        _text("namespace"),
        _int("arrival"),
        _text("kind"),
        _bytes("watermark"),
        _bytes("kept"),
        _bytes("masks"),
        _bytes("summary"),
        _text("policy"),
        _text("trigger"),
        _text("author"),
        _text("model", nullable=True),
        _int("tokens_before"),
        _int("tokens_after"),
        _int("messages_folded"),
        _text("parents"),
        _text("reason"),
        _float("created_at"),
        sa.PrimaryKeyConstraint("session", "id", "namespace", name=op.f("pk_compactions")),
    )


def _pins() -> None:
    op.create_table(
        "pins",
        _text("session"),
        _bytes("chain"),
        _text("namespace"),
        _int("arrival"),
        _float("created_at"),
        sa.PrimaryKeyConstraint("session", "chain", "namespace", name=op.f("pk_pins")),
        sqlite_with_rowid=False,
    )


def _learned_windows() -> None:
    op.create_table(
        "learned_windows",
        _text("upstream"),
        _text("model"),
        _int("tokens"),
        _text("source"),
        _float("learned_at"),
        sa.PrimaryKeyConstraint("upstream", "model", name=op.f("pk_learned_windows")),
    )


def _calibrations() -> None:
    op.create_table(
        "calibrations",
        _text("model"),
        _float("ratio"),
        _int("samples"),
        _float("saved_at"),
        sa.PrimaryKeyConstraint("model", name=op.f("pk_calibrations")),
    )


def _pepper() -> None:
    op.create_table(
        "pepper",
        _text("id"),
        _bytes("fingerprint"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pepper")),
    )


def _heartbeat() -> None:
    op.create_table(
        "heartbeat",
        _text("id"),
        _int("beats"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_heartbeat")),
    )


def _where(clause: sa.ColumnElement[bool]) -> dict[str, Any]:
    """The options of an index over some rows only."""
    return {"sqlite_where": clause, "postgresql_where": clause}


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def _bytes(name: str, *, nullable: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=nullable)


def _int(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable)


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean(), nullable=False)


def _float(name: str, *, nullable: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=nullable)
