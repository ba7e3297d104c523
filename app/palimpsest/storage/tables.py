"""The schema, declared once for SQLite and PostgreSQL; migrations must produce exactly this (tested).

Every key is natural, so a repeated write conflicts with its own row. Digests and bodies are binary:
PostgreSQL's text rejects NUL and its jsonb reorders keys. There are no foreign keys: one writer composes
every unit, all rows of a unit commit together, and the checks would double the cost of a message row. Times
are UTC seconds, for people only.

Keys begin with the selective columns and end with the namespace. SQLite assumes that the first columns of all
indexes are equally selective: with the namespace first it read whole namespaces for a single row (measured:
465 us instead of 12 for a branch head, growing with the namespace).
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def text(name: str, *, key: bool = False, null: bool = False) -> sa.Column[str]:
    """A text column."""
    return sa.Column(name, sa.Text, primary_key=key, nullable=null)


def binary(name: str, *, key: bool = False, null: bool = False) -> sa.Column[bytes]:
    """A column of bytes."""
    return sa.Column(name, sa.LargeBinary, primary_key=key, nullable=null)


def whole(name: str, *, null: bool = False) -> sa.Column[int]:
    """A column of 64-bit integers."""
    return sa.Column(name, sa.BigInteger, nullable=null)


def flag(name: str, *, null: bool = False) -> sa.Column[bool]:
    """A boolean column."""
    return sa.Column(name, sa.Boolean(create_constraint=False), nullable=null)


def moment(name: str, *, null: bool = False) -> sa.Column[float]:
    """A time column, in UTC seconds."""
    return sa.Column(name, sa.Double, nullable=null)


def duration(name: str) -> sa.Column[float]:
    """A column of seconds, null where it is unknown."""
    return sa.Column(name, sa.Double, nullable=True)


def session_key(*names: str) -> list[sa.Column[str]]:
    """Text key columns of a row that belongs to a session."""
    return [text(name, key=True) for name in ("session", *names, "namespace")]


def table(name: str, *columns: sa.schema.SchemaItem, **options: Any) -> sa.Table:
    """A table of the schema."""
    return sa.Table(name, METADATA, *columns, **options)


def some(name: str, where: sa.ColumnElement[bool], *columns: sa.Column[Any]) -> sa.Index:
    """A partial index over the rows for which `where` holds."""
    return sa.Index(name, *columns, sqlite_where=where, postgresql_where=where)


# `proven_at` is when the upstream first answered with a 2xx (rule 26).
NAMESPACES = table("namespaces", text("id", key=True), moment("created_at"), moment("proven_at", null=True))
some("ix_namespaces_unproven", NAMESPACES.c.proven_at.is_(None), NAMESPACES.c.created_at)

# `digest` is an HMAC: the credential itself is never stored (P7).
CREDENTIALS = table("credentials", binary("digest", key=True), text("namespace"), moment("created_at"))
sa.Index(None, CREDENTIALS.c.namespace)

# `daily_tokens` limits what the key may use in a UTC day, `retention_*` what is kept of its namespace; null:
# no limit of its own.
KEYS = table(
    "keys",
    *(text("id", key=True), binary("digest"), text("label"), text("namespace")),
    *(moment("created_at"), moment("revoked_at", null=True)),
    *(moment("expires_at", null=True), moment("last_used_at", null=True)),
    *(whole(name, null=True) for name in ("daily_tokens", "retention_days", "retention_bytes")),
    sa.UniqueConstraint("digest"),
)

# What was used in a UTC day, YYYY-MM-DD, by an account with a limit: a key's id, or a namespace. An erase
# leaves it, so that nobody gets a new quota by erasing.
USAGE = table(
    "usage",
    *(text("account", key=True), text("day", key=True), whole("tokens")),
    sqlite_with_rowid=False,
)

# What requests in progress on a server have reserved of an account's day; "" is the only server of a file.
# Rows of a server that is gone are deleted.
RESERVED = table(
    "reserved",
    *(text("account", key=True), text("day", key=True), text("server", key=True), whole("tokens")),
    sqlite_with_rowid=False,
)

# `arrivals` is the session's counter: every row with an arrival and every event takes a number from it.
# `appends`: its client sends only new messages; `is_side`: it has only side requests (rule 33). Null is
# false.
SESSIONS = table(
    "sessions",
    *(text("namespace", key=True), text("id", key=True), text("external_id", null=True)),
    *(whole("epoch"), whole("arrivals"), text("found_by"), text("model"), flag("full_history")),
    *(moment("created_at"), moment("updated_at"), flag("appends", null=True)),
    flag("is_side", null=True),
    sa.UniqueConstraint("external_id", "namespace"),
    sqlite_with_rowid=False,
)

BODIES = table("bodies", binary("digest", key=True), text("namespace", key=True), binary("body"))

# The key starts with (chain, session), so that one index finds a chain in every session and a path in
# one. `preamble` names the instructions of the newest exchange that ended or began here.
MESSAGES = table(
    "messages",
    *(binary("chain", key=True), text("session", key=True), text("namespace", key=True)),
    *(binary("parent"), binary("canonical"), text("role"), whole("tokens"), whole("depth")),
    *(whole("answers"), whole("arrival"), flag("relayed"), text("state"), flag("is_head")),
    *(binary("digest"), binary("preamble"), text("finish_reason", null=True), moment("created_at")),
    sqlite_with_rowid=False,
)
# Ends with `state`, so that "does a message follow?" is answered by the index alone.
sa.Index(None, *(MESSAGES.c[c] for c in ("session", "parent", "namespace", "state")))
# Finds the newest messages of a session, and the message of an entry of the word index.
sa.Index(None, MESSAGES.c.session, MESSAGES.c.namespace, MESSAGES.c.arrival)
some("ix_messages_relayed", MESSAGES.c.relayed.is_(sa.true()), MESSAGES.c.canonical, MESSAGES.c.namespace)
some("ix_messages_heads", MESSAGES.c.is_head.is_(sa.true()), MESSAGES.c.session, MESSAGES.c.namespace)

VARIANTS = table(
    "variants",
    *(binary("chain", key=True), text("session", key=True), binary("digest", key=True)),
    *(text("namespace", key=True), moment("created_at")),
    sqlite_with_rowid=False,
)

# `members` packs chain digests of 32 bytes. `anchor` is the last of them, or an answer that they summarize.
REBASES = table(
    "rebases",
    *(binary("chain", key=True), text("session", key=True), text("namespace", key=True)),
    *(binary("base"), binary("anchor"), binary("members"), whole("depth"), whole("answers")),
    *(whole("arrival"), flag("is_head"), binary("preamble"), moment("created_at")),
    sqlite_with_rowid=False,
)
sa.Index(None, REBASES.c.session, REBASES.c.base, REBASES.c.namespace)
sa.Index(None, REBASES.c.session, REBASES.c.anchor, REBASES.c.namespace)
some("ix_rebases_heads", REBASES.c.is_head.is_(sa.true()), REBASES.c.session, REBASES.c.namespace)

# Sets of bodies that many requests of a session share: instructions, and what a body carries beside its
# messages. `bodies` packs body digests of 32 bytes, in order.
PREAMBLES = table(
    "preambles",
    *(binary("digest", key=True), text("session", key=True), text("namespace", key=True)),
    binary("bodies"),
    sqlite_with_rowid=False,
)

# `partial` is the answer streamed so far; null before and after. `response_id` is the upstream's id of the
# answer if later requests may continue from it; `answer` is the first answer's chain. `server` works on it,
# where several share the database. `mark`: the request is beside a conversation (rule 33). `said`: how many
# messages of the conversation the request contained. `carried` and `sent` name the rows of `preambles` that
# list what the client and the upstream were sent beside the messages; null in `sent`: the same. `body_digest`
# is the sha256 of the body as it was sent first. `code` and `cause` say why there is no answer.
EXCHANGES = table(
    "exchanges",
    *(text("id", key=True), text("namespace", key=True)),
    *(text("session"), whole("arrival")),
    *(binary("head"), binary("base"), binary("rebase"), binary("preamble")),
    *(text("state"), text("model"), text("found_by"), text("mode")),
    *(text("idempotency_key", null=True), text("finish_reason", null=True)),
    *(whole("status", null=True), text("view", null=True)),
    *(whole("tokens_full", null=True), whole("tokens_forwarded", null=True)),
    text("compaction", null=True),
    *(whole(name, null=True) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")),
    *(moment("started_at"), moment("finished_at", null=True)),
    binary("partial", null=True),
    *(text("response_id", null=True), binary("answer", null=True)),
    *(text("server", null=True), text("mark", null=True)),
    *(whole("said", null=True), binary("carried", null=True), binary("sent", null=True)),
    binary("body_digest", null=True),
    *(text("client", null=True), moment("first_at", null=True), whole("written_tokens", null=True)),
    *(text("code", null=True), text("cause", null=True)),
    *(duration("prepared_seconds"), duration("waited_seconds")),
    sqlite_with_rowid=False,
)
sa.Index("ix_exchanges_head", *(EXCHANGES.c[c] for c in ("session", "head", "namespace", "arrival")))
# Finds exchanges that a crash left open, at the next start or from another server.
some("ix_exchanges_open", EXCHANGES.c.state == "open", EXCHANGES.c.id)
some("ix_exchanges_partial", EXCHANGES.c.partial.is_not(None), EXCHANGES.c.id)
some(
    "ix_exchanges_idempotency_key",
    EXCHANGES.c.idempotency_key.is_not(None),
    *(EXCHANGES.c[c] for c in ("idempotency_key", "namespace", "id")),
)

some(
    "ix_exchanges_response_id",
    EXCHANGES.c.response_id.is_not(None),
    *(EXCHANGES.c[c] for c in ("response_id", "namespace", "id")),
)

# `kept` packs chain digests; `masks` packs (32 bytes chain, 8 bytes limit in characters, big endian).
# `state` and `details` are JSON that only their writers read.
COMPACTIONS = table(
    "compactions",
    *(text("session", key=True), text("id", key=True), text("namespace", key=True)),
    *(whole("arrival"), text("kind"), binary("watermark"), binary("kept"), binary("masks")),
    binary("summary"),
    *(text("policy"), text("trigger"), text("author"), text("model", null=True)),
    *(whole("tokens_before"), whole("tokens_after"), whole("messages_folded")),
    *(text("parents"), text("reason"), binary("state"), binary("details")),
    *(moment("created_at"), moment("undone_at", null=True), binary("memory", null=True)),
)
sa.Index(None, COMPACTIONS.c.session, COMPACTIONS.c.namespace, COMPACTIONS.c.arrival)
sa.Index(None, COMPACTIONS.c.id, COMPACTIONS.c.namespace)
sa.Index(None, COMPACTIONS.c.namespace, COMPACTIONS.c.created_at, COMPACTIONS.c.author)

# A compaction written ahead and not in force yet, at most one per session; `model` is the conversation's.
PREPARED = table("prepared", *session_key(), *(text("id"), text("model"), binary("payload")))

# `lifted_at`: when the pin in the message's own text was taken back.
PINS = table(
    "pins",
    *(text("session", key=True), binary("chain", key=True), text("namespace", key=True)),
    *(whole("arrival"), moment("created_at"), moment("lifted_at", null=True)),
    sqlite_with_rowid=False,
)

# Hidden rounds before the answer at `chain`. `messages` is a JSON array. `written` is the answer with our own
# tool calls, if it had some, and `results` the JSON array of their results.
HIDDEN_ROUNDS = table(
    "hidden_rounds",
    *(text("session", key=True), binary("chain", key=True), text("namespace", key=True)),
    *(binary("messages"), whole("tokens"), binary("written", null=True)),
    *(binary("results", null=True), whole("written_tokens"), moment("created_at")),
)

# Items of answers by the upstream's ids: the chain that the answer follows, and the answer's body.
ITEMS = table(
    "items",
    *(text("id", key=True), binary("parent", key=True), text("session", key=True)),
    *(binary("digest", key=True), text("namespace", key=True)),
    sqlite_with_rowid=False,
)
sa.Index(None, ITEMS.c.session, ITEMS.c.namespace)

EVENTS = table(
    "events", *session_key("id"), *(whole("seq"), text("type"), binary("payload"), moment("created_at"))
)
sa.Index(None, EVENTS.c.session, EVENTS.c.namespace, EVENTS.c.seq)

CHECKPOINTS = table(
    "checkpoints",
    *session_key("id"),
    *(whole("arrival"), text("kind"), binary("point"), moment("created_at")),
)
sa.Index(None, CHECKPOINTS.c.session, CHECKPOINTS.c.namespace, CHECKPOINTS.c.arrival)

# `searched` is the text case-folded and without characters that a text column refuses.
MEMORIES = table(
    "memories",
    *session_key("id"),
    *(whole("arrival"), text("kind"), binary("text"), text("searched")),
    *(text("compaction", null=True), moment("created_at")),
)
sa.Index(None, MEMORIES.c.session, MEMORIES.c.namespace, MEMORIES.c.arrival)
# Memory search reads the whole namespace, newest first.
sa.Index(None, MEMORIES.c.namespace, MEMORIES.c.id)

# How far a session is indexed, and the totals of its entries. `number` identifies its entries in the index; a
# forgotten session's row loses its name and stays until the entries are removed.
RECALL_MARKS = table(
    "recall_marks",
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
    *(text("session"), text("namespace")),
    *(whole("arrival"), whole("entries"), whole("words")),
    sa.UniqueConstraint("session", "namespace"),
)
sa.Index(None, RECALL_MARKS.c.namespace)

# On SQLite a virtual table: see `app/palimpsest/storage/search_index.py`.
RECALL_WORDS = table(
    "recall_words",
    sa.Column("rowid", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("words", sa.ARRAY(sa.Text), nullable=False),
)
sa.Index(None, RECALL_WORDS.c.words, postgresql_using="gin", postgresql_with={"fastupdate": "off"})

SESSION_SETTINGS = table("session_settings", *session_key(), binary("payload"), sqlite_with_rowid=False)

# `day` is a UTC date, YYYY-MM-DD.
SPENDING = table(
    "spending",
    *(text("namespace", key=True), text("day", key=True)),
    *(whole("calls"), whole("prompt_tokens"), whole("completion_tokens")),
    whole("cached_tokens", null=True),
    sqlite_with_rowid=False,
)

# Marks of erased sessions that must not be stored again: HMACs that need the pepper, and no text.
TOMBSTONES = table(
    "tombstones",
    *(binary("mark", key=True), text("namespace", key=True), moment("created_at")),
    sqlite_with_rowid=False,
)
sa.Index(None, TOMBSTONES.c.namespace)

# Leases of the servers that share a database. A key names a piece of work and contains no conversation text.
LEASES = table("leases", text("key", key=True), text("holder"), moment("expires_at"), sqlite_with_rowid=False)

# The servers of a shared database. A row is removed when its server stops, or when its `beats` stop growing.
SERVERS = table("servers", text("id", key=True), whole("beats"))

# Facts about upstream models, without conversation text. They belong to the namespace whose prompts they were
# learned from; what an upstream states itself is under the namespace "".
LEARNED_WINDOWS = table(
    "learned_windows",
    *(text("namespace", key=True), text("upstream", key=True), text("model", key=True)),
    *(whole("tokens"), text("source"), moment("learned_at")),
)

CALIBRATIONS = table(
    "calibrations",
    *(text("namespace", key=True), text("model", key=True)),
    *(sa.Column("ratio", sa.Double, nullable=False), whole("samples")),
    *(sa.Column("fixed_ratio", sa.Double, nullable=False), whole("fixed_samples"), moment("saved_at")),
)

# One row: the fingerprint of the pepper that the digests of `credentials` were made with.
PEPPER = table("pepper", text("id", key=True), binary("fingerprint"))

# One row that `ping` writes to find out whether writing works.
HEARTBEAT = table("heartbeat", text("id", key=True), whole("beats"))
