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

from collections.abc import Sequence
from itertools import chain
from typing import Any

import sqlalchemy as sa

METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def text(*names: str, key: bool = False, null: bool = False) -> list[sa.Column[str]]:
    """Text columns."""
    return [sa.Column(name, sa.Text, primary_key=key, nullable=null) for name in names]


def binary(*names: str, key: bool = False, null: bool = False) -> list[sa.Column[bytes]]:
    """Columns of bytes."""
    return [sa.Column(name, sa.LargeBinary, primary_key=key, nullable=null) for name in names]


def whole(*names: str, null: bool = False) -> list[sa.Column[int]]:
    """Columns of 64-bit integers."""
    return [sa.Column(name, sa.BigInteger, nullable=null) for name in names]


def flag(*names: str, null: bool = False) -> list[sa.Column[bool]]:
    """Boolean columns."""
    return [sa.Column(name, sa.Boolean(create_constraint=False), nullable=null) for name in names]


def real(*names: str, null: bool = False) -> list[sa.Column[float]]:
    """Columns of floating-point numbers: times in UTC seconds, durations in seconds, ratios."""
    return [sa.Column(name, sa.Double, nullable=null) for name in names]


def session_key(*names: str) -> list[sa.Column[str]]:
    """Text key columns of a row that belongs to a session."""
    return text("session", *names, "namespace", key=True)


def table(
    name: str, *columns: Sequence[sa.Column[Any]], unique: Sequence[str] = (), **options: Any
) -> sa.Table:
    """A table of the schema; no two rows have the same values in the columns `unique`."""
    keys = [sa.UniqueConstraint(*unique)] if unique else []
    return sa.Table(name, METADATA, *chain.from_iterable(columns), *keys, **options)


def index(
    on: sa.Table, *columns: str, name: str | None = None, where: sa.ColumnElement[bool] | None = None
) -> None:
    """An index of the table; with `where`, over the rows for which it holds."""
    sa.Index(name, *(on.c[column] for column in columns), sqlite_where=where, postgresql_where=where)


# `proven_at` is when the upstream first answered with a 2xx (rule 26).
NAMESPACES = table("namespaces", text("id", key=True), real("created_at"), real("proven_at", null=True))
index(NAMESPACES, "created_at", name="ix_namespaces_unproven", where=NAMESPACES.c.proven_at.is_(None))

# `digest` is an HMAC: the credential itself is never stored (P7).
CREDENTIALS = table("credentials", binary("digest", key=True), text("namespace"), real("created_at"))
index(CREDENTIALS, "namespace")

# `daily_tokens` limits what the key may use in a UTC day, `retention_*` what is kept of its namespace; null:
# no limit of its own.
KEYS = table(
    "keys",
    text("id", key=True),
    binary("digest"),
    text("label", "namespace"),
    real("created_at"),
    real("revoked_at", "expires_at", "last_used_at", null=True),
    whole("daily_tokens", "retention_days", "retention_bytes", null=True),
    unique=["digest"],
)

# What was used in a UTC day, YYYY-MM-DD, by an account with a limit: a key's id, or a namespace. An erase
# leaves it, so that nobody gets a new quota by erasing.
USAGE = table("usage", text("account", "day", key=True), whole("tokens"), sqlite_with_rowid=False)

# What requests in progress on a server have reserved of an account's day; "" is the only server of a file.
# Rows of a server that is gone are deleted.
RESERVED = table(
    "reserved", text("account", "day", "server", key=True), whole("tokens"), sqlite_with_rowid=False
)

# `arrivals` is the session's counter: every row with an arrival and every event takes a number from it.
# `appends`: its client sends only new messages; `is_side`: it has only side requests (rule 33). Null is
# false.
SESSIONS = table(
    "sessions",
    text("namespace", "id", key=True),
    text("external_id", null=True),
    whole("epoch", "arrivals"),
    text("found_by", "model"),
    flag("full_history"),
    real("created_at", "updated_at"),
    flag("appends", "is_side", null=True),
    unique=("external_id", "namespace"),
    sqlite_with_rowid=False,
)

BODIES = table("bodies", binary("digest", key=True), text("namespace", key=True), binary("body"))

# The key starts with (chain, session), so that one index finds a chain in every session and a path in
# one. `preamble` names the instructions of the newest exchange that ended or began here.
MESSAGES = table(
    "messages",
    binary("chain", key=True),
    text("session", "namespace", key=True),
    binary("parent", "canonical"),
    text("role"),
    whole("tokens", "depth", "answers", "arrival"),
    flag("relayed"),
    text("state"),
    flag("is_head"),
    binary("digest", "preamble"),
    text("finish_reason", null=True),
    real("created_at"),
    sqlite_with_rowid=False,
)
# Ends with `state`, so that "does a message follow?" is answered by the index alone.
index(MESSAGES, "session", "parent", "namespace", "state")
# Finds the newest messages of a session, and the message of an entry of the word index.
index(MESSAGES, "session", "namespace", "arrival")
index(MESSAGES, "canonical", "namespace", name="ix_messages_relayed", where=MESSAGES.c.relayed.is_(sa.true()))
index(MESSAGES, "session", "namespace", name="ix_messages_heads", where=MESSAGES.c.is_head.is_(sa.true()))

