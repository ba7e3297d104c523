"""How Alembic reaches the database: the program hands it a connection, the command line an address.

Must not know revisions.
"""

from __future__ import annotations

import asyncio

from alembic import context
from sqlalchemy import Connection

from app.storage.migrate import with_connection
from app.storage.tables.schema import METADATA


def run(connection: Connection) -> None:
    """Every revision still missing is applied, in one transaction."""
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
