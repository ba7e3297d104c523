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
    _callers()
    _sessions()
    _messages()
    _texts()
    _rebases()
    _exchanges()
    _compactions()
    _journal()
    _memories_and_spending()
    _of_nobody()


def _callers() -> None:
    op.create_table(
        "namespaces",
        *_text("id"),
        *_float("created_at"),
        *_float("proven_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_namespaces")),
    )
    op.create_index(
        "ix_namespaces_unproven", "namespaces", ["created_at"], **_where(sa.column("proven_at").is_(None))
    )
    op.create_table(
        "credentials",
        *_bytes("digest"),
        *_text("namespace"),
        *_float("created_at"),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_credentials")),
    )
    op.create_index(op.f("ix_credentials_namespace"), "credentials", ["namespace"])
    op.create_table(
        "keys",
        *_text("id"),
        *_bytes("digest"),
        *_text("label", "namespace"),
        *_float("created_at"),
        *_float("revoked_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_keys_digest")),
    )


def _sessions() -> None:
    op.create_table(
        "sessions",
        *_text("namespace", "id"),
        *_text("external_id", nullable=True),
        *_int("epoch", "arrivals"),
        *_text("found_by", "model"),
        *_flag("full_history"),
        *_float("created_at", "updated_at"),
        sa.PrimaryKeyConstraint("namespace", "id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("external_id", "namespace", name=op.f("uq_sessions_external_id_namespace")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "session_settings",
        *_text("session", "namespace"),
        *_bytes("payload"),
        sa.PrimaryKeyConstraint("session", "namespace", name=op.f("pk_session_settings")),
        sqlite_with_rowid=False,
    )


def _messages() -> None:
    op.create_table(
        "messages",
        *_bytes("chain"),
        *_text("session", "namespace"),
        *_bytes("parent", "canonical"),
        *_text("role"),
        *_int("tokens", "depth", "answers", "arrival"),
        *_flag("relayed"),
        *_text("state"),
        *_flag("is_head"),
        *_bytes("digest", "preamble"),
        *_text("finish_reason", nullable=True),
        *_float("created_at"),
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


def _texts() -> None:
    op.create_table(
        "bodies",
        *_bytes("digest"),
        *_text("namespace"),
        *_bytes("body"),
        sa.PrimaryKeyConstraint("digest", "namespace", name=op.f("pk_bodies")),
    )
    op.create_table(
        "variants",
        *_bytes("chain"),
        *_text("session"),
        *_bytes("digest"),
        *_text("namespace"),
        *_float("created_at"),
        sa.PrimaryKeyConstraint("chain", "session", "digest", "namespace", name=op.f("pk_variants")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "preambles",
        *_bytes("digest"),
        *_text("session", "namespace"),
        *_bytes("bodies"),
        sa.PrimaryKeyConstraint("digest", "session", "namespace", name=op.f("pk_preambles")),
        sqlite_with_rowid=False,
    )


def _rebases() -> None:
    op.create_table(
        "rebases",
        *_bytes("chain"),
        *_text("session", "namespace"),
        *_bytes("base", "anchor", "members"),
        *_int("depth", "answers", "arrival"),
        *_flag("is_head"),
        *_bytes("preamble"),
        *_float("created_at"),
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


def _exchanges() -> None:
    op.create_table(
        "exchanges",
        *_text("id", "namespace", "session"),
        *_int("arrival"),
        *_bytes("head", "base", "rebase", "preamble"),
        *_text("state", "model", "found_by", "mode"),
        *_text("idempotency_key", "finish_reason", nullable=True),
        *_int("status", nullable=True),
        *_text("view", nullable=True),
        *_int("tokens_full", "tokens_forwarded", nullable=True),
        *_text("compaction", nullable=True),
        *_int("prompt_tokens", "completion_tokens", "cached_tokens", nullable=True),
        *_float("started_at"),
        *_float("finished_at", nullable=True),
        *_bytes("partial", nullable=True),
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
        *_text("session", "id", "namespace"),
        *_int("arrival"),
        *_text("kind"),
        *_bytes("watermark", "kept", "masks", "summary"),
        *_text("policy", "trigger", "author"),
        *_text("model", nullable=True),
        *_int("tokens_before", "tokens_after", "messages_folded"),
        *_text("parents", "reason"),
        *_bytes("state", "details"),
        *_float("created_at"),
        *_float("undone_at", nullable=True),
        sa.PrimaryKeyConstraint("session", "id", "namespace", name=op.f("pk_compactions")),
    )
    op.create_table(
        "pins",
        *_text("session"),
        *_bytes("chain"),
        *_text("namespace"),
        *_int("arrival"),
        *_float("created_at"),
        sa.PrimaryKeyConstraint("session", "chain", "namespace", name=op.f("pk_pins")),
        sqlite_with_rowid=False,
    )


def _journal() -> None:
    op.create_table(
        "events",
        *_text("session", "id", "namespace"),
        *_int("seq"),
        *_text("type"),
        *_bytes("payload"),
        *_float("created_at"),
        sa.PrimaryKeyConstraint("session", "id", "namespace", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_session_namespace_seq"), "events", ["session", "namespace", "seq"])
    op.create_table(
        "checkpoints",
        *_text("session", "id", "namespace"),
        *_int("arrival"),
        *_text("kind"),
        *_bytes("span_hash"),
        *_text("schema"),
        *_bytes("payload"),
        *_float("created_at"),
        sa.PrimaryKeyConstraint("session", "id", "namespace", name=op.f("pk_checkpoints")),
        sa.UniqueConstraint(
            *("session", "kind", "span_hash", "namespace"),
            name=op.f("uq_checkpoints_session_kind_span_hash_namespace"),
        ),
    )
    op.create_index(
        op.f("ix_checkpoints_session_namespace_arrival"), "checkpoints", ["session", "namespace", "arrival"]
    )


def _memories_and_spending() -> None:
    op.create_table(
        "memories",
        *_text("session", "id", "namespace"),
        *_int("arrival"),
        *_text("kind"),
        *_bytes("text"),
        *_text("searched"),
        *_text("compaction", nullable=True),
        *_float("created_at"),
        sa.PrimaryKeyConstraint("session", "id", "namespace", name=op.f("pk_memories")),
    )
    op.create_index(op.f("ix_memories_namespace_id"), "memories", ["namespace", "id"])
    op.create_index(
        op.f("ix_memories_session_namespace_arrival"), "memories", ["session", "namespace", "arrival"]
    )
    op.create_table(
        "spending",
        *_text("namespace", "day"),
        *_int("calls", "prompt_tokens", "completion_tokens"),
        sa.PrimaryKeyConstraint("namespace", "day", name=op.f("pk_spending")),
        sqlite_with_rowid=False,
    )


def _of_nobody() -> None:
    op.create_table(
        "leases",
        *_text("key", "holder"),
        *_float("expires_at"),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_leases")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "learned_windows",
        *_text("upstream", "model"),
        *_int("tokens"),
        *_text("source"),
        *_float("learned_at"),
        sa.PrimaryKeyConstraint("upstream", "model", name=op.f("pk_learned_windows")),
    )
    op.create_table(
        "calibrations",
        *_text("model"),
        *_float("ratio"),
        *_int("samples"),
        *_float("saved_at"),
        sa.PrimaryKeyConstraint("model", name=op.f("pk_calibrations")),
    )
    op.create_table(
        "pepper",
        *_text("id"),
        *_bytes("fingerprint"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pepper")),
    )
    op.create_table(
        "heartbeat",
        *_text("id"),
        *_int("beats"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_heartbeat")),
    )


def _where(clause: sa.ColumnElement[bool]) -> dict[str, Any]:
    """The options of an index over some rows only."""
    return {"sqlite_where": clause, "postgresql_where": clause}


def _text(*names: str, nullable: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=nullable) for name in names]


def _bytes(*names: str, nullable: bool = False) -> list[sa.Column[bytes]]:
    return [sa.Column(name, sa.LargeBinary(), nullable=nullable) for name in names]


def _int(*names: str, nullable: bool = False) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger(), nullable=nullable) for name in names]


def _flag(*names: str) -> list[sa.Column[bool]]:
    return [sa.Column(name, sa.Boolean(), nullable=False) for name in names]


def _float(*names: str, nullable: bool = False) -> list[sa.Column[float]]:
    return [sa.Column(name, sa.Double(), nullable=nullable) for name in names]
