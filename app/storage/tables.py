"""The schema, declared once for SQLite and PostgreSQL; migrations must arrive exactly here (tested).

Must not know who reads or writes it. Every key is natural, so that a repeated write meets its own
row. Digests and bodies are binary: PostgreSQL's text rejects NUL and its jsonb reorders keys.
There are no foreign keys: one writer composes every unit, all rows of a unit commit together, and
the checks would double the cost of a message row. Times are UTC seconds, for people only.

Keys begin with what tells rows apart and end with the namespace. Begun with the namespace, SQLite,
which takes the first column of every index for equally selective, read whole namespaces where one
row was meant (measured: 465 us instead of 12 for a branch head, growing with the namespace).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    true,
)

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _text(name: str, *, key: bool = False, null: bool = False) -> Column[str]:
    return Column(name, Text, primary_key=key, nullable=null)


def _bytes(name: str, *, key: bool = False, null: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, primary_key=key, nullable=null)


def _int(name: str, *, null: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=null)


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean(create_constraint=False), nullable=False)


def _time(name: str, *, null: bool = False) -> Column[float]:
    return Column(name, Double, nullable=null)


def _session_key(*names: str) -> list[Column[str]]:
    """The key of a row of text keys in a session."""
    return [_text(name, key=True) for name in ("session", *names, "namespace")]


def _some(name: str, where: ColumnElement[bool], *columns: Column[Any]) -> Index:
    """An index over the rows that `where` holds for."""
    return Index(name, *columns, sqlite_where=where, postgresql_where=where)


# `proven_at` is when the upstream first answered with a 2xx (rule 26).
NAMESPACES = Table(
    "namespaces", METADATA, _text("id", key=True), _time("created_at"), _time("proven_at", null=True)
)
_some("ix_namespaces_unproven", NAMESPACES.c.proven_at.is_(None), NAMESPACES.c.created_at)

# `digest` is an HMAC: the credential itself is never stored (P7).
CREDENTIALS = Table(
    "credentials", METADATA, _bytes("digest", key=True), _text("namespace"), _time("created_at")
)
Index(None, CREDENTIALS.c.namespace)

KEYS = Table(
    "keys",
    METADATA,
    *(_text("id", key=True), _bytes("digest"), _text("label"), _text("namespace")),
    *(_time("created_at"), _time("revoked_at", null=True)),
    UniqueConstraint("digest"),
)

# `arrivals` is the session's counter: whatever arrives in it, and every event, draws from it.
SESSIONS = Table(
    "sessions",
    METADATA,
    _text("namespace", key=True),
    _text("id", key=True),
    _text("external_id", null=True),
    _int("epoch"),
    _int("arrivals"),
    _text("found_by"),
    _text("model"),
    _flag("full_history"),
    _time("created_at"),
    _time("updated_at"),
    UniqueConstraint("external_id", "namespace"),
    sqlite_with_rowid=False,
)

BODIES = Table("bodies", METADATA, _bytes("digest", key=True), _text("namespace", key=True), _bytes("body"))

# The key starts with (chain, session), so that one index finds a chain in every session and a path in
# one. `preamble` names the instructions of the newest exchange that ended or began here.
MESSAGES = Table(
    "messages",
    METADATA,
    _bytes("chain", key=True),
    _text("session", key=True),
    _text("namespace", key=True),
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
    _text("finish_reason", null=True),
    _time("created_at"),
    sqlite_with_rowid=False,
)
# Ends with `state` to answer "does something follow" without the row.
Index(None, *(MESSAGES.c[c] for c in ("session", "parent", "namespace", "state")))
# What arrived last in a session is found by it, and what an entry of the index of words stands for.
Index(None, MESSAGES.c.session, MESSAGES.c.namespace, MESSAGES.c.arrival)
_some("ix_messages_relayed", MESSAGES.c.relayed.is_(true()), MESSAGES.c.canonical, MESSAGES.c.namespace)
_some("ix_messages_heads", MESSAGES.c.is_head.is_(true()), MESSAGES.c.session, MESSAGES.c.namespace)

VARIANTS = Table(
    "variants",
    METADATA,
    _bytes("chain", key=True),
    _text("session", key=True),
    _bytes("digest", key=True),
    _text("namespace", key=True),
    _time("created_at"),
    sqlite_with_rowid=False,
)

# `members` packs chain digests of 32 bytes. `anchor` is the last of them, repeated for its index.
REBASES = Table(
    "rebases",
    METADATA,
    _bytes("chain", key=True),
    _text("session", key=True),
    _text("namespace", key=True),
    _bytes("base"),
    _bytes("anchor"),
    _bytes("members"),
    _int("depth"),
    _int("answers"),
    _int("arrival"),
    _flag("is_head"),
    _bytes("preamble"),
    _time("created_at"),
    sqlite_with_rowid=False,
)
Index(None, REBASES.c.session, REBASES.c.base, REBASES.c.namespace)
Index(None, REBASES.c.session, REBASES.c.anchor, REBASES.c.namespace)
_some("ix_rebases_heads", REBASES.c.is_head.is_(true()), REBASES.c.session, REBASES.c.namespace)

# `bodies` packs body digests of 32 bytes, in order.
PREAMBLES = Table(
    "preambles",
    METADATA,
    _bytes("digest", key=True),
    _text("session", key=True),
    _text("namespace", key=True),
    _bytes("bodies"),
    sqlite_with_rowid=False,
)

# `partial` is the answer so far of one that is streamed: empty before, and after its end.
EXCHANGES = Table(
    "exchanges",
    METADATA,
    *(_text("id", key=True), _text("namespace", key=True)),
    *(_text("session"), _int("arrival")),
    *(_bytes("head"), _bytes("base"), _bytes("rebase"), _bytes("preamble")),
    *(_text("state"), _text("model"), _text("found_by"), _text("mode")),
    _text("idempotency_key", null=True),
    _text("finish_reason", null=True),
    _int("status", null=True),
    _text("view", null=True),
    *(_int("tokens_full", null=True), _int("tokens_forwarded", null=True)),
    _text("compaction", null=True),
    *(_int(name, null=True) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")),
    *(_time("started_at"), _time("finished_at", null=True)),
    _bytes("partial", null=True),
    sqlite_with_rowid=False,
)
Index("ix_exchanges_head", *(EXCHANGES.c[c] for c in ("session", "head", "namespace", "arrival")))
# Those that a crash left open are found at the next start.
_some("ix_exchanges_open", EXCHANGES.c.state == "open", EXCHANGES.c.id)
_some("ix_exchanges_partial", EXCHANGES.c.partial.is_not(None), EXCHANGES.c.id)
_some(
    "ix_exchanges_idempotency_key",
    EXCHANGES.c.idempotency_key.is_not(None),
    *(EXCHANGES.c[c] for c in ("idempotency_key", "namespace", "id")),
)

# `kept` packs chain digests; `masks` packs (32 bytes chain, 8 bytes limit in characters, big endian).
# `state` and `details` are JSON that only their writers read.
COMPACTIONS = Table(
    "compactions",
    METADATA,
    _text("session", key=True),
    _text("id", key=True),
    _text("namespace", key=True),
    _int("arrival"),
    _text("kind"),
    _bytes("watermark"),
    _bytes("kept"),
    _bytes("masks"),
    _bytes("summary"),
    *(_text("policy"), _text("trigger"), _text("author"), _text("model", null=True)),
    *(_int("tokens_before"), _int("tokens_after"), _int("messages_folded")),
    *(_text("parents"), _text("reason"), _bytes("state"), _bytes("details")),
    *(_time("created_at"), _time("undone_at", null=True)),
    _bytes("memory", null=True),
)
Index(None, COMPACTIONS.c.session, COMPACTIONS.c.namespace, COMPACTIONS.c.arrival)

PINS = Table(
    "pins",
    METADATA,
    _text("session", key=True),
    _bytes("chain", key=True),
    _text("namespace", key=True),
    _int("arrival"),
    _time("created_at"),
    sqlite_with_rowid=False,
)

EVENTS = Table(
    "events",
    METADATA,
    *_session_key("id"),
    _int("seq"),
    _text("type"),
    _bytes("payload"),
    _time("created_at"),
)
Index(None, EVENTS.c.session, EVENTS.c.namespace, EVENTS.c.seq)

CHECKPOINTS = Table(
    "checkpoints",
    METADATA,
    *_session_key("id"),
    *(_int("arrival"), _text("kind"), _bytes("span_hash"), _text("schema"), _bytes("payload")),
    _time("created_at"),
    UniqueConstraint("session", "kind", "span_hash", "namespace"),
)
Index(None, CHECKPOINTS.c.session, CHECKPOINTS.c.namespace, CHECKPOINTS.c.arrival)

# `searched` is the text as it is looked for: in one case, and without what a text column refuses.
MEMORIES = Table(
    "memories",
    METADATA,
    *_session_key("id"),
    *(_int("arrival"), _text("kind"), _bytes("text"), _text("searched")),
    *(_text("compaction", null=True), _time("created_at")),
)
Index(None, MEMORIES.c.session, MEMORIES.c.namespace, MEMORIES.c.arrival)
# The search reads a namespace through, newest first.
Index(None, MEMORIES.c.namespace, MEMORIES.c.id)

# How far a session is in the index of words, and what that holds of it. `number` tells its entries there; a
# session that was forgotten keeps it, without a name, until they are gone.
RECALL_MARKS = Table(
    "recall_marks",
    METADATA,
    Column("number", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
    *(_text("session"), _text("namespace")),
    *(_int("arrival"), _int("entries"), _int("words")),
    UniqueConstraint("session", "namespace"),
)
Index(None, RECALL_MARKS.c.namespace)

# On SQLite a virtual table: see `app/storage/recall/word_index.py`.
RECALL_WORDS = Table(
    "recall_words",
    METADATA,
    Column("rowid", BigInteger, primary_key=True, autoincrement=False),
    Column("words", ARRAY(Text), nullable=False),
)
Index(None, RECALL_WORDS.c.words, postgresql_using="gin", postgresql_with={"fastupdate": "off"})

SESSION_SETTINGS = Table(
    "session_settings", METADATA, *_session_key(), _bytes("payload"), sqlite_with_rowid=False
)

# `day` is a UTC date, YYYY-MM-DD.
SPENDING = Table(
    "spending",
    METADATA,
    *(_text("namespace", key=True), _text("day", key=True)),
    *(_int("calls"), _int("prompt_tokens"), _int("completion_tokens")),
    sqlite_with_rowid=False,
)

# What is left of a session that must not come back: HMACs that only the pepper can make, and no text.
TOMBSTONES = Table(
    "tombstones",
    METADATA,
    *(_bytes("mark", key=True), _text("namespace", key=True), _time("created_at")),
    sqlite_with_rowid=False,
)
Index(None, TOMBSTONES.c.namespace)

# Who works on what, of the servers that share a database. A key names work, never anybody's words.
LEASES = Table(
    "leases", METADATA, _text("key", key=True), _text("holder"), _time("expires_at"), sqlite_with_rowid=False
)

# What follows is about upstream models, not about anybody's text: it belongs to no namespace.
LEARNED_WINDOWS = Table(
    "learned_windows",
    METADATA,
    *(_text("upstream", key=True), _text("model", key=True)),
    *(_int("tokens"), _text("source"), _time("learned_at")),
)

CALIBRATIONS = Table(
    "calibrations",
    METADATA,
    _text("model", key=True),
    *(Column("ratio", Double, nullable=False), _int("samples"), _time("saved_at")),
)

# One row: the pepper that the digests of `credentials` were made with, by its fingerprint.
PEPPER = Table("pepper", METADATA, _text("id", key=True), _bytes("fingerprint"))

# A row no one reads for its meaning: `ping` writes it to learn whether writing works.
HEARTBEAT = Table("heartbeat", METADATA, _text("id", key=True), _int("beats"))
