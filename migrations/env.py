"""Alembic's environment: the program passes a connection, the command line a URL (`-x url=...`)."""

from __future__ import annotations

import asyncio

from alembic import context
from palimpsest.storage.migrate import with_connection
from palimpsest.storage.tables import METADATA
from sqlalchemy import Connection


def run(connection: Connection) -> None:
    """Apply every missing revision in one transaction."""
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        compare_type=True,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    url = context.get_x_argument(as_dictionary=True)["url"]
    asyncio.run(with_connection(url, run))
