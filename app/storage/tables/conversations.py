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

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    true,
)

from app.storage.tables.columns import METADATA, binary, flag, moment, session_key, some, text, whole

# `proven_at` is when the upstream first answered with a 2xx (rule 26).
NAMESPACES = Table(
    "namespaces", METADATA, text("id", key=True), moment("created_at"), moment("proven_at", null=True)
)
some("ix_namespaces_unproven", NAMESPACES.c.proven_at.is_(None), NAMESPACES.c.created_at)

# `digest` is an HMAC: the credential itself is never stored (P7).
CREDENTIALS = Table(
    "credentials", METADATA, binary("digest", key=True), text("namespace"), moment("created_at")
)
Index(None, CREDENTIALS.c.namespace)

KEYS = Table(
    "keys",
    METADATA,
    *(text("id", key=True), binary("digest"), text("label"), text("namespace")),
    *(moment("created_at"), moment("revoked_at", null=True)),
    UniqueConstraint("digest"),
)

# `arrivals` is the session's counter: whatever arrives in it, and every event, draws from it. `appends`: it
# was sent only what is new; `is_side`: nothing but side requests (rule 33). Empty counts as false.
SESSIONS = Table(
    "sessions",
    METADATA,
    text("namespace", key=True),
    text("id", key=True),
    text("external_id", null=True),
    whole("epoch"),
    whole("arrivals"),
    text("found_by"),
    text("model"),
    flag("full_history"),
    moment("created_at"),
    moment("updated_at"),
    flag("appends", null=True),
    flag("is_side", null=True),
    UniqueConstraint("external_id", "namespace"),
    sqlite_with_rowid=False,
)

BODIES = Table("bodies", METADATA, binary("digest", key=True), text("namespace", key=True), binary("body"))

# The key starts with (chain, session), so that one index finds a chain in every session and a path in
# one. `preamble` names the instructions of the newest exchange that ended or began here.
MESSAGES = Table(
    "messages",
    METADATA,
    binary("chain", key=True),
    text("session", key=True),
    text("namespace", key=True),
    binary("parent"),
    binary("canonical"),
    text("role"),
    whole("tokens"),
    whole("depth"),
    whole("answers"),
    whole("arrival"),
    flag("relayed"),
    text("state"),
    flag("is_head"),
    binary("digest"),
    binary("preamble"),
    text("finish_reason", null=True),
    moment("created_at"),
    sqlite_with_rowid=False,
)
# Ends with `state` to answer "does something follow" without the row.
Index(None, *(MESSAGES.c[c] for c in ("session", "parent", "namespace", "state")))
# What arrived last in a session is found by it, and what an entry of the index of words stands for.
Index(None, MESSAGES.c.session, MESSAGES.c.namespace, MESSAGES.c.arrival)
some("ix_messages_relayed", MESSAGES.c.relayed.is_(true()), MESSAGES.c.canonical, MESSAGES.c.namespace)
some("ix_messages_heads", MESSAGES.c.is_head.is_(true()), MESSAGES.c.session, MESSAGES.c.namespace)

VARIANTS = Table(
    "variants",
    METADATA,
    binary("chain", key=True),
    text("session", key=True),
    binary("digest", key=True),
    text("namespace", key=True),
    moment("created_at"),
    sqlite_with_rowid=False,
)

# `members` packs chain digests of 32 bytes. `anchor` is the last of them, or an answer that they sum up.
REBASES = Table(
    "rebases",
    METADATA,
    binary("chain", key=True),
    text("session", key=True),
    text("namespace", key=True),
    binary("base"),
    binary("anchor"),
    binary("members"),
    whole("depth"),
    whole("answers"),
    whole("arrival"),
    flag("is_head"),
    binary("preamble"),
    moment("created_at"),
    sqlite_with_rowid=False,
)
Index(None, REBASES.c.session, REBASES.c.base, REBASES.c.namespace)
Index(None, REBASES.c.session, REBASES.c.anchor, REBASES.c.namespace)
some("ix_rebases_heads", REBASES.c.is_head.is_(true()), REBASES.c.session, REBASES.c.namespace)

# `bodies` packs body digests of 32 bytes, in order.
PREAMBLES = Table(
    "preambles",
    METADATA,
    binary("digest", key=True),
    text("session", key=True),
    text("namespace", key=True),
    binary("bodies"),
    sqlite_with_rowid=False,
)