VARIANTS = table(
    "variants",
    binary("chain", key=True),
    text("session", key=True),
    binary("digest", key=True),
    text("namespace", key=True),
    real("created_at"),
    sqlite_with_rowid=False,
)

# `members` packs chain digests of 32 bytes. `anchor` is the last of them, or an answer that they summarize.
REBASES = table(
    "rebases",
    binary("chain", key=True),
    text("session", "namespace", key=True),
    binary("base", "anchor", "members"),
    whole("depth", "answers", "arrival"),
    flag("is_head"),
    binary("preamble"),
    real("created_at"),
    sqlite_with_rowid=False,
)
index(REBASES, "session", "base", "namespace")
index(REBASES, "session", "anchor", "namespace")
index(REBASES, "session", "namespace", name="ix_rebases_heads", where=REBASES.c.is_head.is_(sa.true()))

# Sets of bodies that many requests of a session share: instructions, and what a body carries beside its
# messages. `bodies` packs body digests of 32 bytes, in order.
PREAMBLES = table(
    "preambles",
    binary("digest", key=True),
    text("session", "namespace", key=True),
    binary("bodies"),
    sqlite_with_rowid=False,
)

# `partial` is the answer streamed so far; null before and after. `response_id` is the upstream's id of the
# answer if later requests may continue from it; `answer` is the first answer's chain. `server` works on it,
# where several share the database. `mark`: the request is beside a conversation (rule 33). `said`: how many
# messages of the conversation the request contained. `carried` and `sent` name the rows of `preambles` that
# list what the client and the upstream were sent beside the messages; null in `sent`: the same. `body_digest`
# is the sha256 of the body as it was sent first. `code` and `cause` say why there is no answer, `error` in
# the upstream's words. `cost` and `saved` are money by the prices of its end; null where prices or tokens
# were unknown, and in older rows.
EXCHANGES = table(
    "exchanges",
    text("id", "namespace", key=True),
    text("session"),
    whole("arrival"),
    binary("head", "base", "rebase", "preamble"),
    text("state", "model", "found_by", "mode"),
    text("idempotency_key", "finish_reason", null=True),
    whole("status", null=True),
    text("view", null=True),
    whole("tokens_full", "tokens_forwarded", null=True),
    text("compaction", null=True),
    whole("prompt_tokens", "completion_tokens", "cached_tokens", null=True),
    real("started_at"),
    real("finished_at", null=True),
    binary("partial", null=True),
    text("response_id", null=True),
    binary("answer", null=True),
    text("server", "mark", null=True),
    whole("said", null=True),
    binary("carried", "sent", "body_digest", null=True),
    text("client", null=True),
    real("first_at", null=True),
    whole("written_tokens", null=True),
    text("code", "cause", null=True),
    real("prepared_seconds", "waited_seconds", null=True),
    real("cost", "saved", null=True),
    text("error", null=True),
    sqlite_with_rowid=False,
)
index(EXCHANGES, "session", "head", "namespace", "arrival", name="ix_exchanges_head")
# Finds exchanges that a crash left open, at the next start or from another server.
index(EXCHANGES, "id", name="ix_exchanges_open", where=EXCHANGES.c.state == "open")
index(EXCHANGES, "id", name="ix_exchanges_partial", where=EXCHANGES.c.partial.is_not(None))
index(
    EXCHANGES,
    "idempotency_key",
    "namespace",
    "id",
    name="ix_exchanges_idempotency_key",
    where=EXCHANGES.c.idempotency_key.is_not(None),
)

index(
    EXCHANGES,
    "response_id",
    "namespace",
    "id",
    name="ix_exchanges_response_id",
    where=EXCHANGES.c.response_id.is_not(None),
)

# `kept` packs chain digests; `masks` packs (32 bytes chain, 8 bytes limit in characters, big endian).
# `state` and `details` are JSON that only their writers read.
COMPACTIONS = table(
    "compactions",
    session_key("id"),
    whole("arrival"),
    text("kind"),
    binary("watermark", "kept", "masks", "summary"),
    text("policy", "trigger", "author"),
    text("model", null=True),
    whole("tokens_before", "tokens_after", "messages_folded"),
    text("parents", "reason"),
    binary("state", "details"),
    real("created_at"),
    real("undone_at", null=True),
    binary("memory", null=True),
)
index(COMPACTIONS, "session", "namespace", "arrival")
index(COMPACTIONS, "id", "namespace")
index(COMPACTIONS, "namespace", "created_at", "author")

