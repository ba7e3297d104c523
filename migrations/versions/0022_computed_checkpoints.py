"""Checkpoints are places; what they hold, and the states of sessions, are computed when asked for.

Must not import the declared tables: a revision stays as it was when they change.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

_OF = "WHERE session = :session AND id = :id AND namespace = :namespace"
_POINT = sa.text(
    "SELECT chain FROM messages WHERE chain >= :first AND chain <= :last"
    " AND session = :session AND namespace = :namespace LIMIT 1"
)
_KEPT = sa.text(f"UPDATE checkpoints SET point = :point {_OF}")  # noqa: S608
_EVENT = sa.text(f"UPDATE events SET payload = :payload {_OF}")  # noqa: S608
# What a session brought that its messages do not show.
_BROUGHT = ("loop", "recovery", "verification", "usage")


def upgrade() -> None:
    """Keep of each checkpoint the message at which it ends, of each snapshot the one at which it was made.

    A checkpoint whose message cannot be told goes. What an import brought stays as it came: its state moves
    into the event of the restoring.
    """
    op.add_column("checkpoints", sa.Column("point", sa.LargeBinary(), nullable=True))
    connection = op.get_bind()
    for row in _rows("checkpoints", "TRUE", "kind"):
        _keep(connection, dict(row))
    restored: dict[str, int] = {}
    for row in _rows("events", "type = 'session_restored'", "seq"):
        restored[row["session"]] = max(row["seq"], restored.get(row["session"], 0))
        _bring(connection, dict(row))
    for row in _rows("events", "type = 'conversation_snapshot'", "seq"):
        if row["seq"] > restored.get(row["session"], 0):
            _point_at_head(connection, dict(row))
    op.execute("DELETE FROM checkpoints WHERE point IS NULL")
    with op.batch_alter_table("checkpoints") as table:
        table.drop_constraint("uq_checkpoints_session_kind_span_hash_namespace", type_="unique")
        for name in ("span_hash", "schema", "payload"):
            table.drop_column(name)
        table.alter_column("point", existing_type=sa.LargeBinary(), nullable=False)


def _rows(table: str, which: str, *more: str) -> list[Any]:
    """Their keys: payloads are read one at a time."""
    columns = ", ".join(("session", "id", "namespace", *more))
    found = op.get_bind().execute(sa.text(f"SELECT {columns} FROM {table} WHERE {which}"))  # noqa: S608
    return list(found.mappings())


def _payload(connection: sa.Connection, table: str, key: dict[str, Any]) -> Any:
    """The decoded payload as an object; {} for anything else."""
    raw = connection.execute(sa.text(f"SELECT payload FROM {table} {_OF}"), key).scalar()  # noqa: S608
    try:
        value = json.loads(bytes(raw))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _part(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _keep(connection: sa.Connection, row: dict[str, Any]) -> None:
    digits = str(_part(_payload(connection, "checkpoints", row), "span", "toId")).removeprefix("dcm_")
    try:
        first = bytes.fromhex(digits)
    except ValueError:
        first = b""
    if len(first) >= 12:
        ends = {"first": first, "last": first + b"\xff" * (32 - len(first))}
        if (point := connection.execute(_POINT, row | ends).scalar()) is not None:
            connection.execute(_KEPT, row | {"point": bytes(point)})
    said = json.dumps({"checkpointId": row["id"], "kind": row["kind"]}).encode()
    # Of an event of ours the payload was the checkpoint's.
    event = sa.text(f"{_EVENT.text} AND length(payload) = 0")
    connection.execute(event, row | {"payload": said})


def _bring(connection: sa.Connection, row: dict[str, Any]) -> None:
    """The state that an import wrote right before, into its event."""
    before = sa.text(
        "SELECT session, id, namespace FROM events WHERE session = :session AND namespace = :namespace"
        " AND seq = :seq - 1 AND type = 'conversation_snapshot'"
    )
    found = connection.execute(before, row).mappings().first()
    state = _payload(connection, "events", dict(found)) if found else {}
    parts = {name: state[name] for name in _BROUGHT if isinstance(state.get(name), dict)}
    if parts:
        whole = _payload(connection, "events", row) | parts
        connection.execute(_EVENT, row | {"payload": json.dumps(whole).encode()})


def _point_at_head(connection: sa.Connection, row: dict[str, Any]) -> None:
    head = _part(_payload(connection, "events", row), "transcript", "head")
    if isinstance(head, str) and len(head) == 64:
        connection.execute(_EVENT, row | {"payload": json.dumps({"point": head}).encode()})