# `partial` is the answer so far of one that is streamed: empty before, and after its end. `response_id` is
# the upstream's id of the answer, where a later request may go on from it; `answer` its place in the tree.
# `server` has it under way, where several share the database. `mark`: it is beside a conversation.
EXCHANGES = Table(
    "exchanges",
    METADATA,
    *(text("id", key=True), text("namespace", key=True)),
    *(text("session"), whole("arrival")),
    *(binary("head"), binary("base"), binary("rebase"), binary("preamble")),
    *(text("state"), text("model"), text("found_by"), text("mode")),
    text("idempotency_key", null=True),
    text("finish_reason", null=True),
    whole("status", null=True),
    text("view", null=True),
    *(whole("tokens_full", null=True), whole("tokens_forwarded", null=True)),
    text("compaction", null=True),
    *(whole(name, null=True) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")),
    *(moment("started_at"), moment("finished_at", null=True)),
    binary("partial", null=True),
    *(text("response_id", null=True), binary("answer", null=True)),
    text("server", null=True),
    text("mark", null=True),
    sqlite_with_rowid=False,
)
Index("ix_exchanges_head", *(EXCHANGES.c[c] for c in ("session", "head", "namespace", "arrival")))
# Those that a crash left open are found at the next start, or by another server.
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
COMPACTIONS = Table(
    "compactions",
    METADATA,
    text("session", key=True),
    text("id", key=True),
    text("namespace", key=True),
    whole("arrival"),
    text("kind"),
    binary("watermark"),
    binary("kept"),
    binary("masks"),
    binary("summary"),
    *(text("policy"), text("trigger"), text("author"), text("model", null=True)),
    *(whole("tokens_before"), whole("tokens_after"), whole("messages_folded")),
    *(text("parents"), text("reason"), binary("state"), binary("details")),
    *(moment("created_at"), moment("undone_at", null=True), binary("memory", null=True)),
)
Index(None, COMPACTIONS.c.session, COMPACTIONS.c.namespace, COMPACTIONS.c.arrival)
Index(None, COMPACTIONS.c.id, COMPACTIONS.c.namespace)

# A compaction that is ready and not in force yet, at most one a session, as its values; for whose `model`.
PREPARED = Table("prepared", METADATA, *session_key(), *(text("id"), text("model"), binary("payload")))

# `lifted_at`: the message is a pin by its own text, and was taken back.
PINS = Table(
    "pins",
    METADATA,
    text("session", key=True),
    binary("chain", key=True),
    text("namespace", key=True),
    whole("arrival"),
    moment("created_at"),
    moment("lifted_at", null=True),
    sqlite_with_rowid=False,
)

# What was hidden before the answer at `chain`: `messages`, and `results` of our calls in the answer where it
# was `written` with some, are JSON arrays of messages.
HIDDEN_ROUNDS = Table(
    "hidden_rounds",
    METADATA,
    text("session", key=True),
    binary("chain", key=True),
    text("namespace", key=True),
    binary("messages"),
    whole("tokens"),
    binary("written", null=True),
    binary("results", null=True),
    whole("written_tokens"),
    moment("created_at"),
)

# Items of answers by the ids that the upstream gave them: what the answer follows, and its body.
ITEMS = Table(
    "items",
    METADATA,
    text("id", key=True),
    binary("parent", key=True),
    text("session", key=True),
    binary("digest", key=True),
    text("namespace", key=True),
    sqlite_with_rowid=False,
)
Index(None, ITEMS.c.session, ITEMS.c.namespace)

EVENTS = Table(
    "events",
    METADATA,
    *session_key("id"),
    whole("seq"),
    text("type"),
    binary("payload"),
    moment("created_at"),
)
Index(None, EVENTS.c.session, EVENTS.c.namespace, EVENTS.c.seq)

CHECKPOINTS = Table(
    "checkpoints",
    METADATA,
    *session_key("id"),
    *(whole("arrival"), text("kind"), binary("span_hash"), text("schema"), binary("payload")),
    moment("created_at"),
    UniqueConstraint("session", "kind", "span_hash", "namespace"),
)
Index(None, CHECKPOINTS.c.session, CHECKPOINTS.c.namespace, CHECKPOINTS.c.arrival)

# `searched` is the text as it is looked for: in one case, and without what a text column refuses.
MEMORIES = Table(
    "memories",
    METADATA,
    *session_key("id"),
    *(whole("arrival"), text("kind"), binary("text"), text("searched")),
    *(text("compaction", null=True), moment("created_at")),
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
    *(text("session"), text("namespace")),
    *(whole("arrival"), whole("entries"), whole("words")),
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
    "session_settings", METADATA, *session_key(), binary("payload"), sqlite_with_rowid=False
)

# `day` is a UTC date, YYYY-MM-DD.
SPENDING = Table(
    "spending",
    METADATA,
    *(text("namespace", key=True), text("day", key=True)),
    *(whole("calls"), whole("prompt_tokens"), whole("completion_tokens")),
    whole("cached_tokens", null=True),
    sqlite_with_rowid=False,
)

# What is left of a session that must not come back: HMACs that only the pepper can make, and no text.
TOMBSTONES = Table(
    "tombstones",
    METADATA,
    *(binary("mark", key=True), text("namespace", key=True), moment("created_at")),
    sqlite_with_rowid=False,
)
Index(None, TOMBSTONES.c.namespace)