# A compaction written ahead and not in force yet, at most one per session; `model` is the conversation's.
PREPARED = table("prepared", session_key(), text("id", "model"), binary("payload"))

# `lifted_at`: when the pin in the message's own text was taken back.
PINS = table(
    "pins",
    text("session", key=True),
    binary("chain", key=True),
    text("namespace", key=True),
    whole("arrival"),
    real("created_at"),
    real("lifted_at", null=True),
    sqlite_with_rowid=False,
)

# Hidden rounds before the answer at `chain`. `messages` is a JSON array. `written` is the answer with our own
# tool calls, if it had some, and `results` the JSON array of their results.
HIDDEN_ROUNDS = table(
    "hidden_rounds",
    text("session", key=True),
    binary("chain", key=True),
    text("namespace", key=True),
    binary("messages"),
    whole("tokens"),
    binary("written", "results", null=True),
    whole("written_tokens"),
    real("created_at"),
)

# Items of answers by the upstream's ids: the chain that the answer follows, and the answer's body.
ITEMS = table(
    "items",
    text("id", key=True),
    binary("parent", key=True),
    text("session", key=True),
    binary("digest", key=True),
    text("namespace", key=True),
    sqlite_with_rowid=False,
)
index(ITEMS, "session", "namespace")

EVENTS = table("events", session_key("id"), whole("seq"), text("type"), binary("payload"), real("created_at"))
index(EVENTS, "session", "namespace", "seq")

CHECKPOINTS = table(
    "checkpoints", session_key("id"), whole("arrival"), text("kind"), binary("point"), real("created_at")
)
index(CHECKPOINTS, "session", "namespace", "arrival")

# `searched` is the text case-folded and without characters that a text column refuses.
MEMORIES = table(
    "memories",
    session_key("id"),
    whole("arrival"),
    text("kind"),
    binary("text"),
    text("searched"),
    text("compaction", null=True),
    real("created_at"),
)
index(MEMORIES, "session", "namespace", "arrival")
# Memory search reads the whole namespace, newest first.
index(MEMORIES, "namespace", "id")

# How far a session is indexed, and the totals of its entries. `number` identifies its entries in the index; a
# forgotten session's row loses its name and stays until the entries are removed.
RECALL_MARKS = table(
    "recall_marks",
    [sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True)],
    text("session", "namespace"),
    whole("arrival", "entries", "words"),
    unique=("session", "namespace"),
)
index(RECALL_MARKS, "namespace")

# On SQLite a virtual table: see `app/palimpsest/storage/search_index.py`.
RECALL_WORDS = table(
    "recall_words",
    [
        sa.Column("rowid", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("words", sa.ARRAY(sa.Text), nullable=False),
    ],
)
sa.Index(None, RECALL_WORDS.c.words, postgresql_using="gin", postgresql_with={"fastupdate": "off"})

SESSION_SETTINGS = table("session_settings", session_key(), binary("payload"), sqlite_with_rowid=False)

# `day` is a UTC date, YYYY-MM-DD.
SPENDING = table(
    "spending",
    text("namespace", "day", key=True),
    whole("calls", "prompt_tokens", "completion_tokens"),
    whole("cached_tokens", null=True),
    sqlite_with_rowid=False,
)

# Marks of erased sessions that must not be stored again: HMACs that need the pepper, and no text.
TOMBSTONES = table(
    "tombstones",
    binary("mark", key=True),
    text("namespace", key=True),
    real("created_at"),
    sqlite_with_rowid=False,
)
index(TOMBSTONES, "namespace")

# Leases of the servers that share a database. A key names a piece of work and contains no conversation text.
LEASES = table("leases", text("key", key=True), text("holder"), real("expires_at"), sqlite_with_rowid=False)

# The servers of a shared database. A row is removed when its server stops, or when its `beats` stop growing.
SERVERS = table("servers", text("id", key=True), whole("beats"))

# Facts about upstream models, without conversation text. They belong to the namespace whose prompts they were
# learned from; what an upstream states itself is under the namespace "".
LEARNED_WINDOWS = table(
    "learned_windows",
    text("namespace", "upstream", "model", key=True),
    whole("tokens"),
    text("source"),
    real("learned_at"),
)

CALIBRATIONS = table(
    "calibrations",
    text("namespace", "model", key=True),
    real("ratio"),
    whole("samples"),
    real("fixed_ratio"),
    whole("fixed_samples"),
    real("saved_at"),
)

# One row: the fingerprint of the pepper that the digests of `credentials` were made with.
PEPPER = table("pepper", text("id", key=True), binary("fingerprint"))

# One row that `ping` writes to find out whether writing works.
HEARTBEAT = table("heartbeat", text("id", key=True), whole("beats"))
